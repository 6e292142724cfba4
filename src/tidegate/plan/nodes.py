"""Logical plan nodes: frozen, valid by construction, each with its `inputs` and its `schema`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeVar

import pyarrow as pa

from tidegate.errors import EmissionRefused, NotMergeable, PlanError, TypeMismatch
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.columns import TIMESTAMP, field_of, is_key_type, readable, refuse_collisions
from tidegate.plan.conditions import check_condition
from tidegate.plan.event_time import EventTime
from tidegate.plan.joins import (
    SIDES,
    How,
    Match,
    PairColumns,
    Reach,
    check_choices,
    check_windows,
    reach,
    window_names,
)
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Reassign,
    Retracting,
    SideOutput,
)
from tidegate.plan.sla import Sla
from tidegate.plan.steps import Shed, Step
from tidegate.plan.time import Micros, ProcessingTime, render
from tidegate.plan.windows import AllTime, Session, Sliding, Window

WINDOW_COLUMNS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))
OP = pa.field("op", pa.string())
ERRORS = pa.schema([("reason", pa.string()), ("row", pa.string())])
LATE_COLUMNS = (pa.field("late_by", pa.duration("us")), pa.field("watermark", TIMESTAMP))
REJECTED_COLUMNS = (
    pa.field("reason", pa.string()),
    pa.field("lag", pa.duration("us")),
    pa.field("gap", pa.duration("us")),
    pa.field("tokens", pa.float64()),
)
MAIN, ERROR_CHANNEL, REJECTED, SHED = "main", "errors", "rejected", "shed"

#: Kernels put columns of their own beside users' columns; these never meet.
RESERVED_PREFIX = "__tidegate"

#: Names that channels cannot have: they mean something else where sinks are given.
RESERVED_CHANNELS = (
    MAIN,
    ERROR_CHANNEL,
    "checkpoint",
    "trigger",
    "name",
    "buckets",
    "fusion",
    "pace",
)

#: A row that is further ahead of the clock is broken: nobody's events come from the next century,
#: and a single one would make all that follows late.
MAX_FUTURE = Micros(36_500 * 86_400_000_000)


class Node(Protocol):
    """What every logical node offers."""

    @property
    def inputs(self) -> tuple[Node, ...]: ...

    @property
    def schema(self) -> pa.Schema: ...

    def label(self) -> str:
        """One line for `explain()`."""
        ...


@dataclass(frozen=True)
class Source:
    """Rows with an event time. `columns` is what the plan above reads; None is everything.

    `declared` says where the event time comes from if it is not simply the column `time`: then that
    column is one we add. `number` tells sources apart where operators side by side may share them.
    """

    row_schema: pa.Schema
    time: str
    tolerance: Micros
    columns: tuple[str, ...] | None = None
    declared: EventTime | ProcessingTime | None = None
    max_future: Micros = MAX_FUTURE
    idle_after: Micros | None = None
    number: int = 0

    def __post_init__(self) -> None:
        for name in self.row_schema.names:
            if name.startswith(RESERVED_PREFIX):
                raise PlanError(f"column {name!r}: names that start with {RESERVED_PREFIX!r} are ours")
        field = field_of(self.row_schema, self.time, "event time")
        if not pa.types.is_timestamp(field.type):
            raise TypeMismatch(
                f"event time column {self.time!r} has type {field.type}; it must be a timestamp "
                f"(for instance df.withColumn({self.time!r}, F.to_timestamp({self.time!r})))"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def schema(self) -> pa.Schema:
        if self.columns is None:
            return self.row_schema
        return pa.schema([self.row_schema.field(name) for name in self.columns])

    @property
    def processing_time(self) -> bool:
        return isinstance(self.declared, ProcessingTime)

    def label(self) -> str:
        columns = ", ".join(self.schema.names)
        time = self.time if self.declared is None else self.declared
        options = [f"time={time}", f"tolerance={render(self.tolerance)}"]
        if self.max_future != MAX_FUTURE:
            options.append(f"max_future={render(self.max_future)}")
        if self.idle_after is not None:
            options.append(f"idle_after={render(self.idle_after)}")
        return f"Events[{', '.join(options)}, columns=({columns})]"


@dataclass(frozen=True)
class Union:
    """The rows of several sources; their watermark is the lowest of theirs."""

    inputs: tuple[Source, ...]

    def __post_init__(self) -> None:
        first, *others = self.inputs
        for other in others:
            if other.processing_time != first.processing_time:
                raise PlanError("union() of event time and processing time: they do not compare")
            if other.time != first.time:
                raise PlanError(
                    f"union() of events whose times are {first.time!r} and {other.time!r}: "
                    "give the columns one name"
                )
            if not _same_columns(other.row_schema, first.row_schema):
                raise PlanError(
                    "union() needs the same columns in the same order and of the same types: "
                    f"{_columns(first.row_schema)} here, {_columns(other.row_schema)} there"
                )

    @property
    def schema(self) -> pa.Schema:
        return self.inputs[0].schema

    @property
    def time(self) -> str:
        return self.inputs[0].time

    def label(self) -> str:
        return "Union"


@dataclass(frozen=True)
class Derived:
    """The results of an operator as events of the next one, in the same query."""

    input: Output
    time: str

    def __post_init__(self) -> None:
        if isinstance(self.input, Emit) and self.input.retracts:
            folds = self.input.input.folds
            hint = "give the fold a window" if folds else "use tg.emit.on_window_close()"
            raise PlanError(
                f"results of {self.input.emission} take others back, and cannot go on as events; {hint}"
            )
        times = self.input.times
        if not times:
            raise PlanError(
                f"events(time={self.time!r}): no column of these pairs has a time in all of them that "
                "lies behind by a known length; a join of sessions needs a max_length on both sides, "
                "and of full joins either side may be missing"
            )
        if self.time not in times:
            short = self.time == "window_start" and list(times) == ["window_end"]
            hint = " (a session of any length has only its end)" if short else ""
            raise PlanError(
                f"events(time={self.time!r}): results go on by {' or '.join(map(repr, times))}{hint}"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def hold_back(self) -> Micros:
        """How far the watermark of these events lies behind that of the operator's input."""
        return self.input.times[self.time]

    def label(self) -> str:
        return f"Events[time={self.time}, hold_back={render(self.hold_back)}]"


