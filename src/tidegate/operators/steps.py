"""Steps at work: rows pass functions of the user's, or are shed, before an operator packs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import PlanError, StepError, TypeMismatch
from tidegate.operators import blobs
from tidegate.operators.kernel import COUNTER, FILTERED, SHED_ROWS, Kernel, Parcel, Port, count_parcels
from tidegate.operators.shedding import Decision, shed
from tidegate.plan.channels import MAIN, SHED
from tidegate.plan.columns import RESERVED_PREFIX, is_key_type
from tidegate.plan.feeds import crossings
from tidegate.plan.graph import places_of
from tidegate.plan.inlets import Inlet
from tidegate.plan.nodes import Output, Plan
from tidegate.plan.steps import Filter, Frames, Map, Shed, Step
from tidegate.plan.windowing import Emit


@dataclass
class Passed:
    """Rows after some steps, and what was set apart or counted on the way."""

    rows: pa.Table
    time: str
    decision: Decision | None
    apart: list[pa.Table] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def parcels(self, bucket: int) -> Iterator[Parcel]:
        for rows in self.apart:
            for piece in blobs.pieces(rows):
                yield Parcel(bucket, SHED, piece.num_rows, blobs.encode([piece]))
        yield from count_parcels(bucket, self.counts)


#: How many rows came in: counted where they did, not again by every operator that reads them.
ROWS_IN = COUNTER + "rows_in"


@dataclass(frozen=True)
class Way:
    """How rows of a source, or of an operator, come into a port of another."""

    port: Port
    time: str
    #: The steps that they take before, each in a crossing from Spark to Python of its own.
    crossings: tuple[tuple[Step, ...], ...] = ()
    #: Those that they take together with packing.
    steps: tuple[Step, ...] = ()
    #: The column with each row's own gap, where sessions have one.
    gap: str | None = None

    @classmethod
    def of(cls, stage: Output, inlet: Inlet, port: Port) -> Way:
        taken = crossings(inlet.feed)
        packed = taken[-1].steps if taken and taken[-1].packed else ()
        before = tuple(one.steps for one in (taken[:-1] if packed else taken))
        gap = stage.windowed.gap_column if isinstance(stage, Emit) else None
        return cls(port, inlet.feed.time, before, packed, gap)

    def in_one(self) -> Way:
        """With all steps together: rows that go several ways are handed over once."""
        steps = (step for crossing in self.crossings for step in crossing)
        return replace(self, crossings=(), steps=(*steps, *self.steps))

    @property
    def sheds(self) -> bool:
        return any(isinstance(step, Shed) for step in self.in_one().steps)

    def pack(
        self, rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
    ) -> Iterator[Parcel]:
        """Parcels for the operator."""
        rows, parcels = take_steps(self.steps, rows, self.time, decision, buckets[0])
        yield from parcels
        yield from (sent for sent in self.port.pack(rows, buckets) if sent.channel != ROWS_IN)

    def begins_like(self, other: Way) -> bool:
        """Is the first step the same one?"""
        return self.steps != () and self.steps[:1] == other.steps[:1] and self.time == other.time


def pack_along(
    ways: Sequence[Way], rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
) -> Iterator[Parcel]:
    """Parcels for all operators that rows go to.

    Steps that several ways begin with are taken once. Rows without an event time go the first way
    alone: each of them is one error.
    """
    first, *others = ways
    alike = [way for way in others if way.begins_like(first)]
    if alike:
        taken, parcels = take_steps(first.steps[:1], rows, first.time, decision, buckets[0])
        yield from parcels
        behind = [replace(way, steps=way.steps[1:]) for way in (first, *alike)]
        yield from pack_along(behind, taken, decision, buckets)
    else:
        yield from first.pack(rows, decision, buckets)
    apart = [way for way in others if not way.begins_like(first)]
    if apart:
        sound = rows.filter(rows.column(first.time).is_valid())
        yield from pack_along(apart, sound, decision, buckets)


@dataclass(frozen=True)
class Ways:
    """The ways that rows take: those of each source, and those of each operator's results."""

    of_sources: dict[int, list[Way]]
    of_operators: dict[int, list[Way]]
    #: For each operator the sources that none before it reads.
    first_read_by: list[list[int]]

    @classmethod
    def through(cls, plan: Plan, kernels: Sequence[Kernel]) -> Ways:
        of_sources: dict[int, list[Way]] = {}
        of_operators: dict[int, list[Way]] = {}
        first_read_by: list[list[int]] = []
        for place in places_of(plan):
            first_read_by.append([])
            ports = kernels[place.number].ports
            for inlet, feed, port in zip(place.stage.inlets, place.feeds, ports, strict=True):
                way = Way.of(place.stage, inlet, port)
                if isinstance(feed, int):
                    of_operators.setdefault(feed, []).append(way)
                for source in () if isinstance(feed, int) else feed:
                    if source not in of_sources:
                        first_read_by[-1].append(source)
                    of_sources.setdefault(source, []).append(way)
        leaving = {number for number, kernel in enumerate(kernels) if kernel.outlet != MAIN}
        return cls(_shared(of_sources), _shared(of_operators, leaving), first_read_by)


