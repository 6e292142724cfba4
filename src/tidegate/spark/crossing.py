"""Crossings from Spark to Python: rows come in, take steps, and leave as rows or packed as parcels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidegate.operators import blobs
from tidegate.operators.invalid_rows import INVALID_ROW
from tidegate.operators.kernel import HEARTBEAT, HIGHEST, ROWS_IN, Kernel, Parcel, Unpack
from tidegate.operators.shedding import Decision
from tidegate.operators.steps import take_steps
from tidegate.operators.ways import Way, pack_along
from tidegate.plan.channels import MAIN
from tidegate.plan.steps import Step
from tidegate.spark.invalid_rows import take_marks
from tidegate.spark.load import Decisions, Sampler
from tidegate.spark.processor import PARCEL
from tidegate.spark.schema import spark_schema

#: Rows cross in chunks of about this size, so that memory has a bound.
_CHUNK_BYTES = 256 << 20

#: Marks rows of the clock, which move time on and are no events.
CLOCK = "__tidegate_clock"

#: Parcels that travel beside rows from one crossing to the next, as bytes in a row of their own.
_ASIDE = "__tidegate_aside"

ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_PARCEL_ARROW = pa.schema(
    [
        ("bucket", pa.int32()),
        ("channel", pa.string()),
        ("rows", pa.int64()),
        ("blob", pa.binary()),
        ("sender", pa.int32()),
        ("number", pa.int32()),
    ]
)

#: Rows, and parcels that are ready beside them.
Crossed = tuple[pa.Table, list[Parcel]]


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
        parcels: list[Parcel] = []
        if CLOCK in self.columns.names:
            of_clock = rows.column(CLOCK).is_valid()
            parcels += self._highest(HEARTBEAT, rows.filter(of_clock))
            rows = rows.filter(pc.invert(of_clock)).drop_columns(CLOCK)
        rows = take_marks(rows, self.carrier, only_invalid=self.apart)
        parcels += self._highest(HIGHEST, rows)
        return rows, [*parcels, Parcel(self.labels[0], ROWS_IN, rows.num_rows)]

    def _highest(self, channel: str, rows: pa.Table) -> Iterator[Parcel]:
        highest = pc.max(rows.column(0).cast(pa.int64())).as_py()
        if highest is not None:
            yield Parcel(self.labels[0], f"{channel}{self.number}", highest)


@dataclass(frozen=True)
class Reentry:
    """How they arrive after an earlier crossing."""

    columns: pa.Schema

    def __call__(self, chunk: pa.Table) -> Crossed:
        rows = _in_types(chunk, self.columns)
        beside = rows.column(_ASIDE)
        parcels = [parcel for sent in beside.drop_null().to_pylist() for parcel in _unwrapped(sent)]
        return rows.filter(beside.is_null()).drop_columns(_ASIDE), parcels


@dataclass(frozen=True)
class Crossings:
    """The crossings of a query, and what is the same in all of them."""

    labels: list[int]
    #: Where it says how many rows must go, in queries that shed load.
    decisions: Decisions | None = None

    def pack(self, rows: DataFrame, enter: Entrance, ways: Sequence[Way]) -> DataFrame:
        """Rows of a source as parcels for the operators that read them."""
        arrive: Entrance | Reentry = enter
        for steps in ways[0].crossings:
            rows, arrive = self._rows_through(rows, arrive, steps, ways[0].time)
        return rows.mapInArrow(self.packer(arrive, ways), PARCEL)

    def packer(self, arrive: Entrance | Reentry, ways: Sequence[Way]) -> ArrowMap:
        """How rows become parcels, wherever they are."""

        def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(ways), self._decision()
            sender = Sender()
            for chunk in _chunks(batches):
                taken, parcels = arrive(chunk)
                parcels += pack_along(ways, taken, decision, self.labels)
                yield sender.batch(parcels)
            if sampler is not None:
                yield parcel_batch(list(sampler.parcels(self.labels[0])))

        return pack

    def repack(self, parcels: DataFrame, above: Kernel, ways: Sequence[Way]) -> DataFrame:
        """What an operator put out as parcels for those that read it; all else passes by.

        So do the results themselves if they have a channel of their own to leave by.
        """
        leaves = above.outlet != MAIN
        unpack: Unpack = above.unpack
        for steps in ways[0].crossings:
            parcels = self._results_through(parcels, above.outlet, unpack, steps, ways[0].time)
            unpack = _as_sent

        def repack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            sampler, decision = self._sampler(ways), self._decision()
            results: list[pa.Table] = []
            for batch in batches:
                found, others = _results(batch, above.outlet)
                results += (unpack(tables) for tables in found)
                yield batch if leaves else others
            if results:
                rows = pa.concat_tables(results)
                yield Sender().batch(pack_along(ways, rows, decision, self.labels))
            if sampler is not None:
                yield parcel_batch(list(sampler.parcels(self.labels[0])))

        return parcels.mapInArrow(repack, PARCEL)

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
                taken, parcels = enter(chunk)
                passed, more = take_steps(steps, taken, time, decision, self.labels[0])
                beside = pa.table({_ASIDE: pa.array([_wrapped([*parcels, *more])], pa.binary())})
                all_columns = [schema.empty_table(), passed, beside]
                out = pa.concat_tables(all_columns, promote_options="default")
                yield from out.rename_columns(numbers).to_batches()

        return rows.mapInArrow(cross, spark_schema(numbered)), Reentry(schema)

    def _results_through(
        self, parcels: DataFrame, channel: str, unpack: Unpack, steps: Sequence[Step], time: str
    ) -> DataFrame:
        """An operator's results after some steps."""

        def cross(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            decision, sender = self._decision(), Sender()
            for batch in batches:
                found, others = _results(batch, channel)
                yield others
                for tables in found:
                    rows, sent = take_steps(steps, unpack(tables), time, decision, self.labels[0])
                    result = Parcel(self.labels[0], channel, rows.num_rows, blobs.encode([rows]))
                    yield sender.batch([*sent, result])

        return parcels.mapInArrow(cross, PARCEL)

    def _decision(self) -> Decision | None:
        return None if self.decisions is None else self.decisions.current()

    def _sampler(self, ways: Sequence[Way]) -> Sampler | None:
        watched = self.decisions is not None and any(way.sheds for way in ways)
        return Sampler() if watched else None


def _results(batch: pa.RecordBatch, channel: str) -> tuple[list[list[pa.Table]], pa.RecordBatch]:
    """The results among parcels, decoded, and the other parcels."""
    is_result = pc.equal(batch.column("channel"), channel)
    found = [blobs.decode(blob) for blob in batch.column("blob").filter(is_result).to_pylist()]
    return found, batch.filter(pc.invert(is_result))


def _as_sent(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows that an earlier crossing has unpacked."""
    [rows] = tables
    return rows


def _wrapped(parcels: list[Parcel]) -> bytes:
    return blobs.encode([pa.Table.from_batches([parcel_batch(parcels)])])


def _unwrapped(sent: bytes) -> list[Parcel]:
    [parcels] = blobs.decode(sent)
    return [Parcel(**one) for one in parcels.to_pylist()]


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
    """A task that sends parcels: it numbers them, as Spark need not hand them over in their order."""

    def __init__(self) -> None:
        context = TaskContext.get()
        self._partition = context.partitionId() if context else 0
        self._numbers = count()

    def batch(self, parcels: Iterable[Parcel]) -> pa.RecordBatch:
        return parcel_batch(
            [replace(one, sender=self._partition, number=next(self._numbers)) for one in parcels]
        )


def parcel_batch(parcels: Iterable[Parcel]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([vars(parcel) for parcel in parcels], _PARCEL_ARROW)
