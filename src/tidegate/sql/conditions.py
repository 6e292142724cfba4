"""ON, taken apart: the equalities that are the key of a join, and what else has to hold for a pair.

What is about one side is computed by Spark, as a column of that side's rows. The kernel of the join is
left with what it surely decides as Spark does: comparisons of such columns, AND, OR and NOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import did_you_mean
from tidegate.plan.analysis import Typed
from tidegate.plan.joins import SIDES, How, Side
from tidegate.plan.nodes import Join
from tidegate.sql.columns import match
from tidegate.sql.rows import Rows
from tidegate.sql.source import Text
from tidegate.sql.spans import (
    Reference,
    Span,
    at_top,
    bare,
    conjuncts,
    disjuncts,
    quoted,
    references,
)
from tidegate.sql.syntax import JoinClause

_COMPARISONS = ("=", "==", "<>", "!=", "<", "<=", ">", ">=")
#: What makes a condition of an expression, whatever it is about.
_PREDICATES = (*_COMPARISONS, "<=>", "IS", "LIKE", "ILIKE", "RLIKE", "IN", "BETWEEN", "NOT", "AND", "OR")
_BOOLEAN = Typed(pa.bool_(), "boolean")

NO_KEY = "a join needs ON with a key: left.column = right.column"

#: A condition for the kernel: pieces of text, and columns of a side, which the plan names in pairs.
Condition = tuple[str | tuple[Side, str], ...]


@dataclass(frozen=True)
class Key:
    """An equality of ON: what is equal on both sides, and whether null equals null."""

    left: Span
    right: Span
    nulls_match: bool

    def of(self, side: Side) -> Span:
        return self.left if side == "left" else self.right


def written(condition: Condition, plan: Join) -> str:
    """The condition over the columns of pairs."""
    names = plan.pair.names
    return "".join(
        part if isinstance(part, str) else quoted(names[part[0]][part[1]]) for part in condition
    )


class On:
    """The condition of a join."""

    def __init__(self, text: Text, join: JoinClause, rows: Mapping[Side, Rows]) -> None:
        self.text, self.rows = text, rows
        self.aliases = self._aliases(join)
        if join.on is None:
            raise text.refuse(join.place, NO_KEY)
        self.keys: list[Key] = []
        self.others: list[Span] = []
        for part in conjuncts(bare(join.on)):
            key = self._key(bare(part))
            if key is None:
                self.others.append(part)
            else:
                self.keys.append(key)
        if not self.keys:
            raise text.refuse(join.on, NO_KEY)

    def _aliases(self, join: JoinClause) -> dict[Side, str]:
        found: dict[Side, str] = {}
        for side in SIDES:
            alias = self.rows[side].relation.alias
            if alias is None:
                raise self.text.refuse(join.place, "a query in a join needs a name: (SELECT …) AS name")
            found[side] = alias
        if found["left"].lower() == found["right"].lower():
            raise self.text.refuse(
                join.place,
                f"both sides are called {found['left']!r}: give them names with AS",
            )
        return found

    # -- keys --------------------------------------------------------------------------------------

    def _key(self, part: Span) -> Key | None:
        """The equality between the sides that a condition is, if it is one."""
        cut = _equality(part)
        if cut is None:
            return None
        one, other, nulls_match = cut
        sides = (*self.sides_of(one), "=", *self.sides_of(other))
        if sides == ("left", "=", "right"):
            return Key(one, other, nulls_match)
        return Key(other, one, nulls_match) if sides == ("right", "=", "left") else None

    def key_columns(self, side: Side) -> tuple[str, ...]:
        """The columns of a side's keys; one that is a key twice is there twice."""
        names: list[str] = []
        for number, key in enumerate(self.keys, 1):
            name = self.rows[side].column_for(key.of(side), f"key_{number}")
            if name in names:
                name = self.rows[side].copy_of(name, key.of(side), f"key_{number}")
            names.append(name)
        return tuple(names)

    # -- whose columns -----------------------------------------------------------------------------

    def sides_of(self, span: Span) -> list[Side]:
        """The sides whose columns an expression names."""
        found = [side for reference in references(span) for side in self._sides_of(reference)]
        return [side for side in SIDES if side in found]

    def _sides_of(self, reference: Reference) -> list[Side]:
        names, span = reference.names, reference.span
        for side, alias in self.aliases.items():
            if len(names) > 1 and names[0].lower() == alias.lower():
                rows = self.rows[side]
                if match(names[1], rows.relation.names) or rows.is_added_time(span):
                    return [side]
                raise rows.relation.no_column(span, span.shown)
        having = [side for side in SIDES if match(names[0], self.rows[side].relation.names)]
        if len(having) == 1 or not reference.sure:
            return having
        if having:
            both = " or ".join(f"{alias}.{names[0]}" for alias in self.aliases.values())
            raise self.text.refuse(span, f"{names[0]!r} is a column of both sides: write {both}")
        known = [f"{self.aliases[s]}.{name}" for s in SIDES for name in self.rows[s].relation.names]
        raise self.text.refuse(span, f"no column {span.shown!r}; {did_you_mean(span.shown, known)}")

    # -- what else has to hold ---------------------------------------------------------------------

    def conditions(self, how: How) -> tuple[Condition, list[Span]]:
        """What the kernel decides, and what Spark does behind an inner join."""
        inside: Condition = ()
        behind: list[Span] = []
        for part in self.others:
            condition = self._condition(bare(part))
            if condition is not None:
                inside = (*inside, *((" AND ",) if inside else ()), *condition)
            elif how == "inner":
                behind.append(part)
            else:
                raise self.text.refuse(
                    part,
                    f"a {how.upper()} JOIN compares an expression of one side with one of the other, of "
                    "one type: write right.ts < left.ts + INTERVAL '5' SECOND, not "
                    "right.ts - left.ts < INTERVAL '5' SECOND",
                )
        return inside, behind

    def _condition(self, part: Span) -> Condition | None:
        """A condition as the kernel decides it; None if it cannot."""
        sides = self.sides_of(part)
        if len(sides) < 2:
            return self._one_sided(part, sides[0] if sides else "left")
        for parts, word in ((disjuncts(part), " OR "), (conjuncts(part), " AND ")):
            if len(parts) > 1:
                return self._combined([self._condition(bare(one)) for one in parts], word)
        if part.says(0, "NOT"):
            inner = self._condition(bare(part[1:]))
            return None if inner is None else ("NOT (", *inner, ")")
        return self._comparison(part)

    def _combined(self, parts: list[Condition | None], word: str) -> Condition | None:
        combined: Condition = ()
        for part in parts:
            if part is None:
                return None
            combined = (*combined, *((word,) if combined else ()), "(", *part, ")")
        return combined

    def _one_sided(self, part: Span, side: Side) -> Condition:
        """True or false of one side's rows: Spark tells."""
        words = [part.tokens[place] for place in at_top(part)]
        is_case = any(word.says("CASE") for word in words)  # its conditions say nothing of its value
        known = any(word.says(*_PREDICATES) for word in words) and not is_case
        name = self.rows[side].column_for(part, "on_1", _BOOLEAN if known else None)
        return ((side, name),)

    def _comparison(self, part: Span) -> Condition | None:
        """Columns of both sides, of one type that the kernel compares as Spark does."""
        cut = _cut_at(part, _COMPARISONS)
        if cut is None:
            return None
        one, sign, other = cut
        sides = (self.sides_of(one), self.sides_of(other))
        if [len(found) for found in sides] != [1, 1]:
            return None
        columns = [(found[0], span) for found, span in zip(sides, (one, other), strict=True)]
        kinds = {self.rows[side].type_of(span).arrow for side, span in columns}
        if len(kinds) != 1 or not _compared_alike(kinds.pop()):
            return None
        left, right = ((side, self.rows[side].column_for(span, "on_1")) for side, span in columns)
        return (left, f" {'=' if sign == '==' else sign} ", right)