@dataclass(frozen=True)
class Stepped:
    """Rows after steps that are taken one after the other, in one crossing from Spark to Python.

    The event time stays what it was: the watermark was made from it.
    """

    input: Feed
    steps: tuple[Step, ...]
    #: Is packing for the operator part of the crossing?
    packed: bool = False

    def __post_init__(self) -> None:
        for name in self.input.schema.names:
            readable(self.input.schema, name, f"{self.steps[0]} is given all columns")
        for name in self.schema.names:
            readable(self.schema, name, f"{self.steps[-1]} gives back")
            if name.startswith(RESERVED_PREFIX):
                raise PlanError(f"column {name!r}: names that start with {RESERVED_PREFIX!r} are ours")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.steps[-1].schema

    @property
    def time(self) -> str:
        return self.input.time

    def label(self) -> str:
        steps = ", ".join(map(str, self.steps))
        return f"Fused[{steps}]" if len(self.steps) > 1 else f"Step[{steps}]"


#: What has rows with an event time.
Feed = Source | Union | Derived | Stepped


def origin(feed: Feed) -> Source | Union | Derived:
    """What rows come from, before any steps."""
    return origin(feed.input) if isinstance(feed, Stepped) else feed


def crossings(feed: Feed) -> tuple[Stepped, ...]:
    """The steps that rows of a feed take, first to last."""
    return (*crossings(feed.input), feed) if isinstance(feed, Stepped) else ()


def steps_of(feed: Feed) -> tuple[Step, ...]:
    """All of them in one row."""
    return tuple(step for crossing in crossings(feed) for step in crossing.steps)


@dataclass(frozen=True)
class KeyBy:
    """The columns whose values get windows of their own; none makes the windows global."""

    input: Feed
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in self.keys:
            kind = field_of(self.input.schema, key, "key").type
            if not is_key_type(kind):
                raise TypeMismatch(
                    f"key column {key!r} has type {kind}; keys can be booleans, numbers, decimals, "
                    "text, binary, dates and timestamps (take a field of it, or turn it into text)"
                )
        if len(set(self.keys)) != len(self.keys):
            raise PlanError(f"key columns are named twice: {', '.join(self.keys)}")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    def label(self) -> str:
        return f"KeyBy[{', '.join(self.keys) or 'global'}]"


