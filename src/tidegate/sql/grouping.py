"""GROUP BY a window: keys, aggregates and what is selected of them, as one operator of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import OP
from tidegate.plan.event_time import EVENT_TIME
from tidegate.plan.inputs import KeyBy
from tidegate.plan.policies import OnWatermark
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate
from tidegate.plan.windows import Session
from tidegate.sql.aggregates import AggregateCall, aggregate_call, aggregates_in, is_aggregate
from tidegate.sql.clauses import Sinks, channel_sinks, emission, late_policy, lateness
from tidegate.sql.columns import Context, Expression, match
from tidegate.sql.refusals import refuse_window_time
from tidegate.sql.relations import Planned, Relation, of_plan
from tidegate.sql.rows import BOUNDS, Rows, free_name
from tidegate.sql.source import Place, Text
from tidegate.sql.spans import (
    Call,
    Form,
    Reference,
    Replacement,
    Span,
    form,
    occurrences,
    quoted,
    references,
    spliced,
    whole_call,
)
from tidegate.sql.syntax import Item, Select
from tidegate.sql.types import column_names
from tidegate.sql.windows import WindowCall, WindowTable


def grouped(
    context: Context,
    select: Select,
    relation: Relation,
    windows: WindowCall | WindowTable,
    by: list[Span],
    sinks: Sinks,
) -> Relation:
    """The results of a query that groups by a window; `by` is what GROUP BY has beside it."""
    text = context.text
    rows = Rows(relation, select.where)
    call = rows.settled(windows.call if isinstance(windows, WindowTable) else windows)
    keys = [_spelled_out(text, select, relation, key) for key in by]
    if isinstance(windows, WindowTable):
        keys = _without_bounds(text, by, windows, keys)
    results = Results(text, select, rows, keys, by_row=call.window.by_row)
    if isinstance(windows, WindowTable):
        _check_partition(text, rows, results, windows)
    columns, having = results.selected(), results.having()
    upstream, inputs, sinks_before = rows.upstream(call)
    with text.at(by[0] if by else call.place):
        keyed = KeyBy(upstream, tuple(results.keys))
    in_windows = windowed(text, select, call, keyed, sinks)
    plan = _plan(text, select, results, in_windows, call)
    if select.having is not None and plan.emission == OnWatermark() and in_windows.lateness:
        raise text.refuse(
            select.having,
            "HAVING with ALLOW LATENESS: a result that no longer meets it would stay, as plain rows "
            "cannot take it back; use EMIT CHANGES, or EMIT ON WINDOW CLOSE for one row a window",
        )
    planned = Planned(plan, inputs, channel_sinks(text, select.clauses, sinks, sinks_before))
    return of_plan(context, planned, relation.alias).level(having, columns)


def _spelled_out(text: Text, select: Select, relation: Relation, key: Span) -> Span:
    """A key given by its place or by its name in SELECT, as what stands there."""
    if len(key) == 1 and key.tokens[0].kind == "number":
        if not key.text.isdigit() or not 1 <= int(key.text) <= len(select.items):
            raise text.refuse(key, f"GROUP BY {key.text}: there are {len(select.items)} columns")
        return _item_as_key(text, key, select.items[int(key.text) - 1])
    names = column_names(key)
    if names is not None and len(names) == 1 and relation.column(key) is None:
        for item in select.items:
            if item.alias is not None and item.alias.lower() == names[0].lower():
                return _item_as_key(text, key, item)
    return key


def _item_as_key(text: Text, key: Span, item: Item) -> Span:
    if aggregates_in(item.value) or item.is_star:
        raise text.refuse(key, f"GROUP BY {key.shown} is {item.value.shown}, which is no key")
    return item.value


def _is_bound(key: Span) -> bool:
    names = column_names(key)
    return names is not None and names[-1].lower() in BOUNDS


def _without_bounds(text: Text, by: list[Span], windows: WindowTable, keys: list[Span]) -> list[Span]:
    """The keys beside window_start and window_end, both of which have to be there."""
    for key in keys:
        refuse_window_time(text, key)
    bounds = {key.tokens[-1].name.lower() for key in keys if _is_bound(key)}
    if len(bounds) < len(BOUNDS):
        raise text.refuse(
            by[0] if by else windows.call.place,
            "where FROM names the window, write GROUP BY …, window_start, window_end",
        )
    return [key for key in keys if not _is_bound(key)]


def _check_partition(text: Text, rows: Rows, results: Results, windows: WindowTable) -> None:
    """Sessions are those of the keys: PARTITION BY says the same, or something else is meant."""
    if not isinstance(windows.call.window, Session):
        return
    partition = {rows.column_for(span, span.name or "key") for span in windows.partition_by}
    if partition != set(results.keys):
        raise text.refuse(
            windows.partition_by[0] if windows.partition_by else windows.call.place,
            "sessions are those of the keys: PARTITION BY and GROUP BY have to name the same columns, "
            f"here ({', '.join(sorted(partition))}) and ({', '.join(results.keys)})",
        )


class Results:
    """What a window emits: keys, its bounds or its row, and aggregates, each by name."""

    def __init__(
        self, text: Text, select: Select, rows: Rows, keys: list[Span], *, by_row: bool
    ) -> None:
        self.text, self.select, self.rows, self.by_row = text, select, rows, by_row
        self.alias = rows.relation.alias
        self.aliases = {item.alias: item for item in select.items if item.alias is not None}
        #: The column of each key, and the expression that it is.
        self.keys: dict[str, Span] = {}
        self.calls: dict[str, tuple[Form, AggregateCall]] = {}
        self.aggregates: dict[str, Aggregate] = {}
        for number, key in enumerate(keys, 1):
            self._add_key(key, number)

    def _add_key(self, key: Span, number: int) -> None:
        for call in aggregates_in(key):
            raise self.text.refuse(call.span, "GROUP BY takes keys and a window, not aggregates")
        own = form(key, self.alias)
        named = [name for name, item in self.aliases.items() if form(item.value, self.alias) == own]
        name = self.rows.column_for(key, named[0] if named else f"key_{number}")
        if name in self.keys:
            raise self.text.refuse(key, f"GROUP BY names {key.shown!r} twice")
        self.keys[name] = key

    def selected(self) -> dict[str, Expression]:
        """The columns of SELECT, in terms of the results."""
        for item in self.select.items:
            call = self._whole_aggregate(item.value)
            if item.alias and call:  # first, so that expressions can make use of it
                self._aggregate(call, item.alias)
        columns: dict[str, Expression] = {}
        for item in self.select.items:
            for name, value in self._item(item):
                if match(name, columns):
                    raise self.text.refuse(
                        item.value, f"two columns are called {name!r}: name one with AS"
                    )
                columns[name] = value
        if not self.aggregates and self.select.having is None:
            raise self.text.refuse(
                self.select.place, "a window needs at least one aggregate, such as count(*) AS n"
            )
        return columns

    def having(self) -> Expression | None:
        clause = self.select.having
        return None if clause is None else Expression(self.over_results(clause, by_alias=True), clause)

    def _whole_aggregate(self, value: Span) -> Call | None:
        call = whole_call(value)
        return call if call is not None and is_aggregate(call) else None

    def _item(self, item: Item) -> Iterator[tuple[str, Expression]]:
        value = item.value
        if item.is_star:
            yield from self._star(item)
        elif call := self._whole_aggregate(value):
            name = item.alias or self._aggregate(call)
            yield name, Expression(quoted(name), value, name)
        elif item.name is not None:
            yield item.name, Expression(self.over_results(value), value, self._result_column(value))
        else:
            raise self.text.refuse(value, f"{value.shown} needs a name: write {value.shown} AS name")

    def _star(self, item: Item) -> Iterator[tuple[str, Expression]]:
        if not self.by_row:
            raise self.text.refuse(
                item.value, "* is the row, and a window has many: name keys and aggregates"
            )
        for name, one in self.rows.relation.star(item.value, item.star_of).items():
            column = self.rows.own_name(name)
            yield name, replace(one, text=quoted(column), column=column)
        if self.rows.relation.adds_time:
            yield EVENT_TIME, Expression(EVENT_TIME, item.value, EVENT_TIME)

    def _result_column(self, value: Span) -> str | None:
        """The column of the results that an expression is, if it is one."""
        own = form(value, self.alias)
        if not self.by_row:
            for name, key in self.keys.items():
                if form(key, self.alias) == own:
                    return name
        names = column_names(value)
        if names is None:
            return None
        if not self.by_row and names[-1].lower() in BOUNDS:
            return names[-1].lower()
        if self.rows.is_added_time(value):
            return EVENT_TIME
        column = self.rows.relation.column(value) if self.by_row else None
        return None if column is None else self.rows.own_name(column)

    def over_results(self, span: Span, *, by_alias: bool = False) -> str:
        """An expression of SELECT or HAVING in terms of the results."""
        refuse_window_time(self.text, span)
        replacements: list[Replacement] = [
            (call.place, call.place + len(call.span), quoted(self._aggregate(call)))
            for call in aggregates_in(span)
        ]
        if not self.by_row:
            replacements += self._key_replacements(span)
        taken = {place for start, end, _ in replacements for place in range(start, end)}
        for reference in references(span):
            if reference.place in taken:
                continue
            meant = self._renamed(reference) or (self._by_alias(reference) if by_alias else None)
            if meant is not None:
                replacements.append((reference.place, reference.place + len(reference.span), meant))
            else:
                self._check(reference, by_alias=by_alias)
        return spliced(span, replacements)

    def _key_replacements(self, span: Span) -> Iterator[Replacement]:
        for name, key in self.keys.items():
            if self.rows.relation.column(key) != name:  # a column is found under its own name anyway
                for start, end in occurrences(span, key, self.alias):
                    yield start, end, quoted(name)

    def _renamed(self, reference: Reference) -> str | None:
        """What a column of the row is called among the results, if a view calls it otherwise."""
        name = self.rows.relation.column(reference.span) if self.by_row else None
        own = None if name is None else self.rows.own_name(name)
        return None if own is None or own == name else quoted(own)

    def _by_alias(self, reference: Reference) -> str | None:
        """What a name of SELECT stands for in HAVING."""
        name = match(reference.names[0], self.aliases) if len(reference.names) == 1 else None
        if name is None or name in self.aggregates:
            return None
        return f"({self.over_results(self.aliases[name].value)})"

    def _check(self, reference: Reference, *, by_alias: bool) -> None:
        """Refuse a column that is neither a key nor a bound of the window, nor in its row."""
        relation, span = self.rows.relation, reference.span
        names = reference.names
        if self.alias is not None and len(names) > 1 and names[0].lower() == self.alias.lower():
            names = names[1:]
        own = [*self.keys, *BOUNDS, *([*relation.names, EVENT_TIME] if self.by_row else ())]
        if match(names[0], own):
            return
        aggregate = match(names[0], self.aggregates) is not None
        in_rows = match(names[0], relation.names) is not None
        if aggregate and (by_alias or not in_rows):
            return
        # Spark would take the aggregate for the column that has the same name.
        if not reference.sure and not aggregate:
            return
        if not in_rows and match(names[0], self.aliases):
            return
        if not in_rows:
            raise relation.no_column(span, span.shown)
        keys = ", ".join([*self.keys, *BOUNDS])
        raise self.text.refuse(
            span,
            f"{span.shown!r} is not among the results ({keys}): add it to GROUP BY, or "
            f"take an aggregate of it, such as last({span.shown})",
        )

    def _aggregate(self, call: Call, alias: str = "") -> str:
        """The name of an aggregate among the results; without an alias one that is there will do."""
        own = form(call.span, self.alias)
        if not alias:
            for name, (known, _) in self.calls.items():
                if known == own:
                    return name
        made = aggregate_call(self.text, call)
        name = alias or free_name(made.name, self._taken())
        if match(name, self.calls):
            raise self.text.refuse(call.span, f"two columns are called {name!r}: name one with AS")
        column = self.rows.input_of(made, f"{name}_input")
        self.calls[name] = (own, made)
        self.aggregates[name] = made.make(column)
        return name

    def _taken(self) -> list[str]:
        row = self.rows.names if self.by_row else ()
        return [*self.keys, *BOUNDS, OP.name, *self.calls, *self.aliases, *row]


def windowed(text: Text, select: Select, call: WindowCall, keyed: KeyBy, sinks: Sinks) -> WindowBy:
    """Rows in windows. Whatever is refused is refused where it is said."""
    clauses = select.clauses
    with text.at(call.place):
        node = WindowBy(keyed, call.window)
    with text.at(clauses.lateness.place if clauses.lateness else call.place):
        node = replace(node, lateness=lateness(text, clauses))
    with text.at(clauses.late.place if clauses.late else call.place):
        return replace(node, late=late_policy(text, clauses, sinks))


def _plan(
    text: Text, select: Select, results: Results, windows: WindowBy, call: WindowCall
) -> WindowedAggregate:
    for name, aggregate in results.aggregates.items():
        with text.at(results.calls[name][1].call.span):
            Aggregation(windows, ((name, aggregate),))
    with text.at(select.place):
        aggregation = Aggregation(windows, tuple(results.aggregates.items()))
    clauses = select.clauses
    said: Place = call.place
    if clauses.emit is not None or clauses.lateness is not None:
        clause = clauses.emit or clauses.lateness
        assert clause is not None
        said = clause.place
    with text.at(said):
        return WindowedAggregate(aggregation, emission(text, clauses))
