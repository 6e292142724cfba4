"""Window joins: two windowed streams, paired by the equalities of ON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from tidegate.dataflow import compile
from tidegate.plan.inputs import KeyBy
from tidegate.plan.joins import SIDES, How, Side
from tidegate.plan.nodes import Join
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.sql.clauses import Sinks, channel_sinks, refuse_clauses
from tidegate.sql.columns import Context
from tidegate.sql.conditions import NO_KEY, On, written
from tidegate.sql.grouping import windowed
from tidegate.sql.pairs import pairs_of
from tidegate.sql.program import Input
from tidegate.sql.relations import Planned, Relation
from tidegate.sql.rows import Rows
from tidegate.sql.source import Text
from tidegate.sql.syntax import JoinClause, Select
from tidegate.sql.windows import WindowTable


@dataclass(frozen=True)
class Read:
    """What FROM or JOIN gives: rows, in windows where it names them."""

    relation: Relation
    windows: WindowTable | None = None


@dataclass(frozen=True)
class Windowed:
    """One side of a join, and what it brings along."""

    node: WindowBy
    inputs: tuple[Input, ...]
    sinks: Sinks


def joined(
    context: Context, select: Select, join: JoinClause, reads: Mapping[Side, Read], sinks: Sinks
) -> Relation:
    """The pairs of a join, under the names of both sides."""
    text = context.text
    refuse_clauses(
        text, select.clauses, "goes with aggregates; pairs leave as they are found", ("emit",)
    )
    how = _how(text, join)
    on = On(text, join, {side: Rows(reads[side].relation) for side in SIDES})
    keys = {side: on.key_columns(side) for side in SIDES}
    condition, behind = on.conditions(how)
    left, right = (_windowed(select, on, side, reads[side].windows, keys[side], sinks) for side in SIDES)
    flags = tuple(key.nulls_match for key in on.keys)
    with text.at(on.keys[0].left):
        plan = Join(left.node, right.node, how, nulls_match=None if all(flags) else flags)
        compile(plan)  # where rows of both sides go beside the pairs
    with text.at(join.place):
        plan = replace(plan, match=join.match or "overlap")
    with text.at(on.others[0] if on.others else join.place):
        plan = replace(plan, where=written(condition, plan) or None)
    channels = channel_sinks(text, select.clauses, sinks, {**left.sinks, **right.sinks})
    planned = Planned(plan, (*left.inputs, *right.inputs), channels)
    pairs: Relation = pairs_of(context, planned, plan, on)
    for part in behind:
        pairs = pairs.level(pairs.expression(part), None)
    return pairs


def _how(text: Text, join: JoinClause) -> How:
    """Whose rows leave alone if nothing meets them."""
    words = [word for word in join.kind if word != "OUTER"] or ["INNER"]
    known: tuple[How, ...] = get_args(How)
    for how in known:
        if words == [how.upper()]:
            return how
    if words == ["CROSS"]:
        raise text.refuse(join.place, NO_KEY)
    raise text.refuse(join.place, f"a join is one of {', '.join(known).upper()}")


def _windowed(
    select: Select,
    on: On,
    side: Side,
    windows: WindowTable | None,
    keys: tuple[str, ...],
    sinks: Sinks,
) -> Windowed:
    text, place, rows = on.text, on.keys[0].of(side), on.rows[side]
    if windows is None:
        raise text.refuse(
            place,
            "both sides of a join are in windows: FROM TABLE(TUMBLE(TABLE a, …)) AS a "
            "JOIN TABLE(TUMBLE(TABLE b, …)) AS b ON a.key = b.key",
        )
    call = rows.settled(windows.call)
    upstream, inputs, sinks_before = rows.upstream(call)
    with text.at(place):
        keyed = KeyBy(upstream, keys)
    return Windowed(windowed(text, select, call, keyed, sinks), inputs, sinks_before)
