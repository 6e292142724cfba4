"""CREATE STREAM and CREATE SINK."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from sqlglot import exp

from tidegate.plan.declare import declare_source
from tidegate.plan.nodes import Source
from tidegate.plan.time import Micros, ProcessingTime, micros, render
from tidegate.sql.connectors import SINKS, SOURCES, check_options
from tidegate.sql.dialect import CreateSink, CreateStream, Watermark
from tidegate.sql.durations import duration
from tidegate.sql.program import SinkTable, Stream
from tidegate.sql.source import Text
from tidegate.sql.types import arrow_type

#: Options that say what a stream's event time is, whatever the connector.
_TIME, _TYPE = "eventtime.column", "eventtime.type"
_TOLERANCE, _ENABLED = "eventtime.lateTolerance", "eventtime.enabled"
_IDLE, _FUTURE = "eventtime.idleAfter", "eventtime.maxFuture"
TIME_OPTIONS = (_TIME, _TYPE, _TOLERANCE, _ENABLED, _IDLE, _FUTURE)

#: How often time moves on without rows where rows count at the time they come at.
_TICK = Micros(1_000_000)

Options = dict[str, exp.Property]


def sink_of(text: Text, node: CreateSink) -> SinkTable:
    options = {name: option.args["value"].name for name, option in _options(text, node).items()}
    connector = options.pop("connector", None)
    with text.at(node):
        check_options(SINKS, connector, options)
    return SinkTable(node.name, str(connector), options)


def stream_of(text: Text, node: CreateStream) -> Stream:
    schema, options = _schema(text, node), _options(text, node)
    values = {name: option.args["value"].name for name, option in options.items()}
    plain = {name: value for name, value in values.items() if name not in TIME_OPTIONS}
    connector = plain.pop("connector", None)
    with text.at(node):
        check_options(SOURCES, connector, plain, TIME_OPTIONS)
    watermark = node.args.get("watermark")
    time = _time(text, watermark, options)
    stream = Stream(
        node.name,
        schema,
        str(connector),
        plain,
        time,
        values.get(_TYPE),
        _tolerance(text, watermark, options),
        _length(text, options, _IDLE),
        _length(text, options, _FUTURE),
    )
    if time is not None:
        with text.at(watermark or options.get(_TYPE) or options.get(_TIME) or node):
            source_of(stream)
    return stream


def source_of(stream: Stream, schema: pa.Schema | None = None, time: str | None = None) -> Source:
    """The stream as the source of a plan, with other columns and another time where it was projected."""
    assert stream.time is not None, "asked for where windows are, which need a time"
    return declare_source(
        stream.schema if schema is None else schema,
        time or stream.time,
        stream.time_type,
        tolerance=timedelta(microseconds=stream.tolerance),
        max_future=_timedelta(stream.max_future),
        idle_after=_timedelta(stream.idle_after),
    )


def _timedelta(value: Micros | None) -> timedelta | None:
    return None if value is None else timedelta(microseconds=value)


def _schema(text: Text, node: CreateStream) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for column in node.expressions:
        kind = arrow_type(column.kind)
        if kind is None:
            raise text.refuse(
                column, f"column {column.name!r} has a type that rows cannot have: {column.kind}"
            )
        if column.name in fields:
            raise text.refuse(column, f"column {column.name!r} is declared twice")
        fields[column.name] = pa.field(column.name, kind)
    return pa.schema(list(fields.values()))


def _options(text: Text, node: CreateStream | CreateSink) -> Options:
    options: Options = {}
    for option in node.args["options"]:
        if option.name in options:
            raise text.refuse(option, f"option {option.name!r} is given twice")
        options[option.name] = option
    return options


def _time(text: Text, watermark: Watermark | None, options: Options) -> str | ProcessingTime | None:
    """The column of the event time, by WATERMARK FOR or by an option."""
    option = options.get(_TIME)
    if _processing_time(text, options):
        if contradicts := watermark or option:
            raise text.refuse(contradicts, f"{_ENABLED!r} = 'false' says that rows have no event time")
        return ProcessingTime(_TICK)
    if watermark and option and watermark.name != option.args["value"].name:
        raise text.refuse(
            option, f"WATERMARK FOR says {watermark.name!r}, the option {option.args['value'].name!r}"
        )
    if watermark:
        return watermark.name
    if option:
        return str(option.args["value"].name)
    for name in (_TYPE, _TOLERANCE, _ENABLED, _FUTURE, _IDLE):
        if name in options:
            raise text.refuse(options[name], f"{name!r} needs {_TIME!r}, or WATERMARK FOR column AS …")
    return None


def _processing_time(text: Text, options: Options) -> bool:
    option = options.get(_ENABLED)
    if option is None:
        return False
    value = option.args["value"].name.lower()
    if value not in ("true", "false"):
        raise text.refuse(option, f"{_ENABLED!r} is 'true' or 'false', not {value!r}")
    return value == "false"


def _tolerance(text: Text, watermark: Watermark | None, options: Options) -> Micros:
    by_option = _length(text, options, _TOLERANCE, zero=True)
    if watermark is None:
        return by_option or Micros(0)
    written = _watermark_delay(text, watermark)
    if by_option is not None and by_option != written:
        raise text.refuse(
            options[_TOLERANCE],
            f"WATERMARK FOR says {render(written)}, the option {render(by_option)}",
        )
    return written


def _watermark_delay(text: Text, watermark: Watermark) -> Micros:
    """`ts` or `ts - INTERVAL …`."""
    expression = watermark.expression
    column = expression.this if isinstance(expression, exp.Sub) else expression
    if not isinstance(column, exp.Column) or column.name != watermark.name:
        name = watermark.name
        raise text.refuse(expression, f"write WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND")
    if column is expression:
        return Micros(0)
    return duration(text, expression.expression, "the tolerance of WATERMARK", zero=True)


def _length(text: Text, options: Options, name: str, *, zero: bool = False) -> Micros | None:
    option = options.get(name)
    if option is None:
        return None
    with text.at(option):
        return micros(option.args["value"].name, repr(name), zero=zero)
