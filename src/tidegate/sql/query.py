"""Queries: SELECT and UNION ALL as relations, views and nested queries included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from tidegate.errors import did_you_mean
from tidegate.plan.inlets import KeyBy
from tidegate.plan.passages import Reorder
from tidegate.sql.aggregates import is_aggregate
from tidegate.sql.clauses import late_policy, refuse_clauses
from tidegate.sql.grouping import grouped
from tidegate.sql.joins import Read, joined
from tidegate.sql.program import SinkTable
from tidegate.sql.relations import (
    Planned,
    Relation,
    United,
    column,
    events_of,
    identity,
    match,
    resolved,
    time_columns,
)
from tidegate.sql.source import Text, refuse_others
from tidegate.sql.windows import WindowTable, is_window, no_window, window_call, window_table

_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "order", "with_"}
_TABLE_PARTS = {"this", "db", "catalog", "alias", "with_"}
_OWN_CLAUSES = {"emit", "lateness", "late"}

Items = dict[str, exp.Expr]


@dataclass(frozen=True)
class Scope:
    """What names mean while a query is compiled."""

    text: Text
    relations: Mapping[str, Relation]
    sinks: Mapping[str, SinkTable]

    def relation(self, table: exp.Table) -> Relation:
        name = match(table.name, self.relations)
        if name is None or len(table.parts) > 1:
            hint = did_you_mean(table.name, self.relations)
            raise self.text.refuse(table, f"no stream or view {table.sql('spark')!r}; {hint}")
        return self.relations[name]

    def with_relation(self, name: str, relation: Relation) -> Scope:
        return replace(self, relations={**self.relations, name: relation.known_as(name)})


def relation_of(scope: Scope, query: exp.Expr) -> Relation:
    """The rows that a query gives."""
    for view in query.args["with_"].expressions if query.args.get("with_") else ():
        scope = scope.with_relation(view.alias, relation_of(scope, view.this))
    if isinstance(query, exp.Subquery):
        refuse_others(
            scope.text, query, {"this", "alias", "with_"}, "nothing but a name can follow a query"
        )
        return relation_of(scope, query.this)
    if isinstance(query, exp.SetOperation):
        return _union(scope, query)
    if not isinstance(query, exp.Select):
        raise scope.text.refuse(query, "expecting a SELECT")
    return _select(scope, query)


def _select(scope: Scope, select: exp.Select) -> Relation:
    text = scope.text
    _refuse_what_is_not_ours(text, select)
    if select.args.get("joins"):
        return _join(scope, select)
    read = _read(scope, select)
    relation = read.relation
    if where := select.args.get("where"):
        _refuse_aggregates(text, where.this, "WHERE comes before the windows: use HAVING")
        relation = relation.filtered(resolved(text, where.this, relation))
    if select.args.get("group") or read.windows or _has_aggregates(select):
        return _group(scope, select, relation, read.windows)
    if having := select.args.get("having"):
        raise text.refuse(having.this, "HAVING needs a GROUP BY with a window; use WHERE")
    if order := select.args.get("order"):
        return _reorder(scope, select, relation, order)
    refuse_clauses(text, select, "goes with a window in GROUP BY")
    return _project(scope, select, relation)


def _refuse_what_is_not_ours(text: Text, select: exp.Select) -> None:
    """Refuse what Spark's batch queries have and a stream cannot: DISTINCT, LIMIT, OVER and others."""
    clauses = _CLAUSES | _OWN_CLAUSES
    refuse_others(text, select, clauses, "a query over a stream has no such clause")
    for tree in (
        tree for name in _CLAUSES - {"from_", "joins", "with_"} for tree in _trees(select, name)
    ):
        if over := tree.find(exp.Window):
            raise text.refuse(
                over, "instead of OVER, slidingwindow(…) in GROUP BY looks around each row"
            )
        if query := tree.find(exp.Query):
            raise text.refuse(query, "a query inside an expression is not supported: use a view")


def _trees(select: exp.Select, clause: str) -> list[exp.Expr]:
    found = select.args.get(clause) or []
    return found if isinstance(found, list) else [found]


def _refuse_aggregates(text: Text, tree: exp.Expr, problem: str) -> None:
    for node in tree.walk():
        if is_aggregate(node):
            raise text.refuse(node, problem)


def _has_aggregates(select: exp.Select) -> bool:
    return any(is_aggregate(node) for item in select.expressions for node in item.walk())


def _read(scope: Scope, select: exp.Select) -> Read:
    source = select.args.get("from_")
    if source is None:
        raise scope.text.refuse(select, "a query needs FROM: a stream or a view")
    return _table(scope, source.this)


def _table(scope: Scope, table: exp.Expr) -> Read:
    """A stream, a view, a nested query, or windows over a stream or a view."""
    refuse_others(scope.text, table, _TABLE_PARTS, "nothing but a name can follow a stream")
    if isinstance(table, exp.Subquery):
        return Read(relation_of(scope, table).known_as(table.alias))
    if not isinstance(table, exp.Table):
        raise scope.text.refuse(table, "expecting a stream, a view or a query")
    if isinstance(table.this, exp.Anonymous):
        if table.this.name.upper() != "TABLE" or len(table.this.expressions) != 1:
            raise scope.text.refuse(table, "expecting a stream, a view, or TABLE(TUMBLE(TABLE name, …))")
        windows = window_table(scope.text, table.this.expressions[0])
        relation = scope.relation(windows.table)
        return Read(relation.known_as(table.alias or windows.table.name), windows)
    return Read(scope.relation(table).known_as(table.alias or table.name))


