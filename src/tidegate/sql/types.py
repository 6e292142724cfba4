"""Types of SQL as types of Arrow and back, and the types of expressions as far as they can be told."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.optimizer.annotate_types import annotate_types

from tidegate.plan.columns import TIMESTAMP

_Kind = exp.DataType.Type

_FLAT = {
    _Kind.BOOLEAN: pa.bool_(),
    _Kind.TINYINT: pa.int8(),
    _Kind.SMALLINT: pa.int16(),
    _Kind.INT: pa.int32(),
    _Kind.BIGINT: pa.int64(),
    _Kind.FLOAT: pa.float32(),
    _Kind.DOUBLE: pa.float64(),
    _Kind.TEXT: pa.string(),
    _Kind.VARCHAR: pa.string(),
    _Kind.CHAR: pa.string(),
    _Kind.BINARY: pa.binary(),
    _Kind.DATE: pa.date32(),
    _Kind.TIMESTAMP: TIMESTAMP,
    _Kind.TIMESTAMPTZ: TIMESTAMP,
    _Kind.TIMESTAMPLTZ: TIMESTAMP,
    _Kind.TIMESTAMPNTZ: pa.timestamp("us"),
    _Kind.INTERVAL: pa.duration("us"),
}

#: The types that an expression without a CAST is believed to have.
_TOLD = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
}

_DEFAULT_DECIMAL = (10, 0)


def arrow_type(kind: exp.DataType) -> pa.DataType | None:
    """The type in Arrow; None if there is no such type."""
    if isinstance(kind.this, exp.Interval):
        return pa.duration("us")
    if kind.this == _Kind.DECIMAL:
        given = [int(parameter.name) for parameter in kind.expressions]
        return pa.decimal128(*(given + list(_DEFAULT_DECIMAL[len(given) :])))
    inner = [arrow_type(part) for part in _inner(kind)]
    if None in inner:
        return None
    if kind.this == _Kind.ARRAY and len(inner) == 1:
        return pa.list_(inner[0])
    if kind.this == _Kind.MAP and len(inner) == 2:
        return pa.map_(*inner)
    if kind.this == _Kind.STRUCT:
        names = [part.name for part in kind.expressions]
        return pa.struct([pa.field(n, type) for n, type in zip(names, inner, strict=True)])
    return _FLAT.get(kind.this)


def _inner(kind: exp.DataType) -> list[exp.DataType]:
    """The types that a nested one is made of."""
    if kind.this not in (_Kind.ARRAY, _Kind.MAP, _Kind.STRUCT):
        return []
    return [part.args["kind"] if isinstance(part, exp.ColumnDef) else part for part in kind.expressions]


def type_of(expression: exp.Expr, columns: Mapping[str, pa.DataType]) -> pa.DataType | None:
    """The type of an expression over columns of these types; None where only Spark can tell."""
    if isinstance(expression, exp.Column) and expression.name in columns:
        return columns[expression.name]
    if isinstance(expression, exp.Paren):
        return type_of(expression.this, columns)
    if isinstance(expression, exp.Cast):
        return arrow_type(expression.to)
    if isinstance(expression, exp.Dot):
        return _field_type(type_of(expression.this, columns), expression.name)
    typed = annotate_types(expression.transform(_with_type, columns), dialect=Spark)
    kind = arrow_type(typed.type) if typed.type else None
    return kind if kind in _TOLD else None


def _field_type(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    if kind is None or not pa.types.is_struct(kind) or name not in kind.names:
        return None
    return kind.field(name).type


def _with_type(node: exp.Expr, columns: Mapping[str, pa.DataType]) -> exp.Expr:
    """A column as a cast of itself: that is how the annotator learns what it is."""
    name = _TOLD.get(columns.get(node.name)) if isinstance(node, exp.Column) else None
    return exp.cast(node.copy(), name, dialect="spark") if name else node


def pinned(expression: exp.Expr, kind: pa.DataType) -> exp.Expr:
    """The expression, with a CAST to the type that the plan counts on unless it is sure to have it."""
    if isinstance(expression, exp.Column | exp.Cast) or kind not in _TOLD:
        return expression
    return exp.cast(expression.copy(), _TOLD[kind], dialect="spark")
