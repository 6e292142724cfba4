"""Queries: open the checkpoint, put the program on Spark, write its batches, watch it run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tidegate.connectors import Write, for_spark
from tidegate.dataflow import Dataflow, compile
from tidegate.dataflow.identity import Identity
from tidegate.errors import StartError
from tidegate.optimize import optimize
from tidegate.plan.nodes import Plan
from tidegate.spark.batch_writer import BatchWriter, Program
from tidegate.spark.checkpoint.inspection import snapshot_of
from tidegate.spark.checkpoint.metadata import (
    Drained,
    MetricsFile,
    ProgressFile,
    StoredMetrics,
    batches_to_replay,
    has_unfinished_batch,
    is_readable,
    refuse_drained,
    register_query,
    stored_format,
    stored_identity,
    stored_operator,
)
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.checkpoint.repair import check_whole, refuse_unfinished, replay
from tidegate.spark.drain import check_can_be_drained, drain
from tidegate.spark.driver import is_connect, on_driver, on_driver_with_session
from tidegate.spark.executors import check_executors, start_python_early, warn_of_local_disk
from tidegate.spark.load_shedding import Decisions, Shedding
from tidegate.spark.lower import TaskSettings, lower
from tidegate.spark.rate_control import Paced, RateControl, hold_sources, paced_sources
from tidegate.spark.session import (
    CHECKPOINT_FORMAT,
    SAFE_FORMAT,
    is_ansi,
    prepare_session,
    refuse_speculation,
    session_format,
    shuffle_partitions,
    spark_errors,
    state_format,
)
from tidegate.spark.start_options import StartOptions
from tidegate.spark.stateless import StatelessProgram
from tidegate.spark.versions import ADMISSION_CONTROL, BATCH_SETTINGS_OVER_CONNECT, STATE_FORMAT

#: The trigger that runs one batch: Spark replays the last one that it has begun, and no other.
_ONE_BATCH = {"once": True}


@dataclass(frozen=True)
class Stream:
    """A query's rows, packed, on their way to its writer: what is started, and started again."""

    packed: DataFrame
    writer: BatchWriter
    options: StartOptions

    @property
    def session(self) -> SparkSession:
        return self.packed.sparkSession

    def start(self, trigger: Mapping[str, Any] | None) -> StreamingQuery:
        stream: DataStreamWriter = (
            self.packed.writeStream.foreachBatch(self.writer)
            .option("checkpointLocation", for_spark(self.writer.checkpoint))
            .outputMode("append")
        )
        stream = stream.trigger(**trigger) if trigger else stream
        return (stream.queryName(self.options.name) if self.options.name else stream).start()

    def run_one_batch(self) -> None:
        """Run the batch that was begun last again, to its end."""
        self.start(_ONE_BATCH).awaitTermination()


