"""Sources, and what else an operator can read: rows after steps, and the results of other operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import pyarrow as pa

from tidegate.errors import PlanError, Term, TypeMismatch
from tidegate.plan.event_time import EventTime
from tidegate.plan.identity import Values
from tidegate.plan.schema import field_of, listed, readable, refuse_duplicate_names, refuse_unusable
from tidegate.plan.steps import Step
from tidegate.plan.time import Micros, ProcessingTime, render

if TYPE_CHECKING:
    from tidegate.plan.nodes import AnyOperator
from collections.abc import Mapping

from tidegate.plan.event_time import DATE, EVENT_TIME, EVENT_TIME_TYPES, At
from tidegate.plan.schema import TIMESTAMP, refuse_collisions
from tidegate.plan.time import Duration, micros

#: A row that is further ahead of the clock is invalid: nobody's events come from the next century,
#: and a single one would make all that follows late.
MAX_FUTURE = Micros(36_500 * 86_400_000_000)


class Node(Protocol):
    """What every logical node offers."""

    @property
    def children(self) -> tuple[Node, ...]:
        """What it is put over, for those who draw plans."""
        ...

    @property
    def schema(self) -> pa.Schema: ...

    def label(self) -> str:
        """One line for `explain()`."""
        ...


class _Read:
    """Rows that are read, of one source or several: no operator, and no step, has had them before."""

    python_stages: ClassVar[tuple[Stepped, ...]] = ()
    steps_taken: ClassVar[tuple[Step, ...]] = ()
    operator: ClassVar[None] = None
    watermark_delay: ClassVar[Micros] = Micros(0)
    watermark_triggered: ClassVar[bool] = False
    sheds: ClassVar[bool] = False

    @property
    def origin(self) -> Self:
        return self

    def over(self, rows: Upstream) -> Upstream:
        return rows


@dataclass(frozen=True)
class Source(_Read):
    """Rows with an event time. `columns` is what the plan above reads; None is everything.

    `declared` says where the event time comes from if it is not simply the column `time`: then that
    column is one we add. `number` tells sources apart where operators side by side may share them.
    `packs` says that whoever reads the rows can also pack them, so that Spark never has them as rows.
    """

    row_schema: pa.Schema
    time: str
    tolerance: Micros
    columns: tuple[str, ...] | None = None
    declared: EventTime | ProcessingTime | None = None
    max_future: Micros = MAX_FUTURE
    idle_after: Micros | None = None
    number: int = 0
    packs: bool = False

    def __post_init__(self) -> None:
        refuse_unusable(self.row_schema.names)
        refuse_duplicate_names(self.row_schema.names)
        field = field_of(self.row_schema, self.time, "event time")
        if not pa.types.is_timestamp(field.type):
            raise TypeMismatch(
                f"event time column {self.time!r} has type {field.type}; it must be a timestamp "
                f"(for instance df.withColumn({self.time!r}, F.to_timestamp({self.time!r})))"
            )

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    @property
    def schema(self) -> pa.Schema:
        if self.columns is None:
            return self.row_schema
        return pa.schema([self.row_schema.field(name) for name in self.columns])

    @property
    def processing_time(self) -> bool:
        return isinstance(self.declared, ProcessingTime)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self,)

    @property
    def read(self) -> tuple[Source, ...]:
        return (self,)

    def with_sources(self, change: Callable[[Source], Source]) -> Upstream:
        return change(self)

    def only(self, columns: set[str]) -> Source:
        chosen = tuple(name for name in self.row_schema.names if name in columns)
        return replace(self, columns=chosen)

    @property
    def packed_where_read(self) -> bool:
        """Are rows packed by who reads them? Only if nothing of Spark's is needed for their time."""
        plain = self.declared is None and self.row_schema.field(self.time).type.tz is not None
        return self.packs and plain and self.max_future == MAX_FUTURE and self.idle_after is None

    def settings(self) -> Values:
        """Where the event time comes from, and how long rows may take: not what state is laid out by."""
        return {
            "time": self.time,
            "declared": None if self.declared is None else self.declared.identity(),
            "tolerance": self.tolerance,
            "max_future": self.max_future,
            "idle_after": self.idle_after,
        }

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
class Union(_Read):
    """The rows of several sources; their watermark is the lowest of theirs."""

    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        first, *others = self.sources
        for other in others:
            if other.processing_time != first.processing_time:
                raise PlanError("union() of event time and processing time: they do not compare")
            if other.time != first.time:
                raise PlanError(
                    f"union() of events whose times are {first.time!r} and {other.time!r}: "
                    "give the columns one name"
                )
            if listed(other.row_schema) != listed(first.row_schema):
                raise PlanError(
                    "union() needs the same columns in the same order and of the same types: "
                    f"{listed(first.row_schema)} here, {listed(other.row_schema)} there"
                )

    @property
    def children(self) -> tuple[Node, ...]:
        return self.sources

    @property
    def schema(self) -> pa.Schema:
        return self.sources[0].schema

    @property
    def time(self) -> str:
        return self.sources[0].time

    @property
    def processing_time(self) -> bool:
        return self.sources[0].processing_time

    @property
    def read(self) -> tuple[Source, ...]:
        return self.sources

    def with_sources(self, change: Callable[[Source], Source]) -> Upstream:
        return Union(tuple(map(change, self.sources)))

    def only(self, columns: set[str]) -> Union:
        return Union(tuple(source.only(columns) for source in self.sources))

    def label(self) -> str:
        return "Union"


