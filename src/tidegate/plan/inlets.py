"""Inlets: how rows come into an operator, by key, and what becomes of those that come too late."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import PlanError, TypeMismatch
from tidegate.plan.channels import LATE_COLUMNS, check_channel
from tidegate.plan.columns import field_of, is_key_type, refuse_collisions
from tidegate.plan.feeds import Derived, Feed, Node, made_due, origin, processing_time
from tidegate.plan.policies import Drop, LatePolicy, Reassign, SideOutput
from tidegate.plan.time import Micros


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
    #: How far the watermark may pass a row, or the end of its window, before the row is late.
    lateness: Micros = Micros(0)

    @property
    def feed(self) -> Feed:
        return self.keyed.input

    @property
    def above(self) -> Derived | None:
        """The operator whose results these rows are, if they are not a source's."""
        below = origin(self.feed)
        return below if isinstance(below, Derived) else None


def refuse_moving_keys(keyed: KeyBy, late: LatePolicy) -> None:
    """A row that is moved keeps the key it arrived with: it would count at one time, under another.

    Rows of processing time are only moved if the clock goes back, and have no policy to change.
    """
    moves = isinstance(late, Reassign) and not processing_time(keyed.input)
    if moves and keyed.input.time in keyed.keys:
        raise PlanError(
            f"late={late} moves late rows in time, and {keyed.input.time!r} is a key here; "
            "use drop() or side_output(), or a key that is a copy of it"
        )


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
    check_channel(late.channel, f"late rows cannot go to a channel named {late.channel!r}")
    refuse_collisions(feed.schema.names, [f.name for f in LATE_COLUMNS], "the late channel adds")
