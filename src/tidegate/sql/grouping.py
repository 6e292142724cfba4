"""GROUP BY a window: keys, aggregates and what is selected of them, as one operator of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from tidegate.plan.aggregate import Aggregate
from tidegate.plan.channels import OP, WINDOW_COLUMNS
from tidegate.plan.event_time import EVENT_TIME
from tidegate.plan.feeds import Feed
from tidegate.plan.inlets import KeyBy
from tidegate.plan.policies import OnWatermark
from tidegate.plan.windowing import Aggregation, Emit, WindowBy
from tidegate.plan.windows import Session
from tidegate.sql.aggregates import AggregateCall, aggregate_call, is_aggregate
from tidegate.sql.clauses import emission, late_policy, lateness
from tidegate.sql.program import Input, SinkTable
from tidegate.sql.relations import (
    Columns,
    Planned,
    Relation,
    added_time,
    column,
    derived,
    events_of,
    identity,
    knows,
    match,
    placed,
    resolved,
    time_columns,
)
from tidegate.sql.source import Text
from tidegate.sql.types import type_of
from tidegate.sql.windows import WindowCall, WindowTable

BOUNDS = tuple(field.name for field in WINDOW_COLUMNS)

Sinks = Mapping[str, SinkTable]


def grouped(
    text: Text,
    select: exp.Select,
    relation: Relation,
    windows: WindowCall | WindowTable,
    by: list[exp.Expr],
    sinks: Sinks,
) -> Relation:
    """The results of a query that groups by a window; `by` is what GROUP BY has beside it."""
    rows = Rows(text, relation)
    call = rows.settled(windows.call if isinstance(windows, WindowTable) else windows)
    keys = [_spelled_out(text, select, relation, key) for key in by]
    if isinstance(windows, WindowTable):
        keys = _without_bounds(text, select, windows, keys)
    results = Results(text, select, rows, keys, by_row=call.window.by_row)
    if isinstance(windows, WindowTable):
        _check_partition(text, rows, results, windows)
    columns, having = results.selected(), results.having()
    feed, inputs, sinks_before = feed_of(text, rows, call)
    with text.at(select.args.get("group") or call.node):
        keyed = KeyBy(feed, tuple(results.keys))
    in_windows, late_sinks = windowed(text, select, call, keyed, sinks)
    plan = _results(text, select, results, in_windows, call)
    if having is not None and plan.emission == OnWatermark() and in_windows.lateness:
        raise text.refuse(
            select.args["having"].this,
            "HAVING with ALLOW LATENESS: a result that no longer meets it would stay, as plain rows "
            "cannot take it back; use EMIT CHANGES, or EMIT ON WINDOW CLOSE for one row a window",
        )
    return Relation(Planned(plan, inputs, {**sinks_before, **late_sinks}), columns, having)


def _spelled_out(text: Text, select: exp.Select, relation: Relation, key: exp.Expr) -> exp.Expr:
    """A key given by its place or by its name in SELECT, as what stands there."""
    if key.is_int:
        place = int(key.name)
        if not 1 <= place <= len(select.expressions):
            raise text.refuse(key, f"GROUP BY {place}: there are {len(select.expressions)} columns")
        return select.expressions[place - 1].unalias()
    if isinstance(key, exp.Column) and relation.lookup(key) is None:
        named = {item.alias: item.this for item in select.expressions if item.alias}
        return named.get(key.name, key)
    return key


def _without_bounds(
    text: Text, select: exp.Select, windows: WindowTable, keys: list[exp.Expr]
) -> list[exp.Expr]:
    """The keys beside window_start and window_end, both of which have to be there."""
    bounds = {key.name.lower() for key in keys if isinstance(key, exp.Column)} & set(BOUNDS)
    if len(bounds) < len(BOUNDS):
        raise text.refuse(
            select.args.get("group") or windows.call.node,
            "where FROM names the window, write GROUP BY …, window_start, window_end",
        )
    return [key for key in keys if not (isinstance(key, exp.Column) and key.name.lower() in BOUNDS)]


def _check_partition(text: Text, rows: Rows, results: Results, windows: WindowTable) -> None:
    """Sessions are those of the keys: PARTITION BY says the same, or something else is meant."""
    partition = {rows.column_for(node, node.name) for node in windows.partition_by}
    is_session = isinstance(windows.call.window, Session)
    if is_session and partition != set(results.keys):
        raise text.refuse(
            windows.partition_by[0] if windows.partition_by else windows.call.node,
            "sessions are those of the keys: PARTITION BY and GROUP BY have to name the same columns, "
            f"here ({', '.join(sorted(partition))}) and ({', '.join(results.keys)})",
        )


class Rows:
    """The rows that go into windows. What is computed of them for a window becomes a column."""

    def __init__(self, text: Text, relation: Relation) -> None:
        self.text, self.relation = text, relation
        self.computed: dict[str, exp.Expr] = {}

    @property
    def columns(self) -> Columns:
        return {**self.relation.columns, **self.computed}

    def column_for(self, expression: exp.Expr, wish: str) -> str:
        """The column that the expression is; a computed one gets the wished name, if it is free."""
        if self.is_added_time(expression):
            return EVENT_TIME
        value = resolved(self.text, expression, self.relation)
        if isinstance(self.relation.origin, Planned):
            return self._of_results(expression, value)
        self._check_type(expression, value)
        for name, known in self.columns.items():
            if known == value:
                return name
        name = free_name(wish, [*self.columns, *BOUNDS, OP.name])
        self.computed[name] = value
        return name

    def is_added_time(self, expression: exp.Expr) -> bool:
        named = isinstance(expression, exp.Column) and expression.name.lower() == EVENT_TIME
        return named and added_time(self.relation) and not knows(self.relation, expression)

    def _of_results(self, expression: exp.Expr, value: exp.Expr) -> str:
        if not isinstance(value, exp.Column):
            raise self.text.refuse(
                expression, "between two windows only columns go on, not what is computed of them"
            )
        return value.name

    def _check_type(self, expression: exp.Expr, value: exp.Expr) -> None:
        if type_of(value, self.relation.types()) is None:
            shown = value.sql("spark")
            raise self.text.refuse(
                expression,
                f"the type of {shown} is not known before Spark runs: write CAST({shown} AS type)",
            )

    def settled(self, call: WindowCall) -> WindowCall:
        """The call with the column that these rows have for each row's own gap."""
        window = call.window
        if not isinstance(window, Session) or not isinstance(window.gap, str):
            return call
        gap = self.column_for(call.node.expressions[-1], "gap")
        return replace(call, window=replace(window, gap=gap))

    def time(self, call: WindowCall) -> str | None:
        """The column that a window takes as the time; None if it does not say."""
        if call.time is None or self.is_added_time(call.time):
            return None
        value = resolved(self.text, call.time, self.relation)
        if isinstance(self.relation.origin, Planned):
            return self._of_results(call.time, value)
        times = time_columns(self.relation)
        if value not in times:
            shown = ", ".join(time.name for time in times) or (
                EVENT_TIME if added_time(self.relation) else "which the stream does not declare"
            )
            raise self.text.refuse(call.time, f"windows are over the event time, {shown}")
        return None


