"""The results of a join under the names of both sides: `c.price`, `v.*`, `v.window_end`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidegate.errors import did_you_mean
from tidegate.plan.channels import WINDOW_COLUMNS
from tidegate.plan.event_time import EVENT_TIME
from tidegate.plan.joins import SIDES, Side, keeps, window_names
from tidegate.plan.nodes import Join
from tidegate.sql.columns import Context, Declared, Expression, match
from tidegate.sql.conditions import On
from tidegate.sql.relations import Columns, Planned, Relation
from tidegate.sql.spans import Reference, Replacement, Span, lambda_names, quoted, references, spliced
from tidegate.sql.types import column_names

#: What a side's own name is in a pair: the text, and the column, if it is one as it is.
InPair = tuple[str, str | None]


@dataclass(frozen=True)
class Pairs(Relation):
    """Pairs of rows. The columns of a side are found by its alias, or alone where only one has them."""

    sides: Mapping[str, Mapping[str, InPair]] = field(default_factory=dict)
    #: Are there columns that the query has not named, but computed for the join?
    has_others: bool = False

    def text_of(self, span: Span, before: Iterable[str] = ()) -> str:
        """The text with the names of both sides replaced by those of pairs."""
        return spliced(span, self._replacements(span, tuple(before)))

    def column(self, span: Span) -> str | None:
        names = column_names(span)
        found = None if names is None else self._lookup(tuple(names))
        return None if found is None or len(found[1]) > 0 else found[0][1]

    def star(self, item: Span, of: str | None) -> dict[str, Expression]:
        if of is None:
            return super().star(item, None)
        alias = match(of, self.sides)
        if alias is None:
            raise self.context.text.refuse(
                item, f"no stream or view {of!r} in FROM; {did_you_mean(of, self.sides)}"
            )
        return {name: Expression(text, item, c) for name, (text, c) in self.sides[alias].items()}

    def _same(self, columns: Columns) -> bool:
        return not self.has_others and super()._same(columns)

    def _replacements(self, span: Span, before: tuple[str, ...]) -> Iterator[Replacement]:
        variables = lambda_names(span)
        for reference in references(span):
            if reference.names[0].lower() in variables:
                continue
            found = self._lookup(reference.names)
            if found is None:
                self._refuse(reference, before)
                continue
            (text, _), fields = found
            end = reference.place + len(reference.span)
            yield reference.place, end, ".".join([text, *map(quoted, fields)])

    def _lookup(self, names: tuple[str, ...]) -> tuple[InPair, tuple[str, ...]] | None:
        """What names stand for, and the fields of it that they name."""
        alias = match(names[0], self.sides) if len(names) > 1 else None
        if alias is not None:
            column = match(names[1], self.sides[alias])
            return None if column is None else (self.sides[alias][column], names[2:])
        having = [side[name] for side in self.sides.values() if (name := match(names[0], side))]
        alone = len({text for text, _ in having}) == 1
        return (having[0], names[1:]) if alone else None

    def _refuse(self, reference: Reference, before: tuple[str, ...]) -> None:
        """Refuse what is no column for sure; names of pairs are columns as well."""
        names, text, span = reference.names, self.context.text, reference.span
        alias = match(names[0], self.sides) if len(names) > 1 else None
        if alias is not None:
            raise text.refuse(
                span, f"no column {span.shown!r}; {did_you_mean(names[1], self.sides[alias])}"
            )
        if not reference.sure or match(names[0], (*self.names, *before)):
            return
        both = [f"{alias}.{names[0]}" for alias, side in self.sides.items() if match(names[0], side)]
        if both:
            raise text.refuse(span, f"{names[0]!r} is a column of both sides: write {' or '.join(both)}")
        known = [f"{alias}.{name}" for alias, side in self.sides.items() for name in side]
        raise text.refuse(span, f"no column {span.shown!r}; {did_you_mean(span.shown, known)}")


def pairs_of(context: Context, planned: Planned, plan: Join, on: On) -> Pairs:
    """The pairs of a join. What was computed for it is not among their names."""
    visible = {side: _visible(on.rows[side].relation) for side in SIDES}
    shown = {plan.pair.names[side][own] for side in SIDES for own in visible[side].values()}
    hidden = {name for side in SIDES for name in plan.pair.names[side].values()} - shown
    names = tuple(name for name in plan.schema.names if name not in hidden)
    sides = {on.aliases[side]: _side(plan, side, visible[side]) for side in SIDES}
    kept = {name: name for name in plan.schema.names}
    return Pairs(
        context, planned, Declared(plan.schema), names, kept=kept, sides=sides, has_others=bool(hidden)
    )


def _visible(relation: Relation) -> dict[str, str]:
    """The columns of a side that a query can name, and what its windows call them."""
    if isinstance(relation.origin, Planned):
        return {name: relation.kept[name] for name in relation.names if name in relation.kept}
    added = (EVENT_TIME,) if relation.adds_time and EVENT_TIME not in relation.names else ()
    return {name: name for name in (*relation.names, *added)}


def _side(plan: Join, side: Side, names: Mapping[str, str]) -> dict[str, InPair]:
    """A side's own columns and the bounds of its window, as they are called in a pair."""
    found: dict[str, InPair] = {}
    for name, own in names.items():
        column = plan.pair.names[side][own]
        found[name] = (quoted(column), column)
        if _is_shared(plan, own) and _may_miss(plan, side):
            # One column has the key of whichever side is there: of a missing side it is null.
            there = quoted(window_names(side)[0])
            found[name] = (f"(CASE WHEN {there} IS NOT NULL THEN {quoted(column)} END)", None)
    bounds = zip((bound.name for bound in WINDOW_COLUMNS), window_names(side), strict=True)
    return found | {bound: (quoted(name), name) for bound, name in bounds if bound not in found}


def _is_shared(plan: Join, name: str) -> bool:
    keys = zip(plan.left.input.keys, plan.right.input.keys, strict=True)
    return any(one == other == name for one, other in keys)


def _may_miss(plan: Join, side: Side) -> bool:
    """Can a result lack this side? It does where the other one meets nothing and is kept."""
    other: Side = "right" if side == "left" else "left"
    return keeps(plan.how, other)