@dataclass(frozen=True)
class Inlet:
    """One input of an operator: rows with keys, and what becomes of those that come too late."""

    keyed: KeyBy
    late: LatePolicy

    @property
    def feed(self) -> Feed:
        return self.keyed.input

    @property
    def above(self) -> Derived | None:
        """The operator whose results these rows are, if they are not a source's."""
        below = origin(self.feed)
        return below if isinstance(below, Derived) else None


@dataclass(frozen=True)
class WindowBy:
    """The windows rows are assigned to, and what happens to rows that come too late for them."""

    input: KeyBy
    window: Window
    lateness: Micros = Micros(0)
    late: LatePolicy = Drop()

    def __post_init__(self) -> None:
        if self.gap_column is not None:
            self._check_gap(self.gap_column)
        if isinstance(self.window, Sliding) and self.lateness:
            raise PlanError(
                f"{self.window} with allowed_lateness={render(self.lateness)}: the window around a row "
                "is emitted once, and a row at or below the watermark is late; raise the tolerance"
            )
        if isinstance(self.window, Sliding) and self.window.when is not None:
            check_condition(self.window.when, self.schema)
        check_late(self.late, self.input.input)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def inlet(self) -> Inlet:
        return Inlet(self.input, self.late)

    @property
    def gap_column(self) -> str | None:
        """The column with each row's own gap, where sessions have one."""
        gap = self.window.gap if isinstance(self.window, Session) else None
        return gap if isinstance(gap, str) else None

    def label(self) -> str:
        if isinstance(self.window, AllTime):
            return f"Window[{self.window}]"
        return f"Window[{self.window}, allowed_lateness={render(self.lateness)}, late={self.late}]"

    def _check_gap(self, column: str) -> None:
        kind = field_of(self.schema, column, "gap").type
        if not pa.types.is_duration(kind):
            shown = "a type that Arrow cannot hold" if pa.types.is_null(kind) else f"type {kind}"
            raise TypeMismatch(
                f"gap column {column!r} has {shown}; it must be a day-time interval (for instance, "
                f"from seconds, df.withColumn({column!r}, F.make_dt_interval(secs={column!r})))"
            )


@dataclass(frozen=True)
class Aggregation:
    """Named aggregates over each window."""

    input: WindowBy
    aggregates: tuple[tuple[str, Aggregate], ...]

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise PlanError("agg() needs at least one aggregate, such as rows=tg.count()")
        names = [name for name, _ in self.aggregates]
        if len(set(names)) != len(names):
            raise PlanError(f"agg() names an aggregate twice: {', '.join(names)}")
        columns = [field.name for field in self._own_columns()]
        added = [] if self.by_row else [*(field.name for field in self.bounds), OP.name]
        refuse_collisions(columns, added, "results carry")
        refuse_collisions([*columns, *added], names, "agg() names")
        for name, aggregate in self.aggregates:
            self._result_field(name, aggregate)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def by_row(self) -> bool:
        """Is there a result for each row, beside its own columns, rather than for each window?"""
        return isinstance(self.input.window, Sliding)

    @property
    def folds(self) -> bool:
        """Is there one result for each key, which goes on for ever?"""
        return isinstance(self.input.window, AllTime)

    @property
    def bounds(self) -> tuple[pa.Field, ...]:
        """The columns that say which window a result is of."""
        return () if self.by_row or self.folds else WINDOW_COLUMNS

    @property
    def schema(self) -> pa.Schema:
        results = [self._result_field(name, aggregate) for name, aggregate in self.aggregates]
        return pa.schema([*self._own_columns(), *self.bounds, *results])

    def _own_columns(self) -> list[pa.Field]:
        rows = self.input.schema
        if self.by_row:
            return [readable(rows, name, "a window around each row keeps it") for name in rows.names]
        return [rows.field(key) for key in self.input.input.keys]

    def label(self) -> str:
        return f"Aggregate[{', '.join(f'{name}={agg}' for name, agg in self.aggregates)}]"

    def _result_field(self, name: str, aggregate: Aggregate) -> pa.Field:
        if not isinstance(aggregate, Aggregate):
            raise PlanError(f"{name}={aggregate!r} is not an aggregate; write {name}=tg.sum('column')")
        if not aggregate.mergeable:
            raise NotMergeable(
                f"{name}={aggregate} cannot be computed from partial results, which windows are "
                "built of; use a mergeable one, such as tg.quantile('column', 0.5) for a median"
            )
        column = aggregate.column
        given = None if column is None else readable(self.input.schema, column, str(aggregate)).type
        try:
            return pa.field(name, aggregate.output_type(given))
        except TypeError as error:
            raise TypeMismatch(f"{name}={aggregate}: column {column!r} is {given}; {error}") from None


