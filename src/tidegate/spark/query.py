"""Running queries: one Spark query whose packed rows leave through a sink per channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tidegate.connectors import Preparable, Sink, Target, Write, location
from tidegate.errors import ChannelError, StartError, did_you_mean
from tidegate.observe.metrics import Metrics
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, WINDOW_COLUMNS, Emit
from tidegate.plan.policies import Retracting
from tidegate.spark.checkpoint import claim, stored_identity
from tidegate.spark.lower import Lowered, lower
from tidegate.spark.session import prepare_session


class Query:
    """A running query. `spark` is the Spark query underneath, for everything Spark offers."""

    def __init__(self, spark: StreamingQuery, metrics: Metrics) -> None:
        self.spark = spark
        self._metrics = metrics

    @property
    def metrics(self) -> dict[str, int]:
        """Every counter since the start: rows in and out, late rows by fate, errors, unassigned."""
        return self._metrics.totals()

    @property
    def is_active(self) -> bool:
        return bool(self.spark.isActive)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; False if the timeout (in seconds) came first. Raises what stopped it."""
        if timeout is None:
            self.spark.awaitTermination()
            return True
        return bool(self.spark.awaitTermination(timeout))  # type: ignore[arg-type]

    def process_all_available(self) -> None:
        """Wait until everything the sources have now is processed."""
        self.spark.processAllAvailable()

    def stop(self) -> None:
        """End the query. What is open stays open for the next start from the checkpoint."""
        self.spark.stop()


def start(
    plan: Emit,
    df: DataFrame,
    checkpoint: str,
    sinks: Mapping[str, Sink],
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    buckets: int | None = None,
) -> Query:
    """Start the plan with a sink per channel."""
    _check_channels(plan, sinks)
    if not df.isStreaming:
        raise StartError("start() runs streams; write a batch result with to_df().write")
    prepare_session(df)
    checkpoint = location(checkpoint)
    stored = stored_identity(checkpoint)
    if stored and buckets is None:
        buckets = int(stored["buckets"])  # state stays where it is, whatever the session's partitions
    lowered = lower(plan, df, buckets)
    query = claim(checkpoint, lowered.identity)
    writes = {name: _prepared(sink, _target(lowered.plan, name, query)) for name, sink in sinks.items()}
    metrics = Metrics()
    writer = (
        lowered.packed.writeStream.foreachBatch(_writer(lowered, writes, metrics))
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
    )
    writer = writer.trigger(**trigger) if trigger else writer
    writer = writer.queryName(name) if name else writer
    return Query(writer.start(), metrics)


def _target(plan: Emit, channel: str, query: str) -> Target:
    """What the sink of a channel is told: results are told apart by key and window, others not."""
    schema = plan.channels[channel]
    if channel != MAIN:
        return Target(query, channel, schema)
    keys = plan.input.input.input.keys
    identity = (*keys, *(field.name for field in WINDOW_COLUMNS))
    return Target(query, channel, schema, identity, isinstance(plan.emission, Retracting))


def _prepared(sink: Sink, target: Target) -> Write:
    return sink.prepare(target) if isinstance(sink, Preparable) else sink


def _writer(lowered: Lowered, writes: Mapping[str, Write], metrics: Metrics) -> Any:
    def write(packed: DataFrame, batch_id: int) -> None:
        # Several channels are written from one computation: without this each would run it again.
        packed.persist()
        try:
            found = packed.select("channel", "rows").collect()
            counts = metrics.record(batch_id, [(row[0], row[1]) for row in found])
            for channel, write_rows in writes.items():
                if counts[channel]:
                    write_rows(lowered.channel(channel, packed), batch_id)
        finally:
            packed.unpersist()

    return write


def _check_channels(plan: Emit, sinks: Mapping[str, Sink]) -> None:
    for channel, sink in sinks.items():
        if channel not in plan.channels:
            raise ChannelError(f"no channel {channel!r}; {did_you_mean(channel, plan.channels)}")
        if not (callable(sink) or isinstance(sink, Preparable)):
            raise ChannelError(
                f"the sink of channel {channel!r} is {sink!r}; use tg.sinks, for instance "
                "tg.sinks.parquet('out'), or a function (rows, batch_id)"
            )
    for channel in plan.channels:
        if channel not in sinks and channel != ERROR_CHANNEL:
            hint = "main=tg.sinks.parquet('out')" if channel == MAIN else f"{channel}=tg.sinks.discard()"
            raise ChannelError(f"channel {channel!r} has no sink; pass one, for instance {hint}")
