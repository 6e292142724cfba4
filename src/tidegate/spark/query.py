"""Running queries: one Spark query whose packed rows leave through a sink per channel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tidegate.connectors import (
    FileSink,
    Preparable,
    Sink,
    TableSink,
    Target,
    Write,
    for_spark,
    location,
)
from tidegate.dataflow import Dataflow, compile
from tidegate.errors import ChannelError, StartError, did_you_mean
from tidegate.observe.metrics import BatchCounts, Metrics
from tidegate.operators.messages import FACTS, Message
from tidegate.optimize import optimize
from tidegate.plan.channels import ERROR_CHANNEL, LATE_COLUMNS, MAIN, REJECTED, REJECTED_COLUMNS
from tidegate.plan.counters import ROWS_IN
from tidegate.plan.nodes import Plan
from tidegate.plan.steps import Fusion, Policy
from tidegate.spark.checkpoint import (
    ProgressNote,
    check_state_is_readable,
    claim,
    held_batches,
    is_readable,
    last_batch,
    last_begun,
    stored_format,
    stored_identity,
)
from tidegate.spark.drain import Drain, Drained
from tidegate.spark.inspection import snapshot_of
from tidegate.spark.interruption import told_in_short
from tidegate.spark.load import Decisions, Shedding
from tidegate.spark.lower import Lowered, counted_as, is_output, lower
from tidegate.spark.ownership import Ownership
from tidegate.spark.pacing import Pace, Pacing, now
from tidegate.spark.repair import check_whole, refuse_unfinished, replay
from tidegate.spark.session import SAFE_FORMAT, prepare_session, refuse_speculation, state_format
from tidegate.spark.summary import StateSummary

#: How long a batch that came after the end waits for the query to be stopped; it takes moments.
_LONGEST_STOP = timedelta(minutes=10)

Select = Callable[[DataFrame], DataFrame]


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
    ownership: Ownership
    #: What is written of the results, if not all of them: rows are counted after it.
    selects: Select | None = None
    #: The last batch that an earlier run has begun. Its rows may be in the sinks, under its number.
    begun_before: int = -1
    _last: int = -1
    _ended: bool = False
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        with told_in_short():
            self._take(packed, batch_id)

    def _take(self, packed: DataFrame, batch_id: int) -> None:
        with self._lock:
            if not self._ended:
                self._write(packed, batch_id)
                return
        _wait_to_be_stopped(packed)
        raise StartError("the query is being drained: this batch belongs to the next start")

    def _write(self, packed: DataFrame, batch_id: int) -> None:
        self.ownership.check()
        self._last, begun = batch_id, now()
        self.summary.begin(batch_id)
        # Several channels are written from one computation: without this each would run it again.
        packed.persist()
        try:
            counts = self._write_channels(packed, batch_id)
        finally:
            packed.unpersist()
        self.summary.write(batch_id)
        if self.progress is not None:
            self.progress.write(self.metrics.sources.note())
        rows = counts.counters[ROWS_IN]
        if self.shedding is not None:
            told = self.shedding.after(batch_id, self.metrics.load, rows, now() - begun)
            self.pacing.throttle(told.throttle)
        self.pacing.observe(rows, begun)

    @cached_property
    def summary(self) -> StateSummary:
        """What the query keeps, for those who ask without Spark."""
        return StateSummary(self.checkpoint, self.metrics)

    def end(self, is_active: Callable[[], bool]) -> None:
        """Let the batch that is being written be written and committed, and none after it."""
        self._wait_for(self.begun_before, lambda: max(self._last, self._committed()), is_active)
        with self._lock:
            self._ended = True
        self._wait_for(self._last, self._committed, is_active)

    @property
    def last(self) -> int:
        """The batch that was written last, or is being written; -1 before the first."""
        return self._last

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

    def _write_channels(self, packed: DataFrame, batch_id: int) -> BatchCounts:
        """The rows of each channel, written. Counted is what sinks write."""
        counted, results = packed, None
        if self.selects is not None:
            # Kept for the sink, which selects again: so results are unpacked once.
            results = self.lowered.channel(MAIN, packed).persist()
            leaving = counted_as(MAIN, self.selects(results))
            counted = packed.where(~is_output(MAIN)).unionAll(leaving)
        try:
            facts = counted.select(*FACTS).collect()
            at = time.time_ns() // 1000
            self.ownership.check()  # once more: the batch has been computed meanwhile
            messages = (Message(**row.asDict(recursive=True)) for row in facts)
            counts = self.metrics.record(batch_id, messages, at)
            for channel, write in self.writes.items():
                if counts.rows[channel]:
                    kept = channel == MAIN and results is not None
                    write(results if kept else self.lowered.channel(channel, packed), batch_id)
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

    def __repr__(self) -> str:
        reached = self._writer.metrics.reached
        facts = [
            _state(self.spark),
            "no batch yet" if self._writer.last < 0 else f"batch {self._writer.last}",
            f"watermark {_instant(reached):%Y-%m-%d %H:%M:%S}" if reached else "no watermark yet",
        ]
        return f"<Query {', '.join(facts)}>"

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
        try:
            if timeout is None:
                self.spark.awaitTermination()
                return True
            return bool(self.spark.awaitTermination(timeout))  # type: ignore[arg-type]
        finally:
            self._note_end()

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
            self._note_end()
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
        self._writer.ownership.check()
        self._drain.run()
        self._note_end()

    def _note_end(self) -> None:
        """Let `tidegate repair` know, which leaves queries alone that run."""
        if not self.is_active:
            with suppress(OSError):
                self._writer.ownership.end()


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
    selects: Select | None = None,
) -> Query:
    """Start the plan with a sink per channel; the main one writes what `selects` leaves of results."""
    dataflow = compile(optimize(plan, fusion))
    _check_channels(dataflow, sinks)
    if not frames[0].isStreaming:
        raise StartError("start() runs streams; write a batch result with to_df().write")
    prepare_session(frames[0])
    checkpoint = location(checkpoint)
    refuse_unfinished(checkpoint)
    spark, stored = frames[0].sparkSession, stored_format(checkpoint)
    with state_format(spark, stored or SAFE_FORMAT) as used:
        refuse_speculation(spark, checkpoint, used)
        if stored is not None and stored < SAFE_FORMAT and is_readable(checkpoint):
            check_whole(spark, checkpoint)
        starting = _Starting.of(dataflow, frames, checkpoint, sinks, buckets, pace, selects)
        return starting.start(trigger, name)


@dataclass
class _Starting:
    """A query on its way: all that it is made of, while the checkpoint is still another's."""

    lowered: Lowered
    checkpoint: str
    sinks: Mapping[str, Sink]
    writes: Mapping[str, Write]
    ownership: Ownership
    progress: ProgressNote | None
    policy: Policy | None
    frames: Sequence[DataFrame]
    pace: Pace | None
    selects: Select | None

    @classmethod
    def of(
        cls,
        dataflow: Dataflow,
        frames: Sequence[DataFrame],
        checkpoint: str,
        sinks: Mapping[str, Sink],
        buckets: int | None,
        pace: Pace | None,
        selects: Select | None,
    ) -> _Starting:
        """Check that everything fits: a start that does not fit leaves whoever runs alone."""
        stored = stored_identity(checkpoint)
        if stored and buckets is None:
            # State stays where it is, whatever the session's partitions; a query without any has none.
            buckets = stored.buckets or None
        progress = ProgressNote(checkpoint) if dataflow.may_be_idle else None
        policy = dataflow.shedding
        ownership = Ownership.next(checkpoint)
        lowered = lower(
            dataflow,
            frames,
            buckets,
            progress=progress.path if progress else None,
            decisions=Decisions(checkpoint) if policy else None,
            ownership=ownership,
            all_leave=selects is None,
        )
        query = claim(checkpoint, lowered.identity)
        replayed = Drained.of(checkpoint).number_of(max(held_batches(checkpoint), default=-1))
        writes = {
            name: _prepared(sink, _target(dataflow, name, query, replayed))
            for name, sink in sinks.items()
        }
        return cls(
            lowered, checkpoint, sinks, writes, ownership, progress, policy, frames, pace, selects
        )

    def start(self, trigger: Mapping[str, Any] | None, name: str | None) -> Query:
        """Become the owner of the checkpoint, and run."""
        self.ownership.take({channel: _described(sink) for channel, sink in self.sinks.items()})
        try:
            return self._run(trigger, name)
        except BaseException:
            self.ownership.release()
            raise

    def _run(self, trigger: Mapping[str, Any] | None, name: str | None) -> Query:
        checkpoint, lowered, writes = self.checkpoint, self.lowered, self.writes
        if self.progress is not None:
            self.progress.clear()
        metrics, drain = Metrics(lowered.dataflow), None
        if list(lowered.dataflow.outputs) == [MAIN]:
            spark = self.frames[0].sparkSession
            drain = Drain(lowered, spark, Drained.of(checkpoint), writes[MAIN])
            drain.resume()
            writes = drain.between(writes, lambda: metrics.passed)
        shedding = Shedding.of(self.policy, checkpoint) if self.policy else None
        pacing = Pacing.of(self.frames, self.pace, checkpoint)
        writer = BatchWriter(
            lowered,
            writes,
            checkpoint,
            metrics,
            self.progress,
            shedding,
            pacing,
            self.ownership,
            self.selects,
        )
        pacing.begin()
        # The trigger that runs one batch: Spark replays the last one that it has begun, and no other.
        once = {"once": True}
        replay(checkpoint, lambda: self._stream(writer, once, name).start().awaitTermination())
        writer.begun_before = last_begun(checkpoint)
        running = Query(self._stream(writer, trigger, name).start(), writer, drain)
        pacing.hold(lambda: running.is_active)
        return running

    def _stream(
        self, writer: BatchWriter, trigger: Mapping[str, Any] | None, name: str | None
    ) -> DataStreamWriter:
        stream = (
            self.lowered.packed.writeStream.foreachBatch(writer)
            .option("checkpointLocation", for_spark(self.checkpoint))
            .outputMode("append")
        )
        stream = stream.trigger(**trigger) if trigger else stream
        return stream.queryName(name) if name else stream


