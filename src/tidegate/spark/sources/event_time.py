"""Event times as Spark columns: the instant of each row, and what is wrong where it has none."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, StructType, TimestampNTZType

from tidegate.errors import TypeMismatch
from tidegate.kernels.invalid_rows import NO_MESSAGE, time_is_null, time_is_unreadable
from tidegate.plan.event_time import At, EventTime, EventTimeType, EventTimeTypes, Parse

_INSTANT = pa.timestamp("us", tz="UTC")
_MOST_MICROS = (1 << 63) - 1
_ISO_8601 = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?)?\z"


def event_time(df: DataFrame, spec: EventTime, registry: EventTimeTypes) -> tuple[Column, Column]:
    """The event time of each row, null where there is none to be used, and then the reason."""
    instant, reason = F.lit(None).cast("timestamp"), F.lit(NO_MESSAGE)
    for label, (message, at) in reversed(list(zip(spec.labels(), spec.parts, strict=True))):
        present, value, kind = _value(df, message, at)
        time = _read(registry.resolve(at.type), value, kind)
        why = F.when(value.isNull(), F.lit(time_is_null(label))).when(
            time.isNull(), F.lit(time_is_unreadable(label, at.type))
        )
        instant = F.when(present, time).otherwise(instant)
        reason = F.when(present, why).otherwise(reason)
    return instant, reason


def _value(df: DataFrame, message: str | None, at: At) -> tuple[Column, Column, DataType]:
    """Whether the row has the message, the time as it is there, and its type."""
    if message is None:
        return F.lit(True), df[quoted(at.column)], df.schema[at.column].dataType
    struct, kind = df[quoted(message)], df.schema[message].dataType
    assert isinstance(kind, StructType)
    return struct.isNotNull(), struct.getField(at.column), kind[at.column].dataType


def _read(type: EventTimeType, value: Column, kind: DataType) -> Column:
    if type.parse is not None:
        # PySpark warns of the argument that its own stubs ask for.
        return F.arrow_udf(_parser(type.name, type.parse), "timestamp")(value)  # type: ignore[call-overload]
    match type.name:
        case "timestamp":
            return _timestamp(value, kind)
        case "date":
            return value.cast("timestamp")
        case "unixtimestamp" | "unixtimestamp_s":
            return _seconds(value, kind)
        case "unixtimestamp_ms":
            return _in_range(value, 1_000, F.timestamp_millis(value))
        case "unixtimestamp_us":
            return F.timestamp_micros(value)
        case "iso8601":
            return _iso8601(value)
    raise AssertionError(f"{type.name} is not built in, and has no parser")


def _timestamp(value: Column, kind: DataType) -> Column:
    """A time without a zone counts as UTC, whatever the session's zone.

    By way of the time since the epoch: the detour over the session's zone, by `convert_timezone`,
    loses the hour that clocks repeat when summer ends.
    """
    if not isinstance(kind, TimestampNTZType):
        return value
    since_epoch = value - F.expr("timestamp_ntz'1970-01-01 00:00:00'")
    return F.timestamp_seconds(since_epoch.cast("interval second").cast("decimal(19,6)"))


def _seconds(value: Column, kind: DataType) -> Column:
    # Decimals have room for every microsecond; Spark would cut fractions off, not round them.
    exact = value if isinstance(kind, IntegralType) else value.cast("decimal(19,6)")
    return _in_range(value, 1_000_000, F.timestamp_seconds(exact))


def _in_range(value: Column, micros: int, time: Column) -> Column:
    """The time, where it fits 64-bit microseconds: beyond, Spark would raise or wrap."""
    most = _MOST_MICROS // micros
    return F.when(value.between(-most, most), time)


def _iso8601(value: Column) -> Column:
    """Spark reads more than ISO 8601 (`2024`, ` 2024-5-1 `, `T12:00`), and without a zone its own."""
    has_zone = value.endswith("Z") | value.contains("+") | (F.locate("-", value, len("2024-05-01T")) > 0)
    zoned = F.when(has_zone, value).otherwise(F.concat(value, F.lit("Z")))
    # Before a zone it wants seconds.
    minutes = F.substring(value, 1, len("2024-05-01T12:00"))
    whole = (
        F.when(F.length(value) == len("2024-05-01"), F.concat(value, F.lit("T00:00:00Z")))
        .when(F.substring(value, len("2024-05-01T12:00:"), 1) == ":", zoned)
        .otherwise(F.concat(minutes, F.lit(":00"), F.substring(zoned, len("2024-05-01T12:00:"), 6)))
    )
    return F.when(value.rlike(_ISO_8601), whole.try_cast("timestamp"))


def _parser(name: str, parse: Parse) -> Callable[[pa.Array], pa.Array]:
    """The user's parser on values that are there; what it fails on becomes null."""

    def read(values: pa.Array) -> pa.Array:
        known = values.is_valid()
        times = parsed(name, parse, values.filter(known))
        return pc.replace_with_mask(pa.nulls(len(values), _INSTANT), known, times)

    return read


def parsed(name: str, parse: Parse, values: pa.Array) -> pa.Array:
    """Instants for values without nulls. Halves are tried until only invalid ones are left."""
    if not len(values):
        return pa.nulls(0, _INSTANT)
    try:
        return _instants(name, parse(values), len(values))
    except TypeMismatch:
        raise  # the parser is wrong, not a value
    except Exception:  # a user's parser may raise anything
        if len(values) == 1:
            return pa.nulls(1, _INSTANT)
        middle = len(values) // 2
        halves = values.slice(0, middle), values.slice(middle)
        return pa.concat_arrays([parsed(name, parse, half) for half in halves])


def _instants(name: str, times: object, count: int) -> pa.Array:
    """What a parser gave, checked; a time without a zone counts as UTC."""
    if isinstance(times, pa.ChunkedArray):
        times = times.combine_chunks()
    parser = f"the parser of event-time type {name!r}"
    kind = times.type if isinstance(times, pa.Array) else type(times).__name__
    if not (isinstance(times, pa.Array) and (pa.types.is_timestamp(kind) or pa.types.is_null(kind))):
        raise TypeMismatch(f"{parser} must give an Arrow array of timestamps, gave {kind}")
    if len(times) != count:
        raise TypeMismatch(f"{parser} must give a time for each value: gave {len(times)} for {count}")
    # Nanoseconds are cut off; of any other unit, what does not fit 64 bits raises.
    return times.cast(_INSTANT, safe=not str(kind).startswith("timestamp[ns"))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
