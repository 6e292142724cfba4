"""Spark's analyzer, asked for the types of expressions before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from tidegate.plan.analysis import ExpressionRefused, Typed
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark.projections import projected
from tidegate.spark.schema import spark_schema

#: What Spark puts behind the problem: where in the expression it is, and the plan around it.
_BEHIND = re.compile(
    r"\s*(?:SQLSTATE: \w+)?(?:; line \d+ pos \d+.*|\s*\(line \d+, pos \d+\).*)?$", re.DOTALL
)
_CONDITION = re.compile(r"^\s*\[[A-Z_.0-9]+\]\s*")

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_FLAT: dict[type[t.DataType], pa.DataType] = {
    t.BooleanType: pa.bool_(),
    t.ByteType: pa.int8(),
    t.ShortType: pa.int16(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.CharType: pa.string(),
    t.VarcharType: pa.string(),
    t.BinaryType: pa.binary(),
    t.DateType: pa.date32(),
    t.TimestampType: TIMESTAMP,
    t.TimestampNTZType: pa.timestamp("us"),
    t.DayTimeIntervalType: pa.duration("us"),
}


def types_of(
    spark: SparkSession, schema: pa.Schema, alias: str | None, columns: Sequence[tuple[str, str]]
) -> list[Typed]:
    """The types of columns, each a name and an expression, over rows of a schema known as `alias`."""
    rows = spark.createDataFrame([], spark_schema(schema))
    with _unlogged():
        try:
            return _types(rows, alias, columns)
        except PySparkException as error:
            whole = error
        for number, column in enumerate(columns):
            try:
                _types(rows, alias, [column])
            except PySparkException as error:
                raise ExpressionRefused(number, _problem(error)) from None
    raise ExpressionRefused(0, _problem(whole))


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PySpark from writing what Spark refuses, with Java's stack, to standard error."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _types(rows: DataFrame, alias: str | None, columns: Sequence[tuple[str, str]]) -> list[Typed]:
    found = projected(rows, alias, None, tuple(columns)).schema
    return [Typed(plan_type(field.dataType), field.dataType.simpleString()) for field in found]


def plan_type(kind: t.DataType) -> pa.DataType | None:
    """The type in Arrow; None for what plans cannot have, whatever Arrow makes of it."""
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        inner = plan_type(kind.elementType)
        return None if inner is None else pa.list_(inner)
    if isinstance(kind, t.MapType):
        key, value = plan_type(kind.keyType), plan_type(kind.valueType)
        return None if key is None or value is None else pa.map_(key, value)
    if isinstance(kind, t.StructType):
        fields = [(field.name, plan_type(field.dataType)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if type(kind) is t.StringType:
        # Kernels compare bytes: under another collation they would take different values for one.
        return pa.string() if kind.simpleString() == "string" else None
    return _FLAT.get(type(kind))


def _problem(error: PySparkException) -> str:
    """What is wrong, in Spark's words, without its plan."""
    message = _BEHIND.sub("", str(error).strip().split("\n\n==")[0].split(";\n")[0])
    return "Spark says: " + _CONDITION.sub("", message).strip()