class Results:
    """What a window puts out: keys, its bounds or its row, and aggregates, each by name."""

    def __init__(
        self, text: Text, select: exp.Select, rows: Rows, keys: list[exp.Expr], *, by_row: bool
    ) -> None:
        self.text, self.select, self.rows, self.by_row = text, select, rows, by_row
        self.aliases = {item.alias: item.this for item in select.expressions if item.alias}
        self.keys: dict[str, exp.Expr] = {}
        self.calls: dict[str, tuple[exp.Expr, AggregateCall]] = {}
        self.aggregates: dict[str, Aggregate] = {}
        self.places: dict[str, exp.Expr] = {}
        for number, key in enumerate(keys, 1):
            self._add_key(key, number)

    def _add_key(self, key: exp.Expr, number: int) -> None:
        aliases = [name for name, value in self.aliases.items() if value == key]
        name = self.rows.column_for(key, aliases[0] if aliases else f"key_{number}")
        if name in self.keys:
            raise self.text.refuse(key, f"GROUP BY names {key.sql('spark')!r} twice")
        self.keys[name] = resolved(self.text, key, self.rows.relation)

    def selected(self) -> dict[str, exp.Expr]:
        """The columns of SELECT, in terms of the results."""
        for item in self.select.expressions:
            if item.alias and is_aggregate(item.this):  # first, so that expressions can make use of it
                self._aggregate(item.this, item.alias)
        columns: dict[str, exp.Expr] = {}
        for item in self.select.expressions:
            for name, value in self._item(item):
                if name in columns:
                    raise self.text.refuse(item, f"two columns are called {name!r}: name one with AS")
                columns[name] = value
        if not self.aggregates:
            raise self.text.refuse(
                self.select, "a window needs at least one aggregate, such as count(*) AS n"
            )
        return columns

    def having(self) -> exp.Expr | None:
        clause = self.select.args.get("having")
        return None if clause is None else self.over_results(clause.this, by_alias=True)

    def _item(self, item: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
        value = item.unalias()
        if item.is_star:
            yield from self._star(item)
        elif is_aggregate(value):
            name = item.alias or self._aggregate(value)
            yield name, column(name)
        elif item.alias_or_name:
            yield item.alias_or_name, self.over_results(value)
        else:
            shown = item.sql("spark")
            raise self.text.refuse(item, f"{shown} needs a name: write {shown} AS name")

    def _star(self, item: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
        if not self.by_row:
            raise self.text.refuse(item, "* is the row, and a window has many: name keys and aggregates")
        names = [*self.rows.relation.columns, *([EVENT_TIME] if added_time(self.rows.relation) else [])]
        yield from identity(names).items()

    def over_results(self, tree: exp.Expr, *, by_alias: bool = False) -> exp.Expr:
        """An expression of SELECT or HAVING in terms of the results."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node):
                return column(self._aggregate(node))
            if key := self._key_of(node):
                return column(key)
            if not isinstance(node, exp.Column):
                return node
            if by_alias and (name := match(node.name, self.aliases)) and not node.table:
                return placed(self.over_results(self.aliases[name]), node)
            return self._column(node)

        return tree.transform(replaced)

    def _column(self, node: exp.Column) -> exp.Expr:
        """A column that is neither key nor aggregate: a bound of the window, or a column of its row."""
        if not self.by_row and node.name.lower() in BOUNDS:
            return column(node.name.lower())
        if self.by_row and self.rows.is_added_time(node):
            return column(EVENT_TIME)
        if self.by_row:
            return resolved(self.text, node, _as_row(self.rows.relation))
        keys = ", ".join([*self.keys, *BOUNDS])
        raise self.text.refuse(
            node,
            f"{node.sql('spark')!r} is not among the results ({keys}): add it to GROUP BY, or "
            f"take an aggregate of it, such as last({node.sql('spark')})",
        )

    def _key_of(self, node: exp.Expr) -> str | None:
        """The key that an expression is, if it is one."""
        if self.by_row or not node.find(exp.Column) or not knows(self.rows.relation, node):
            return None
        if any(is_aggregate(part) for part in node.walk()):
            return None
        value = resolved(self.text, node.copy(), self.rows.relation)
        return next((name for name, key in self.keys.items() if key == value), None)

    def _aggregate(self, node: exp.Expr, alias: str = "") -> str:
        """The name of an aggregate among the results; without an alias one that is there will do."""
        value = (
            resolved(self.text, node, self.rows.relation) if knows(self.rows.relation, node) else node
        )
        if not alias:
            for name, (known, _) in self.calls.items():
                if known == value:
                    return name
        call = aggregate_call(self.text, node)
        name = alias or free_name(call.name, self._taken())
        if name in self.calls:
            raise self.text.refuse(node, f"two columns are called {name!r}: name one with AS")
        of = None if call.argument is None else self.rows.column_for(call.argument, f"{name}_input")
        self.calls[name] = (value, call)
        self.aggregates[name] = call.make(of)
        return name

    def _taken(self) -> list[str]:
        row = self.rows.columns if self.by_row else ()
        return [*self.keys, *BOUNDS, OP.name, *self.calls, *self.aliases, *row]


def _as_row(relation: Relation) -> Relation:
    """The rows as they come out of a window around each: their columns have become the origin's."""
    columns = identity(relation.columns)
    return replace(relation, columns=columns, qualified=dict.fromkeys(relation.qualified, columns))


def free_name(wish: str, taken: Iterable[str]) -> str:
    """The wished name, or the first of wish_2, wish_3, … that is free."""
    used, name, number = set(taken), wish, 1
    while name in used:
        number += 1
        name = f"{wish}_{number}"
    return name


def feed_of(text: Text, rows: Rows, call: WindowCall) -> tuple[Feed, tuple[Input, ...], Sinks]:
    """The events that windows are over, and the sinks of operators before."""
    time, place, origin = rows.time(call), call.time or call.node, rows.relation.origin
    if not isinstance(origin, Planned):
        return *events_of(text, rows.relation, rows.computed, place), {}
    feed, planned = derived(text, rows.relation, time or next(iter(origin.plan.times), ""), place)
    return feed, planned.inputs, planned.sinks


def windowed(
    text: Text, select: exp.Select, call: WindowCall, keyed: KeyBy, sinks: Sinks
) -> tuple[WindowBy, Sinks]:
    """Rows in windows, and the sinks of late ones. Whatever is refused is refused where it is said."""
    with text.at(call.node):
        node = WindowBy(keyed, call.window)
    with text.at(select.args.get("lateness") or call.node):
        node = replace(node, lateness=lateness(text, select))
    late, late_sinks = late_policy(text, select, sinks)
    with text.at(select.args.get("late") or call.node):
        return replace(node, late=late), late_sinks


def _results(
    text: Text, select: exp.Select, results: Results, windows: WindowBy, call: WindowCall
) -> Emit:
    for name, aggregate in results.aggregates.items():
        with text.at(results.calls[name][1].node):
            Aggregation(windows, ((name, aggregate),))
    with text.at(select):
        aggregation = Aggregation(windows, tuple(results.aggregates.items()))
    with text.at(select.args.get("emit") or select.args.get("lateness") or call.node):
        return Emit(aggregation, emission(text, select))
