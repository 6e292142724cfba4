"""Joins of windows: which windows can match, how long rows are retained, what pairs look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from tidegate.errors import PlanError, Sentence, TypeMismatch, did_you_mean
from tidegate.plan.channels import JOIN_COUNTERS
from tidegate.plan.conditions import check_condition
from tidegate.plan.identity import Values, typed
from tidegate.plan.inputs import Input, KeyBy
from tidegate.plan.operator import Operator
from tidegate.plan.schema import listed, readable, refuse_collisions
from tidegate.plan.sources import Node
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.plan.windows import Hopping, Session, Window

How = Literal["inner", "left", "right", "full"]
Match = Literal["overlap", "within"]
Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")

_WORKS = "tumbling × tumbling, tumbling × hopping (either way round) and session × session work"


def check_choices(how: str, match: str) -> None:
    for name, given, choices in (("how", how, get_args(How)), ("match", match, get_args(Match))):
        if given not in choices:
            raise PlanError(f"join({name}={given!r}): {did_you_mean(str(given), choices)}")


def check_windows(left: Window, right: Window, match: Match) -> None:
    """Refuse windows of which no rule says when they meet."""
    pair = f"join() of {left} and {right}"
    if isinstance(left, Session) and isinstance(right, Session):
        if isinstance(left.gap, str) or isinstance(right.gap, str):
            raise PlanError(
                f"{pair}: a row with a gap of its own may reach back any length of time, so no session "
                "it could meet could ever be let go; give both sides one gap for all rows"
            )
        if match != "overlap":
            raise PlanError(f"{pair} with match={match!r}: sessions meet where they touch; leave it out")
        return
    if not (isinstance(left, Hopping) and isinstance(right, Hopping)):
        raise PlanError(f"{pair}: {_WORKS}")
    if not (left.tumbling or right.tumbling):
        raise PlanError(f"{pair}: one of them must tumble; {_WORKS}")


def keeps(how: How, side: Side) -> bool:
    """Do rows of the side that meet nothing leave alone?"""
    return how in (side, "full")


def window_names(side: Side) -> tuple[str, str]:
    """The columns that show a side's window."""
    return f"{side}_window_start", f"{side}_window_end"


@dataclass(frozen=True)
class Keyed:
    """The rows of one side, and the names of their keys."""

    rows: pa.Schema
    keys: tuple[str, ...]
    time: str

    @property
    def others(self) -> list[str]:
        return [name for name in self.rows.names if name not in self.keys]


@dataclass(frozen=True)
class PairColumns:
    """The columns of pairs: the keys of both sides, their windows, and both rows' other columns.

    A key that has the same name on both sides is one column, which every result has. All other columns
    belong to one side, and are null where it is missing.
    """

    #: What each side's columns are called in a pair, its keys among them.
    names: Mapping[Side, Mapping[str, str]]
    schema: pa.Schema

    @classmethod
    def of(cls, left: Keyed, right: Keyed) -> PairColumns:
        sides: dict[Side, Keyed] = {"left": left, "right": right}
        shared = {one for one, other in zip(left.keys, right.keys, strict=True) if one == other}
        right_keys = [key for key in right.keys if key not in shared]
        bounds = [name for side in SIDES for name in window_names(side)]
        # Keys keep their names beside other columns that have the same.
        of_keys = Counter([*left.keys, *right_keys, *bounds])
        of_all = of_keys + Counter([*left.others, *right.others])
        names = {
            side: {
                name: _suffixed(name, side, of_keys if name in one.keys else of_all, shared)
                for name in one.rows.names
            }
            for side, one in sides.items()
        }

        def column(side: Side, name: str) -> pa.Field:
            field = readable(sides[side].rows, name, "join() keeps all columns")
            return field.with_name(names[side][name]).with_nullable(True)  # its side may be missing

        columns = [
            *(column("left", key) for key in left.keys),
            *(column("right", key) for key in right_keys),
            *(
                pa.field(name, one.rows.field(one.time).type)
                for side, one in sides.items()
                for name in window_names(side)
            ),
            *(column("left", name) for name in left.others),
            *(column("right", name) for name in right.others),
        ]
        twice = [name for name, count in Counter(f.name for f in columns).items() if count > 1]
        refuse_collisions(twice, twice, "join() makes pairs with")
        return cls(names, pa.schema(columns))


def _suffixed(name: str, side: Side, often: Mapping[str, int], shared: Collection[str]) -> str:
    return f"{name}_{side}" if often[name] > 1 and name not in shared else name


NullsMatch = tuple[bool, ...] | None


def check_nulls_match(given: object, keys: int) -> None:
    """Refuse what is not one truth value for each key."""
    if given is None:
        return
    if not isinstance(given, tuple) or not all(isinstance(flag, bool) for flag in given):
        raise PlanError(f"join(nulls_match={given!r}): give True or False, for all keys or for each")
    if len(given) != keys:
        raise PlanError(f"join(nulls_match={given!r}): {len(given)} for {keys} keys; give one for each")


def nulls_text(given: NullsMatch) -> str:
    """What plans show of it where null does not match null in every key."""
    if given is None or all(given):
        return ""
    return f", nulls_match={given if any(given) else False}"


@dataclass(frozen=True)
class Retention:
    """How far the watermark may have passed a row, and its window, before its last pair is out."""

    time: Micros
    window_start: Micros
    window_end: Micros


def retention(own: Window, lateness: Micros, other: Window, others_lateness: Micros) -> Retention | None:
    """How long a side's rows are retained; None if sessions have no maximum length.

    A row is retained until its own windows have closed and none that it could meet is open.
    """
    if isinstance(own, Hopping) and isinstance(other, Hopping):
        beyond = 0 if own == other else other.size  # windows it meets begin before its own end
        after_end = max(lateness, beyond + others_lateness)
        time = Micros(own.size + after_end)
        if own.tumbling:
            return Retention(time, window_start=time, window_end=Micros(after_end))
        return Retention(time, window_start=Micros(time + own.size), window_end=time)
    assert isinstance(own, Session)
    assert isinstance(other, Session)
    if own.max_length is None or other.max_length is None:
        return None
    assert not isinstance(other.gap, str)
    after_end = max(lateness, max(other.gap, other.max_length) + others_lateness)
    time = Micros(own.max_length + after_end)
    return Retention(time, window_start=time, window_end=Micros(after_end))


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
        return PairColumns.of(
            *(Keyed(side.schema, side.input.keys, side.input.input.time) for side in self.sides)
        )

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
        for name, time, behind in zip(SIDES, self.order, self._retentions, strict=True):
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
    def _retentions(self) -> list[Retention | None]:
        pairs = zip(self.sides, reversed(self.sides), strict=True)
        return [retention(own.window, own.lateness, o.window, o.lateness) for own, o in pairs]

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
