"""Types as SQL and pipeline files write them, as types of Arrow."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tidegate.errors import PlanError, did_you_mean
from tidegate.plan.schema import TIMESTAMP
from tidegate.sql.spans import Span, chain_at, names_at, split, whole_call
from tidegate.sql.tokens import Unclosed, tokens_of

_FLAT = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "CHARACTER": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP_LTZ": TIMESTAMP,
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_DEFAULT_DECIMAL = (10, 0)
_DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")


def arrow_type(span: Span) -> pa.DataType | None:
    """The type in Arrow; None if there is no such type."""
    reader = _Reader(span)
    kind = reader.type()
    return kind if reader.place == len(span) else None


def named_type(name: str) -> pa.DataType:
    """The type of a column that a file declares: `bigint`, `decimal(10,2)`, `array<struct<a:int>>`."""
    try:
        tokens = tuple(tokens_of(name))
    except Unclosed:
        tokens = ()
    kind = arrow_type(Span(name, tokens)) if tokens else None
    if kind is not None:
        return kind
    if tokens and tokens[0].says("ARRAY", "MAP", "STRUCT"):
        nested = "array<string>, map<string,bigint> or struct<a:int,b:string>"
        raise PlanError(f"no type {name!r}: write {nested}")
    others = ("decimal(10,2)", "interval day to second", "array<…>", "map<…,…>", "struct<name:…>")
    raise PlanError(f"no type {name!r}; {did_you_mean(name.lower(), [*map(str.lower, _FLAT), *others])}")


class _Reader:
    """Reads a type from left to right."""

    def __init__(self, span: Span) -> None:
        self.span, self.place = span, 0

    def takes(self, *words: str) -> bool:
        found = self.span.says(self.place, *words)
        self.place += found
        return found

    def type(self) -> pa.DataType | None:
        if self.takes("ARRAY"):
            return self._nested(pa.list_, 1)
        if self.takes("MAP"):
            return self._nested(pa.map_, 2)
        if self.takes("STRUCT"):
            return self._struct()
        if self.takes("INTERVAL"):
            return self._interval()
        if self.takes(*_DECIMALS):
            return self._decimal()
        if self.place >= len(self.span):
            return None
        word = self.span.tokens[self.place].text.upper()
        self.place += 1
        if word in ("VARCHAR", "CHAR", "CHARACTER"):
            self._numbers()
        if word == "TIMESTAMP" and self.takes("WITHOUT"):
            return pa.timestamp("us") if self.takes("TIME") and self.takes("ZONE") else None
        if word == "TIMESTAMP" and self.takes("WITH"):
            self.takes("LOCAL")
            return TIMESTAMP if self.takes("TIME") and self.takes("ZONE") else None
        return _FLAT.get(word)

    def _nested(self, make: Callable[..., pa.DataType], count: int) -> pa.DataType | None:
        if not self.takes("<"):
            return None
        inner = [self.type()]
        while self.takes(","):
            inner.append(self.type())
        complete = self.takes(">") and len(inner) == count and None not in inner
        return make(*inner) if complete else None

    def _struct(self) -> pa.DataType | None:
        if not self.takes("<"):
            return None
        fields: list[tuple[str, pa.DataType | None]] = []
        while self.place < len(self.span) and self.span.tokens[self.place].is_name:
            name = self.span.tokens[self.place].name
            self.place += 1
            self.takes(":")
            fields.append((name, self.type()))
            if not self.takes(","):
                break
        complete = self.takes(">") and all(kind is not None for _, kind in fields)
        return pa.struct(fields) if complete else None

    def _interval(self) -> pa.DataType | None:
        """Days and seconds; months are no length of time."""
        if not self.takes(*_DAY_TIME):
            return None
        return None if self.takes("TO") and not self.takes(*_DAY_TIME) else pa.duration("us")

    def _decimal(self) -> pa.DataType | None:
        given = self._numbers()
        if len(given) > 2:
            return None
        precision, scale = given + list(_DEFAULT_DECIMAL[len(given) :])
        return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None

    def _numbers(self) -> list[int]:
        """What stands in parentheses behind a type."""
        numbers: list[int] = []
        if self.takes("("):
            while self.place < len(self.span) and self.span.tokens[self.place].text.isdigit():
                numbers.append(int(self.span.tokens[self.place].text))
                self.place += 1
                self.takes(",")
            if not self.takes(")"):
                self.place = len(self.span) + 1
        return numbers


def cast_type(span: Span) -> pa.DataType | None:
    """The type of `CAST(… AS type)`; None if the span is something else."""
    call = whole_call(span)
    if call is None or call.name.upper() not in ("CAST", "TRY_CAST") or call.inside is None:
        return None
    if len(split(call.inside, ",")) != 1:  # a decimal has its comma in brackets
        return None
    place = next((p for p in range(len(call.inside)) if _is_last_as(call.inside, p)), None)
    return None if place is None else arrow_type(call.inside[place + 1 :])


def _is_last_as(span: Span, place: int) -> bool:
    later = any(token.says("AS") for token in span.tokens[place + 1 :])
    return span.says(place, "AS") and not later and place + 1 < len(span)


def field_type(kind: pa.DataType, names: list[str]) -> pa.DataType | None:
    """The type of a field inside a struct; None if there is no such field, or if only Spark can tell."""
    for name in names:
        if not pa.types.is_struct(kind):
            return None
        fields = [field for field in kind if field.name.lower() == name.lower()]
        if len(fields) != 1:
            return None
        kind = fields[0].type
    return kind


def column_names(span: Span) -> list[str] | None:
    """The parts of the name that a span is, if it is one."""
    return names_at(span, 0) if chain_at(span, 0) == len(span) else None
