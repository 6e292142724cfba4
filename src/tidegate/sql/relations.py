"""Rows with names: what a query reads, and what it gives to the next one.

Nested queries and views are taken apart here: every expression is rewritten until it is about the
columns that Spark has, those of a stream or of a plan's results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tidegate.errors import did_you_mean
from tidegate.plan.channels import MAIN, OP
from tidegate.plan.feeds import Derived, Feed, Source, Union
from tidegate.plan.nodes import Output
from tidegate.sql.dialect import spark_text
from tidegate.sql.program import Column, Input, Insert, SinkTable, Stream
from tidegate.sql.source import Text
from tidegate.sql.types import pinned, type_of

#: Names and what they stand for, in columns of the origin.
Columns = Mapping[str, exp.Expr]


@dataclass(frozen=True)
class Planned:
    """The results of a plan, and the sinks of its late rows."""

    plan: Output
    inputs: tuple[Input, ...]
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)


@dataclass(frozen=True)
class United:
    """The rows of several relations whose columns have the same names."""

    members: tuple[Relation, ...]


@dataclass(frozen=True)
class Relation:
    """The rows of an origin that meet `where`, under the names of `columns`.

    `qualified` has the names that can be reached as `alias.name`.
    """

    origin: Stream | United | Planned
    columns: Columns
    where: exp.Expr | None = None
    qualified: Mapping[str, Columns] = field(default_factory=dict)

    def known_as(self, alias: str) -> Relation:
        return replace(self, qualified={alias: self.columns})

    def filtered(self, condition: exp.Expr | None) -> Relation:
        """The rows that meet a condition, which is about the origin's columns."""
        return replace(self, where=both(self.where, condition))

    def lookup(self, column: exp.Column) -> exp.Expr | None:
        """What a column stands for; None if there is none of that name."""
        parts = [part.name for part in column.parts]
        columns = self.columns
        if len(parts) > 1 and (alias := match(parts[0], self.qualified)):
            columns, parts = self.qualified[alias], parts[1:]
        found = match(parts[0], columns)
        if found is None:
            return None
        value = columns[found].copy()
        for part in parts[1:]:
            value = exp.Dot(this=value, expression=exp.to_identifier(part))
        return value

    def types(self) -> dict[str, pa.DataType]:
        """The types of the origin's columns."""
        return {column.name: column.type for column in origin_schema(self.origin)}


def match(name: str, names: Iterable[str]) -> str | None:
    """The name as it was declared: names are found whatever their case, exact ones first."""
    known = list(names)
    if name in known:
        return name
    alike = [one for one in known if one.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def origin_schema(origin: Stream | United | Planned) -> pa.Schema:
    if isinstance(origin, Planned):
        return origin.plan.schema
    if isinstance(origin, United):
        first = origin.members[0]
        kinds = first.types()
        return pa.schema(
            [(name, type_of(value, kinds) or pa.null()) for name, value in first.columns.items()]
        )
    return origin.schema


def of_stream(stream: Stream) -> Relation:
    return Relation(stream, identity(stream.schema.names)).known_as(stream.name)


def added_time(relation: Relation) -> bool:
    """Do rows get the column `event_time`, since they have no timestamp of their own?"""
    origin = relation.origin
    if isinstance(origin, United):
        return added_time(origin.members[0])
    if isinstance(origin, Planned) or origin.time is None:
        return False
    return not isinstance(origin.time, str) or origin.time_type not in (None, "timestamp")


def time_columns(relation: Relation) -> list[exp.Expr]:
    """The columns that are the event time, as parts of the origin."""
    origin = relation.origin
    if isinstance(origin, United):
        member = origin.members[0]
        times = time_columns(member)
        return [column(name) for name, value in member.columns.items() if value in times]
    time = None if isinstance(origin, Planned) else origin.time
    return [column(time)] if isinstance(time, str) else []


def identity(names: Iterable[str]) -> dict[str, exp.Expr]:
    return {name: column(name) for name in names}


#: Words that mean something by themselves: as names they stand in backticks.
_WORDS = frozenset(Spark.Tokenizer.KEYWORDS)


def column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=name.upper() in _WORDS or None))


def both(one: exp.Expr | None, other: exp.Expr | None) -> exp.Expr | None:
    if one is None or other is None:
        return one or other
    return exp.and_(one, other)


