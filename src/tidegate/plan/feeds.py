"""Feeds: what has rows with an event time, from a source to the results of another operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tidegate.errors import PlanError, Term, TypeMismatch
from tidegate.plan.columns import field_of, listed, readable, refuse_twins, refuse_unusable
from tidegate.plan.event_time import EventTime
from tidegate.plan.steps import Step
from tidegate.plan.time import Micros, ProcessingTime, render

if TYPE_CHECKING:
    from tidegate.plan.nodes import Output

#: A row that is further ahead of the clock is invalid: nobody's events come from the next century,
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
        refuse_twins(self.row_schema.names)
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

    @property
    def packed_where_read(self) -> bool:
        """Are rows packed by who reads them? Only if nothing of Spark's is needed for their time."""
        plain = self.declared is None and self.row_schema.field(self.time).type.tz is not None
        return self.packs and plain and self.max_future == MAX_FUTURE and self.idle_after is None

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
            if listed(other.row_schema) != listed(first.row_schema):
                raise PlanError(
                    "union() needs the same columns in the same order and of the same types: "
                    f"{listed(first.row_schema)} here, {listed(other.row_schema)} there"
                )

    @property
    def schema(self) -> pa.Schema:
        return self.inputs[0].schema

    @property
    def time(self) -> str:
        return self.inputs[0].time

    def label(self) -> str:
        return "Union"


def _by(time: str) -> Term:
    """What a message about results as events begins with: only Python names a call."""
    return Term(f"events(time={time!r}): ", sql="", yaml="")


@dataclass(frozen=True)
class Derived:
    """The results of an operator as events of the next one, in the same query."""

    input: Output
    time: str

    def __post_init__(self) -> None:
        if self.input.no_events is not None:
            raise PlanError(_by(self.time), *self.input.no_events)
        times = self.input.times
        if self.time not in times:
            short = self.time == "window_start" and list(times) == ["window_end"]
            hint = " (a session of any length has only its end)" if short else ""
            raise PlanError(_by(self.time), f"results go on by {' or '.join(map(repr, times))}{hint}")

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
        refuse_unusable(self.schema.names)

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


def processing_time(feed: Feed) -> bool:
    """Are these rows of a source, stamped with the time they come at?"""
    return not made_due(feed) and any(source.processing_time for source in sources_below(feed))


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


def sources_below(feed: Feed) -> tuple[Source, ...]:
    """The sources at the bottom of a feed, from left to right."""
    below = origin(feed)
    if not isinstance(below, Derived):
        return read_by(below)
    return tuple(one for inlet in below.input.inlets for one in sources_below(inlet.feed))
