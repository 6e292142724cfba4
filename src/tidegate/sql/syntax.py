"""What a text says, statement by statement: structure of ours, around expressions that stay text."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.plan.joins import Match
from tidegate.sql.spans import Call, Span
from tidegate.sql.tokens import Token


@dataclass(frozen=True)
class Option:
    """`'name' = value` of WITH."""

    name: str
    value: str
    place: Token


@dataclass(frozen=True)
class ColumnDefinition:
    name: Token
    type: Span


@dataclass(frozen=True)
class Watermark:
    """`WATERMARK FOR column AS expression`."""

    column: Token
    expression: Span


@dataclass(frozen=True)
class CreateStream:
    name: Token
    columns: tuple[ColumnDefinition, ...]
    watermark: Watermark | None
    options: tuple[Option, ...]


@dataclass(frozen=True)
class CreateSink:
    name: Token
    options: tuple[Option, ...]


@dataclass(frozen=True)
class CreateView:
    name: Token
    query: Query


@dataclass(frozen=True)
class InsertInto:
    sink: Token
    query: Query


# -- what a query reads ----------------------------------------------------------------------------


@dataclass(frozen=True)
class NamedTable:
    """A stream or a view."""

    name: Token
    alias: str | None


@dataclass(frozen=True)
class NestedQuery:
    query: Query
    alias: str | None
    place: Token


@dataclass(frozen=True)
class WindowedTable:
    """`TABLE(TUMBLE(TABLE name, DESCRIPTOR(time), …))`: the call, still to be looked into."""

    call: Call
    alias: str | None


Table = NamedTable | NestedQuery | WindowedTable


@dataclass(frozen=True)
class JoinClause:
    table: Table
    #: The words before JOIN, such as LEFT OUTER.
    kind: tuple[str, ...]
    on: Span | None
    match: Match | None
    place: Token


# -- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """One of the things that SELECT names; `*` and `alias.*` are items too."""

    value: Span
    alias: str | None

    @property
    def name(self) -> str | None:
        return self.alias or self.value.name

    @property
    def is_star(self) -> bool:
        """Is it `*` or `alias.*`?"""
        tokens = self.value.tokens
        qualified = len(tokens) == 3 and tokens[0].is_name and tokens[1].says(".")
        return tokens[-1].says("*") and (len(tokens) == 1 or qualified)

    @property
    def star_of(self) -> str | None:
        """The alias before the `*`, if there is one."""
        return self.value.tokens[0].name if len(self.value) > 1 else None


@dataclass(frozen=True)
class Emission:
    """`EMIT words`; `every` is the interval of EVERY."""

    words: str
    every: Span | None
    place: Token


@dataclass(frozen=True)
class Duration:
    """A clause whose whole point is an interval."""

    interval: Span
    place: Token


@dataclass(frozen=True)
class ToSink:
    """A clause that names the sink of a channel."""

    sink: Token
    place: Token


Clause = Emission | Duration | ToSink


@dataclass(frozen=True)
class Clauses:
    """What a query can say behind everything that Spark's can."""

    emit: Emission | None = None
    lateness: Duration | None = None
    late: ToSink | Duration | None = None
    errors: ToSink | None = None


@dataclass(frozen=True)
class Select:
    place: Token
    items: tuple[Item, ...]
    table: Table | None
    joins: tuple[JoinClause, ...] = ()
    where: Span | None = None
    #: What GROUP BY names; None where there is no such clause.
    group: tuple[Span, ...] | None = None
    having: Span | None = None
    order: tuple[Span, ...] = ()
    clauses: Clauses = field(default_factory=Clauses)


@dataclass(frozen=True)
class UnionAll:
    members: tuple[Select | Query, ...]
    place: Token


@dataclass(frozen=True)
class Query:
    """A query, with the queries that WITH names before it."""

    views: tuple[tuple[Token, Query], ...]
    body: Select | UnionAll | Query

    @property
    def place(self) -> Token:
        return self.body.place


Statement = CreateStream | CreateSink | CreateView | InsertInto | Query
