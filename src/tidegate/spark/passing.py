"""Queries without windows: rows pass from their source to one sink, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from tidegate.connectors import Preparable, Sink, Target, Write, for_spark, location
from tidegate.dataflow.identity import Identity
from tidegate.plan.channels import ERROR_CHANNEL, ERRORS, MAIN
from tidegate.spark.checkpoint import claim
from tidegate.spark.invalid_rows import invalid, is_invalid, valid
from tidegate.spark.pacing import Pace, Pacing, now
from tidegate.spark.schema import arrow_schema

#: What is written down beside the checkpoint: there is no state that could belong to another program.
_IDENTITY = Identity(buckets=0, state_format=0, operators={})

#: Of so many batches it is known what each wrote: Spark tells of as many.
_REMEMBERED = 100


@dataclass
class PassingWriter:
    """The rows of a micro-batch, into the sinks: those that cannot be used go to that of errors."""

    writes: Mapping[str, Write]
    pacing: Pacing
    counts: Counter[str] = field(default_factory=Counter)
    rows_out: dict[int, int] = field(default_factory=dict)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        begun = now()
        batch.persist()
        try:
            found = self._write(batch, batch_id)
        finally:
            batch.unpersist()
        self.counts += found
        self.rows_out[batch_id] = found[MAIN]
        for old in sorted(self.rows_out)[:-_REMEMBERED]:
            del self.rows_out[old]
        self.pacing.observe(found.total(), begun)

    def _write(self, batch: DataFrame, batch_id: int) -> Counter[str]:
        lost = is_invalid(batch)
        counted = batch.agg(F.count_if(~lost), F.count_if(lost)).collect()
        counts = Counter(dict(zip((MAIN, ERROR_CHANNEL), counted[0], strict=True)))
        if counts[MAIN]:
            self.writes[MAIN](valid(batch), batch_id)
        if counts[ERROR_CHANNEL] and ERROR_CHANNEL in self.writes:
            self.writes[ERROR_CHANNEL](invalid(batch), batch_id)
        return counts


class PassingQuery:
    """A running query that keeps nothing. `spark` is the Spark query underneath."""

    def __init__(self, spark: StreamingQuery, writer: PassingWriter) -> None:
        self.spark = spark
        self._writer = writer

    @property
    def metrics(self) -> dict[str, float]:
        """Rows since the start; every row that comes in goes out, or to the errors."""
        counts = self._writer.counts
        told: dict[str, float] = {
            "rows_in": counts.total(),
            "errors": counts[ERROR_CHANNEL],
            "rows_out": counts[MAIN],
        }
        told |= {f"rows_out.{ERROR_CHANNEL}": counts[ERROR_CHANNEL]} if counts[ERROR_CHANNEL] else {}
        return told | self._writer.pacing.metrics()

    def rows_out_in(self, batch_id: int) -> int | None:
        """How many rows a micro-batch wrote, if it was one of the last hundred."""
        return self._writer.rows_out.get(batch_id)

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
    sinks: Mapping[str, Sink],
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    pace: Pace | None = None,
) -> PassingQuery:
    """Start a query that writes the rows as they are: to the main sink, or to that of errors."""
    checkpoint = location(checkpoint)
    schemas = {MAIN: arrow_schema(valid(rows)), ERROR_CHANNEL: ERRORS}
    query = claim(checkpoint, _IDENTITY)
    writes = {
        channel: sink.prepare(Target(query, channel, schemas[channel]))
        if isinstance(sink, Preparable)
        else sink
        for channel, sink in sinks.items()
    }
    pacing = Pacing.of([rows], pace, checkpoint)
    writer = PassingWriter(writes, pacing)
    stream = rows.writeStream.foreachBatch(writer)
    stream = stream.option("checkpointLocation", for_spark(checkpoint))
    stream = stream.trigger(**trigger) if trigger else stream
    stream = stream.queryName(name) if name else stream
    pacing.begin()
    running = PassingQuery(stream.start(), writer)
    pacing.hold(lambda: running.is_active)
    return running