class Query:
    """A running query. `spark` is the Spark query underneath, for everything Spark offers."""

    def __init__(self, spark: StreamingQuery, stream: Stream) -> None:
        self.spark = spark
        self._stream = stream

    def __repr__(self) -> str:
        if self._writer.metrics_file is not None:
            return f"<Query {_state(self.spark)}>"  # nobody waits for a server to see a line
        reached = self._writer.metrics.reached
        facts = [
            _state(self.spark),
            "no batch yet" if self._writer.last < 0 else f"batch {self._writer.last}",
            f"watermark {_instant(reached):%Y-%m-%d %H:%M:%S}" if reached else "no watermark yet",
        ]
        return f"<Query {', '.join(facts)}>"

    @property
    def _writer(self) -> BatchWriter:
        return self._stream.writer

    @property
    def _known(self) -> StoredMetrics:
        """What the writer has counted: it runs in this process, or leaves a file on the server."""
        writer = self._writer
        if writer.metrics_file is None:
            return StoredMetrics.of(writer.last, writer.totals(), writer.metrics)
        return on_driver(self._stream.session, writer.metrics_file.read)

    @property
    def metrics(self) -> dict[str, float]:
        """Every counter since the start: rows in and out, late rows, errors, unassigned rows.

        With load shedding, it includes the load score of the last batch, its parts and the decision.
        With a pace, it includes how many rows batches should have.
        """
        return self._known.totals

    def rows_out_in(self, batch_id: int) -> int | None:
        """The number of results of a micro-batch, if it was one of the last hundred."""
        return self._known.rows_out.get(str(batch_id))

    @property
    def watermarks(self) -> dict[str, datetime | None]:
        """The watermark of each operator: that of the sources minus the operator's watermark delay.

        A program without operators has none.
        """
        return {name: _instant(at) for name, at in self._known.watermarks.items()}

    def snapshot(self) -> bytes:
        """The state of the running fold at the end of the query, as of the last committed batch.

        Equal states give equal bytes; `tg.read_snapshot` reads them. A query without a running fold
        raises a `StateError`.
        """
        take = partial(snapshot_of, checkpoint=self._writer.checkpoint)
        return on_driver_with_session(self._stream.session, take)

    @property
    def is_active(self) -> bool:
        """Whether the query is running: not stopped, failed or done."""
        return bool(self.spark.isActive)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; False after the timeout (in seconds). Raises the error of a failed query."""
        try:
            if timeout is None:
                self.spark.awaitTermination()
                return True
            return bool(self.spark.awaitTermination(timeout))  # type: ignore[arg-type]
        finally:
            self._note_end()

    def process_all_available(self) -> None:
        """Wait until all data that the sources have now is processed."""
        self.spark.processAllAvailable()

    def stop(self, *, drain: bool = False) -> None:
        """Stop the query. Open windows stay in the checkpoint for the next start.

        With `drain`, the query first emits all open results, in event-time order, as if the stream had
        ended. The checkpoint is then finished: a later start on it raises `CheckpointDrained`.
        """
        if drain:
            self._drain()
        else:
            self.spark.stop()
        self._note_end()

    def _drain(self) -> None:
        session, writer = self._stream.session, self._writer
        check_can_be_drained(writer)
        self.spark.stop()
        if on_driver(session, partial(_has_unfinished_batch, writer.ownership, writer.checkpoint)):
            # Some of its rows may be in the sinks: it is completed, and none follows it.
            self._stream.run_one_batch()
        _drain(self._stream)

    def _note_end(self) -> None:
        """Let `tidegate repair` know, which leaves queries alone that run."""
        if not self.is_active:
            with suppress(OSError):
                on_driver(self._stream.session, self._writer.ownership.end)


def _has_unfinished_batch(ownership: Ownership, checkpoint: str) -> bool:
    """Was a batch begun and not committed? Only the owner of the checkpoint may ask."""
    ownership.check()
    return has_unfinished_batch(checkpoint)


# -- starting -------------------------------------------------------------------------------------


def start(plan: Plan, frames: Sequence[DataFrame], options: StartOptions) -> Query:
    """Start a plan over the rows of its sources."""
    session, checkpoint = frames[0].sparkSession, options.checkpoint
    dataflow = compile(optimize(plan, options.fusion))
    options.check_sinks(dataflow, ships=is_connect(session))
    if not frames[0].isStreaming:
        raise StartError("start() runs streams; write a batch result with to_df().write")
    start_python_early(session)
    prepare_session(frames)
    check_executors(session)
    _check_trigger(dataflow, options)
    opened = on_driver(session, partial(OpenedCheckpoint.at, checkpoint))
    with opened.state_format(session):
        buckets = opened.buckets or shuffle_partitions(frames[0])
        buckets = buckets if options.buckets is None else options.buckets
        physical = lower(dataflow, buckets, opened.task_settings(dataflow, options, is_ansi(session)))
        packed = physical.packed(frames, counts_results=options.selects is None)
        return _launch(physical, packed, frames, options, opened)


def start_stateless(rows: DataFrame, options: StartOptions) -> Query:
    """Start a program without operators: rows go to the main sink as they are, or to that of errors."""
    session, program = rows.sparkSession, StatelessProgram.of(rows)
    options.check_sinks(program.dataflow, ships=is_connect(session))
    opened = on_driver(session, partial(OpenedCheckpoint.at, options.checkpoint))
    return _launch(program, rows, [rows], options, opened)


def _check_trigger(dataflow: Dataflow, options: StartOptions) -> None:
    waits = dataflow.may_be_idle and len(dataflow.sources) > 1  # a single one waits for nobody
    if waits and (options.trigger or {}).get("availableNow"):
        ADMISSION_CONTROL.require(
            "idle_after with the trigger availableNow",
            "leave idle_after out, or start the query with another trigger",
            StartError,
        )


@dataclass(frozen=True)
class OpenedCheckpoint:
    """What a start finds in its checkpoint, and the ownership that it is about to take."""

    checkpoint: str
    ownership: Ownership
    #: The format of state, and the number of buckets, if there is any.
    format: int | None
    buckets: int | None
    #: The last batch that is replayed after a repair; -1 if none is.
    replayed: int
    #: What Spark calls its stateful operators, if it has any.
    operator: str | None

    @classmethod
    def at(cls, checkpoint: str) -> OpenedCheckpoint:
        refuse_drained(checkpoint)
        refuse_unfinished(checkpoint)
        stored = stored_identity(checkpoint)
        return cls(
            checkpoint,
            Ownership.next(checkpoint),
            stored_format(checkpoint),
            # State stays where it is, whatever the session's partitions; a query without any has none.
            (stored.buckets or None) if stored else None,
            max(batches_to_replay(checkpoint), default=-1),
            stored_operator(checkpoint),
        )

    @contextmanager
    def state_format(self, spark: SparkSession) -> Iterator[None]:
        """Let a query that is started meanwhile go on with its state, in the format that it has."""
        with state_format(spark, self.format_in(spark)) as used:
            refuse_speculation(spark, self.checkpoint, used)
            if self.format is not None and self.format < SAFE_FORMAT and is_readable(self.checkpoint):
                on_driver_with_session(spark, partial(check_whole, checkpoint=self.checkpoint))
            yield

    def format_in(self, spark: SparkSession) -> int:
        """The format of the state of a query that the session starts."""
        if not is_connect(spark) or BATCH_SETTINGS_OVER_CONNECT.here:
            return self.format or STATE_FORMAT
        only = session_format(spark)
        if self.format not in (None, only):
            BATCH_SETTINGS_OVER_CONNECT.require(
                f"{self.checkpoint} has state in Spark's format {self.format}, which over Spark Connect",
                f"set {CHECKPOINT_FORMAT} to {self.format} for this session",
                StartError,
            )
        return only

    def task_settings(self, dataflow: Dataflow, options: StartOptions, ansi: bool) -> TaskSettings:
        return TaskSettings(
            ProgressFile(self.checkpoint).path if dataflow.may_be_idle else None,
            Decisions(self.checkpoint) if dataflow.shedding else None,
            self.ownership,
            ansi,
            self.operator,
            options.sinks,
        )


@dataclass(frozen=True)
class Launch:
    """What a start does on the driver before its first batch: values, which may be shipped there."""

    opened: OpenedCheckpoint
    dataflow: Dataflow
    identity: Identity
    options: StartOptions
    paced: tuple[Paced, ...]

    def take_over(self) -> Launched:
        """Check that everything fits, then become the owner of the checkpoint.

        A start that does not fit leaves whoever runs alone.
        """
        checkpoint, opened = self.options.checkpoint, self.opened
        query = register_query(checkpoint, self.identity)
        writes = self.options.prepared(self.dataflow, query, opened.replayed)
        rate_control = RateControl.of(self.paced, checkpoint)
        opened.ownership.take(self.options.described_sinks)
        try:
            return self._begin(writes, rate_control)
        except BaseException:
            opened.ownership.release()
            raise

    def _begin(self, writes: Mapping[str, Write], rate_control: RateControl) -> Launched:
        checkpoint, shedding = self.options.checkpoint, None
        if self.dataflow.may_be_idle:
            ProgressFile(checkpoint).clear()
        if self.dataflow.shedding is not None:
            shedding = Shedding.of(self.dataflow.shedding, checkpoint)
        MetricsFile(checkpoint).clear()
        rate_control.begin()
        replays = bool(batches_to_replay(checkpoint))
        return Launched(writes, rate_control, shedding, replays, Drained.of(checkpoint))


@dataclass(frozen=True)
class Launched:
    """What the launch gives the writer of batches, and what is to be done before the first of them.

    Over Spark Connect each question to the driver is a job, so one answer has it all.
    """

    writes: Mapping[str, Write]
    rate_control: RateControl
    shedding: Shedding | None
    #: Are batches to be replayed after a repair?
    replays: bool
    #: The drain that was interrupted, if one was.
    drained: Drained | None


def _launch(
    program: Program,
    packed: DataFrame,
    frames: Sequence[DataFrame],
    options: StartOptions,
    opened: OpenedCheckpoint,
) -> Query:
    session, ships = packed.sparkSession, is_connect(packed.sparkSession)
    warn_of_local_disk(session, options.checkpoint)
    paced = tuple(paced_sources(frames, options.pace))
    launch = Launch(opened, program.dataflow, program.identity, options, paced)
    launched = on_driver(session, launch.take_over)
    checkpoint = options.checkpoint
    writer = BatchWriter(
        program,
        launched.writes,
        checkpoint,
        opened.ownership,
        launched.rate_control,
        ProgressFile(checkpoint) if program.dataflow.may_be_idle else None,
        launched.shedding,
        options.selects,
        MetricsFile(checkpoint) if ships else None,
    )
    try:
        return _run(Stream(packed, writer, options), launched, paced)
    except BaseException:
        on_driver(session, opened.ownership.release)
        raise


def _run(stream: Stream, launched: Launched, paced: Sequence[Paced]) -> Query:
    if launched.replays:
        _replay(stream)
    if launched.drained is not None:
        _complete_drain(stream, launched.drained)
    running = Query(stream.start(stream.options.trigger), stream)
    hold_sources(paced, lambda: running.is_active)
    return running


def _replay(stream: Stream) -> None:
    """Run the batches that a repair has held back, one after the other."""
    if is_connect(stream.session):
        raise StartError(
            "batches are to be replayed after a repair, and that needs a session on the driver: "
            "start the query once with a classic session"
        )
    replay(stream.writer.checkpoint, stream.run_one_batch)


def _complete_drain(stream: Stream, begun: Drained) -> None:
    """Repeat a drain that was interrupted, to its end, and refuse to go on."""
    _drain(stream)
    completed = " The drain had been interrupted: this start has completed it."
    raise begun.refusal(stream.writer.checkpoint, completed)


def _drain(stream: Stream) -> None:
    # Metrics that the writer has counted here are counted on; a shipped one counts its own batch.
    on_driver_with_session(stream.session, partial(drain, writer=stream.writer))


# -- what is shown --------------------------------------------------------------------------------


def _state(query: StreamingQuery) -> str:
    """What a query is called, and what it does; whoever asks may do so after the session's end."""
    try:
        state = "running" if query.isActive else "ended" if query.exception() is None else "failed"
        return f"{query.name or query.id}: {state}"
    except Exception as error:
        if not isinstance(error, (*spark_errors(), OSError)):
            raise
        return "of a session that has ended"


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
