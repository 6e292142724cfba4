"""A folder of files as one sequence of rows, cut wherever a batch is to end.

Files are taken by name, in which numbers count as numbers, so that a copy of a folder is read like the
folder itself; or, if asked for, by modification time. What has been read is known by name: a file that
appears late, with a smaller name or an old time, is simply the next one. Writers must let files appear
whole, by a rename, and never change them.

An offset has all that a batch is made of, so that a replay from Spark's offset log repeats its rows:

    {"read": the files that are done, "open": [name, position] or null, "batch": [[name, from, to], …]}

with the pieces of the batch in one list for each task. A file that is gone from the folder is forgotten
with the next batch. Positions are bytes in files of lines, and rows in Parquet.

Where nobody says where a batch starts, it ends after all files that are there, and has null for its
pieces: they are what is between two offsets. Files never change, so a replay finds the same ones.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.errors import SourceError

Offset = dict[str, Any]
#: A file's name, and the positions between which its rows are.
Piece = tuple[str, int, int]

#: What decides which file comes first.
Order = Literal["name", "modified"]

#: The columns of files of lines: a line with what ends it, and the file it is from.
LINE, FILE = "value", "file"

#: Where nothing has been read.
BEGINNING: Offset = {"read": "", "open": None, "batch": []}

#: Lines are looked through, and handed on, in chunks of this size.
_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 100_000

_NEWLINE = b"\n"
#: How names of compressed files of lines end.
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
#: The bytes that stand for the name of a file that has been read.
_MARK_BYTES = 8


@dataclass(frozen=True)
class Cut:
    """How far some rows of a file reach: up to which position, how many they are, and if any follow."""

    end: int
    rows: int
    is_last: bool


class Format(Protocol):
    """How rows lie in a file."""

    def opened(self, file: pa.NativeFile, name: str) -> pa.NativeFile:
        """The file as positions are counted in it."""
        ...

    def begin(self, file: pa.NativeFile) -> int:
        """The position of the first row."""
        ...

    def cut(self, file: pa.NativeFile, begin: int, rows: int) -> Cut:
        """Up to so many rows from a position on."""
        ...

    def read(self, file: pa.NativeFile, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows between two positions."""
        ...


