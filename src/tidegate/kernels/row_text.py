"""Rows as JSON text, as Spark writes them with six digits of a second: what `errors` shows."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

#: What Spark is told where it writes JSON: by itself it writes milliseconds, though it reads more.
TO_THE_MICROSECOND = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

_EPOCH = datetime.fromtimestamp(0, UTC)


def row_texts(rows: pa.Table, zone: tzinfo = UTC) -> list[str]:
    """The text of each row; times are shown as a clock of the zone has them."""
    for place, field in enumerate(rows.schema):
        if field.type == pa.float32():  # as few digits as tell it from its neighbours
            shortest = rows.column(place).cast(pa.string()).cast(pa.float64())
            rows = rows.set_column(place, field.name, shortest)
    columns = [_values(column) for column in rows.columns]
    each = (dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True))
    return [row_text(row, zone) for row in each]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return column.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        return [_value(one) for one in column]


def _value(one: pa.Scalar) -> Any:
    """A value, or its number where it is of a year that Python has no calendar for."""
    try:
        return one.as_py(maps_as_pydicts="lossy") if pa.types.is_nested(one.type) else one.as_py()
    except (OverflowError, ValueError):
        return f"{one.value} {one.type}" if hasattr(one, "value") else f"a value of {one.type}"


def row_text(value: Any, zone: tzinfo = UTC) -> str:
    """A row, or a value in it; fields that are null are left out."""
    match value:
        case Mapping():
            present = ((name, one) for name, one in value.items() if one is not None)
            return "{" + ",".join(f"{_quoted(str(n))}:{row_text(one, zone)}" for n, one in present) + "}"
        case list():
            return "[" + ",".join(row_text(one, zone) for one in value) + "]"
        case None | bool() | int():
            return json.dumps(value)
        case float():
            return _number(value)
        case Decimal():
            return str(value)
        case datetime():
            return _quoted(_instant(value, zone))
        case timedelta():
            return _quoted(_interval(value))
        case bytes():
            return _quoted(base64.b64encode(value).decode())
    return _quoted(str(value))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """As Java shows it: with an exponent where a number is very large or very small."""
    if not isfinite(value):
        return _quoted(str(value).replace("inf", "Infinity").replace("nan", "NaN"))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *others = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(others) or 0}E{exponent + len(others)}"


def _instant(value: datetime, zone: tzinfo) -> str:
    try:
        local = value if value.tzinfo is None else value.astimezone(zone)
    except OverflowError:  # on the first or the last day of the calendar
        local = value
    return local.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _interval(value: timedelta) -> str:
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    clock = _EPOCH + size % timedelta(days=1)
    seconds = f"{clock:%S.%f}".rstrip("0").rstrip(".") if clock.microsecond else f"{clock:%S}"
    return f"INTERVAL '{sign}{size.days} {clock:%H:%M}:{seconds}' DAY TO SECOND"
