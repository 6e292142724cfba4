"""Snapshots: the state of running folds as text, equal to the byte where the state is equal.

    tidegate snapshot 1
    {"keys":[["user","string"]],"rows":2,"state":[["n.n","int64"]]}
    [["ann"],[3]]
    [["bob"],[1]]
    sha256 5f1c…

A line each for what it is, what its columns are, and every key, in their order; the last one is the
checksum of all before it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar.hashing import flat_table
from tidegate.errors import StateError

_MAGIC, _VERSION = b"tidegate snapshot ", 1
_CHECKSUM = b"sha256 "
_EPOCH, _MICROSECOND = datetime.fromtimestamp(0, UTC), timedelta(microseconds=1)

#: The names of columns, and their Arrow types as text.
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Snapshot:
    """The state of a fold: the partial results of each key.

    Times and durations are microseconds, dates are days since 1970, decimals are text, and bytes are
    base64 text. Floats that are not numbers are `"nan"`, `"inf"` and `"-inf"`.
    """

    keys: Columns
    state: Columns
    rows: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]


def encode(keys: pa.Table, state: pa.Table) -> bytes:
    """The snapshot of keys and, row by row, their state."""
    keys = pa.table([_one_zero(column) for column in keys.columns], schema=keys.schema)
    order = _order(keys, state.num_rows)
    header = {"keys": _columns(keys), "state": _columns(state), "rows": state.num_rows}
    rows = zip(_rows(keys, order), _rows(state, order), strict=True)
    lines = [_MAGIC + str(_VERSION).encode(), _json(header), *map(_json, rows)]
    text = b"".join(line + b"\n" for line in lines)
    return text + _checksum(text) + b"\n"


def decode(data: bytes) -> Snapshot:
    """Read a snapshot; a file that is none, or not whole, is refused with what is wrong with it."""
    first, *lines = data.split(b"\n")
    if not first.startswith(_MAGIC):
        raise StateError(f"this is no snapshot: it begins with {data[:20]!r}, not with {_MAGIC!r}")
    version = first.removeprefix(_MAGIC).decode("ascii", "replace")
    if version != str(_VERSION):
        raise StateError(f"a snapshot of version {version!r}, but this tidegate reads {_VERSION}")
    header = _header(lines[0] if len(lines) > 1 else b"", len(data))
    count = header["rows"]
    if len(lines) < count + 3:  # each line ends with a break, the checksum too
        raise StateError(
            f"the snapshot is cut short: it ends after {len(data)} bytes, before the checksum, "
            f"with {min(len(lines) - 2, count)} of its {count} keys"
        )
    _, *rows, checksum = lines[: count + 2]
    body = b"".join(line + b"\n" for line in (first, lines[0], *rows))
    if checksum != _checksum(body):
        raise StateError("the snapshot is damaged: its checksum is not that of what it holds")
    if data[len(body) + len(checksum) :] != b"\n":
        raise StateError("the snapshot has something behind its end")
    keys, state = (tuple((name, kind) for name, kind in header[part]) for part in ("keys", "state"))
    entries = map(json.loads, rows)
    return Snapshot(keys, state, tuple((tuple(key), tuple(values)) for key, values in entries))


def _header(line: bytes, length: int) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        raise StateError(
            f"the snapshot is cut short: it ends after {length} bytes, before its columns are named"
        ) from None


def _checksum(text: bytes) -> bytes:
    return _CHECKSUM + hashlib.sha256(text).hexdigest().encode()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _columns(table: pa.Table) -> list[tuple[str, str]]:
    return [(field.name, str(field.type)) for field in table.schema]


def _one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Keys do not tell `-0.0` and `0.0` apart: whichever came first."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


def _order(keys: pa.Table, rows: int) -> pa.Array:
    """The rows in the order of their keys, null behind all values."""
    if not keys.num_columns:
        return pa.array(range(rows), pa.int64())
    keys = flat_table(keys)
    by = [(f"k{index}", "ascending") for index in range(keys.num_columns)]
    named = keys.rename_columns([name for name, _ in by])
    return pc.sort_indices(named, sort_keys=by)


def _rows(table: pa.Table, order: pa.Array) -> Iterator[Sequence[Any]]:
    if not table.num_columns:
        return ([] for _ in order)
    return zip(*(map(_plain, column.take(order).to_pylist()) for column in table.columns), strict=True)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Decimal():
            return str(value)
        case datetime():
            return (value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH) // _MICROSECOND
        case date():
            return (value - _EPOCH.date()).days
        case timedelta():
            return value // _MICROSECOND
        case list():
            return [_plain(item) for item in value]
        case dict():
            return [_plain(item) for item in value.values()]
    return value