def _compared_alike(kind: pa.DataType | None) -> bool:
    """Are values of this type ordered in the same way by Polars as by Spark?"""
    checks = (
        pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string,
        pa.types.is_binary, pa.types.is_date, pa.types.is_timestamp, pa.types.is_duration,
        pa.types.is_decimal,
    )  # fmt: skip
    return kind is not None and any(check(kind) for check in checks)


def _equality(part: Span) -> tuple[Span, Span, bool] | None:
    """Both sides of an equality, and whether null equals null in it."""
    if cut := _cut_at(part, ("=", "==", "<=>")):
        return cut[0], cut[2], cut[1] == "<=>"
    words = ("IS", "NOT", "DISTINCT", "FROM")
    for place in at_top(part):
        if all(part.says(place + number, word) for number, word in enumerate(words)):
            one, other = part[:place], part[place + len(words) :]
            return (
                (one, other, True) if len(one) and len(other) and not _is_compound(one, other) else None
            )
    return None


def _cut_at(part: Span, signs: tuple[str, ...]) -> tuple[Span, str, Span] | None:
    """What stands before and behind the one comparison that a condition is."""
    places = [place for place in at_top(part) if part.says(place, *signs)]
    if len(places) != 1:
        return None
    one, other = part[: places[0]], part[places[0] + 1 :]
    if not len(one) or not len(other) or _is_compound(one, other):
        return None
    return one, part.tokens[places[0]].text, other


def _is_compound(*operands: Span) -> bool:
    """Has an operand conditions in it that bind less than a comparison, or as much?"""
    return any(one.says(place, *_PREDICATES) for one in operands for place in at_top(one))