def resolved(text: Text, expression: exp.Expr, relation: Relation) -> exp.Expr:
    """The expression in terms of the origin's columns."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        value = relation.lookup(node)
        if value is None:
            known = did_you_mean(node.name, relation.columns)
            raise text.refuse(node, f"no column {node.sql('spark')!r}; {known}")
        return placed(value, node)

    return expression.transform(replaced)


def placed(value: exp.Expr, node: exp.Expr) -> exp.Expr:
    """What stands in for a part of the tree, in parentheses if it could fall apart there."""
    inside = node.parent is not None and not isinstance(node.parent, exp.Alias)
    loose = isinstance(value, exp.Binary | exp.Unary | exp.Between | exp.In) and not isinstance(
        value, exp.Paren | exp.Dot
    )
    return exp.paren(value) if inside and loose else value


def knows(relation: Relation, expression: exp.Expr) -> bool:
    """Do all columns of the expression stand for something?"""
    return all(relation.lookup(node) is not None for node in expression.find_all(exp.Column))


def events_of(
    text: Text, relation: Relation, computed: Columns, place: exp.Expr
) -> tuple[Feed, tuple[Input, ...]]:
    """The relation as rows with an event time; `computed` are further columns that a query needs."""
    origin = relation.origin
    assert not isinstance(origin, Planned), "results go on by derived()"
    if isinstance(origin, United):
        return _union(text, relation, origin, computed, place)
    return _source(text, relation, origin, computed, place)


def derived(text: Text, relation: Relation, time: str, place: exp.Expr) -> tuple[Derived, Planned]:
    """The results of a plan as events of the next operator."""
    planned = relation.origin
    assert isinstance(planned, Planned)
    if relation.where is not None:
        raise text.refuse(
            place, "between two windows rows cannot be filtered: WHERE and HAVING go with the last one"
        )
    with text.at(place):
        return Derived(planned.plan, time), planned


def _source(
    text: Text, relation: Relation, stream: Stream, computed: Columns, place: exp.Expr
) -> tuple[Source, tuple[Input, ...]]:
    if stream.time is None:
        raise text.refuse(
            place,
            f"stream {stream.name!r} has no event time: declare WATERMARK FOR column AS column, or "
            "'eventtime.column'",
        )
    columns, kinds = {**relation.columns, **computed}, relation.types()
    types = {name: type_of(value, kinds) or pa.null() for name, value in columns.items()}
    plain = list(columns) == stream.schema.names and all(is_column(v, n) for n, v in columns.items())
    chosen = tuple((n, spark_text(pinned(value, types[n]))) for n, value in columns.items())
    time = _time_name(text, relation, stream, place) if isinstance(stream.time, str) else None
    with text.at(place):
        source = stream.source(pa.schema(list(types.items())), time)
    return source, (Input(stream, _text(relation.where), None if plain else chosen),)


def _time_name(text: Text, relation: Relation, stream: Stream, place: exp.Expr) -> str:
    """What the relation calls the stream's event time."""
    for name, value in relation.columns.items():
        if is_column(value, str(stream.time)):
            return name
    raise text.refuse(
        place,
        f"the event time {stream.time!r} of stream {stream.name!r} is not among the columns: select it",
    )


def _union(
    text: Text, relation: Relation, union: United, computed: Columns, place: exp.Expr
) -> tuple[Feed, tuple[Input, ...]]:
    """What is done to all rows is done to those of each member."""
    sources, inputs = [], []
    for member in union.members:
        columns = {n: resolved(text, v, member) for n, v in {**relation.columns, **computed}.items()}
        where = None if relation.where is None else resolved(text, relation.where, member)
        source, (one,) = _source(
            text, replace(member, columns=columns).filtered(where), _stream(member), {}, place
        )
        sources.append(source)
        inputs.append(one)
    with text.at(place):
        return Union(tuple(sources)), tuple(inputs)


def _stream(member: Relation) -> Stream:
    assert isinstance(member.origin, Stream)
    return member.origin


def is_column(value: exp.Expr, name: str) -> bool:
    """Is it the origin's column of this name, as it is?"""
    return isinstance(value, exp.Column) and not value.table and value.name == name


def finish(text: Text, relation: Relation, place: exp.Expr, main: SinkTable | None) -> Insert:
    """The relation as a query that is written to a sink, or shown."""
    sinks = {} if main is None else {MAIN: main}
    origin = relation.origin
    if isinstance(origin, Stream):
        read = Input(origin, _text(relation.where), _chosen(relation.columns, origin.schema))
        return Insert(None, (read,), sinks=sinks)
    if isinstance(origin, United):
        raise text.refuse(place, "UNION ALL goes with a window or ORDER BY; insert each query by itself")
    columns = _with_op(text, relation.columns, place) if origin.plan.retracts else relation.columns
    chosen = _chosen(columns, origin.plan.schema)
    return Insert(origin.plan, origin.inputs, chosen, _text(relation.where), {**sinks, **origin.sinks})


def _with_op(text: Text, columns: Columns, place: exp.Expr) -> Columns:
    """The columns, and the one that says which rows take back others, selected or not."""
    op = column(OP.name)
    if columns.get(OP.name, op) != op:
        raise text.refuse(place, "the column 'op' says which rows take back others: take another name")
    return {**columns, OP.name: op}


def _chosen(columns: Columns, schema: pa.Schema) -> tuple[Column, ...] | None:
    """The columns as texts; None if they are those of the schema as it is."""
    if list(columns) == schema.names and all(is_column(v, n) for n, v in columns.items()):
        return None
    return tuple((name, spark_text(value)) for name, value in columns.items())


def _text(condition: exp.Expr | None) -> str | None:
    return None if condition is None else spark_text(condition)
