"""Window joins: two windowed streams, paired by the equalities of ON."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidegate.sql.grouping import Rows
from tidegate.sql.relations import Relation, knows
from tidegate.sql.source import Text, refuse_others
from tidegate.sql.windows import WindowTable

_HOW = ("inner", "left", "right", "full")


@dataclass(frozen=True)
class Read:
    """What FROM or JOIN gives: rows, in windows where it names them."""

    relation: Relation
    windows: WindowTable | None = None


@dataclass(frozen=True)
class On:
    """The condition of a join: what is equal on both sides, in pairs, and what else has to hold."""

    left: tuple[exp.Expr, ...]
    right: tuple[exp.Expr, ...]
    others: tuple[exp.Expr, ...]


def joined(text: Text, join: exp.Join, left: Read, right: Read) -> Relation:
    """The pairs of a join."""
    refuse_others(text, join, {"this", "side", "kind", "on", "match"}, "write JOIN … ON …")
    how_of(text, join)
    on = on_of(text, join, left.relation, right.relation)
    for side, keys in ((left, on.left), (right, on.right)):
        rows = Rows(text, side.relation)
        for number, key in enumerate(keys, 1):
            rows.column_for(key, f"key_{number}")
        if side.windows is None:
            raise text.refuse(
                join.this,
                "both sides of a join are in windows: FROM TABLE(TUMBLE(TABLE a, …)) AS a "
                "JOIN TABLE(TUMBLE(TABLE b, …)) AS b ON a.key = b.key",
            )
    raise text.refuse(join.this, "joins of windows are not available yet")


def how_of(text: Text, join: exp.Join) -> str:
    """Whose rows leave alone if nothing meets them."""
    how = (join.side or "inner").lower()
    if how not in _HOW or join.kind.lower() not in ("", "inner", "outer"):
        raise text.refuse(join.this, f"a join is one of {', '.join(_HOW).upper()}")
    return how


def on_of(text: Text, join: exp.Join, left: Relation, right: Relation) -> On:
    """ON, taken apart. At least one pair has to be equal: it is the key."""
    condition = join.args.get("on")
    keys, others = [], []
    for part in condition.flatten() if isinstance(condition, exp.And) else [condition]:
        pair = _pair(part, left, right)
        if pair is not None:
            keys.append(pair)
        elif part is not None:
            others.append(part)
    if not keys:
        raise text.refuse(
            condition or join.this, "a join needs ON with a key: left.column = right.column"
        )
    return On(tuple(one for one, _ in keys), tuple(one for _, one in keys), tuple(others))


def _pair(part: exp.Expr | None, left: Relation, right: Relation) -> tuple[exp.Expr, exp.Expr] | None:
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
