"""Queries: open the checkpoint, put the program on Spark, write its batches, watch it run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tidegate.connectors import for_spark
from tidegate.dataflow import Dataflow, compile
from tidegate.errors import StartError
from tidegate.optimize import optimize
from tidegate.plan.nodes import Plan
from tidegate.spark.batch_writer import BatchWriter, Flow
from tidegate.spark.checkpoint.inspection import snapshot_of
from tidegate.spark.checkpoint.metadata import (
    ProgressFile,
    batches_to_replay,
    is_readable,
    last_begun,
    refuse_drained,
    register_query,
    stored_format,
    stored_identity,
    stored_operator,
)
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.checkpoint.repair import check_whole, refuse_unfinished, replay
from tidegate.spark.drain import check_can_be_drained, complete_drain, drain
from tidegate.spark.load_shedding import Decisions, Shedding
from tidegate.spark.lower import TaskSettings, lower
from tidegate.spark.pass_through import PassThrough
from tidegate.spark.rate_control import RateControl
from tidegate.spark.session import (
    SAFE_FORMAT,
    SPARK_ERRORS,
    prepare_session,
    refuse_speculation,
    state_format,
)
from tidegate.spark.start_options import StartOptions
from tidegate.spark.versions import ADMISSION_CONTROL, STATE_FORMAT

#: The trigger that runs one batch: Spark replays the last one that it has begun, and no other.
_ONE_BATCH = {"once": True}


class Query:
    """A running query. `spark` is the Spark query underneath, for everything Spark offers."""

    def __init__(self, spark: StreamingQuery, writer: BatchWriter) -> None:
        self.spark = spark
        self._writer = writer

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
        """The watermark each operator works by: that of the sources, less what is held back above it.

        A program that only passes rows has no operators.
        """
        return {name: _instant(at) for name, at in self._writer.metrics.watermarks().items()}

    def snapshot(self) -> bytes:
        """The state of the running fold that the query ends in, as of its last committed batch.

        Equal states are equal bytes; `tg.read_snapshot` reads them. A query without a running fold
        raises a `StateError`.
        """
        writer = self._writer
        return snapshot_of(writer.flow.packed.sparkSession, writer.checkpoint)

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

        With `drain` the query emits what is open first, in event-time order, as if the stream had
        ended. The checkpoint is finished then: a later start on it raises `CheckpointDrained`.
        """
        if drain:
            self._drain()
        else:
            self.spark.stop()
        self._note_end()

    def _drain(self) -> None:
        check_can_be_drained(self._writer)
        try:
            self._writer.end(lambda: self.is_active)
        finally:
            self.spark.stop()  # in any case: a batch may be waiting for it
        self._writer.ownership.check()
        drain(self._writer)

    def _note_end(self) -> None:
        """Let `tidegate repair` know, which leaves queries alone that run."""
        if not self.is_active:
            with suppress(OSError):
                self._writer.ownership.end()


# -- starting -------------------------------------------------------------------------------------


def start(plan: Plan, frames: Sequence[DataFrame], options: StartOptions) -> Query:
    """Start a plan over the rows of its sources."""
    dataflow = compile(optimize(plan, options.fusion))
    options.check_sinks(dataflow)
    if not frames[0].isStreaming:
        raise StartError("start() runs streams; write a batch result with to_df().write")
    prepare_session(frames[0])
    _refuse_unusable(options.checkpoint)
    waits = dataflow.may_be_idle and len(dataflow.sources) > 1  # a single one waits for nobody
    if waits and (options.trigger or {}).get("availableNow"):
        ADMISSION_CONTROL.require(
            "idle_after with the trigger availableNow",
            "leave idle_after out, or start the query with another trigger",
            StartError,
        )
    with _stored_state(frames[0].sparkSession, options.checkpoint):
        ownership = Ownership.next(options.checkpoint)
        lowered = lower(
            dataflow,
            frames,
            _buckets(options),
            _surroundings(dataflow, options.checkpoint, ownership),
            all_leave=options.selects is None,
        )
        return _launch(lowered, frames, options, ownership)


