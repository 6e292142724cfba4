"""Python stages of a query: rows are decoded, take steps, and leave as rows or packed as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidegate.columnar import ipc
from tidegate.kernels.contract import Kernel, Unpack
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.messages import SCHEMA, Kind, Message, message_batch, messages_in
from tidegate.kernels.routes import Route, pack_along
from tidegate.kernels.shedding import Decision
from tidegate.kernels.steps import take_steps
from tidegate.plan.channels import MAIN, ROWS_IN
from tidegate.plan.steps import Step
from tidegate.spark.delivery import Delivery
from tidegate.spark.load_shedding import Decisions, Sampler
from tidegate.spark.schema import spark_schema
from tidegate.spark.sources.invalid_rows import take_marks

#: Rows cross in chunks of about this size, so that memory has a bound.
_CHUNK_BYTES = 256 << 20

#: Marks rows of the clock, which move time on and are no events.
CLOCK = "__tidegate_clock"

#: Messages that travel beside rows from one Python stage to the next, as bytes in a row of their own.
_MESSAGES = "__tidegate_messages"

#: A message as a row, as every stage between pack and unpack sees it.
MESSAGE = spark_schema(SCHEMA)

ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Rows, and messages that are ready beside them.
Decoded = tuple[pa.Table, list[Message]]


@dataclass(frozen=True)
class SourceDecoder:
    """How rows of a source arrive in Python, and what is noted of them there."""

    number: int
    columns: pa.Schema
    #: The column that the marks of invalid rows travel in.
    carrier: str
    labels: list[int]
    #: Are there steps or several readers behind? Then valid rows must not look like invalid ones.
    apart: bool

    def __call__(self, chunk: pa.Table) -> Decoded:
        rows = _in_types(chunk, self.columns)
        messages: list[Message] = []
        if CLOCK in self.columns.names:
            of_clock = rows.column(CLOCK).is_valid()
            if (time := _highest_time(rows.filter(of_clock))) is not None:
                messages.append(Message.heartbeat(self.labels[0], self.number, time))
            rows = rows.filter(pc.invert(of_clock)).drop_columns(CLOCK)
        rows = take_marks(rows, self.carrier, only_invalid=self.apart)
        if (time := _highest_time(rows)) is not None:
            messages.append(Message.high_water_mark(self.labels[0], self.number, time))
        return rows, [*messages, Message.counter(self.labels[0], ROWS_IN, rows.num_rows)]


@dataclass(frozen=True)
class StageDecoder:
    """How they arrive after an earlier Python stage."""

    columns: pa.Schema

    def __call__(self, chunk: pa.Table) -> Decoded:
        rows = _in_types(chunk, self.columns)
        beside = rows.column(_MESSAGES)
        messages = [
            message
            for sent in beside.drop_null().to_pylist()
            for message in messages_in(*ipc.decode(sent))
        ]
        return rows.filter(beside.is_null()).drop_columns(_MESSAGES), messages


@dataclass(frozen=True)
class PythonStages:
    """The Python stages of a query, and what is the same in all of them."""

    labels: list[int]
    #: Where it says how many rows must go, in queries that shed load.
    decisions: Decisions | None = None
    #: Which channels are written where their rows are.
    delivery: Delivery = field(default_factory=Delivery)

    def pack(self, rows: DataFrame, enter: SourceDecoder, routes: Sequence[Route]) -> DataFrame:
        """Rows of a source as messages for the operators that read them."""
        arrive: SourceDecoder | StageDecoder = enter
        for steps in routes[0].stages:
            rows, arrive = self._rows_through(rows, arrive, steps, routes[0].time)
        return rows.mapInArrow(self.packer(arrive, routes), MESSAGE)

    def packer(self, arrive: SourceDecoder | StageDecoder, routes: Sequence[Route]) -> ArrowMap:
        """How rows become messages, wherever they are."""

        def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(routes), self._decision()
            sender = Sender()
            for chunk in _chunks(batches):
                taken, messages = arrive(chunk)
                messages += pack_along(routes, taken, decision, self.labels)
                yield sender.batch(self.delivery.again(messages))
            if sampler is not None:
                yield message_batch(sampler.messages(self.labels[0]))

        return pack

    def repack(self, messages: DataFrame, above: Kernel, routes: Sequence[Route]) -> DataFrame:
        """What an operator emitted, as messages for those that read it; all else passes through.

        So do the results themselves if they have a channel of their own to leave by.
        """
        leaves = above.output_channel != MAIN
        unpack: Unpack = above.unpack
        for steps in routes[0].stages:
            messages = self._results_through(
                messages, above.output_channel, unpack, steps, routes[0].time
            )
            unpack = _as_sent

        def repack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(routes), self._decision()
            results: list[pa.Table] = []
            for batch in batches:
                found, others = _results(batch, above.output_channel)
                results += (unpack(tables) for tables in found)
                yield self._leaving(batch, above.output_channel) if leaves else others
            if results:
                rows = pa.concat_tables(results)
                sent = pack_along(routes, rows, decision, self.labels)
                yield Sender().batch(self.delivery.again(sent))
            if sampler is not None:
                yield message_batch(sampler.messages(self.labels[0]))

        return messages.mapInArrow(repack, MESSAGE)

    def _rows_through(
        self, rows: DataFrame, enter: SourceDecoder | StageDecoder, steps: Sequence[Step], time: str
    ) -> tuple[DataFrame, StageDecoder]:
        """Rows after some steps, and how they come in again."""
        schema = pa.schema([*steps[-1].schema, (INVALID_ROW, pa.string()), (_MESSAGES, pa.binary())])
        # Columns are numbered on the route: PySpark stumbles over names with dots and backticks.
        numbers = [f"c{place}" for place in range(len(schema))]
        numbered = pa.schema(
            [pa.field(name, one.type) for name, one in zip(numbers, schema, strict=True)]
        )

        def cross(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            decision = self._decision()
            for chunk in _chunks(batches):
                taken, messages = enter(chunk)
                passed, more = take_steps(steps, taken, time, decision, self.labels[0])
                beside = pa.table({_MESSAGES: pa.array([_wrapped([*messages, *more])], pa.binary())})
                all_columns = [schema.empty_table(), passed, beside]
                out = pa.concat_tables(all_columns, promote_options="default")
                yield from out.rename_columns(numbers).to_batches()

        return rows.mapInArrow(cross, spark_schema(numbered)), StageDecoder(schema)

    def _results_through(
        self, messages: DataFrame, channel: str, unpack: Unpack, steps: Sequence[Step], time: str
    ) -> DataFrame:
        """An operator's results after some steps."""

        def cross(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            decision, sender = self._decision(), Sender()
            for batch in batches:
                found, others = _results(batch, channel)
                yield others
                for tables in found:
                    rows, sent = take_steps(steps, unpack(tables), time, decision, self.labels[0])
                    blob = ipc.encode([rows])
                    result = Message.output(self.labels[0], channel, rows.num_rows, blob)
                    yield sender.batch([*self.delivery.again(sent), result])

        return messages.mapInArrow(cross, MESSAGE)

    def _leaving(self, messages: pa.RecordBatch, channel: str) -> pa.RecordBatch:
        """Messages whose results, having been read here, leave the query."""
        delivery = self.delivery.only(channel)
        return message_batch(delivery.again(messages_in(messages))) if delivery.channels else messages

    def _decision(self) -> Decision | None:
        return None if self.decisions is None else self.decisions.current()

    def _sampler(self, routes: Sequence[Route]) -> Sampler | None:
        watched = self.decisions is not None and any(route.sheds for route in routes)
        return Sampler() if watched else None


def _results(batch: pa.RecordBatch, channel: str) -> tuple[list[list[pa.Table]], pa.RecordBatch]:
    """The results among messages, decoded, and the other messages."""
    is_output, of_channel = (
        pc.equal(batch.column(field), wanted)
        for field, wanted in (("kind", Kind.OUTPUT), ("name", channel))
    )
    is_result = pc.and_kleene(is_output, of_channel)  # other kinds may have no name
    found = [ipc.decode(blob) for blob in batch.column("blob").filter(is_result).to_pylist()]
    return found, batch.filter(pc.invert(is_result))


def _highest_time(rows: pa.Table) -> int | None:
    """Event time is the first column."""
    highest: int | None = pc.max(rows.column(0).cast(pa.int64())).as_py()
    return highest


def _as_sent(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows that an earlier stage has unpacked."""
    [rows] = tables
    return rows


def _wrapped(messages: list[Message]) -> bytes:
    return ipc.encode([pa.Table.from_batches([message_batch(messages)])])


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _in_types(chunk: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows under the names and in the types of the plan.

    Spark hands over instants in the time zone of the session. State outlives that, and rows of other
    sources have none: so they are in UTC from here on, at no cost.
    """
    arrived = zip(chunk.columns, columns.types, strict=True)
    return pa.table(
        [one if one.type == type else one.cast(type) for one, type in arrived], names=columns.names
    )


class Sender:
    """A task that sends messages: it numbers them, as Spark need not hand them over in their order."""

    def __init__(self) -> None:
        context = TaskContext.get()
        self._partition = context.partitionId() if context else 0
        self._numbers = count()

    def batch(self, messages: Iterable[Message]) -> pa.RecordBatch:
        return message_batch(
            one._replace(sender=self._partition, number=next(self._numbers)) for one in messages
        )
