"""Plans: operators over feeds, frozen, valid by construction; one of them, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from tidegate.errors import PlanError, Sentence, TypeMismatch
from tidegate.plan.channels import MAIN, check_channel
from tidegate.plan.columns import listed
from tidegate.plan.conditions import check_condition
from tidegate.plan.counters import JOIN_COUNTERS
from tidegate.plan.feeds import Node, Source, sources_below
from tidegate.plan.inlets import Inlet, KeyBy
from tidegate.plan.joins import (
    SIDES,
    How,
    Keyed,
    Match,
    NullsMatch,
    PairColumns,
    Reach,
    check_choices,
    check_nulls_match,
    check_windows,
    nulls_text,
    reach,
    window_names,
)
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.stages import Aside, channels_of
from tidegate.plan.time import Micros
from tidegate.plan.windowing import Emit, WindowBy
from tidegate.plan.windows import Window


@dataclass(frozen=True)
class Join:
    """Pairs of rows of two sides whose keys are equal and whose windows meet.

    Windows of fixed length meet where they overlap, or, with `match="within"`, where the row of the
    longer ones itself lies in the other's; sessions where they touch. `where` is a further condition
    in SQL over the columns of a pair. Rows of a side that `how` keeps leave alone if nothing met them.
    `nulls_match` has a flag for each key: where it is false, a row in which that key is null matches
    nothing. Without it null equals null in every key.
    """

    left: WindowBy
    right: WindowBy
    how: How = "inner"
    match: Match = "overlap"
    where: str | None = None
    nulls_match: NullsMatch = None

    retracts: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    passes: ClassVar[bool] = False
    aside: ClassVar[tuple[Aside, ...]] = ()
    counters: ClassVar[tuple[str, ...]] = JOIN_COUNTERS
    gap_column: ClassVar[None] = None
    result_key: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_choices(self.how, self.match)
        check_windows(self.left.window, self.right.window, self.match)
        self._check_keys()
        check_nulls_match(self.nulls_match, len(self.keyed.keys))
        if len({source.processing_time for source in sources_of(self)}) > 1:
            raise PlanError("join() of event time and processing time: they do not compare")
        if self.where is not None:
            check_condition(self.where, self.schema, "where")
        channels_of({MAIN: self})

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def sides(self) -> tuple[WindowBy, WindowBy]:
        return (self.left, self.right)

    @property
    def title(self) -> str:
        return f"{self.left.window} × {self.right.window}"

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (self.left.inlet, self.right.inlet)

    def with_inlets(self, inlets: Sequence[Inlet]) -> Join:
        """The same operator over other rows, or with other late policies."""
        left, right = inlets
        return replace(self, left=self.left.with_inlet(left), right=self.right.with_inlet(right))

    @property
    def windows(self) -> tuple[Window, ...]:
        return (self.left.window, self.right.window)

    @property
    def keyed(self) -> KeyBy:
        return self.left.input

    @property
    def pair(self) -> PairColumns:
        return PairColumns.of(*(Keyed(side.schema, side.input.keys) for side in self.sides))

    @property
    def schema(self) -> pa.Schema:
        return self.pair.schema

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of({MAIN: self})

    @property
    def no_events(self) -> Sentence | None:
        if self.times:
            return None
        return (
            "no column of these pairs has a time in all of them that lies behind by a known length; a "
            "join of sessions needs a max_length on both sides, and of full joins either side may be "
            "missing",
        )

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
        names = self.pair.names
        sides = zip(SIDES, self.sides, strict=True)
        return tuple(names[name][side.input.input.time] for name, side in sides)

    @property
    def strict_keys(self) -> tuple[str, ...]:
        """The keys, by the left side's names, in which null equals nothing."""
        flags = self.nulls_match or (True,) * len(self.keyed.keys)
        return tuple(key for key, match in zip(self.keyed.keys, flags, strict=True) if not match)

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
        return f"Join[{self.how}, match={self.match}{nulls_text(self.nulls_match)}{where}]"

    def _check_keys(self) -> None:
        types = [[side.schema.field(key).type for key in side.input.keys] for side in self.sides]
        if types[0] != types[1]:
            left, right = (
                listed(pa.schema([side.schema.field(key) for key in side.input.keys]))
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
            check_channel(name, f"together() cannot name results {name!r}")
            if [one for _, one in self.branches].count(branch) > 1:
                raise PlanError(f"together({name}=…): the same results are named twice")
        if len({source.processing_time for source in sources_of(self)}) > 1:
            raise PlanError("together() of event time and processing time: they do not compare")
        channels_of(dict(self.branches))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return tuple(branch for _, branch in self.branches)

    @property
    def schema(self) -> pa.Schema:
        raise PlanError("results side by side have no schema in common")

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of(dict(self.branches))

    def label(self) -> str:
        return f"Together[{', '.join(name for name, _ in self.branches)}]"


#: What a query runs.
Plan = Output | Together


def outlets_of(plan: Plan) -> dict[str, Output]:
    """The operators whose results leave a plan, by channel."""
    return dict(plan.branches) if isinstance(plan, Together) else {MAIN: plan}


def sources_of(plan: Plan) -> tuple[Source, ...]:
    """The sources at the bottom of a plan, from left to right; those that are shared once."""
    if isinstance(plan, Together):
        numbered = {one.number: one for _, branch in plan.branches for one in sources_of(branch)}
        return tuple(numbered[number] for number in sorted(numbered))
    return tuple(source for inlet in plan.inlets for source in sources_below(inlet.feed))
