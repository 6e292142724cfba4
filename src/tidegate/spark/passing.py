"""Queries without windows: rows pass from their source to one sink, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tidegate.connectors import Preparable, Sink, Target, for_spark, location
from tidegate.plan.channels import MAIN
from tidegate.spark.checkpoint import claim
from tidegate.spark.pacing import Pace, Pacing, now
from tidegate.spark.schema import arrow_schema

#: What is written down beside the checkpoint: there is no state that could belong to another program.
_IDENTITY = {"operator": "none", "buckets": "0"}


class PassingQuery:
    """A running query that keeps nothing. `spark` is the Spark query underneath."""

    def __init__(self, spark: StreamingQuery, passed: Counter[str], pacing: Pacing) -> None:
        self.spark = spark
        self._passed = passed
        self._pacing = pacing

    @property
    def metrics(self) -> dict[str, float]:
        """Rows since the start; every row that comes in goes out."""
        rows = self._passed["rows"]
        return {"rows_in": rows, "rows_out": rows} | self._pacing.metrics()

    @property
    def watermarks(self) -> dict[str, datetime | None]:
        return {}

    @property
    def is_active(self) -> bool:
        return bool(self.spark.isActive)

    def await_termination(self) -> None:
        self.spark.awaitTermination()

    def stop(self) -> None:
        self.spark.stop()


def start_passing(
    rows: DataFrame,
    checkpoint: str,
    sink: Sink,
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    pace: Pace | None = None,
) -> PassingQuery:
    """Start a query that writes the rows as they are."""
    checkpoint = location(checkpoint)
    target = Target(claim(checkpoint, _IDENTITY), MAIN, arrow_schema(rows))
    write = sink.prepare(target) if isinstance(sink, Preparable) else sink
    passed = Counter[str]()
    pacing = Pacing.of([rows], pace, checkpoint)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        begun = now()
        batch.persist()
        try:
            count = batch.count()
            if count:
                write(batch, batch_id)
        finally:
            batch.unpersist()
        passed["rows"] += count
        pacing.observe(count, begun)

    stream = rows.writeStream.foreachBatch(write_batch)
    stream = stream.option("checkpointLocation", for_spark(checkpoint))
    stream = stream.trigger(**trigger) if trigger else stream
    stream = stream.queryName(name) if name else stream
    pacing.begin()
    running = PassingQuery(stream.start(), passed, pacing)
    pacing.hold(lambda: running.is_active)
    return running