@dataclass(frozen=True)
class Lines:
    """A row is a line, of JSON or CSV, handed on as it is; `header` is a first line to be left out."""

    header: bool = False

    def opened(self, file: pa.NativeFile, name: str) -> pa.NativeFile:
        """Of a compressed file, known by how its name ends, the text: positions are those in it."""
        if not name.lower().endswith(_COMPRESSED):
            return file
        codec = pa.Codec.detect(name.lower()).name
        return pa.BufferReader(pa.CompressedInputStream(file, codec).read())

    def begin(self, file: pa.NativeFile) -> int:
        return self.cut(file, 0, 1).end if self.header else 0

    def cut(self, file: pa.NativeFile, begin: int, rows: int) -> Cut:
        size, end, found = file.size(), begin, 0
        file.seek(begin)
        while end < size and found < rows:
            chunk = file.read(_CHUNK_BYTES)
            lines = chunk.count(_NEWLINE)
            if found + lines >= rows:
                end += int(_line_ends(chunk)[rows - found - 1])
                return Cut(end, rows, end == size)
            end += len(chunk)
            # The last line may end with the file.
            found += lines + (end == size and not chunk.endswith(_NEWLINE))
        return Cut(end, found, end == size)

    def read(self, file: pa.NativeFile, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        file.seek(begin)
        left, rest = end - begin, b""
        while left:
            chunk = file.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise EOFError(f"the file has become shorter: {left} bytes of its rows are missing")
            left -= len(chunk)
            whole = rest + chunk
            edge = whole.rfind(_NEWLINE) + 1 if left else len(whole)
            rest = whole[edge:]
            if edge:
                yield _as_lines(whole[:edge])


@dataclass(frozen=True)
class Parquet:
    """Columns by name, as the given types; one that a file does not have is null."""

    schema: pa.Schema

    def opened(self, file: pa.NativeFile, name: str) -> pa.NativeFile:
        return file

    def begin(self, file: pa.NativeFile) -> int:
        return 0

    def cut(self, file: pa.NativeFile, begin: int, rows: int) -> Cut:
        size = pq.read_metadata(file).num_rows
        end = min(begin + rows, size)
        return Cut(end, end - begin, end == size)

    def read(self, file: pa.NativeFile, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        there = [name for name in self.schema.names if name in parquet.schema_arrow.names]
        first = 0
        for group in range(parquet.num_row_groups):
            after = first + parquet.metadata.row_group(group).num_rows
            if first < end and after > begin:
                table = parquet.read_row_group(group, there)
                rows = table.slice(max(begin - first, 0), min(end, after) - max(begin, first))
                yield from self._typed(rows).to_batches(_CHUNK_ROWS)
            first = after

    def _typed(self, rows: pa.Table) -> pa.Table:
        return pa.table([_column(rows, field) for field in self.schema], schema=self.schema)


def _column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    """A column as it was declared. Of nanoseconds, which Spark does not know, microseconds are left."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    column = rows.column(field.name)
    nanos = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    try:
        return column.cast(field.type, safe=not nanos)
    except pa.ArrowException as error:
        kinds = f"column {field.name!r} is {column.type} there, and declared as {field.type}"
        raise pa.ArrowInvalid(f"{kinds}: {error}") from error


@dataclass(frozen=True)
class Folder:
    """The files of a folder, without those in folders below it, and without hidden ones."""

    uri: str
    format: Format
    order: Order = "name"

    def names(self) -> list[str]:
        """The files that are there, in the order in which they are taken."""
        filesystem, path = fs.FileSystem.from_uri(self.uri)
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        files = [info for info in found if info.is_file and not info.base_name.startswith(("_", "."))]
        if self.order == "modified":
            files.sort(key=lambda info: (info.mtime_ns, info.base_name))
        else:
            files.sort(key=lambda info: _by_name(info.base_name))
        return [info.base_name for info in files]

    def take(
        self,
        start: Offset,
        names: Sequence[str],
        shares: Iterable[int],
        most_files: int | None = None,
    ) -> tuple[Offset, int]:
        """The offset up to so many rows further for each task, and how many rows there were.

        With `most_files` no more files than these are begun; those without rows do not count.
        """
        cutting = _Cutting(self, start, names, most_files)
        batch = cutting.batch(shares)
        return cutting.offset(batch) if batch else start, cutting.rows

    def between(self, start: Offset, end: Offset, shares: Iterable[int]) -> list[list[Piece]]:
        """The pieces from one offset to another that is `after_all` files of its time."""
        wanted, known = set(_marks(end["read"])), set(_marks(start["read"]))
        names = [name for name in self.names() if _mark(name) in wanted]
        if gone := len(wanted - known - {_mark(name) for name in names}):
            raise SourceError(
                f"{self.uri}: {gone} files are gone, and rows of them belong to a batch that is begun: "
                "put them back, or some of the same names with the same rows"
            )
        return _Cutting(self, start, names, None).batch(shares)

    def cut(self, name: str, begin: int | None, rows: int) -> tuple[int, Cut]:
        """Where a file's next rows begin, and how far up to `rows` of them reach."""
        with self._opened(name) as file:
            begin = self.format.begin(file) if begin is None else begin
            return begin, self.format.cut(file, begin, rows)

    def read(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of pieces, in their order."""
        for name, begin, end in pieces:
            with self._opened(name) as file:
                for rows in self.format.read(file, begin, end):
                    yield self._named(rows, name) if isinstance(self.format, Lines) else rows

    def _named(self, lines: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Lines with the file that they are from."""
        whole = pa.repeat(pa.scalar(posixpath.join(self.uri, name), pa.string()), lines.num_rows)
        return lines.append_column(FILE, whole)

    @contextmanager
    def _opened(self, name: str) -> Iterator[pa.NativeFile]:
        filesystem, path = fs.FileSystem.from_uri(self.uri)
        whole = posixpath.join(self.uri, name)
        try:
            with filesystem.open_input_file(posixpath.join(path, name)) as file:
                yield self.format.opened(file, name)
        except FileNotFoundError as error:
            raise SourceError(
                f"{whole} is gone, and rows of it belong to a batch that is begun: put it back, or one "
                "with the same rows"
            ) from error
        except (pa.ArrowException, EOFError, OSError) as error:
            raise SourceError(f"{whole}: {error}") from error


def after_all(names: Iterable[str]) -> Offset:
    """The offset after all these files, wherever one comes from."""
    return {"read": _text(map(_mark, names)), "open": None, "batch": None}


class _Cutting:
    """Cuts pieces from what an offset has left of a folder."""

    def __init__(
        self, folder: Folder, start: Offset, names: Sequence[str], most_files: int | None
    ) -> None:
        self._folder = folder
        self._files_left = len(names) if most_files is None else most_files
        there = {_mark(name): name for name in names}
        read = _marks(start["read"])
        self._read = [mark for mark in read if mark in there]
        # The file that was begun comes first, whatever has appeared meanwhile.
        begun = [start["open"]] if start["open"] else []
        known = {*read, *(_mark(name) for name, _ in begun)}
        rest = [(name, None) for mark, name in there.items() if mark not in known]
        self._queue: deque[tuple[str, int | None]] = deque([*begun, *rest])
        self.rows = 0

    def batch(self, shares: Iterable[int]) -> list[list[Piece]]:
        """The next rows of each task, until there are none."""
        return list(takewhile(bool, map(self.pieces, shares)))

    def pieces(self, rows: int) -> list[Piece]:
        """The next rows, as far as there are any."""
        pieces: list[Piece] = []
        while rows and self._queue:
            name, position = self._queue[0]
            if position is None and not self._files_left:
                break
            self._queue.popleft()
            begin, cut = self._folder.cut(name, position, rows)
            if cut.rows:
                pieces.append((name, begin, cut.end))
                self._files_left -= position is None
            if cut.is_last:
                self._read.append(_mark(name))
            else:
                self._queue.appendleft((name, cut.end))
            rows -= cut.rows
            self.rows += cut.rows
        return pieces

    def offset(self, batch: list[list[Piece]]) -> Offset:
        begun = [[name, position] for name, position in self._queue if position is not None]
        return {
            "read": _text(self._read),
            "open": begun[0] if begun else None,
            "batch": [[list(piece) for piece in pieces] for pieces in batch],
        }


def _by_name(name: str) -> tuple[list[str | int], str]:
    """What files are sorted by: text and numbers in turn; `01` and `1` are told apart by the whole."""
    parts = re.split("([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)], name


def _mark(name: str) -> bytes:
    """What stands for a file's name among those that have been read: there may be many."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_MARK_BYTES).digest()


def _text(marks: Iterable[bytes]) -> str:
    return base64.b64encode(b"".join(marks)).decode()


def _marks(read: str) -> list[bytes]:
    marks = base64.b64decode(read)
    return [marks[at : at + _MARK_BYTES] for at in range(0, len(marks), _MARK_BYTES)]


def _line_ends(chunk: bytes) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The positions after each newline."""
    return np.flatnonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE[0]) + 1


def _as_lines(text: bytes) -> pa.RecordBatch:
    """Each line, with what ends it, as one binary value: the bytes stay where they are."""
    ends = _line_ends(text)
    if not text.endswith(_NEWLINE):
        ends = np.append(ends, len(text))
    edges = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(text)]
    return pa.record_batch([pa.Array.from_buffers(pa.binary(), len(ends), buffers)], [LINE])