def _join(scope: Scope, select: exp.Select) -> Relation:
    """Pairs of rows of two windowed streams."""
    text, (join, *others) = scope.text, select.args["joins"]
    if others:
        raise text.refuse(
            others[0].this, "a query joins two streams; join its result in a further query"
        )
    if select.args.get("group") or _has_aggregates(select):
        raise text.refuse(select, "join first, in a view, and group what it gives")
    left, right = _read(scope, select), _table(scope, join.this)
    relation = joined(text, select, join, left, right, scope.sinks)
    if where := select.args.get("where"):
        relation = relation.filtered(resolved(text, where.this, relation))
    return _project(scope, select, relation)


def _project(scope: Scope, select: exp.Select, relation: Relation) -> Relation:
    """Other columns of the same rows."""
    items = items_of(scope.text, select, relation)
    columns = {name: resolved(scope.text, item, relation) for name, item in items.items()}
    return Relation(relation.origin, columns, relation.where)


def items_of(text: Text, select: exp.Select, relation: Relation) -> Items:
    """What a query selects, by name, `*` spelled out."""
    items: Items = {}
    for item in select.expressions:
        for name, value in _named(text, item, relation):
            if name in items:
                raise text.refuse(item, f"two columns are called {name!r}: name one of them with AS")
            items[name] = value
    return items


def _named(text: Text, item: exp.Expr, relation: Relation) -> Iterator[tuple[str, exp.Expr]]:
    if item.is_star:
        yield from ((name, column(name)) for name in relation.columns)
    elif name := item.alias_or_name:
        yield name, item.unalias()
    else:
        raise text.refuse(item, f"{item.sql('spark')} needs a name: write {item.sql('spark')} AS name")


def _group(
    scope: Scope, select: exp.Select, relation: Relation, windows: WindowTable | None
) -> Relation:
    if order := select.args.get("order"):
        raise scope.text.refuse(order, "ORDER BY is for rows: results leave as their windows do")
    grouping = select.args.get("group")
    if grouping:
        refuse_others(scope.text, grouping, {"expressions"}, "GROUP BY takes keys and a window")
    by = list(grouping.expressions) if grouping else []
    calls = [node for node in by if is_window(node)]
    if not calls and windows is None:
        raise no_window(scope.text, by, grouping or select)
    if len(calls) > (windows is None):
        raise scope.text.refuse(calls[-1], "a query has one window")
    keys = [node for node in by if not is_window(node)]
    call = windows or window_call(scope.text, calls[0])
    return grouped(scope.text, select, relation, call, keys, scope.sinks)


def _reorder(scope: Scope, select: exp.Select, relation: Relation, order: exp.Order) -> Relation:
    """ORDER BY the event time: rows leave in that order, as far as the watermark has come."""
    text, (first, *others) = scope.text, order.expressions
    by = resolved(text, first.this, relation)
    if others or first.args.get("desc") or by not in time_columns(relation):
        raise text.refuse(order, "a stream can be put in the order of its event time only, ascending")
    refuse_clauses(text, select, "goes with a window in GROUP BY", ("emit", "lateness"))
    relation = _project(scope, select, relation)
    feed, inputs = events_of(text, relation, {}, first)
    late, sinks = late_policy(text, select, scope.sinks)
    with text.at(select.args.get("late") or order):
        plan = Reorder(KeyBy(feed, ()), late)
    return Relation(Planned(plan, inputs, sinks), identity(relation.columns))


def _union(scope: Scope, query: exp.SetOperation) -> Relation:
    if not isinstance(query, exp.Union) or query.args.get("distinct"):
        raise scope.text.refuse(query.expression, "streams are united with UNION ALL, and nothing else")
    refuse_others(scope.text, query, {"this", "expression", "with_"}, "nothing can follow UNION ALL")
    first, second = (relation_of(scope, side) for side in (query.this, query.expression))
    members = (*_members(scope, query, first), *_members(scope, query, second))
    names = list(members[0].columns)
    for member in members[1:]:
        if len(member.columns) != len(names):
            raise scope.text.refuse(
                query.expression, f"UNION ALL of {len(names)} and {len(member.columns)} columns"
            )
    renamed = tuple(
        replace(member, columns=dict(zip(names, member.columns.values(), strict=True)))
        for member in members
    )
    return Relation(United(renamed), identity(names))


def _members(scope: Scope, query: exp.SetOperation, relation: Relation) -> tuple[Relation, ...]:
    if isinstance(relation.origin, Planned):
        raise scope.text.refuse(
            query, "UNION ALL takes rows of streams; results of windows cannot be united"
        )
    if isinstance(relation.origin, United):
        return relation.origin.members
    return (relation,)