def start_pass_through(rows: DataFrame, options: StartOptions) -> Query:
    """Start a program without operators: rows go to the main sink as they are, or to that of errors."""
    passing = PassThrough.of(rows)
    options.check_sinks(passing.dataflow)
    _refuse_unusable(options.checkpoint)
    return _launch(passing, [rows], options, Ownership.next(options.checkpoint))


def _refuse_unusable(checkpoint: str) -> None:
    refuse_drained(checkpoint)
    refuse_unfinished(checkpoint)


@contextmanager
def _stored_state(spark: SparkSession, checkpoint: str) -> Iterator[None]:
    """Let a query that is started meanwhile go on with its state, in the format that it has."""
    stored = stored_format(checkpoint)
    with state_format(spark, stored or STATE_FORMAT) as used:
        refuse_speculation(spark, checkpoint, used)
        if stored is not None and stored < SAFE_FORMAT and is_readable(checkpoint):
            check_whole(spark, checkpoint)
        yield


def _buckets(options: StartOptions) -> int | None:
    """State stays where it is, whatever the session's partitions; a query without any has none."""
    stored = stored_identity(options.checkpoint)
    if stored and options.buckets is None:
        return stored.buckets or None
    return options.buckets


def _surroundings(dataflow: Dataflow, checkpoint: str, ownership: Ownership) -> TaskSettings:
    return TaskSettings(
        ProgressFile(checkpoint).path if dataflow.may_be_idle else None,
        Decisions(checkpoint) if dataflow.shedding else None,
        ownership,
        stored_operator(checkpoint),
    )


def _launch(
    flow: Flow, frames: Sequence[DataFrame], options: StartOptions, ownership: Ownership
) -> Query:
    """Check that everything fits, then become the owner of the checkpoint, and run.

    A start that does not fit leaves whoever runs alone.
    """
    query = register_query(options.checkpoint, flow.identity)
    replayed = max(batches_to_replay(options.checkpoint), default=-1)
    writer = BatchWriter(
        flow,
        options.prepared(flow.dataflow, query, replayed),
        options.checkpoint,
        ownership,
        RateControl.of(frames, options.pace, options.checkpoint),
        selects=options.selects,
    )
    ownership.take(options.described_sinks)
    try:
        return _run(writer, options)
    except BaseException:
        ownership.release()
        raise


def _run(writer: BatchWriter, options: StartOptions) -> Query:
    dataflow, checkpoint = writer.flow.dataflow, options.checkpoint
    if dataflow.may_be_idle:
        writer.progress = ProgressFile(checkpoint)
        writer.progress.clear()
    if dataflow.shedding is not None:
        writer.shedding = Shedding.of(dataflow.shedding, checkpoint)
    writer.pacing.begin()
    replay(checkpoint, lambda: _stream(writer, options, _ONE_BATCH).start().awaitTermination())
    complete_drain(writer)
    writer.begun_before = last_begun(checkpoint)
    running = Query(_stream(writer, options, options.trigger).start(), writer)
    writer.pacing.hold(lambda: running.is_active)
    return running


def _stream(
    writer: BatchWriter, options: StartOptions, trigger: Mapping[str, Any] | None
) -> DataStreamWriter:
    stream = (
        writer.flow.packed.writeStream.foreachBatch(writer)
        .option("checkpointLocation", for_spark(options.checkpoint))
        .outputMode("append")
    )
    stream = stream.trigger(**trigger) if trigger else stream
    return stream.queryName(options.name) if options.name else stream


# -- what is shown --------------------------------------------------------------------------------


def _state(query: StreamingQuery) -> str:
    """What a query is called, and what it does; whoever asks may do so after the session's end."""
    try:
        state = "running" if query.isActive else "ended" if query.exception() is None else "failed"
        return f"{query.name or query.id}: {state}"
    except (*SPARK_ERRORS, OSError):
        return "of a session that has ended"


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
