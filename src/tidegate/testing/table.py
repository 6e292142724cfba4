"""Rows as small tables in text: a header, one line a row, columns set apart by bars.

    ts  | user | price
    1   | ann  | 2.5
    7.5 | null | -1

Times are seconds after noon, 1 May 2024, UTC, so that they read easily and lie on the edges of all
usual windows; or ISO 8601, `2024-05-01T12:00:07.5Z`. `null` is null, and so is an empty cell (but for
the first of a line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

#: The ends of the calendar.
_FIRST, _LAST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))


def rows(text: str, schema: pa.Schema) -> list[Row]:
    """Parse a table literal; the schema has the types of its columns.

    >>> rows("n | s \\n 1 | a \\n null | b", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    [{'n': 1, 's': 'a'}, {'n': None, 's': 'b'}]
    """
    lines = [_cells(line) for line in text.strip().splitlines() if line.strip(" |-:")]
    if not lines:
        return []
    header, *body = lines
    unknown = [name for name in header if name not in schema.names]
    if unknown:
        raise ValueError(f"table has columns {unknown} that the schema lacks: {schema.names}")
    return [_row(header, cells, schema) for cells in body]


def text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Rows as a table literal, for messages."""
    if not rows:
        return "(no rows)"
    names = list(columns or rows[0])
    cells = [names, *([shown(row.get(name)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def at(seconds: float | str | Decimal) -> datetime:
    """The instant that many seconds after noon on 1 May 2024, UTC.

    >>> at("1.5").isoformat()
    '2024-05-01T12:00:01.500000+00:00'
    """
    return NOON + timedelta(microseconds=int(Decimal(str(seconds)) * 1_000_000))


def micros_of(instant: datetime) -> int:
    """Microseconds since the epoch; what has no zone is in UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - EPOCH) // timedelta(microseconds=1)


def instant_of(micros: int) -> datetime:
    """The instant so many microseconds after the epoch."""
    return EPOCH + timedelta(microseconds=micros)


def instant_of_watermark(micros: int | None) -> datetime | None:
    """A watermark as an instant; what lies past the calendar, as the end of time does, is its end."""
    if micros is None:
        return None
    return instant_of(min(max(micros, micros_of(_FIRST)), micros_of(_LAST)))


def to_arrow(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """The rows as an Arrow table; columns a row does not have are null."""
    held = list(rows)
    return pa.table(
        [pa.array([row.get(field.name) for row in held], field.type) for field in schema],
        schema=schema,
    )


def _cells(line: str) -> list[str]:
    line = line.strip()
    if line.startswith("|"):
        line = line.removeprefix("|").removesuffix("|")
    return [cell.strip() for cell in line.split("|")]


def _row(header: Sequence[str], cells: Sequence[str], schema: pa.Schema) -> Row:
    if len(cells) != len(header):
        raise ValueError(f"a row has {len(cells)} cells, but the header {len(header)}: {cells}")
    named = dict(zip(header, cells, strict=True))
    return {name: _value(cell, schema.field(name).type) for name, cell in named.items()}


def _value(cell: str, kind: pa.DataType) -> Any:
    if cell in ("", "null"):
        return None
    if pa.types.is_timestamp(kind):
        return instant(cell)
    if pa.types.is_duration(kind):
        return timedelta(microseconds=int(Decimal(cell) * 1_000_000))
    if pa.types.is_date(kind):
        return date.fromisoformat(cell)
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[cell]
    if pa.types.is_integer(kind):
        return int(cell)
    if pa.types.is_floating(kind):
        return float(cell)
    if pa.types.is_decimal(kind):
        return Decimal(cell)
    if pa.types.is_list(kind):
        return [_value(item.strip(), kind.value_type) for item in cell.strip("[]").split(",")]
    return cell


def instant(cell: str) -> datetime:
    """A time as tables write it: seconds after noon, or ISO 8601."""
    if ":" not in cell:
        return at(cell)
    written = datetime.fromisoformat(cell)
    return written if written.tzinfo else written.replace(tzinfo=UTC)


def shown(value: Any) -> str:
    """A value as a cell."""
    if value is None:
        return "null"
    if isinstance(value, datetime) and value.tzinfo and abs(value - NOON) < timedelta(days=2):
        return _number((value - NOON) / timedelta(seconds=1))
    if isinstance(value, timedelta):
        return _number(value / timedelta(seconds=1))
    return str(value)


def _number(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")
