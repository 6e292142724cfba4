"""Crossings from Spark to Python: rows come in, take steps, and leave as rows or packed as messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidegate.operators import blobs
from tidegate.operators.invalid_rows import INVALID_ROW
from tidegate.operators.kernel import Kernel, Unpack
from tidegate.operators.messages import SCHEMA, Kind, Message, message_batch, messages_in
from tidegate.operators.shedding import Decision
from tidegate.operators.steps import take_steps
from tidegate.operators.ways import Way, pack_along
from tidegate.plan.channels import MAIN
from tidegate.plan.counters import ROWS_IN
from tidegate.plan.steps import Step
from tidegate.spark.invalid_rows import take_marks
from tidegate.spark.load import Decisions, Sampler
from tidegate.spark.schema import spark_schema

#: Rows cross in chunks of about this size, so that memory has a bound.
_CHUNK_BYTES = 256 << 20

#: Marks rows of the clock, which move time on and are no events.
CLOCK = "__tidegate_clock"

#: Messages that travel beside rows from one crossing to the next, as bytes in a row of their own.
_ASIDE = "__tidegate_aside"

#: A message as a row, as every stage between pack and unpack sees it.
MESSAGE = spark_schema(SCHEMA)

ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Rows, and messages that are ready beside them.
Crossed = tuple[pa.Table, list[Message]]


@dataclass(frozen=True)
class Entrance:
    """How rows of a source arrive in Python, and what is noted of them there."""

    number: int
    columns: pa.Schema
    #: The column that the marks of invalid rows travel in.
    carrier: str
    labels: list[int]
    #: Are there steps or several readers behind? Then valid rows must not look like invalid ones.
    apart: bool

    def __call__(self, chunk: pa.Table) -> Crossed:
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
class Reentry:
    """How they arrive after an earlier crossing."""

    columns: pa.Schema

    def __call__(self, chunk: pa.Table) -> Crossed:
        rows = _in_types(chunk, self.columns)
        beside = rows.column(_ASIDE)
        messages = [
            message
            for sent in beside.drop_null().to_pylist()
            for message in messages_in(*blobs.decode(sent))
        ]
        return rows.filter(beside.is_null()).drop_columns(_ASIDE), messages


@dataclass(frozen=True)
class Crossings:
    """The crossings of a query, and what is the same in all of them."""

    labels: list[int]
    #: Where it says how many rows must go, in queries that shed load.
    decisions: Decisions | None = None

    def pack(self, rows: DataFrame, enter: Entrance, ways: Sequence[Way]) -> DataFrame:
        """Rows of a source as messages for the operators that read them."""
        arrive: Entrance | Reentry = enter
        for steps in ways[0].crossings:
            rows, arrive = self._rows_through(rows, arrive, steps, ways[0].time)
        return rows.mapInArrow(self.packer(arrive, ways), MESSAGE)

    def packer(self, arrive: Entrance | Reentry, ways: Sequence[Way]) -> ArrowMap:
        """How rows become messages, wherever they are."""

        def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(ways), self._decision()
            sender = Sender()
            for chunk in _chunks(batches):
                taken, messages = arrive(chunk)
                messages += pack_along(ways, taken, decision, self.labels)
                yield sender.batch(messages)
            if sampler is not None:
                yield message_batch(sampler.messages(self.labels[0]))

        return pack

    def repack(self, messages: DataFrame, above: Kernel, ways: Sequence[Way]) -> DataFrame:
        """What an operator put out as messages for those that read it; all else passes by.

        So do the results themselves if they have a channel of their own to leave by.
        """
        leaves = above.output_channel != MAIN
        unpack: Unpack = above.unpack
        for steps in ways[0].crossings:
            messages = self._results_through(messages, above.output_channel, unpack, steps, ways[0].time)
            unpack = _as_sent

        def repack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(ways), self._decision()
            results: list[pa.Table] = []
            for batch in batches:
                found, others = _results(batch, above.output_channel)
                results += (unpack(tables) for tables in found)
                yield batch if leaves else others
            if results:
                rows = pa.concat_tables(results)
                yield Sender().batch(pack_along(ways, rows, decision, self.labels))
            if sampler is not None:
                yield message_batch(sampler.messages(self.labels[0]))

        return messages.mapInArrow(repack, MESSAGE)

    def _rows_through(
        self, rows: DataFrame, enter: Entrance | Reentry, steps: Sequence[Step], time: str
    ) -> tuple[DataFrame, Reentry]:
        """Rows after some steps, and how they come in again."""
        schema = pa.schema([*steps[-1].schema, (INVALID_ROW, pa.string()), (_ASIDE, pa.binary())])
        # Columns are numbered on the way: PySpark stumbles over names with dots and backticks.
        numbers = [f"c{place}" for place in range(len(schema))]
        numbered = pa.schema(
            [pa.field(name, one.type) for name, one in zip(numbers, schema, strict=True)]
        )

        def cross(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            decision = self._decision()
            for chunk in _chunks(batches):
                taken, messages = enter(chunk)
                passed, more = take_steps(steps, taken, time, decision, self.labels[0])
                beside = pa.table({_ASIDE: pa.array([_wrapped([*messages, *more])], pa.binary())})
                all_columns = [schema.empty_table(), passed, beside]
                out = pa.concat_tables(all_columns, promote_options="default")
                yield from out.rename_columns(numbers).to_batches()

        return rows.mapInArrow(cross, spark_schema(numbered)), Reentry(schema)

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
                    blob = blobs.encode([rows])
                    result = Message.output(self.labels[0], channel, rows.num_rows, blob)
                    yield sender.batch([*sent, result])

        return messages.mapInArrow(cross, MESSAGE)

    def _decision(self) -> Decision | None:
        return None if self.decisions is None else self.decisions.current()

    def _sampler(self, ways: Sequence[Way]) -> Sampler | None:
        watched = self.decisions is not None and any(way.sheds for way in ways)
        return Sampler() if watched else None


def _results(batch: pa.RecordBatch, channel: str) -> tuple[list[list[pa.Table]], pa.RecordBatch]:
    """The results among messages, decoded, and the other messages."""
    is_output, of_channel = (
        pc.equal(batch.column(field), wanted)
        for field, wanted in (("kind", Kind.OUTPUT), ("name", channel))
    )
    is_result = pc.and_kleene(is_output, of_channel)  # other kinds may have no name
    found = [blobs.decode(blob) for blob in batch.column("blob").filter(is_result).to_pylist()]
    return found, batch.filter(pc.invert(is_result))


def _highest_time(rows: pa.Table) -> int | None:
    """Event time is the first column."""
    highest: int | None = pc.max(rows.column(0).cast(pa.int64())).as_py()
    return highest


def _as_sent(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows that an earlier crossing has unpacked."""
    [rows] = tables
    return rows


def _wrapped(messages: list[Message]) -> bytes:
    return blobs.encode([pa.Table.from_batches([message_batch(messages)])])


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