def _shared(ways: dict[int, list[Way]], leaving: Collection[int] = ()) -> dict[int, list[Way]]:
    """The ways of rows; to leave the query is one of them."""
    return {
        number: [way.in_one() for way in taken] if len(taken) > 1 or number in leaving else taken
        for number, taken in ways.items()
    }


def take_steps(
    steps: Sequence[Step], rows: pa.Table, time: str, decision: Decision | None, bucket: int
) -> tuple[pa.Table, list[Parcel]]:
    """The rows after some steps, and parcels of what went elsewhere.

    Rows without an event time take no steps: no function need expect them, and they are on their way
    to the errors.
    """
    if not steps:
        return rows, []
    broken = rows.column(time).is_null()
    known = [name for name in rows.column_names if not name.startswith(RESERVED_PREFIX)]
    passed = Passed(rows.filter(pc.invert(broken)).select(known), time, decision)
    for step in steps:
        _take(step, passed)
    if pc.any(broken).as_py():
        others = [name for name in rows.column_names if name == time or name not in known]
        lost = rows.filter(broken).select(others)
        passed.rows = pa.concat_tables([passed.rows, lost], promote_options="default")
    return passed.rows, list(passed.parcels(bucket))


def _take(step: Step, passed: Passed) -> None:
    if isinstance(step, Map):
        passed.rows = _mapped(step, passed.rows, passed.time)
    elif isinstance(step, Filter):
        keep = _kept(step, passed.rows)
        passed.counts[FILTERED] += passed.rows.num_rows - (pc.sum(keep).as_py() or 0)
        passed.rows = passed.rows.filter(keep)
    elif step.policy == "strict" and passed.decision is not None:
        _shed(step, passed, passed.decision)


def _shed(step: Shed, passed: Passed, decision: Decision) -> None:
    goes = pa.array(shed(passed.rows, decision, step.priority))
    gone = passed.rows.filter(goes)
    if gone.num_rows:
        passed.counts[SHED_ROWS] += gone.num_rows
        passed.apart.append(gone)
        passed.rows = passed.rows.filter(pc.invert(goes))