def _by(time: str) -> Term:
    """What a message about results as events begins with: only Python names a call."""
    return Term(f"events(time={time!r}): ", sql="", yaml="")


@dataclass(frozen=True)
class Derived:
    """The results of an operator as events of the next one, in the same query."""

    input: AnyOperator
    time: str

    python_stages: ClassVar[tuple[Stepped, ...]] = ()
    steps_taken: ClassVar[tuple[Step, ...]] = ()
    read: ClassVar[tuple[Source, ...]] = ()

    def __post_init__(self) -> None:
        if self.input.no_events is not None:
            raise PlanError(_by(self.time), *self.input.no_events)
        times = self.input.times
        if self.time not in times:
            short = self.time == "window_start" and list(times) == ["window_end"]
            hint = " (a session of any length has only its end)" if short else ""
            raise PlanError(_by(self.time), f"results go on by {' or '.join(map(repr, times))}{hint}")

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def origin(self) -> Derived:
        return self

    @property
    def sources(self) -> tuple[Source, ...]:
        return self.input.sources

    @property
    def operator(self) -> AnyOperator:
        return self.input

    @property
    def watermark_delay(self) -> Micros:
        return self.input.times[self.time]

    @property
    def watermark_triggered(self) -> bool:
        return not self.input.forwards

    @property
    def processing_time(self) -> bool:
        stamped = any(source.processing_time for source in self.sources)
        return stamped and not self.watermark_triggered

    @property
    def sheds(self) -> bool:
        return self.input.sheds

    def over(self, rows: Upstream) -> Upstream:
        return rows

    def with_sources(self, change: Callable[[Source], Source]) -> Upstream:
        return replace(self, input=self.input.with_sources(change))

    def only(self, columns: set[str]) -> Derived:
        return replace(self, input=self.input.only(columns))

    def label(self) -> str:
        at_most = "at most " if self.time == "window_start" else ""  # it depends on who reads them
        return f"Events[time={self.time}, watermark_delay={at_most}{render(self.watermark_delay)}]"


