"""The rows that go into windows: what a query computes for a window becomes a column of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from tidegate.plan.analysis import Typed
from tidegate.plan.channels import OP, WINDOW_COLUMNS
from tidegate.plan.event_time import EVENT_TIME
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import Upstream
from tidegate.plan.windows import Session
from tidegate.sql.aggregates import AggregateCall
from tidegate.sql.clauses import Sinks
from tidegate.sql.columns import Context, Expression
from tidegate.sql.program import Input
from tidegate.sql.relations import Planned, Relation, derived, events_of
from tidegate.sql.spans import Form, Span, form, quoted
from tidegate.sql.types import column_names
from tidegate.sql.windows import WindowCall

BOUNDS = tuple(field.name for field in WINDOW_COLUMNS)

_COUNTED = Typed(pa.int32(), "int")


class Rows:
    """The rows of a relation, with further columns."""

    def __init__(self, relation: Relation, where: Span | None = None) -> None:
        self.relation, self.context = relation, relation.context
        self._where = None if where is None else self._condition(where)
        self._filter = where
        self._computed: dict[str, Expression] = {}
        self._forms: dict[Form | str, str] = {}

    def _condition(self, where: Span) -> Expression:
        for bound in BOUNDS:
            if self.relation.column(where[:1]) is None and where.says(0, bound.upper()):
                raise self.context.text.refuse(
                    where, f"{bound} is known behind the window: use HAVING instead of WHERE"
                )
        return self.relation.expression(where)

    @property
    def names(self) -> list[str]:
        return [*self.relation.names, *self._computed]

    def own_name(self, name: str) -> str:
        """What a column of the relation is called in the rows: results keep the names they had."""
        return self.relation.kept.get(name, name) if isinstance(self.relation.origin, Planned) else name

    def column_for(self, span: Span, wish: str, known: Typed | None = None) -> str:
        """The column that an expression is; a computed one gets the wished name, if it is free.

        `known` is its type, where it is sure without Spark.
        """
        if self.is_added_time(span):
            return EVENT_TIME
        name = self.relation.column(span)
        if isinstance(self.relation.origin, Planned):
            return self._of_results(span, name)
        if name is not None:
            return name
        value = replace(self.relation.expression(span), type=known)
        return self._compute(value, form(span, self.relation.alias), wish)

    def type_of(self, span: Span) -> Typed:
        """The type of an expression over the rows."""
        if self.is_added_time(span):
            return Typed(TIMESTAMP, "timestamp")
        return self._types([self.relation.expression(span)])[0]

    def copy_of(self, name: str, span: Span, wish: str) -> str:
        """One more column of the same values."""
        return self._compute(Expression(quoted(name), span, name), wish, wish)

    def input_of(self, call: AggregateCall, wish: str) -> str | None:
        """The column that an aggregate is over; None for all rows."""
        if call.condition is None and len(call.arguments) < 2:
            return self.column_for(call.arguments[0], wish) if call.arguments else None
        if isinstance(self.relation.origin, Planned):
            raise self._nothing_computed(call.call.span)
        value = self._value_of(call)
        if call.condition is not None:
            condition = self.relation.text_of(call.condition)
            value = replace(value, text=f"CASE WHEN {condition} THEN {value.text} END", column=None)
        return self._compute(value, value.text, wish)

    def _value_of(self, call: AggregateCall) -> Expression:
        """What a row has for the aggregate, null where it does not count."""
        place = call.call.span
        if not call.arguments:
            return Expression("1", place, type=_COUNTED)
        values = [self.relation.expression(argument) for argument in call.arguments]
        if len(values) == 1:
            return replace(values[0], place=place, type=self._types(values)[0])
        if call.call.inside is not None and call.call.inside.says(0, "DISTINCT"):
            texts = map(self._as_text, values, self._types(values))
            parts = ", ':', ".join(f"length({text}), ':', {text}" for text in texts)
            return Expression(f"concat({parts})", place, type=Typed(pa.string(), "string"))
        present = " AND ".join(f"({value.text}) IS NOT NULL" for value in values)
        return Expression(f"CASE WHEN {present} THEN 1 END", place, type=_COUNTED)

    def _types(self, values: list[Expression]) -> list[Typed]:
        named = {f"_{number}": value for number, value in enumerate(values)}
        return self.relation.types.ask(self.context, self.relation.alias, named)

    def _as_text(self, value: Expression, typed: Typed) -> str:
        """A text that is equal for equal values only; null for null."""
        kind = typed.arrow
        if kind is not None and pa.types.is_floating(kind):
            return f"CAST(CAST({value.text} AS DOUBLE) + 0.0D AS STRING)"  # 0.0 and -0.0 are equal
        if kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None:
            return f"CAST(unix_micros({value.text}) AS STRING)"  # an hour may come twice in local time
        if kind is not None and pa.types.is_binary(kind):
            return f"hex({value.text})"
        if kind is None or pa.types.is_nested(kind) or pa.types.is_duration(kind):
            raise self.context.text.refuse(
                value.place, f"count(DISTINCT …) of several columns cannot compare {typed.shown}"
            )
        return f"CAST({value.text} AS STRING)"

    def _compute(self, value: Expression, known_by: Form | str, wish: str) -> str:
        if known_by in self._forms:
            return self._forms[known_by]
        name = free_name(wish, [*self.names, *BOUNDS, OP.name])
        self._computed[name], self._forms[known_by] = value, name
        return name

    def is_added_time(self, span: Span) -> bool:
        names = column_names(span)
        named = names is not None and names[-1].lower() == EVENT_TIME
        return named and self.relation.adds_time and self.relation.column(span) is None

    def _of_results(self, span: Span, name: str | None) -> str:
        column = None if name is None else self.relation.kept.get(name)
        if column is not None:
            return column
        if name is None:
            self.relation.check(span)
        raise self._nothing_computed(span)

    def _nothing_computed(self, span: Span) -> Exception:
        return self.context.text.refuse(
            span, "between two windows only columns go on, not what is computed of them"
        )

    def settled(self, call: WindowCall) -> WindowCall:
        """The call with the column that these rows have for each row's own gap."""
        window = call.window
        if call.gap is None or not isinstance(window, Session):
            return call
        return replace(call, window=replace(window, gap=self.column_for(call.gap, "gap")))

    def time(self, call: WindowCall) -> str | None:
        """The column that a window takes as the time; None if it does not say."""
        if call.time is None or self.is_added_time(call.time):
            return None
        relation = self.relation
        name = relation.column(call.time)
        if isinstance(relation.origin, Planned):
            return self._of_results(call.time, name)
        if name is None or name not in relation.times or relation.adds_time:
            if name is None:
                relation.check(call.time)
            times = ", ".join(() if relation.adds_time else relation.times) or (
                EVENT_TIME if relation.adds_time else "which the stream does not declare"
            )
            raise self.context.text.refuse(call.time, f"windows are over the event time, {times}")
        return None

    def upstream(self, call: WindowCall) -> tuple[Upstream, tuple[Input, ...], Sinks]:
        """The events that windows are over, and the sinks of operators before."""
        time, place, origin = self.time(call), call.time or call.place, self.relation.origin
        if not isinstance(origin, Planned):
            return *events_of(self._with_computed(), place), self.relation.sinks
        if self._filter is not None:
            place = self._filter
        rows = self.relation.level(self._where, None)
        upstream, planned = derived(rows, time or next(iter(origin.plan.times), ""), place)
        return upstream, planned.inputs, planned.sinks

    def _with_computed(self) -> Relation:
        if not self._computed:
            return self.relation.level(self._where, None)
        place = next(iter(self._computed.values())).place
        rows = self.relation.level(self._where, {**self.relation.star(place, None), **self._computed})
        for name, value in self._computed.items():
            refuse_type(self.context, value.place, rows.types.of(name))
        return rows


def refuse_type(context: Context, place: Span, typed: Typed) -> None:
    """Refuse a type that plans cannot have."""
    if typed.arrow is not None:
        return
    if typed.shown in ("void", "null"):
        raise context.text.refuse(place, f"{place.shown} has no type: write CAST({place.shown} AS type)")
    raise context.text.refuse(
        place, f"{place.shown} is of Spark's type {typed.shown}, which windows cannot hold: CAST it"
    )


def free_name(wish: str, taken: Iterable[str]) -> str:
    """The wished name, or the first of wish_2, wish_3, … that is free."""
    used, name, number = {one.lower() for one in taken}, wish, 1
    while name.lower() in used:
        number += 1
        name = f"{wish}_{number}"
    return name