def _mapped(step: Map, rows: pa.Table, time: str) -> pa.Table:
    given = _called(step, rows)
    if not isinstance(given, pa.Table):
        raise StepError(step, f"gave back {_kind(given)}, not {_WANTED[step.frames]}")
    if given.num_rows != rows.num_rows:
        raise StepError(
            step,
            f"gave back {given.num_rows} rows for {rows.num_rows}; only a filter may leave rows out",
        )
    if missing := set(step.schema.names) - set(given.column_names):
        raise StepError(step, f"gave back no column {', '.join(map(repr, sorted(missing)))}")
    try:
        result = given.select(step.schema.names).cast(step.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StepError(step, f"gave back other types than it said: {error}") from error
    if not result.column(time).equals(rows.column(time)):
        raise StepError(step, f"changed the event time {time!r}, which the watermark was made from")
    return result


def _kept(step: Filter, rows: pa.Table) -> pa.ChunkedArray | pa.Array:
    given = _called(step, rows)
    if not isinstance(given, pa.Array | pa.ChunkedArray) or not pa.types.is_boolean(given.type):
        raise StepError(step, f"gave back {_kind(given)}, not a boolean for each row")
    if len(given) != rows.num_rows:
        raise StepError(step, f"gave back {len(given)} booleans for {rows.num_rows} rows")
    return pc.fill_null(given, False)  # as in SQL: what is not known to be true goes


_WANTED: dict[Frames, str] = {"polars": "a polars.DataFrame", "arrow": "a pyarrow.Table"}


def _called(step: Map | Filter, rows: pa.Table) -> Any:
    """What a function gives back, as Arrow where it can be."""
    try:
        given = step.function(rows if step.frames == "arrow" else blobs.to_polars(rows))
    except Exception as error:
        raise StepError(step, f"failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, pl.DataFrame | pl.Series):
        return given
    try:
        return blobs.to_arrow(given) if isinstance(given, pl.DataFrame) else given.to_arrow()
    except (pa.ArrowInvalid, pl.exceptions.PolarsError) as error:
        raise StepError(step, f"gave back a type that Arrow cannot hold: {error}") from error


def _kind(given: Any) -> str:
    kind = f" of type {given.type}" if isinstance(given, pa.Array | pa.ChunkedArray) else ""
    return f"{type(given).__name__}{kind}"


def map_step(function: Callable[[Any], Any], frames: Frames, rows: pa.Schema, time: str) -> Map:
    """A map over rows; what it makes of their columns is seen by calling it with none."""
    _check_function(function, "map")
    step = Map(function, frames, rows)
    given = _tried(step, rows)
    if not isinstance(given, pa.Table):
        raise PlanError(f"{step} gave back {_kind(given)}, not {_WANTED[frames]}")
    schema = _in_our_types(step, given.schema)
    if time not in schema.names or schema.field(time).type != rows.field(time).type:
        raise PlanError(f"{step} must keep the event time {time!r}, which it is called with, as it is")
    return Map(function, frames, schema)


def filter_step(function: Callable[[Any], Any], frames: Frames, rows: pa.Schema) -> Filter:
    """A filter over rows."""
    _check_function(function, "filter")
    step = Filter(function, frames, rows)
    given = _tried(step, rows)
    if not isinstance(given, pa.Array | pa.ChunkedArray) or not pa.types.is_boolean(given.type):
        raise PlanError(f"{step} gave back {_kind(given)}, not a boolean for each row")
    return step


def _check_function(function: Callable[[Any], Any], name: str) -> None:
    if not callable(function):
        raise PlanError(f"{name}() takes a function of a frame of rows, got {function!r}")


def _tried(step: Map | Filter, rows: pa.Schema) -> Any:
    try:
        return _called(step, rows.empty_table())
    except StepError as error:
        raise PlanError(f"{error}; it was called with no rows, to see what it makes of them") from error


def _in_our_types(step: Map, schema: pa.Schema) -> pa.Schema:
    """The types that Spark has: it knows one width of text, microseconds, and no unsigned numbers."""
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise PlanError(f"{step} gave back two columns named {name!r}")
        if not _is_known(kind := _in_our_type(schema.field(name).type)):
            raise TypeMismatch(
                f"{step} gives back: column {name!r} has type {kind}, which Spark has not; cast it"
            )
    return pa.schema([pa.field(field.name, _in_our_type(field.type)) for field in schema])


_OUR_TYPES = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}


def _in_our_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _in_our_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_in_our_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _in_our_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_in_our_type(kind.key_type), _in_our_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_duration(kind):
        return pa.duration("us")
    return _OUR_TYPES.get(kind, kind)


def _is_known(kind: pa.DataType) -> bool:
    """Has Spark the type? Of null, which it has not either, more is said elsewhere."""
    if pa.types.is_nested(kind):
        parts = [kind.field(place).type for place in range(kind.num_fields)]
        return (pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind)) and all(
            map(_is_known, parts)
        )
    others = (pa.types.is_duration, pa.types.is_time64, pa.types.is_null)
    return (is_key_type(kind) or any(check(kind) for check in others)) and not pa.types.is_decimal256(
        kind
    )