@dataclass(frozen=True)
class Stepped:
    """Rows after steps that are taken one after the other, in one Python stage.

    The event time stays what it was: the watermark was made from it.
    """

    input: Upstream
    steps: tuple[Step, ...]
    #: Is packing for the operator part of the stage?
    packed: bool = False

    def __post_init__(self) -> None:
        for name in self.input.schema.names:
            readable(self.input.schema, name, f"{self.steps[0]} is given all columns")
        for name in self.schema.names:
            readable(self.schema, name, f"{self.steps[-1]} gives back")
        refuse_unusable(self.schema.names)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.steps[-1].schema

    @property
    def time(self) -> str:
        return self.input.time

    @property
    def origin(self) -> Source | Union | Derived:
        """What the rows come from, before any steps."""
        return self.input.origin

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources at the bottom, from left to right."""
        return self.input.sources

    @property
    def read(self) -> tuple[Source, ...]:
        """The sources that these are rows of; none if they are results of an operator."""
        return self.input.read

    @property
    def operator(self) -> AnyOperator | None:
        """The operator that these are results of, if so."""
        return self.input.operator

    @property
    def watermark_delay(self) -> Micros:
        """How far the watermark of these rows lies behind that of the operator they come from."""
        return self.input.watermark_delay

    @property
    def python_stages(self) -> tuple[Stepped, ...]:
        """The stages of steps that rows pass, first to last."""
        return (*self.input.python_stages, self)

    @property
    def steps_taken(self) -> tuple[Step, ...]:
        """The steps of all stages in one row."""
        return (*self.input.steps_taken, *self.steps)

    @property
    def watermark_triggered(self) -> bool:
        """Are these results that the watermark made due? They came before it, so none is late."""
        return self.input.watermark_triggered

    @property
    def processing_time(self) -> bool:
        """Are these rows of a source, stamped with the time they come at?"""
        return self.input.processing_time

    @property
    def sheds(self) -> bool:
        """Have some of the rows gone because of the load?"""
        return self.input.sheds or any(step.sheds is not None for step in self.steps)

    def over(self, rows: Upstream) -> Upstream:
        """The same steps over rows that come from elsewhere."""
        return replace(self, input=self.input.over(rows))

    def with_sources(self, change: Callable[[Source], Source]) -> Upstream:
        """The same rows of other sources, which are changed from left to right."""
        return replace(self, input=self.input.with_sources(change))

    def only(self, columns: set[str]) -> Stepped:
        """The rows with these columns, if others can be left out: what functions read nobody knows."""
        return self

    def label(self) -> str:
        steps = ", ".join(map(str, self.steps))
        return f"Fused[{steps}]" if len(self.steps) > 1 else f"Step[{steps}]"


#: What has rows with an event time. Each kind answers what `Stepped` says about the questions.
Upstream = Source | Union | Derived | Stepped


#: A column, where each message has one, or the time rows come at.
Time = str | Mapping[str, str | At] | ProcessingTime

_ADDS = Term("events() adds", sql="the stream adds", yaml="the stream adds")


def declare_source(
    schema: pa.Schema,
    time: Time,
    time_type: str | None = None,
    tolerance: Duration = "0 s",
    max_future: Duration | None = None,
    idle_after: Duration | None = None,
) -> Source:
    """The source of rows of this schema; where they have no timestamp of their own they get one more."""
    declared = _declared(time, time_type or _own_type(schema, time))
    if isinstance(declared, EventTime):
        declared.validate(schema, EVENT_TIME_TYPES)
    own = isinstance(declared, EventTime) and declared.native
    if not own:
        refuse_collisions(schema.names, [EVENT_TIME], _ADDS)
        schema = schema.append(pa.field(EVENT_TIME, TIMESTAMP))
    return Source(
        schema,
        str(time) if own else EVENT_TIME,
        micros(tolerance, "tolerance", zero=True),
        declared=None if own else declared,
        max_future=_optional(max_future, "max_future") or MAX_FUTURE,
        idle_after=_optional(idle_after, "idle_after"),
    )


def _own_type(schema: pa.Schema, time: Time) -> str | None:
    """How a column is read that is no timestamp but says by its type what it is."""
    dates = isinstance(time, str) and time in schema.names and pa.types.is_date(schema.field(time).type)
    return DATE if dates else None


def _declared(time: Time, time_type: str | None) -> EventTime | ProcessingTime:
    if isinstance(time, str):
        return EventTime(((None, At(time, time_type or "timestamp")),))
    if time_type is not None:
        raise PlanError("time_type= goes with the name of a column; messages take tg.at(column, type)")
    if isinstance(time, ProcessingTime):
        return time
    if not isinstance(time, Mapping):
        raise PlanError(
            f"time= takes a column, a mapping of messages, or tg.processing_time(), got {time!r}"
        )
    return EventTime(tuple((m, t if isinstance(t, At) else At(t)) for m, t in time.items()))


def _optional(duration: Duration | None, what: str) -> Micros | None:
    return None if duration is None else micros(duration, what)
