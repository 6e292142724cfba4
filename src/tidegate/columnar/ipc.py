"""Tables as bytes: a version byte, then length-prefixed Arrow IPC streams."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.errors import StateError

#: Raise it when the layout changes; the changelog then says that stored state is unreadable.
VERSION = 3

#: Arrow's 32-bit offsets and Spark's sockets are comfortable well above this.
MAX_BYTES = 24 << 20

_LENGTH = struct.Struct("<q")

#: Schema metadata that lists the columns which were 64 bits wide before they were written.
_WIDE = b"tidegate.wide"

#: Schema metadata that lists all columns by name and index, if some were equal and written once.
_SAME = b"tidegate.same"


def encode(tables: Sequence[pa.Table], *, compressed: bool = False) -> bytes:
    """The tables as one blob. Stored blobs are compressed: a third of the size, for some CPU time."""
    options = pa.ipc.IpcWriteOptions(compression="zstd" if compressed else None)
    parts = [bytes([VERSION]).ljust(_LENGTH.size, b"\0")]  # Arrow likes its buffers aligned
    for wide in tables:
        table = _once(_shrink(wide))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        body = sink.getvalue()
        parts += [_LENGTH.pack(body.size), body]
    return b"".join(parts)


def decode(blob: bytes) -> list[pa.Table]:
    """The tables of a blob that `encode` wrote."""
    check_version(blob)
    if len(blob) < _LENGTH.size:
        raise StateError(f"stored table is cut short after {len(blob)} bytes")
    return list(_tables(memoryview(blob), _LENGTH.size))


def check_version(stored: bytes) -> None:
    """Refuse bytes that another format wrote."""
    if not stored or stored[0] != VERSION:
        found = stored[0] if stored else "nothing"
        raise StateError(f"stored in format {found}, but this version reads format {VERSION}")


def _tables(view: memoryview, start: int) -> Iterator[pa.Table]:
    while start < len(view):
        body = start + _LENGTH.size
        length = _LENGTH.unpack_from(view, start)[0] if body <= len(view) else 0
        if body > len(view) or body + length > len(view):
            raise StateError(f"stored table is cut short after {len(view)} bytes")
        yield _restore(_twice(pa.ipc.open_stream(view[body : body + length]).read_all()))
        start = body + length


def _shrink(table: pa.Table) -> pa.Table:
    """64-bit integers in as few bits as they need: blobs are copied often."""
    shrunk = []
    for index, field in enumerate(table.schema):
        if field.type == pa.int64() and table.num_rows:
            bounds = pc.min_max(table.column(index)).as_py()
            narrow = _narrowest(bounds["min"] or 0, bounds["max"] or 0)
            if narrow is not None:
                table = table.set_column(index, field.name, table.column(index).cast(narrow))
                shrunk.append(index)
    return table.replace_schema_metadata({_WIDE: ",".join(map(str, shrunk))}) if shrunk else table


def _restore(table: pa.Table) -> pa.Table:
    shrunk = (table.schema.metadata or {}).get(_WIDE, b"").decode()
    for index in map(int, shrunk.split(",") if shrunk else []):
        table = table.set_column(index, table.column_names[index], table.column(index).cast(pa.int64()))
    return table.replace_schema_metadata(None)


def _once(table: pa.Table) -> pa.Table:
    """The columns without those that equal an earlier one: sum and value of single rows are the same."""
    kept: list[tuple[pa.DataType, pa.ChunkedArray | None]] = []
    indexes = []
    for column in table.columns:
        own = column.type, _bits(column)
        repeats = (index for index, other in enumerate(kept) if own[1] is not None and own == other)
        indexes.append(next(repeats, len(kept)))
        if indexes[-1] == len(kept):
            kept.append(own)
    if len(kept) == len(indexes):
        return table
    listed = json.dumps(list(zip(table.column_names, indexes, strict=True)))
    metadata = (table.schema.metadata or {}) | {_SAME: listed.encode()}
    return table.select([indexes.index(index) for index in range(len(kept))]).replace_schema_metadata(
        metadata
    )


def _twice(table: pa.Table) -> pa.Table:
    metadata = table.schema.metadata or {}
    if _SAME not in metadata:
        return table
    columns = {name: table.column(index) for name, index in json.loads(metadata[_SAME])}
    return pa.table(columns, metadata=metadata)


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Numbers by their bits: zeros of different signs differ, equal NaNs are equal."""
    if pa.types.is_integer(column.type):
        return column
    if column.type != pa.float64():
        return None
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())


def _narrowest(low: int, high: int) -> pa.DataType | None:
    for bits, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32())):
        if -(1 << bits - 1) <= low and high < 1 << bits - 1:
            return kind
    return None


def to_arrow(frame: pl.DataFrame) -> pa.Table:
    """Polars to Arrow in the types every Arrow implementation reads."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def to_polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def pieces(table: pa.Table) -> Iterator[pa.Table]:
    """The table in slices that stay below the blob limit."""
    rows = max(1, table.num_rows * MAX_BYTES // max(table.nbytes, 1))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)
