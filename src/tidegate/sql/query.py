"""Queries: SELECT and UNION ALL as relations, views and nested queries included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidegate.errors import did_you_mean
from tidegate.plan.inputs import KeyBy
from tidegate.plan.joins import Side
from tidegate.plan.pass_through import Reorder
from tidegate.sql.aggregates import aggregates_in
from tidegate.sql.clauses import channel_sinks, late_policy, refuse_clauses
from tidegate.sql.columns import Context, Expression, match
from tidegate.sql.grouping import grouped
from tidegate.sql.joins import Read, joined
from tidegate.sql.program import SinkTable
from tidegate.sql.refusals import refuse_foreign
from tidegate.sql.relations import Planned, Relation, events_of, members_of, of_plan, of_union
from tidegate.sql.source import Text
from tidegate.sql.spans import Span
from tidegate.sql.syntax import (
    Item,
    NamedTable,
    NestedQuery,
    Query,
    Select,
    Table,
    UnionAll,
)
from tidegate.sql.tokens import Token
from tidegate.sql.windows import is_window, no_window, window_call, window_table


@dataclass(frozen=True)
class Scope:
    """What names mean while a query is compiled."""

    context: Context
    relations: Mapping[str, Relation]
    sinks: Mapping[str, SinkTable]

    @property
    def text(self) -> Text:
        return self.context.text

    def relation(self, name: Token) -> Relation:
        found = match(name.name, self.relations)
        if found is None:
            hint = did_you_mean(name.name, self.relations)
            raise self.text.refuse(name, f"no stream or view {name.name!r}; {hint}")
        return self.relations[found]

    def with_relation(self, name: str, relation: Relation) -> Scope:
        others = {known: one for known, one in self.relations.items() if known.lower() != name.lower()}
        return replace(self, relations={**others, name: relation.known_as(name)})


def relation_of(scope: Scope, query: Query | Select | UnionAll) -> Relation:
    """The rows that a query gives."""
    if isinstance(query, Select):
        return _select(scope, query)
    if isinstance(query, UnionAll):
        return _union(scope, query)
    for name, view in query.views:
        scope = scope.with_relation(name.name, relation_of(scope, view))
    return relation_of(scope, query.body)


def _select(scope: Scope, select: Select, names: tuple[str, ...] | None = None) -> Relation:
    """The rows of one SELECT; `names` are those that its columns get, whatever it calls them."""
    text = scope.text
    _refuse_what_is_not_ours(text, select)
    if select.joins:
        return _join(scope, select)
    read = _read(scope, select)
    relation = read.relation
    if select.where is not None:
        for call in aggregates_in(select.where):
            raise text.refuse(call.span, "WHERE comes before the windows: use HAVING")
    if select.group is not None or read.windows or _has_aggregates(select):
        return _group(scope, select, read)
    if select.having is not None:
        raise text.refuse(select.having, "HAVING needs a GROUP BY with a window; use WHERE")
    if select.order:
        return _reorder(scope, select, relation)
    refuse_clauses(text, select.clauses, "goes with a window in GROUP BY", ("emit", "lateness", "late"))
    rows = _project(scope, select, relation, names)
    if isinstance(rows.origin, Planned):
        refuse_clauses(text, select.clauses, "goes with the query that has the window", ("errors",))
    return replace(rows, sinks=channel_sinks(text, select.clauses, scope.sinks, rows.sinks))


def _refuse_what_is_not_ours(text: Text, select: Select) -> None:
    spans = [item.value for item in select.items]
    spans += [span for span in (select.where, select.having) if span is not None]
    spans += [join.on for join in select.joins if join.on is not None]
    for span in (*spans, *select.order):
        refuse_foreign(text, span)
    for item in select.items:
        if is_window(item.value):
            raise text.refuse(
                item.value,
                f"a window stands in GROUP BY itself, as {item.value.shown}; SELECT has its bounds, "
                "window_start and window_end",
            )


def _has_aggregates(select: Select) -> bool:
    return any(aggregates_in(item.value) for item in select.items)


def _read(scope: Scope, select: Select) -> Read:
    if select.table is None:
        raise scope.text.refuse(select.place, "a query needs FROM: a stream or a view")
    return _table(scope, select.table)


def _table(scope: Scope, table: Table) -> Read:
    """A stream, a view, a nested query, or windows over a stream or a view."""
    if isinstance(table, NamedTable):
        return Read(scope.relation(table.name).known_as(table.alias or table.name.name))
    if isinstance(table, NestedQuery):
        return Read(relation_of(scope, table.query).known_as(table.alias))
    windows = window_table(scope.text, table.call)
    relation = scope.relation(windows.table)
    return Read(relation.known_as(table.alias or windows.table.name), windows)


def _join(scope: Scope, select: Select) -> Relation:
    """Pairs of rows of two windowed streams."""
    text, (join, *others) = scope.text, select.joins
    if others:
        raise text.refuse(
            others[0].place, "a query joins two streams; join its result in a further query"
        )
    if select.group is not None or select.having is not None or _has_aggregates(select):
        raise text.refuse(select.place, "join first, in a view, and group what it gives")
    if select.order:
        raise text.refuse(select.order[0], "ORDER BY is for streams: pairs leave as they are found")
    reads: dict[Side, Read] = {"left": _read(scope, select), "right": _table(scope, join.table)}
    return _project(scope, select, joined(scope.context, select, join, reads, scope.sinks))


def _project(
    scope: Scope, select: Select, relation: Relation, names: tuple[str, ...] | None = None
) -> Relation:
    """Other columns of the same rows."""
    columns = _columns(scope.text, select, relation, names)
    where = None if select.where is None else relation.expression(select.where)
    return relation.level(where, columns)


def _columns(
    text: Text, select: Select, relation: Relation, names: tuple[str, ...] | None
) -> dict[str, Expression]:
    """What a query selects, by name, `*` spelled out."""
    columns: dict[str, Expression] = {}
    for number, item in enumerate(select.items):
        given = None if names is None or number >= len(names) else names[number]
        for name, value in _named(text, item, relation, tuple(columns), given):
            if match(name, columns):
                raise text.refuse(
                    item.value, f"two columns are called {name!r}: name one of them with AS"
                )
            columns[name] = value
    return columns


def _named(
    text: Text, item: Item, relation: Relation, before: tuple[str, ...], given: str | None
) -> Iterator[tuple[str, Expression]]:
    if item.is_star:
        yield from relation.star(item.value, item.star_of).items()
        return
    name = item.name or given
    if name is None:
        shown = item.value.shown
        raise text.refuse(item.value, f"{shown} needs a name: write {shown} AS name")
    yield name, relation.expression(item.value, before)


def _group(scope: Scope, select: Select, read: Read) -> Relation:
    text = scope.text
    if select.order:
        raise text.refuse(select.order[0], "ORDER BY is for rows: results leave as their windows do")
    by = list(select.group or ())
    for span in by:
        refuse_foreign(text, span)
    calls = [span for span in by if is_window(span)]
    if not calls and read.windows is None:
        raise no_window(text, by, by[0] if by else select.place)
    if len(calls) > (read.windows is None):
        raise text.refuse(calls[-1], "a query has one window")
    keys = [span for span in by if not is_window(span)]
    call = read.windows or window_call(text, calls[0])
    return grouped(scope.context, select, read.relation, call, keys, scope.sinks)


def _reorder(scope: Scope, select: Select, relation: Relation) -> Relation:
    """ORDER BY the event time: rows leave in that order, as far as the watermark has come."""
    text, (first, *others) = scope.text, select.order
    by = first[:-1] if len(first) > 1 and first.says(len(first) - 1, "ASC") else first
    column = relation.column(by)
    if others or column is None or column not in relation.times or relation.adds_time:
        raise text.refuse(first, "a stream can be put in the order of its event time only, ascending")
    refuse_clauses(text, select.clauses, "goes with a window in GROUP BY", ("emit", "lateness"))
    rows = _project(scope, select, relation)
    upstream, inputs = events_of(rows, first)
    with text.at(select.clauses.late.place if select.clauses.late else first):
        plan = Reorder(KeyBy(upstream, ()), late_policy(text, select.clauses, scope.sinks))
    planned = Planned(plan, inputs, channel_sinks(text, select.clauses, scope.sinks, rows.sinks))
    return of_plan(scope.context, planned, relation.alias)


def _union(scope: Scope, union: UnionAll) -> Relation:
    members: list[Relation] = []
    for query in union.members:
        names = members[0].names if members else None
        plain = query.body if isinstance(query, Query) and not query.views else query
        whole = _select(scope, plain, names) if isinstance(plain, Select) else relation_of(scope, query)
        members += _members(scope, union, whole)
    first, *others = members
    for other in others:
        if len(other.names) != len(first.names):
            raise scope.text.refuse(
                union.place, f"UNION ALL of {len(first.names)} and {len(other.names)} columns"
            )
    place = Span(scope.text.sql, (union.place,))
    renamed = (_renamed(other, first.names, place) for other in others)
    return of_union(scope.context, (first, *renamed))


def _renamed(member: Relation, names: tuple[str, ...], place: Span) -> Relation:
    """A member under the names of the first."""
    columns = member.star(place, None)
    return member.level(None, dict(zip(names, columns.values(), strict=True)))


def _members(scope: Scope, union: UnionAll, relation: Relation) -> tuple[Relation, ...]:
    if isinstance(relation.origin, Planned):
        raise scope.text.refuse(
            union.place, "UNION ALL takes rows of streams; results of windows cannot be united"
        )
    return members_of(relation, union.place)