def _described(sink: Sink) -> str:
    """A sink as the owner's note has it: nothing that could be a secret, as a database's address."""
    match sink:
        case FileSink(path, format):
            return f"{format} files in {path}"
        case TableSink(database, table):
            return f"{database.name} table {table}"
        case _:
            return type(sink).__name__


def _state(query: StreamingQuery) -> str:
    """What a query is called, and what it does; whoever asks may do so after the session's end."""
    try:
        state = "running" if query.isActive else "ended" if query.exception() is None else "failed"
        return f"{query.name or query.id}: {state}"
    except (Py4JError, OSError):
        return "of a session that has ended"


def _wait_to_be_stopped(packed: DataFrame) -> None:
    """Sleep in the thread of Spark's query, which a stop interrupts.

    Spark takes that interruption for what it is, and any other error for a failure of the query. To come
    back without one would be to say that the batch was written.
    """
    jvm = packed.sparkSession._jvm
    assert jvm is not None
    jvm.java.lang.Thread.sleep(_LONGEST_STOP // timedelta(milliseconds=1))


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def _target(dataflow: Dataflow, channel: str, query: str, replayed: int) -> Target:
    """What the sink of a channel is told: results are told apart by key and window, rows are not."""
    schema, vertex = dataflow.channels[channel], dataflow.outputs.get(channel)
    if vertex is None or vertex.operator.by_row:
        durations = _added_durations(dataflow, channel)
        return Target(query, channel, schema, durations=durations, replayed=replayed)
    results = vertex.operator
    return Target(query, channel, schema, results.result_key, results.retracts, replayed=replayed)


def _added_durations(dataflow: Dataflow, channel: str) -> tuple[str, ...]:
    """The intervals among the columns that a channel adds to rows."""
    added: tuple[pa.Field, ...] = REJECTED_COLUMNS if channel == REJECTED else ()
    if channel in dataflow.late_channels:
        added = LATE_COLUMNS
    return tuple(field.name for field in added if pa.types.is_duration(field.type))


def _prepared(sink: Sink, target: Target) -> Write:
    return sink.prepare(target) if isinstance(sink, Preparable) else sink


def _check_channels(dataflow: Dataflow, sinks: Mapping[str, Sink]) -> None:
    for channel, sink in sinks.items():
        if channel not in dataflow.channels:
            raise ChannelError(f"no channel {channel!r}; {did_you_mean(channel, dataflow.channels)}")
        if not (callable(sink) or isinstance(sink, Preparable)):
            raise ChannelError(
                f"the sink of channel {channel!r} is {sink!r}; use tg.sinks, for instance "
                "tg.sinks.parquet('out'), or a function (rows, batch_id)"
            )
    for channel in dataflow.channels:
        if channel not in sinks and channel != ERROR_CHANNEL:
            hint = "main=tg.sinks.parquet('out')" if channel == MAIN else f"{channel}=tg.sinks.discard()"
            raise ChannelError(f"channel {channel!r} has no sink; pass one, for instance {hint}")
