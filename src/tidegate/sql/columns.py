"""The types of columns: known from declarations and casts, or asked of Spark, once a query level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidegate.plan.analysis import Analyzer, ExpressionRefused, Typed
from tidegate.sql.source import Text
from tidegate.sql.spans import Span, bare
from tidegate.sql.types import cast_type, column_names, field_type


@dataclass(frozen=True)
class Context:
    """The text that is compiled, and who knows Spark's types, if anybody does."""

    text: Text
    analyzer: Analyzer | None = None


@dataclass(frozen=True)
class Expression:
    """A column as text for Spark, with the place of the text that it was made of."""

    text: str
    place: Span
    #: The column of the level below that it is, if it is one as it is.
    column: str | None = None
    #: Its type, where it is known without Spark.
    type: Typed | None = None


class Types:
    """The types of columns. Nobody asks for them unless a plan is built on them."""

    def known(self) -> Mapping[str, Typed]:
        raise NotImplementedError

    def of(self, name: str) -> Typed:
        return self.known()[name]

    def schema(self) -> pa.Schema:
        """The columns as plans see them: what has a type that they cannot have is null to them."""
        return pa.schema([(name, typed.arrow or pa.null()) for name, typed in self.known().items()])

    def ask(self, context: Context, alias: str | None, columns: Mapping[str, Expression]) -> list[Typed]:
        """The types of expressions over these columns."""
        known = {name: self._told(one, alias) for name, one in columns.items()}
        unknown = [one.place for name, one in columns.items() if known[name] is None]
        if not unknown:
            return [typed for typed in known.values() if typed is not None]
        if context.analyzer is None:
            raise context.text.refuse(
                unknown[0],
                f"the type of {unknown[0].shown} is not known without Spark: write "
                f"CAST({unknown[0].shown} AS type), or compile with a session",
            )
        return self._ask_spark(context, context.analyzer, alias, columns)

    def _ask_spark(
        self, context: Context, analyzer: Analyzer, alias: str | None, columns: Mapping[str, Expression]
    ) -> list[Typed]:
        """All columns of a level at once, as those further back may name those before them."""
        asked = [(name, one.text) for name, one in columns.items()]
        try:
            return analyzer.types(self.schema(), alias, asked)
        except ExpressionRefused as refused:
            place = list(columns.values())[refused.number].place
            raise context.text.refuse(place, str(refused)) from None

    def _told(self, one: Expression, alias: str | None) -> Typed | None:
        """The type that needs no Spark: of a column, of a field in it, of a cast, of a plain literal."""
        if one.type is not None or one.column is not None:
            return one.type or self.of(str(one.column))
        if one.text != one.place.text:  # something has been replaced: the place says no more what it is
            return None
        span = bare(one.place)
        if kind := cast_type(span) or _literal_type(span):
            return Typed(kind, str(kind))
        names = column_names(span)
        if names is None:
            return None
        if alias is not None and len(names) > 1 and names[0].lower() == alias.lower():
            names = names[1:]
        column = match(names[0], self.known())
        whole = None if column is None else self.of(column).arrow
        kind = None if whole is None else field_type(whole, names[1:])
        return None if kind is None else Typed(kind, str(kind))


class Declared(Types):
    """The columns of a stream, or of a plan's results."""

    def __init__(self, schema: pa.Schema) -> None:
        self._known = {field.name: Typed(_usable(field.type), str(field.type)) for field in schema}

    def known(self) -> Mapping[str, Typed]:
        return self._known


class Projected(Types):
    """The columns of a query level over those of the one below."""

    def __init__(
        self, context: Context, below: Types, alias: str | None, columns: Mapping[str, Expression]
    ) -> None:
        self._context, self._below, self._alias, self._columns = context, below, alias, columns

    def known(self) -> Mapping[str, Typed]:
        return self._found

    @cached_property
    def _found(self) -> dict[str, Typed]:
        found = self._below.ask(self._context, self._alias, self._columns)
        return dict(zip(self._columns, found, strict=True))


def _usable(kind: pa.DataType) -> pa.DataType | None:
    return None if pa.types.is_null(kind) else kind


def _literal_type(span: Span) -> pa.DataType | None:
    """The type of a string, of a number that is an INT, of true and false."""
    if len(span) != 1:
        return None
    token = span.tokens[0]
    if token.kind == "string":
        return pa.string()
    if token.kind == "number" and token.text.isdigit() and int(token.text) < 2**31:
        return pa.int32()
    return pa.bool_() if token.says("TRUE", "FALSE") else None


def match(name: str, names: Sequence[str] | Mapping[str, object]) -> str | None:
    """The name as it was declared: names are found whatever their case, exact ones first."""
    if name in names:
        return name
    alike = [one for one in names if one.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
