"""Window joins: two windowed streams, paired by the equalities of ON."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from sqlglot import exp

from tidegate.plan.inlets import KeyBy
from tidegate.plan.joins import SIDES, How, Side, window_names
from tidegate.plan.nodes import Join
from tidegate.plan.windowing import WindowBy
from tidegate.sql.clauses import refuse_clauses
from tidegate.sql.dialect import spark_text
from tidegate.sql.grouping import BOUNDS, Rows, Sinks, feed_of, windowed
from tidegate.sql.program import Input
from tidegate.sql.relations import Planned, Relation, column, identity, knows, resolved
from tidegate.sql.source import Text, refuse_others
from tidegate.sql.windows import WindowTable


@dataclass(frozen=True)
class Read:
    """What FROM or JOIN gives: rows, in windows where it names them."""

    relation: Relation
    windows: WindowTable | None = None


@dataclass(frozen=True)
class On:
    """The condition of a join: what is equal on both sides, in pairs, and what else has to hold."""

    keys: tuple[tuple[exp.Expr, exp.Expr], ...]
    others: tuple[exp.Expr, ...]


@dataclass(frozen=True)
class Windowed:
    """One side of a join, and what it brings along."""

    node: WindowBy
    inputs: tuple[Input, ...]
    sinks: Sinks


def joined(
    text: Text, select: exp.Select, join: exp.Join, left: Read, right: Read, sinks: Sinks
) -> Relation:
    """The pairs of a join, under the names of both sides."""
    refuse_others(text, join, {"this", "side", "kind", "on", "match"}, "write JOIN … ON …")
    refuse_clauses(text, select, "goes with aggregates; pairs leave as they are found", ("emit",))
    on = _on(text, join, left.relation, right.relation)
    one = _windowed(text, select, left, [key for key, _ in on.keys], sinks)
    other = _windowed(text, select, right, [key for _, key in on.keys], sinks)
    with text.at(join.this):
        plan = Join(one.node, other.node, _how(text, join), join.args.get("match") or "overlap")
    origin = Planned(plan, (*one.inputs, *other.inputs), {**one.sinks, **other.sinks})
    names = {
        alias: _names(plan, side)
        for side, read in zip(SIDES, (left, right), strict=True)
        for alias in read.relation.qualified
    }
    pairs = Relation(origin, identity(plan.schema.names), qualified=names)
    return _with_condition(text, pairs, plan, on)


def _with_condition(text: Text, pairs: Relation, plan: Join, on: On) -> Relation:
    """The pairs that meet the rest of ON as well; rows without such a pair met nothing."""
    if not on.others:
        return pairs
    condition = exp.and_(*(resolved(text, part, pairs) for part in on.others))
    with text.at(on.others[0]):
        limited = replace(plan, where=spark_text(condition))
    assert isinstance(pairs.origin, Planned)
    return replace(pairs, origin=replace(pairs.origin, plan=limited))


def _windowed(
    text: Text, select: exp.Select, read: Read, keys: list[exp.Expr], sinks: Sinks
) -> Windowed:
    if read.windows is None:
        raise text.refuse(
            keys[0],
            "both sides of a join are in windows: FROM TABLE(TUMBLE(TABLE a, …)) AS a "
            "JOIN TABLE(TUMBLE(TABLE b, …)) AS b ON a.key = b.key",
        )
    rows = Rows(text, read.relation)
    call = rows.settled(read.windows.call)
    names = [rows.column_for(key, f"key_{number}") for number, key in enumerate(keys, 1)]
    feed, inputs, sinks_before = feed_of(text, rows, call)
    with text.at(keys[0]):
        keyed = KeyBy(feed, tuple(names))
    node, late_sinks = windowed(text, select, call, keyed, sinks)
    return Windowed(node, inputs, {**sinks_before, **late_sinks})


def _names(plan: Join, side: Side) -> dict[str, exp.Expr]:
    """What a side's own names are called in a pair: `c.window_end`, for one."""
    own_keys = (plan.left if side == "left" else plan.right).input.keys
    of_keys = dict(zip(own_keys, plan.left.input.keys, strict=True))
    of_windows = dict(zip(BOUNDS, window_names(side), strict=True))
    found = {**plan.pair.names[side], **of_keys, **of_windows}
    return {name: column(in_pair) for name, in_pair in found.items()}


def _how(text: Text, join: exp.Join) -> How:
    """Whose rows leave alone if nothing meets them."""
    known: tuple[How, ...] = get_args(How)
    for how in known:
        if how == (join.side or "inner").lower() and join.kind.lower() in ("", "inner", "outer"):
            return how
    raise text.refuse(join.this, f"a join is one of {', '.join(known).upper()}")


def _on(text: Text, join: exp.Join, left: Relation, right: Relation) -> On:
    """ON, taken apart. At least one pair has to be equal: it is the key."""
    condition = join.args.get("on")
    parts = list(condition.flatten()) if isinstance(condition, exp.And) else [condition or join]
    pairs = [_pair(part, left, right) for part in parts]
    keys = tuple(pair for pair in pairs if pair)
    if not keys:
        raise text.refuse(
            condition or join.this, "a join needs ON with a key: left.column = right.column"
        )
    return On(keys, tuple(part for part, pair in zip(parts, pairs, strict=True) if not pair))


def _pair(part: exp.Expr, left: Relation, right: Relation) -> tuple[exp.Expr, exp.Expr] | None:
    """Both sides of an equality between the left and the right, in this order."""
    if not isinstance(part, exp.EQ):
        return None
    one, other = part.left, part.right
    if _is_of(left, one) and _is_of(right, other):
        return one, other
    if _is_of(left, other) and _is_of(right, one):
        return other, one
    return None


def _is_of(side: Relation, expression: exp.Expr) -> bool:
    return expression.find(exp.Column) is not None and knows(side, expression)