@dataclass(frozen=True)
class Emit:
    """When results leave, and in which form."""

    input: Aggregation
    emission: Emission = OnWatermark()

    passes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        window = self.windowed
        if self.input.folds and not self.retracts:
            raise EmissionRefused(
                f"{self.emission} without a window: a running fold never closes, so it has no last "
                "result to wait for; use tg.emit.on_update(), changelog() or periodic(…)"
            )
        if self.input.by_row and self.emission != OnWatermark():
            raise EmissionRefused(
                f"{self.emission} over {window.window}: each row has one result, which is final; "
                "leave emit() out"
            )
        merges_late = isinstance(window.window, Session) and window.lateness > 0
        if merges_late and isinstance(self.emission, OnWatermark):
            raise EmissionRefused(
                f"on_watermark() with allowed_lateness={render(window.lateness)}: late rows can merge "
                "sessions that have been emitted, and plain rows cannot take them back; use "
                "tg.emit.changelog(), or tg.emit.on_window_close() for one row a session"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(OP) if self.retracts else self.input.schema

    @property
    def retracts(self) -> bool:
        """Do results take others back?"""
        return isinstance(self.emission, Retracting)

    @property
    def by_row(self) -> bool:
        return self.input.by_row

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell results apart."""
        return (*self.keyed.keys, *(field.name for field in self.input.bounds))

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (self.windowed.inlet,)

    @property
    def windowed(self) -> WindowBy:
        return self.input.input

    @property
    def keyed(self) -> KeyBy:
        return self.windowed.input

    @property
    def feed(self) -> Feed:
        return self.keyed.input

    @property
    def late(self) -> LatePolicy:
        return self.windowed.late

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of(self)

    @property
    def times(self) -> dict[str, Micros]:
        """The columns by which results can go on as events, each with what it holds back.

        A result leaves when the watermark has passed the window and its lateness: so its end lies at
        most the lateness behind, its start the length of the window more.
        """
        window = self.windowed.window
        if isinstance(window, AllTime):
            return {}
        if isinstance(window, Sliding):
            # A row that is moved to the watermark lies at it, not behind it.
            moved = 1 if isinstance(self.late, Reassign) else 0
            return {self.feed.time: Micros(window.reach + moved)}
        lateness = Micros(0) if self.emission == OnWindowClose(final=True) else self.windowed.lateness
        times = {"window_end": lateness}
        length = window.max_length if isinstance(window, Session) else window.size
        return times if length is None else times | {"window_start": Micros(lateness + length)}

    @property
    def order(self) -> tuple[str, ...]:
        """The times that results are in the order of: of each the first that it has."""
        if self.input.folds:
            return ()
        return (self.feed.time if self.by_row else "window_end",)

    @property
    def stays(self) -> Micros | None:
        """How far the watermark passes a result's time before it is never heard of again, if known."""
        return max(self.times.values(), default=None)

    def label(self) -> str:
        return f"Emit[{self.emission}]"


class _Passage:
    """What operators have in common that put out the rows they take in, by key."""

    input: KeyBy
    late: LatePolicy

    retracts: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    #: Do rows go on in the batch they come in? Then whoever reads them judges them as a source's.
    passes: ClassVar[bool] = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (Inlet(self.input, self.late),)

    @property
    def keyed(self) -> KeyBy:
        return self.input

    @property
    def feed(self) -> Feed:
        return self.input.input

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of(self)  # type: ignore[arg-type]

    @property
    def times(self) -> dict[str, Micros]:
        """By its own time, held back by nothing: a row that is late for what follows was late before."""
        return {self.feed.time: Micros(0)}

    @property
    def order(self) -> tuple[str, ...]:
        return (self.feed.time,)

    @property
    def stays(self) -> Micros | None:
        return max(self.times.values())

    def _check_columns(self, name: str) -> None:
        for column in self.schema.names:
            readable(self.schema, column, f"{name}() keeps all columns")


@dataclass(frozen=True)
class Reorder(_Passage):
    """Rows released in the order of event time, then arrival, as far as the watermark has come."""

    input: KeyBy
    late: LatePolicy = Drop()

    passes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_late(self.late, self.feed)
        self._check_columns("reorder")

    @property
    def times(self) -> dict[str, Micros]:
        return {self.feed.time: Micros(1 if isinstance(self.late, Reassign) else 0)}

    def label(self) -> str:
        return f"Reorder[late={self.late}]"


@dataclass(frozen=True)
class Dedupe(_Passage):
    """Of the rows with one id the first to arrive, for as long as ids are remembered.

    The id is the key. It is remembered until the watermark has passed the row's event time by `within`;
    a row that lies that far back itself cannot be checked any more, and is late.
    """

    input: KeyBy
    within: Micros
    late: LatePolicy = Drop()

    def __post_init__(self) -> None:
        if not self.input.keys:
            raise PlanError(
                "dedupe() needs the columns that tell rows apart, such as on=['producer', 'seq']"
            )
        if made_due(self.feed):
            raise PlanError(
                "dedupe() of results of another operator: it puts each of them out once; "
                "dedupe the rows it reads"
            )
        check_late(self.late, self.feed)
        self._check_columns("dedupe")

    def label(self) -> str:
        return f"Dedupe[within={render(self.within)}, late={self.late}]"


@dataclass(frozen=True)
class Admit(_Passage):
    """Rows of each stream, which is the key, as far as its limits allow; the others are rejected."""

    input: KeyBy
    sla: Sla

    late: LatePolicy = field(default=Drop(), init=False, repr=False)

    def __post_init__(self) -> None:
        if made_due(self.feed):
            raise PlanError(
                "admit() of results of another operator: they come when the watermark lets them; "
                "admit the rows it reads"
            )
        if self.sla.arrival is not None:
            kind = field_of(self.schema, self.sla.arrival, "arrival time").type
            if not pa.types.is_timestamp(kind):
                raise TypeMismatch(
                    f"arrival time column {self.sla.arrival!r} has type {kind}; it must be a timestamp"
                )
        self._check_columns("admit")
        names = [field.name for field in REJECTED_COLUMNS]
        refuse_collisions(self.schema.names, names, f"the channel {REJECTED!r} adds")

    def label(self) -> str:
        return f"Admit[{self.sla}]"


@dataclass(frozen=True)
class Join:
    """Pairs of rows of two sides whose keys are equal and whose windows meet.

    Windows of fixed length meet where they overlap, or, with `match="within"`, where the row of the
    longer ones itself lies in the other's; sessions where they touch. `where` is a further condition
    in SQL over the columns of a pair. Rows of a side that `how` keeps leave alone if nothing met them.
    """

    left: WindowBy
    right: WindowBy
    how: How = "inner"
    match: Match = "overlap"
    where: str | None = None

    retracts: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    passes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choices(self.how, self.match)
        check_windows(self.left.window, self.right.window, self.match)
        self._check_keys()
        if len({source.processing_time for source in sources_of(self)}) > 1:
            raise PlanError("join() of event time and processing time: they do not compare")
        if self.where is not None:
            check_condition(self.where, self.schema, "where")
        channels_of(self)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def sides(self) -> tuple[WindowBy, WindowBy]:
        return (self.left, self.right)

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (self.left.inlet, self.right.inlet)

    @property
    def keyed(self) -> KeyBy:
        return self.left.input

    @property
    def pair(self) -> PairColumns:
        return PairColumns.of(*((side.schema, side.input.keys) for side in self.sides))

    @property
    def schema(self) -> pa.Schema:
        return self.pair.schema

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of(self)

    @property
    def times(self) -> dict[str, Micros]:
        """The columns that every result has, each with what it holds back."""
        times: dict[str, Micros] = {}
        for name, time, behind in zip(SIDES, self.order, self._reaches, strict=True):
            if behind is not None and self.how in ("inner", name):
                start, end = window_names(name)
                times |= {time: behind.time, end: behind.window_end, start: behind.window_start}
        return times

    @property
    def order(self) -> tuple[str, ...]:
        sides = zip(SIDES, self.inlets, strict=True)
        return tuple(self.pair.names[name][inlet.feed.time] for name, inlet in sides)

    @property
    def stays(self) -> Micros | None:
        behind = [each.time for each in self._reaches if each is not None]
        return max(behind) if len(behind) == len(SIDES) else None

    @property
    def _reaches(self) -> list[Reach | None]:
        pairs = zip(self.sides, reversed(self.sides), strict=True)
        return [reach(own.window, own.lateness, o.window, o.lateness) for own, o in pairs]

    def label(self) -> str:
        where = "" if self.where is None else f", where={self.where!r}"
        return f"Join[{self.how}, match={self.match}{where}]"

    def _check_keys(self) -> None:
        types = [[side.schema.field(key).type for key in side.input.keys] for side in self.sides]
        if types[0] != types[1]:
            left, right = (
                _columns(pa.schema([side.schema.field(key) for key in side.input.keys]))
                for side in self.sides
            )
            raise TypeMismatch(
                "join() pairs keys in their order, which must be of the same types: "
                f"{left} on the left, {right} on the right"
            )


#: What rows can leave a plan by.
Output = Emit | Reorder | Dedupe | Admit | Join


@dataclass(frozen=True)
class Together:
    """Several operators side by side in one query: what they share is read, and done, once.

    The results of each leave through a channel of its name.
    """

    branches: tuple[tuple[str, Output], ...]

    def __post_init__(self) -> None:
        if not self.branches:
            raise PlanError("together() needs results by name, such as totals=…, sessions=…")
        for name, branch in self.branches:
            if name in RESERVED_CHANNELS or not name.isidentifier():
                raise PlanError(
                    f"together() cannot name results {name!r}: take an identifier that is none of "
                    f"{', '.join(RESERVED_CHANNELS)}"
                )
            if [one for _, one in self.branches].count(branch) > 1:
                raise PlanError(f"together({name}=…): the same results are named twice")
        if len({source.processing_time for source in sources_of(self)}) > 1:
            raise PlanError("together() of event time and processing time: they do not compare")
        channels_of(self)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(branch for _, branch in self.branches)

    @property
    def schema(self) -> pa.Schema:
        raise PlanError("results side by side have no schema in common")

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of(self)

    def label(self) -> str:
        return f"Together[{', '.join(name for name, _ in self.branches)}]"


#: What a query runs.
Plan = Output | Together


def outlets_of(plan: Plan) -> dict[str, Output]:
    """The operators whose results leave a plan, by channel."""
    return dict(plan.branches) if isinstance(plan, Together) else {MAIN: plan}


def stages_of(plan: Plan) -> tuple[Output, ...]:
    """The operators of a plan, each after those that feed it."""
    if isinstance(plan, Together):
        stages: list[Output] = []
        for _, branch in plan.branches:
            stages += (stage for stage in stages_of(branch) if stage not in stages)
        return tuple(stages)
    feeds = (inlet.above for inlet in plan.inlets)
    below = (stage for feed in feeds if feed is not None for stage in stages_of(feed.input))
    return (*below, plan)


def sources_of(plan: Plan) -> tuple[Source, ...]:
    """The sources at the bottom of a plan, from left to right; those that are shared once."""
    if isinstance(plan, Together):
        numbered = {one.number: one for _, branch in plan.branches for one in sources_of(branch)}
        return tuple(numbered[number] for number in sorted(numbered))
    return tuple(source for inlet in plan.inlets for source in _sources_below(inlet.feed))


def channels_of(plan: Plan) -> dict[str, pa.Schema]:
    """Every channel rows can leave through, with the schema it has there."""
    results = {name: end.schema for name, end in outlets_of(plan).items()}
    channels = results | {ERROR_CHANNEL: ERRORS}
    for name, columns in (added for stage in stages_of(plan) for added in _added_channels(stage)):
        schema = pa.schema([field.with_nullable(True) for field in columns])
        if channels.setdefault(name, schema) != schema:
            raise PlanError(f"rows of other columns go to the channel {name!r} already: name another")
    return channels


def _added_channels(stage: Output) -> Iterator[tuple[str, list[pa.Field]]]:
    """Where rows go that an operator sets apart, and with which columns."""
    if isinstance(stage, Admit):
        yield REJECTED, [*stage.schema, *REJECTED_COLUMNS]
    for inlet in stage.inlets:
        for step in steps_of(inlet.feed):
            if isinstance(step, Shed):
                yield SHED, [*step.schema]
        if isinstance(inlet.late, SideOutput):
            yield inlet.late.channel, [*inlet.feed.schema, *LATE_COLUMNS]


def check_late(late: LatePolicy, feed: Feed) -> None:
    """Refuse a policy that has nothing to do, and a channel that cannot be."""
    if made_due(feed) and late != Drop():
        raise PlanError(
            f"late={late}: results of another operator are never late; give the policy to the first"
        )
    if not isinstance(late, SideOutput):
        return
    if processing_time(feed):
        raise PlanError(f"late={late}: rows that are stamped with the time they come at are never late")
    if late.channel in RESERVED_CHANNELS or not late.channel.isidentifier():
        raise PlanError(
            f"late rows cannot go to a channel named {late.channel!r}: take an "
            f"identifier that is none of {', '.join(RESERVED_CHANNELS)}"
        )
    refuse_collisions(feed.schema.names, [f.name for f in LATE_COLUMNS], "the late channel adds")


N = TypeVar("N", bound=Node)


def with_input(node: N, child: Node) -> N:
    """The node over another input, checked again."""
    return replace(node, input=child)  # type: ignore[type-var]


def with_inlets(plan: Output, change: Callable[[Inlet], Inlet]) -> Output:
    """The operator over other rows, or with other policies."""
    changed = [change(inlet) for inlet in plan.inlets]
    if isinstance(plan, Reorder | Dedupe):
        [inlet] = changed
        return replace(plan, input=inlet.keyed, late=inlet.late)
    if isinstance(plan, Admit):
        [inlet] = changed
        return replace(plan, input=inlet.keyed)
    if isinstance(plan, Join):
        left, right = map(_with_inlet, plan.sides, changed)
        return replace(plan, left=left, right=right)
    return with_input(plan, with_input(plan.input, _with_inlet(plan.windowed, *changed)))


def with_feed(plan: Output, feed: Feed) -> Output:
    """The operator over other rows, the same on all sides."""
    return with_inlets(plan, lambda inlet: replace(inlet, keyed=replace(inlet.keyed, input=feed)))


def with_numbers(plan: Output, numbers: Sequence[int]) -> Output:
    """The plan with its sources, from left to right, numbered."""
    left = iter(numbers)

    def numbered(inlet: Inlet) -> Inlet:
        rows = origin(inlet.feed)
        if isinstance(rows, Derived):
            return over(inlet, replace(rows, input=below(rows.input)))
        if isinstance(rows, Union):
            return over(inlet, Union(tuple(replace(one, number=next(left)) for one in rows.inputs)))
        return over(inlet, replace(rows, number=next(left)))

    def below(stage: Output) -> Output:
        return with_inlets(stage, numbered)

    return below(plan)


def over(inlet: Inlet, rows: Source | Union | Derived) -> Inlet:
    """The inlet with its rows coming from elsewhere, through the same steps."""
    feed: Feed = rows
    for crossing in crossings(inlet.feed):
        feed = replace(crossing, input=feed)
    return replace(inlet, keyed=replace(inlet.keyed, input=feed))


def _with_inlet(window: WindowBy, inlet: Inlet) -> WindowBy:
    return replace(window, input=inlet.keyed, late=inlet.late)


def processing_time(feed: Feed) -> bool:
    """Are these rows of a source, stamped with the time they come at?"""
    return not made_due(feed) and any(source.processing_time for source in _sources_below(feed))


def made_due(feed: Feed) -> bool:
    """Are these results that the watermark made due? They came before it, so none of them is late."""
    below = origin(feed)
    return isinstance(below, Derived) and not below.input.passes


def read_by(feed: Feed) -> tuple[Source, ...]:
    """The sources that a feed is rows of."""
    below = origin(feed)
    if isinstance(below, Derived):
        return ()
    return below.inputs if isinstance(below, Union) else (below,)


def _sources_below(feed: Feed) -> tuple[Source, ...]:
    below = origin(feed)
    return sources_of(below.input) if isinstance(below, Derived) else read_by(below)


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    return [(f.name, f.type) for f in one] == [(f.name, f.type) for f in other]


def _columns(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"
