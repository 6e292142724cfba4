"""Running queries: one Spark query whose packed rows leave through a sink per channel."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from tidegate.connectors import Preparable, Sink, Target, Write, for_spark, location
from tidegate.errors import ChannelError, StartError, did_you_mean
from tidegate.observe.metrics import Metrics
from tidegate.operators.kernel import ROWS_IN
from tidegate.plan.channels import ERROR_CHANNEL, LATE_COLUMNS, MAIN, REJECTED, REJECTED_COLUMNS
from tidegate.plan.nodes import Plan, Together, outlets_of, sources_of, stages_of
from tidegate.plan.stages import late_channels
from tidegate.plan.steps import Fusion
from tidegate.plan.windowing import Emit
from tidegate.spark.checkpoint import ProgressNote, check_state_is_readable, claim, stored_identity
from tidegate.spark.drain import Drain, Drained, last_batch, last_begun
from tidegate.spark.inspection import snapshot_of
from tidegate.spark.load import Decisions, Shedding, shedding_policy
from tidegate.spark.lower import Lowered, counted_as, lower
from tidegate.spark.pacing import Pace, Pacing, now
from tidegate.spark.session import prepare_session

#: How long a batch that came after the end waits for the query to be stopped; it takes moments.
_LONGEST_STOP = timedelta(minutes=10)


@dataclass
class BatchWriter:
    """What a micro-batch put out, into the sink of each channel."""

    lowered: Lowered
    writes: Mapping[str, Write]
    checkpoint: str
    metrics: Metrics
    progress: ProgressNote | None
    shedding: Shedding | None
    pacing: Pacing
    #: Which results go to the main sink, in Spark SQL; all if it is not given.
    having: str | None = None
    #: The last batch that an earlier run has begun. Its rows may be in the sinks, under its number.
    begun_before: int = -1
    _last: int = -1
    _ended: bool = False
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        with self._lock:
            if not self._ended:
                self._write(packed, batch_id)
                return
        _wait_to_be_stopped(packed)
        raise StartError("the query is being drained: this batch belongs to the next start")

    def _write(self, packed: DataFrame, batch_id: int) -> None:
        self._last, begun = batch_id, now()
        # Several channels are written from one computation: without this each would run it again.
        packed.persist()
        try:
            counts = self._write_channels(packed, batch_id)
        finally:
            packed.unpersist()
        if self.progress is not None:
            self.progress.write(self.metrics.sources.note())
        rows = counts[ROWS_IN]
        if self.shedding is not None:
            told = self.shedding.after(batch_id, self.metrics.load, rows, now() - begun)
            self.pacing.throttle(told.throttle)
        self.pacing.observe(rows, begun)

    def end(self, is_active: Callable[[], bool]) -> None:
        """Let the batch that is being written be written and committed, and none after it."""
        self._wait_for(self.begun_before, lambda: max(self._last, self._committed()), is_active)
        with self._lock:
            self._ended = True
        self._wait_for(self._last, self._committed, is_active)

    def _committed(self) -> int:
        return last_batch(self.checkpoint)

    def _wait_for(self, batch: int, reached: Callable[[], int], is_active: Callable[[], bool]) -> None:
        while reached() < batch and is_active():
            time.sleep(0.01)
        if reached() < batch:
            raise StartError(
                f"batch {batch} may have been written, and the query ended before it was committed: "
                "start it again from its checkpoint, and drain it then"
            )

    def _write_channels(self, packed: DataFrame, batch_id: int) -> Counter[str]:
        """The rows of each channel, written. Counted is what sinks are given."""
        counted, results = packed.select("bucket", "channel", "rows"), None
        if self.having is not None:
            # Kept for the sink: what is counted is what is written, and it is computed once.
            results = self.lowered.channel(MAIN, packed).where(self.having).persist()
            counted = counted.where(counted.channel != MAIN).unionAll(counted_as(MAIN, results))
        try:
            found = counted.collect()
            at = time.time_ns() // 1000
            counts = self.metrics.record(batch_id, [(row[0], row[1], row[2]) for row in found], at)
            for channel, write in self.writes.items():
                if counts[channel]:
                    filtered = channel == MAIN and results is not None
                    write(results if filtered else self.lowered.channel(channel, packed), batch_id)
        finally:
            if results is not None:
                results.unpersist()
        return counts


class Query:
    """A running query. `spark` is the Spark query underneath, for everything Spark offers."""

    def __init__(self, spark: StreamingQuery, writer: BatchWriter, drain: Drain | None) -> None:
        self.spark = spark
        self._writer = writer
        self._drain = drain

    @property
    def metrics(self) -> dict[str, float]:
        """Every counter since the start: rows in and out, late rows by fate, errors, unassigned.

        Where load is shed, beside them the score of the last batch, its parts and what came of it;
        where batches are held to a pace, how many rows they are to have, and why.
        """
        writer = self._writer
        shedding = writer.shedding.coordinator.metrics() if writer.shedding else {}
        return writer.metrics.totals() | shedding | writer.pacing.metrics()

    def rows_out_in(self, batch_id: int) -> int | None:
        """How many results a micro-batch put out, if it was one of the last hundred."""
        return self._writer.metrics.rows_out_in(batch_id)

    @property
    def watermarks(self) -> dict[str, datetime | None]:
        """The watermark each operator works by: that of the sources, less what is held back above it."""
        return {name: _instant(at) for name, at in self._writer.metrics.watermarks().items()}

    def snapshot(self) -> bytes:
        """The state of the running fold that the query ends in, as of its last committed batch.

        Equal states are equal bytes; `tg.read_snapshot` reads them.
        """
        writer = self._writer
        return snapshot_of(writer.lowered.packed.sparkSession, writer.checkpoint)

    @property
    def is_active(self) -> bool:
        """Whether it runs still: neither stopped, nor failed, nor done."""
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

    def stop(self, *, drain: bool = False) -> None:
        """End the query. What is open stays open for the next start from the checkpoint.

        With `drain` it goes to the main sink as well, in the order of event time, as if the stream
        had ended. The checkpoint does not change by it: after the next start results that are out
        come again only where they have changed.
        """
        if not drain:
            self.spark.stop()
            return
        if self._drain is None:
            raise StartError(
                "stop(drain=True) of results side by side: only queries of one result can be drained; "
                "stop without it, and what is open stays open for the next start"
            )
        check_state_is_readable(self._writer.checkpoint)
        try:
            self._writer.end(lambda: self.is_active)
        finally:
            self.spark.stop()  # in any case: a batch may be waiting for it
        self._drain.run()


def start(
    plan: Plan,
    frames: Sequence[DataFrame],
    checkpoint: str,
    sinks: Mapping[str, Sink],
    *,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    buckets: int | None = None,
    pace: Pace | None = None,
    fusion: Fusion | None = None,
    having: str | None = None,
) -> Query:
    """Start the plan with a sink per channel; the main one gets the results that meet `having`."""
    _check_channels(plan, sinks)
    if not frames[0].isStreaming:
        raise StartError("start() runs streams; write a batch result with to_df().write")
    prepare_session(frames[0])
    checkpoint = location(checkpoint)
    stored = stored_identity(checkpoint)
    if stored and buckets is None:
        # State stays where it is, whatever the session's partitions; a query without any has none.
        buckets = int(stored["buckets"]) or None
    progress = ProgressNote(checkpoint) if _may_be_idle(plan) else None
    policy = shedding_policy(plan)
    lowered = lower(
        plan,
        frames,
        buckets,
        fusion=fusion,
        progress=progress.path if progress else None,
        decisions=Decisions(checkpoint) if policy else None,
        all_leave=having is None,
    )
    query = claim(checkpoint, lowered.identity)
    if progress is not None:
        progress.clear()
    writes = {name: _prepared(sink, _target(lowered.plan, name, query)) for name, sink in sinks.items()}
    metrics, drain = Metrics(lowered.plan), None
    if not isinstance(lowered.plan, Together):
        spark = frames[0].sparkSession
        drain = Drain(lowered, lowered.plan, spark, Drained.of(checkpoint), writes[MAIN])
        drain.resume()
        writes = drain.between(writes, lambda: metrics.passed)
    shedding = Shedding.of(policy, checkpoint) if policy else None
    pacing = Pacing.of(frames, pace, checkpoint)
    begun = last_begun(checkpoint)
    writer = BatchWriter(lowered, writes, checkpoint, metrics, progress, shedding, pacing, having, begun)
    stream = (
        lowered.packed.writeStream.foreachBatch(writer)
        .option("checkpointLocation", for_spark(checkpoint))
        .outputMode("append")
    )
    stream = stream.trigger(**trigger) if trigger else stream
    stream = stream.queryName(name) if name else stream
    pacing.begin()
    running = Query(stream.start(), writer, drain)
    pacing.hold(lambda: running.is_active)
    return running


def _wait_to_be_stopped(packed: DataFrame) -> None:
    """Sleep in the thread of Spark's query, which a stop interrupts.

    Spark takes that interruption for what it is, and any other error for a failure of the query. To come
    back without one would be to say that the batch was written.
    """
    jvm = packed.sparkSession._jvm
    assert jvm is not None
    jvm.java.lang.Thread.sleep(_LONGEST_STOP // timedelta(milliseconds=1))


def _may_be_idle(plan: Plan) -> bool:
    return any(source.idle_after is not None for source in sources_of(plan))


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def _target(plan: Plan, channel: str, query: str) -> Target:
    """What the sink of a channel is told: results are told apart by key and window, rows are not."""
    schema, results = plan.channels[channel], outlets_of(plan).get(channel)
    if not isinstance(results, Emit) or results.by_row:
        return Target(query, channel, schema, durations=_added_durations(plan, channel))
    return Target(query, channel, schema, results.identity, results.retracts)


def _added_durations(plan: Plan, channel: str) -> tuple[str, ...]:
    """The intervals among the columns that a channel adds to rows."""
    added: tuple[pa.Field, ...] = REJECTED_COLUMNS if channel == REJECTED else ()
    if channel in late_channels(stages_of(plan)):
        added = LATE_COLUMNS
    return tuple(field.name for field in added if pa.types.is_duration(field.type))


def _prepared(sink: Sink, target: Target) -> Write:
    return sink.prepare(target) if isinstance(sink, Preparable) else sink


def _check_channels(plan: Plan, sinks: Mapping[str, Sink]) -> None:
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
