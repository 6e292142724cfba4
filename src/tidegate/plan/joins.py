"""Joins between windows: which pairs of windows can meet, how long rows stay, what pairs look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from tidegate.errors import PlanError, did_you_mean
from tidegate.plan.columns import TIMESTAMP, readable, refuse_collisions
from tidegate.plan.time import Micros
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
            *(pa.field(name, TIMESTAMP) for name in bounds),
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
class Reach:
    """How far the watermark may have passed a row, and its window, before its last pair is out."""

    time: Micros
    window_start: Micros
    window_end: Micros


def reach(own: Window, lateness: Micros, other: Window, others_lateness: Micros) -> Reach | None:
    """How long a side's rows stay; None if sessions may go on for any length of time.

    A row stays until its own windows have closed and none that it could meet is open.
    """
    if isinstance(own, Hopping) and isinstance(other, Hopping):
        beyond = 0 if own == other else other.size  # windows it meets begin before its own end
        after_end = max(lateness, beyond + others_lateness)
        time = Micros(own.size + after_end)
        if own.tumbling:
            return Reach(time, window_start=time, window_end=Micros(after_end))
        return Reach(time, window_start=Micros(time + own.size), window_end=time)
    assert isinstance(own, Session)
    assert isinstance(other, Session)
    if own.max_length is None or other.max_length is None:
        return None
    assert not isinstance(other.gap, str)
    after_end = max(lateness, max(other.gap, other.max_length) + others_lateness)
    time = Micros(own.max_length + after_end)
    return Reach(time, window_start=time, window_end=Micros(after_end))
