"""Rows with names: what a query reads, and what it gives to the next one.

A relation is an origin (a stream, several of them, or the results of a plan) and the levels of queries
on its DataFrame. Spark resolves names level by level, as the query has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.errors import did_you_mean
from tidegate.plan.channels import ERROR_CHANNEL, MAIN, OP
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.sources import Derived, Source, Union, Upstream
from tidegate.sql.columns import Context, Declared, Expression, Projected, Types, match
from tidegate.sql.program import Input, Insert, Projection, SinkTable, Stream
from tidegate.sql.result_key import check_result_key
from tidegate.sql.source import Place
from tidegate.sql.spans import Span, quoted, references
from tidegate.sql.types import column_names

#: The columns of a query level, by name.
Columns = Mapping[str, Expression]


@dataclass(frozen=True)
class Planned:
    """The results of a plan, and the sinks of its late rows."""

    plan: AnyOperator
    inputs: tuple[Input, ...]
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)


@dataclass(frozen=True)
class United:
    """The rows of several relations whose columns have the same names."""

    members: tuple[Relation, ...]


@dataclass(frozen=True)
class Relation:
    """The rows of an origin after some query levels, under the names of the last one."""

    context: Context
    origin: Stream | United | Planned
    types: Types
    names: tuple[str, ...]
    #: What the rows are called where a query reads them: `clicks` in `clicks.ts`.
    alias: str | None = None
    #: The query levels on the origin's DataFrame, first to last.
    steps: tuple[Projection, ...] = ()
    #: The names that are columns of the origin as they are, and those columns.
    kept: Mapping[str, str] = field(default_factory=dict)
    #: The sinks that queries over a stream's rows have named, by channel; plans have their own.
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)

    def known_as(self, alias: str | None) -> Relation:
        return replace(self, alias=alias)

    def expression(self, span: Span, before: Iterable[str] = ()) -> Expression:
        """An expression over these rows, for Spark; it can also name the columns selected before it."""
        return Expression(self.text_of(span, before), span, self.column(span))

    def text_of(self, span: Span, before: Iterable[str] = ()) -> str:
        """The text that Spark is given: the user's own. A name that is no column for sure is refused."""
        self.check(span, before)
        return span.text

    def check(self, span: Span, others: Iterable[str] = ()) -> None:
        """Refuse a name that can only be a column, and is none; of other words Spark knows better."""
        known = {name.lower() for name in (*self.names, *others)}
        for reference in references(span):
            if reference.sure and self._unqualified(reference.names)[0].lower() not in known:
                raise self.no_column(reference.span, ".".join(reference.names))

    def no_column(self, place: Place, name: str) -> Exception:
        return self.context.text.refuse(place, f"no column {name!r}; {did_you_mean(name, self.names)}")

    def column(self, span: Span) -> str | None:
        """The column that an expression is, if it is one, under its own name."""
        names = column_names(span)
        if names is None:
            return None
        own = self._unqualified(tuple(names))
        return match(own[0], self.names) if len(own) == 1 else None

    def _unqualified(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names without the alias before them."""
        qualified = self.alias is not None and len(names) > 1 and names[0].lower() == self.alias.lower()
        return names[1:] if qualified else names

    def star(self, item: Span, of: str | None) -> dict[str, Expression]:
        """All columns, or those of one alias, as `*` names them."""
        if of is not None and (self.alias is None or of.lower() != self.alias.lower()):
            known = did_you_mean(of, [] if self.alias is None else [self.alias])
            raise self.context.text.refuse(item, f"no stream or view {of!r} in FROM; {known}")
        return {name: Expression(quoted(name), item, name) for name in self.names}

    def level(self, condition: Expression | None, columns: Columns | None) -> Relation:
        """One more query level; None for the columns leaves all as they are."""
        self._check_op(columns or {})
        self.types.check(self.context, self.alias, condition, columns or {})
        where = None if condition is None else condition.text
        if columns is None or self._same(columns):
            step = Projection(self.alias, where)
            return replace(self, steps=self.steps if where is None else (*self.steps, step))
        chosen = [(name, one.text) for name, one in columns.items()]
        if self.retracts:  # whatever is selected, this column says which rows retract others
            chosen = [*(pair for pair in chosen if pair[0] != OP.name), (OP.name, quoted(OP.name))]
        return Relation(
            self.context,
            self.origin,
            Projected(self.context, self.types, self.alias, columns),
            tuple(columns),
            self.alias,
            (*self.steps, Projection(self.alias, where, tuple(chosen))),
            {n: self.kept[c] for n, one in columns.items() if (c := one.column) in self.kept and c},
            self.sinks,
        )

    def _check_op(self, columns: Columns) -> None:
        for name, one in columns.items():
            if self.retracts and name.lower() == OP.name and one.column != OP.name:
                raise self.context.text.refuse(
                    one.place, "the column 'op' says which rows take back others: take another name"
                )

    def _same(self, columns: Columns) -> bool:
        added = (OP.name,) if self.retracts and OP.name not in columns else ()
        plain = all(one.column == name for name, one in columns.items())
        return plain and (*columns, *added) == self.names

    @property
    def retracts(self) -> bool:
        return isinstance(self.origin, Planned) and self.origin.plan.retracts

    @property
    def filtered(self) -> bool:
        return any(step.where is not None for step in self.steps)

    # -- where the event time is -------------------------------------------------------------------

    @property
    def stream(self) -> Stream | None:
        """The stream whose event time rows have; of several the first."""
        if isinstance(self.origin, United):
            return self.origin.members[0].stream
        return None if isinstance(self.origin, Planned) else self.origin

    @property
    def times(self) -> list[str]:
        """The columns that are the event time of the stream, as it was declared."""
        if isinstance(self.origin, United):
            inner = self.origin.members[0].times
            return [name for name in self.names if self.kept.get(name) in inner]
        time = None if self.stream is None else self.stream.time
        return [name for name in self.names if self.kept.get(name) == time]

    @property
    def adds_time(self) -> bool:
        """Do rows get the column `event_time`, since they have no timestamp of their own?"""
        stream = self.stream
        if stream is None or stream.time is None:
            return False
        return not isinstance(stream.time, str) or stream.time_type not in (None, "timestamp")


def of_stream(context: Context, stream: Stream) -> Relation:
    return _plain(context, stream, stream.schema).known_as(stream.name)


def of_plan(context: Context, planned: Planned, alias: str | None) -> Relation:
    """The results of a plan, as they are."""
    return _plain(context, planned, planned.plan.schema).known_as(alias)


def of_union(context: Context, members: tuple[Relation, ...]) -> Relation:
    united = replace(_plain(context, United(members), pa.schema([])), types=members[0].types)
    names = members[0].names
    sinks = {channel: sink for member in members for channel, sink in member.sinks.items()}
    return replace(united, names=names, kept=dict(zip(names, names, strict=True)), sinks=sinks)


def _plain(context: Context, origin: Stream | United | Planned, schema: pa.Schema) -> Relation:
    names = tuple(schema.names)
    return Relation(context, origin, Declared(schema), names, kept=dict(zip(names, names, strict=True)))


def events_of(relation: Relation, place: Place) -> tuple[Upstream, tuple[Input, ...]]:
    """The rows of streams as events."""
    origin = relation.origin
    assert not isinstance(origin, Planned), "results go on by derived()"
    if isinstance(origin, Stream):
        source, given = _source(relation, origin, place)
        return source, (given,)
    sources, inputs = [], []
    for member in members_of(relation, place):
        assert isinstance(member.origin, Stream)
        source, given = _source(member, member.origin, place)
        sources.append(source)
        inputs.append(given)
    with relation.context.text.at(place):
        return Union(tuple(sources)), tuple(inputs)


def members_of(relation: Relation, place: Place) -> tuple[Relation, ...]:
    """The streams that a relation is made of, each with all that is done to its rows."""
    if not isinstance(relation.origin, United):
        return (relation,)
    _check_types(relation.origin, place)
    return tuple(_continued(member, relation) for member in relation.origin.members)


def _check_types(union: United, place: Place) -> None:
    first, *others = union.members
    for other in others:
        for name in first.names:
            one, another = first.types.of(name), other.types.of(name)
            if one.arrow != another.arrow:
                raise first.context.text.refuse(
                    place,
                    f"UNION ALL needs the same types on both sides: column {name!r} is {one.shown} here "
                    f"and {another.shown} there; CAST one of them",
                )


def _continued(member: Relation, relation: Relation) -> Relation:
    """A member of a union, with what is done to all rows of it."""
    kept = {name: member.kept[c] for name, c in relation.kept.items() if c in member.kept}
    return replace(relation, origin=member.origin, steps=(*member.steps, *relation.steps), kept=kept)


def _source(relation: Relation, stream: Stream, place: Place) -> tuple[Source, Input]:
    text = relation.context.text
    if stream.time is None:
        raise text.refuse(
            place,
            f"stream {stream.name!r} has no event time: declare WATERMARK FOR column AS column, or "
            "'eventtime.column'; 'eventtime.enabled' = 'false' counts rows at the time they arrive",
        )
    time = _time_name(relation, stream, place) if isinstance(stream.time, str) else None
    schema = relation.types.schema()
    with text.at(place):
        return stream.source(schema, time), Input(stream, relation.steps, relation.kept)


def _time_name(relation: Relation, stream: Stream, place: Place) -> str:
    """What the relation calls the stream's event time."""
    for name in relation.names:
        if relation.kept.get(name) == stream.time:
            return name
    raise relation.context.text.refuse(
        place,
        f"the event time {stream.time!r} of stream {stream.name!r} is not among the columns: select it",
    )


def derived(relation: Relation, time: str, place: Place) -> tuple[Derived, Planned]:
    """The results of a plan as events of the next operator."""
    planned, text = relation.origin, relation.context.text
    assert isinstance(planned, Planned)
    if relation.filtered:
        raise text.refuse(
            place, "between two windows rows cannot be filtered: WHERE and HAVING go with the last one"
        )
    with text.at(place):
        return Derived(planned.plan, time), planned


def finish(relation: Relation, place: Place, main: SinkTable | None) -> Insert:
    """The relation as a query that is written to a sink, or shown."""
    origin, text = relation.origin, relation.context.text
    sinks = {} if main is None else {MAIN: main}
    if isinstance(origin, United):
        raise text.refuse(place, "UNION ALL goes with a window or ORDER BY; insert each query by itself")
    others = origin.sinks if isinstance(origin, Planned) else relation.sinks
    for channel, sink in others.items():
        if main is not None and sink.name == main.name:
            rows = "invalid" if channel == ERROR_CHANNEL else "late"
            raise text.refuse(
                place, f"sink {sink.name!r} takes the {rows} rows: results need another one"
            )
    if isinstance(origin, Stream):
        return Insert(None, (Input(origin, relation.steps, relation.kept),), sinks={**sinks, **others})
    kept = {**relation.kept, **({OP.name: OP.name} if relation.retracts else {})}
    insert = Insert(origin.plan, origin.inputs, relation.steps, kept, {**sinks, **others})
    with text.at(place):
        check_result_key(insert)
    return insert
