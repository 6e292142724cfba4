"""Joins between windows: which pairs of windows can meet, how long rows stay, what pairs look like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
class PairColumns:
    """The columns of pairs: keys, the windows of both sides, and both rows' own columns."""

    keys: tuple[pa.Field, ...]
    #: What each side's own columns are called in a pair.
    names: Mapping[Side, Mapping[str, str]]
    schema: pa.Schema

    @classmethod
    def of(
        cls, left: tuple[pa.Schema, Sequence[str]], right: tuple[pa.Schema, Sequence[str]]
    ) -> PairColumns:
        rows, key_names = left
        # A row that met nothing has no columns of the other side, and maybe keys that one never has.
        keys = tuple(rows.field(key).with_nullable(True) for key in key_names)
        own = {side: _own(*given) for side, given in zip(SIDES, (left, right), strict=True)}
        bounds = [pa.field(name, TIMESTAMP) for side in SIDES for name in window_names(side)]
        added = (*keys, *bounds, *own["left"], *own["right"])
        often = Counter(field.name for field in added)
        names = {
            side: {f.name: f"{f.name}_{side}" if often[f.name] > 1 else f.name for f in fields}
            for side, fields in own.items()
        }
        renamed = [
            field.with_name(names[side][field.name]).with_nullable(True)
            for side in SIDES
            for field in own[side]
        ]
        columns = [*keys, *bounds, *renamed]
        twice = [name for name, count in Counter(f.name for f in columns).items() if count > 1]
        refuse_collisions(twice, twice, "join() makes pairs with")
        return cls(keys, names, pa.schema(columns))


def _own(rows: pa.Schema, keys: Sequence[str]) -> list[pa.Field]:
    names = [name for name in rows.names if name not in keys]
    return [readable(rows, name, "join() keeps all columns") for name in names]


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
