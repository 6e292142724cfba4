"""Plans: operators over feeds, frozen, valid by construction; one of them, or several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from tidegate.errors import PlanError, Sentence, TypeMismatch
from tidegate.plan.channels import check_channel
from tidegate.plan.columns import listed
from tidegate.plan.conditions import check_condition
from tidegate.plan.counters import JOIN_COUNTERS
from tidegate.plan.feeds import Node, Source
from tidegate.plan.identity import Values, typed
from tidegate.plan.inputs import Input, KeyBy
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
from tidegate.plan.operator import Operator
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.time import Micros
from tidegate.plan.windowing import Emit, WindowBy
from tidegate.plan.windows import Window


@dataclass(frozen=True)
class Join(Operator):
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

    kind: ClassVar[str] = "join"
    input_names: ClassVar[tuple[str, ...]] = SIDES
    by_row: ClassVar[bool] = True
    counters: ClassVar[tuple[str, ...]] = JOIN_COUNTERS

    def __post_init__(self) -> None:
        check_choices(self.how, self.match)
        check_windows(self.left.window, self.right.window, self.match)
        self._check_keys()
        check_nulls_match(self.nulls_match, len(self.keyed.keys))
        if len({source.processing_time for source in self.sources}) > 1:
            raise PlanError("join() of event time and processing time: they do not compare")
        pairs = self.schema  # names that pairs cannot have are refused
        if self.where is not None:
            check_condition(self.where, pairs, "where")

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def sides(self) -> tuple[WindowBy, WindowBy]:
        return (self.left, self.right)

    @property
    def title(self) -> str:
        return f"{self.left.window} × {self.right.window}"

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.left.as_input, self.right.as_input)

    def with_inputs(self, inputs: Sequence[Input]) -> Join:
        left, right = inputs
        return replace(self, left=self.left.over(left), right=self.right.over(right))

    def identity(self) -> Values:
        kept = ({"rows": typed(side.schema, side.schema.names)} for side in self.sides)
        inputs = (side.identity() | rows for side, rows in zip(self.sides, kept, strict=True))
        return {
            "kind": self.kind,
            "inputs": self.by_input(inputs),
            "how": self.how,
            "match": self.match,
            "where": self.where,
            "strict_keys": list(self.strict_keys),
        }

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
    def _reaches(self) -> list[Reach | None]:
        pairs = zip(self.sides, reversed(self.sides), strict=True)
        return [reach(own.window, own.lateness, o.window, o.lateness) for own, o in pairs]

    def label(self) -> str:
        where = "" if self.where is None else f", where={self.where!r}"
        return f"Join[{self.how}, match={self.match}{nulls_text(self.nulls_match)}{where}]"

    def labels(self) -> list[str]:
        sides = [node.label() for side in self.sides for node in (side.input, side)]
        return [*sides, self.label()]

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

    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.branches:
            raise PlanError("together() needs results by name, such as totals=…, sessions=…")
        for name, branch in self.branches:
            check_channel(name, f"together() cannot name results {name!r}")
            if [one for _, one in self.branches].count(branch) > 1:
                raise PlanError(f"together({name}=…): the same results are named twice")
        if len({source.processing_time for source in self.sources}) > 1:
            raise PlanError("together() of event time and processing time: they do not compare")

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(branch for _, branch in self.branches)

    @property
    def schema(self) -> pa.Schema:
        raise PlanError("results side by side have no schema in common")

    @property
    def sources(self) -> tuple[Source, ...]:
        """What branches read, in order; sources that several share once."""
        numbered = {one.number: one for _, branch in self.branches for one in branch.sources}
        return tuple(numbered[number] for number in sorted(numbered))

    @property
    def outputs(self) -> dict[str, Output]:
        return dict(self.branches)

    def with_outputs(self, outputs: Mapping[str, Output]) -> Together:
        return Together(tuple(outputs.items()))

    def label(self) -> str:
        return f"Together[{', '.join(name for name, _ in self.branches)}]"


#: What a query runs.
Plan = Output | Together
