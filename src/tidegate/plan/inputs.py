"""Inputs: how rows come into an operator, by key, and what becomes of those that come too late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.errors import PlanError, TypeMismatch
from tidegate.plan.channels import LATE_COLUMNS, check_channel, late_columns
from tidegate.plan.identity import Values, typed
from tidegate.plan.policies import Drop, LatePolicy, SideOutput
from tidegate.plan.schema import field_of, is_key_type, refuse_collation, refuse_collisions
from tidegate.plan.sources import Node, Upstream
from tidegate.plan.time import Micros

#: A side output: its channel, and the columns of its rows.
SideChannel = tuple[str, list[pa.Field]]


@dataclass(frozen=True)
class KeyBy:
    """The columns whose values get windows of their own; none makes the windows global."""

    input: Upstream
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in self.keys:
            field = field_of(self.input.schema, key, "key")
            kind = field.type
            refuse_collation(field, "key column")
            if not is_key_type(kind):
                raise TypeMismatch(
                    f"key column {key!r} has type {kind}; keys can be booleans, numbers, decimals, "
                    "text, binary, dates, times, intervals, and structs and arrays of these. Of a map, "
                    f"F.array_sort(F.map_entries({key!r})) makes an array that can be a key"
                )
        if len(set(self.keys)) != len(self.keys):
            raise PlanError(f"key columns are named twice: {', '.join(self.keys)}")

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    def label(self) -> str:
        return f"KeyBy[{', '.join(self.keys) or 'global'}]"


@dataclass(frozen=True)
class Input:
    """One input of an operator: rows with keys, and what becomes of those that come too late."""

    keyed: KeyBy
    late: LatePolicy
    #: How far the watermark may pass a row, or the end of its window, before the row is late.
    lateness: Micros = Micros(0)

    @property
    def upstream(self) -> Upstream:
        return self.keyed.input

    def through(self, upstream: Upstream) -> Input:
        """The input over other rows."""
        return replace(self, keyed=replace(self.keyed, input=upstream))

    @property
    def side_outputs(self) -> Iterator[SideChannel]:
        """Where late rows go, and rows that a step sets apart."""
        for step in self.upstream.steps_taken:
            if step.side_channel is not None:
                yield step.side_channel, [*step.schema]
        if self.late.channel is not None:
            rows = self.upstream
            yield self.late.channel, [*rows.schema, *late_columns(rows.schema.field(rows.time).type)]

    def identity(self) -> Values:
        """The keys; of results of another operator also their event time."""
        keys = typed(self.upstream.schema, self.keyed.keys)
        return (
            {"keys": keys}
            if self.upstream.operator is None
            else {"keys": keys, "time": self.upstream.time}
        )

    def settings(self) -> Values:
        return {
            "late": self.late.identity(),
            "steps": [step.identity() for step in self.upstream.steps_taken],
            "sources": [source.settings() for source in self.upstream.read],
        }


def refuse_moving_keys(keyed: KeyBy, late: LatePolicy) -> None:
    """A row that is moved keeps the key it arrived with: it would count at one time, under another.

    Rows of processing time are only moved if the clock goes back, and have no policy to change.
    """
    if late.moves and not keyed.input.processing_time and keyed.input.time in keyed.keys:
        raise PlanError(
            f"late={late} moves late rows in time, and {keyed.input.time!r} is a key here; "
            "use drop() or side_output(), or a key that is a copy of it"
        )


def check_late(late: LatePolicy, upstream: Upstream) -> None:
    """Refuse a policy that has nothing to do, and a channel that cannot be."""
    if upstream.watermark_triggered and late != Drop():
        raise PlanError(
            f"late={late}: results of another operator are never late; give the policy to the first"
        )
    if not isinstance(late, SideOutput):
        return
    if upstream.processing_time:
        raise PlanError(f"late={late}: rows that are stamped with the time they come at are never late")
    check_channel(late.channel, f"late rows cannot go to a channel named {late.channel!r}")
    refuse_collisions(upstream.schema.names, [f.name for f in LATE_COLUMNS], "the late channel adds")


#: The least tolerance that there is: Spark counts in milliseconds, and rounds up.
_ENOUGH = "1 millisecond"


def tie_warning(operator: str, rows: Input) -> str | None:
    """Why rows of the highest event time may be late for an operator to which a row at W is, if so.

    Without a tolerance the watermark is that time, and rows of the next micro-batch may still have it.
    """
    upstream, late = rows.upstream, rows.late
    if upstream.watermark_triggered or upstream.processing_time or late.moves:
        return None  # none of these rows is late, or they count as they are
    if all(source.tolerance for source in upstream.sources):
        return None
    fate = "are dropped" if late.channel is None else f"go to the channel {late.channel!r}"
    return (
        f"{operator} with a tolerance of zero: a row at the watermark is late, so rows that share the "
        f"highest event time of an earlier micro-batch {fate}; a tolerance of {_ENOUGH!r} keeps them. "
        "The counter 'late_rows_at_watermark' says how many there were"
    )
