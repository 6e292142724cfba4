"""Where a row's event time comes from, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidegate.errors import ColumnNotFound, PlanError, Term, TypeMismatch, did_you_mean
from tidegate.plan.identity import Values

#: The column that rows get when their event time is not a timestamp column of their own.
EVENT_TIME = "event_time"

Accepts = Callable[[pa.DataType], bool]
#: Values in, timestamps out; null where a value does not parse. It is never given a null.
Parse = Callable[[pa.Array], pa.Array]
Names = list[str]  # a name for the type where `list` is a method


@dataclass(frozen=True)
class EventTimeType:
    """A way to read times: which columns it reads, and the parser, unless Spark reads them itself."""

    name: str
    accepts: Accepts
    expects: str
    parse: Parse | None = None


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(_is_whole(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name != ""


def _is_anything(_: pa.DataType) -> bool:
    return True


#: How dates are read: as their midnight in the session's time zone, as Spark casts them.
DATE = "date"

#: Another name for `unixtimestamp_s`.
UNIXTIMESTAMP = "unixtimestamp"

_BUILT_IN = {
    kind.name: kind
    for kind in (
        EventTimeType("timestamp", pa.types.is_timestamp, "timestamps"),
        EventTimeType(DATE, pa.types.is_date, "dates"),
        EventTimeType("unixtimestamp_s", _is_number, "numbers"),
        EventTimeType(UNIXTIMESTAMP, _is_number, "numbers"),
        EventTimeType("unixtimestamp_ms", _is_whole, "whole numbers"),
        EventTimeType("unixtimestamp_us", _is_whole, "whole numbers"),
        EventTimeType("iso8601", _is_text, "text"),
    )
}


class EventTimeTypes:
    """The types of event times, by name: built-in ones and those that users register."""

    def __init__(self) -> None:
        self._types = dict(_BUILT_IN)

    def register(self, name: str, parse: Parse, *, accepts: Accepts | None = None) -> None:
        """Register a type of event times; it replaces an earlier one of the same name.

        `parse` takes an Arrow array without nulls and returns a timestamp array of the same length, with
        null for values that do not parse. `accepts` says which column types it supports.

        >>> import pyarrow.compute as pc
        >>> types = EventTimeTypes()
        >>> types.register("us_date", lambda v: pc.strptime(v, "%m/%d/%Y", "us", error_is_null=True))
        >>> types.list()
        ['date', 'iso8601', 'timestamp', 'unixtimestamp', 'unixtimestamp_ms', 'unixtimestamp_s',
         'unixtimestamp_us', 'us_date']
        """
        if not _is_name(name):
            raise PlanError(f"an event-time type needs a name, got {name!r}")
        if name in _BUILT_IN:
            raise PlanError(f"event-time type {name!r} is built in; take another name")
        if not callable(parse):
            raise PlanError(f"event-time type {name!r}: the parser must be a function, got {parse!r}")
        self._types[name] = EventTimeType(name, accepts or _is_anything, "only what it accepts", parse)

    def resolve(self, name: str) -> EventTimeType:
        """The type with this name; an unknown name is refused."""
        if name not in self._types:
            raise PlanError(f"no event-time type {name!r}; {did_you_mean(str(name), self.list())}")
        return self._types[name]

    def list(self) -> Names:
        """The names of all types, sorted."""
        return sorted(self._types)

    def __repr__(self) -> str:
        return f"<event-time types: {', '.join(self.list())}>"


#: The types that programs use unless they bring their own.
EVENT_TIME_TYPES = EventTimeTypes()


@dataclass(frozen=True)
class At:
    """The column that holds the time, and how it is read."""

    column: str
    type: str = "timestamp"

    def __post_init__(self) -> None:
        for what, name in (("column", self.column), ("type", self.type)):
            if not _is_name(name):
                raise PlanError(f"event time: its {what} is given by name, not as {name!r}")


@dataclass(frozen=True)
class EventTime:
    """Where a row's event time comes from: parts of (message, where the time is in it).

    A message is a struct column; None stands for the row itself, whose columns are always there.
    The first message that is not null decides. If its time is invalid then so is the row.
    """

    parts: tuple[tuple[str | None, At], ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise PlanError("event time: name the column that holds it")

    @property
    def native(self) -> bool:
        """Whether rows keep their own column as event time; otherwise they get one more."""
        return len(self.parts) == 1 and self.parts[0][0] is None and self.parts[0][1].type == "timestamp"

    def identity(self) -> Values:
        """Messages, their columns, and the registered names of how these are read."""
        parts = [{"message": m, "column": at.column, "type": at.type} for m, at in self.parts]
        return {"kind": "event_time", "parts": parts}

    def __str__(self) -> str:
        """Where the time is, and how it is read: `ms as unixtimestamp_ms`, `order.at or click.at`."""
        types = (at.type for _, at in self.parts)
        read = ("" if kind == "timestamp" else f" as {kind}" for kind in types)
        return " or ".join(map("".join, zip(self.labels(), read, strict=True)))

    def labels(self) -> Iterator[str]:
        """What messages call each part: `ts`, or `order.ts`."""
        return (at.column if message is None else f"{message}.{at.column}" for message, at in self.parts)

    def validate(self, schema: pa.Schema, registry: EventTimeTypes) -> None:
        """Refuse columns that do not exist or that their event-time type does not read."""
        for label, (message, at) in zip(self.labels(), self.parts, strict=True):
            kind = _column(_message(schema, message), message, at.column)
            wanted = registry.resolve(at.type)
            if not wanted.accepts(kind):
                raise TypeMismatch(
                    f"event time column {label!r} has type {kind}, but event-time type "
                    f"{wanted.name!r} reads {wanted.expects}; ",
                    _hint(kind),
                )


def _message(schema: pa.Schema, message: str | None) -> pa.Schema | pa.StructType:
    """The fields of the message, or of the row."""
    if message is None:
        return schema
    if message not in schema.names:
        raise ColumnNotFound(
            f"event time: no message {message!r}; {did_you_mean(message, schema.names)}"
        )
    kind = schema.field(message).type
    if not pa.types.is_struct(kind):
        raise TypeMismatch(f"event time: message {message!r} has type {kind}; it must be a struct")
    return kind


def _column(fields: pa.Schema | pa.StructType, message: str | None, column: str) -> pa.DataType:
    if column not in fields.names:
        place = "no column" if message is None else f"message {message!r} has no field"
        raise ColumnNotFound(f"event time: {place} {column!r}; {did_you_mean(column, fields.names)}")
    return fields.field(column).type


def _hint(kind: pa.DataType) -> str | Term:
    names = [name for name in _BUILT_IN if name != UNIXTIMESTAMP]  # the other name says the unit
    fitting = [name for name in names if _BUILT_IN[name].accepts(kind)]
    if not fitting:
        return "cast it, or register a parser for it with event_time_types.register"
    return Term(
        python="use time_type=" + " or ".join(f'"{name}"' for name in fitting),
        sql="use 'eventtime.type' = " + " or ".join(f"'{name}'" for name in fitting),
        yaml="use type: " + " or ".join(fitting),
    )
