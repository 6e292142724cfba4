"""CREATE STREAM and CREATE SINK."""

from __future__ import annotations

import pyarrow as pa

from tidegate.connectors import SINKS, SOURCES, Connector, connector_of
from tidegate.plan.time import Micros, ProcessingTime, micros, render
from tidegate.sql.columns import match
from tidegate.sql.durations import duration
from tidegate.sql.program import SinkTable, Stream
from tidegate.sql.source import Place, Text
from tidegate.sql.spans import bare
from tidegate.sql.syntax import CreateSink, CreateStream, Option, Watermark
from tidegate.sql.types import arrow_type

#: Options that say what a stream's event time is, whatever the connector.
_TIME, _TYPE = "eventtime.column", "eventtime.type"
_TOLERANCE, _ENABLED = "eventtime.lateTolerance", "eventtime.enabled"
_IDLE, _FUTURE = "eventtime.idleAfter", "eventtime.maxFuture"
TIME_OPTIONS = (_TIME, _TYPE, _TOLERANCE, _ENABLED, _IDLE, _FUTURE)

#: The option that names the connector.
_CONNECTOR = "connector"

#: How often time moves on without rows where rows count at the time they come at.
_TICK = Micros(1_000_000)

Options = dict[str, Option]


def sink_of(text: Text, node: CreateSink) -> SinkTable:
    options = _options(text, node)
    with text.at(_said(node, options)):
        connector = connector_of(SINKS, _connector(options))
    return SinkTable(node.name.name, connector.name, _checked(text, node, connector, options))


def stream_of(text: Text, node: CreateStream) -> Stream:
    schema, options = _schema(text, node), _options(text, node)
    plain = {name: option for name, option in options.items() if name not in TIME_OPTIONS}
    with text.at(_said(node, options)):
        connector = connector_of(SOURCES, _connector(options))
    given = _checked(text, node, connector, plain, TIME_OPTIONS)
    watermark = node.watermark
    stream = Stream(
        node.name.name,
        schema,
        connector.name,
        given,
        _declared(schema, _time(text, watermark, options)),
        options[_TYPE].value if _TYPE in options else None,
        _tolerance(text, watermark, options),
        _length(text, options, _IDLE),
        _length(text, options, _FUTURE),
    )
    if stream.time is not None:
        said = [options[name].place for name in (_TYPE, _TIME) if name in options]
        with text.at(watermark.column if watermark else said[0] if said else node.name):
            stream.source()
    return stream


def _connector(options: Options) -> str | None:
    return options[_CONNECTOR].value if _CONNECTOR in options else None


def _said(node: CreateStream | CreateSink, options: Options) -> Place:
    """Where the connector is named, or should be."""
    return options[_CONNECTOR].place if _CONNECTOR in options else node.name


def _checked(
    text: Text,
    node: CreateStream | CreateSink,
    connector: Connector,
    options: Options,
    others: tuple[str, ...] = (),
) -> dict[str, str]:
    """The connector's options; each is refused where it stands."""
    values = {name: option.value for name, option in options.items() if name != _CONNECTOR}
    for name, value in values.items():
        with text.at(options[name].place):
            connector.check(name, value, others)
    with text.at(node.name):
        connector.check_complete(values)
    return values


def _schema(text: Text, node: CreateStream) -> pa.Schema:
    fields: dict[str, pa.Field] = {}
    for column in node.columns:
        name, kind = column.name.name, arrow_type(column.type)
        if kind is None:
            raise text.refuse(
                column.type, f"column {name!r} has a type that rows cannot have: {column.type.shown}"
            )
        if name.lower() in fields:
            raise text.refuse(column.name, f"column {name!r} is declared twice")
        fields[name.lower()] = pa.field(name, kind)
    return pa.schema(list(fields.values()))


def _options(text: Text, node: CreateStream | CreateSink) -> Options:
    options: Options = {}
    for option in node.options:
        if option.name in options:
            raise text.refuse(option.place, f"option {option.name!r} is given twice")
        options[option.name] = option
    return options


def _time(text: Text, watermark: Watermark | None, options: Options) -> str | ProcessingTime | None:
    """The column of the event time, by WATERMARK FOR or by an option."""
    option = options.get(_TIME)
    if _processing_time(text, options):
        if watermark or option:
            raise text.refuse(
                watermark.column if watermark else options[_TIME].place,
                f"{_ENABLED!r} = 'false' says that rows have no event time",
            )
        return ProcessingTime(_TICK)
    if watermark and option and watermark.column.name.lower() != option.value.lower():
        raise text.refuse(
            option.place, f"WATERMARK FOR says {watermark.column.name!r}, the option {option.value!r}"
        )
    if watermark:
        return watermark.column.name
    if option:
        return option.value
    for name in (_TYPE, _TOLERANCE, _ENABLED, _FUTURE, _IDLE):
        if name in options:
            raise text.refuse(
                options[name].place, f"{name!r} needs {_TIME!r}, or WATERMARK FOR column AS …"
            )
    return None


def _declared(schema: pa.Schema, time: str | ProcessingTime | None) -> str | ProcessingTime | None:
    """The column as it was declared; names are found whatever their case."""
    return match(time, schema.names) or time if isinstance(time, str) else time


def _processing_time(text: Text, options: Options) -> bool:
    option = options.get(_ENABLED)
    if option is None:
        return False
    value = option.value.lower()
    if value not in ("true", "false"):
        raise text.refuse(option.place, f"{_ENABLED!r} is 'true' or 'false', not {value!r}")
    return value == "false"


def _tolerance(text: Text, watermark: Watermark | None, options: Options) -> Micros:
    by_option = _length(text, options, _TOLERANCE, zero=True)
    if watermark is None:
        return by_option or Micros(0)
    written = _watermark_delay(text, watermark)
    if by_option is not None and by_option != written:
        raise text.refuse(
            options[_TOLERANCE].place,
            f"WATERMARK FOR says {render(written)}, the option {render(by_option)}",
        )
    return written


def _watermark_delay(text: Text, watermark: Watermark) -> Micros:
    """`ts` or `ts - INTERVAL …`."""
    expression, name = bare(watermark.expression), watermark.column.name
    first = expression.tokens[0]
    same = first.is_name and first.name.lower() == name.lower()
    if not same or not (len(expression) == 1 or expression.says(1, "-")):
        raise text.refuse(expression, f"write WATERMARK FOR {name} AS {name} - INTERVAL '5' SECOND")
    if len(expression) == 1:
        return Micros(0)
    if len(expression) == 2:
        raise text.refuse(expression.tokens[1], "an interval is needed behind -")
    return duration(text, expression[2:], "the tolerance of WATERMARK", zero=True)


def _length(text: Text, options: Options, name: str, *, zero: bool = False) -> Micros | None:
    option = options.get(name)
    if option is None:
        return None
    with text.at(option.place):
        return micros(option.value, repr(name), zero=zero)
