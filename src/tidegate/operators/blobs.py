"""Bytes that leave a process: a version byte, then tables as length-prefixed Arrow IPC streams."""

import struct
from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from tidegate.errors import StateError

#: Raise it when the layout changes; the changelog then says that stored state is unreadable.
VERSION = 1

#: Arrow's 32-bit offsets and Spark's sockets are comfortable well above this.
MAX_BYTES = 24 << 20

_LENGTH = struct.Struct("<q")


def encode(tables: Sequence[pa.Table]) -> bytes:
    """The tables as one blob."""
    parts = [bytes([VERSION]).ljust(_LENGTH.size, b"\0")]  # Arrow likes its buffers aligned
    for table in tables:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue()
        parts += [_LENGTH.pack(body.size), body]
    return b"".join(parts)


def decode(blob: bytes) -> list[pa.Table]:
    """The tables of a blob that `encode` wrote."""
    if not blob or blob[0] != VERSION:
        found = blob[0] if blob else "nothing"
        raise StateError(f"stored in format {found}, but this version reads format {VERSION}")
    if len(blob) < _LENGTH.size:
        raise StateError(f"stored table is cut short after {len(blob)} bytes")
    return list(_tables(memoryview(blob), _LENGTH.size))


def _tables(view: memoryview, start: int) -> Iterator[pa.Table]:
    while start < len(view):
        body = start + _LENGTH.size
        length = _LENGTH.unpack_from(view, start)[0] if body <= len(view) else 0
        if body > len(view) or body + length > len(view):
            raise StateError(f"stored table is cut short after {len(view)} bytes")
        yield pa.ipc.open_stream(view[body : body + length]).read_all()
        start = body + length


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
