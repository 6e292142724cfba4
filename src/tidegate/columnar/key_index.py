"""Keys as integers: values are read once per batch, and everything after that works on codes."""

import os
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar.hashing import flat_table, hash_columns, keyed_hash
from tidegate.columnar.sorting import search

#: The key column of windows without a key.
GLOBAL = "__tidegate_global"

#: More chunks than this are combined: looking up values in many chunks is slow.
_MANY_CHUNKS = 8

#: A secret, so that nobody can send keys that all have the same hash.
_SECRET = os.urandom(32)


def encode(table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The distinct rows in order of first appearance, and each row's position among them.

    Rows that come first get the same codes whatever follows them, so encoding known keys with new
    ones behind them leaves the known codes as they were.
    """
    first_column, *others = flat_table(table).columns
    codes, distinct = _encode_column(first_column)
    for column in others:
        more, count = _encode_column(column)
        pairs = codes.astype(np.int64) * count + more
        codes, distinct = _encode_column(pa.chunked_array([pa.array(pairs)]))
    first = _first_occurrences(codes, distinct)
    return table.take(pa.array(first)), codes


class KeyIndex:
    """Keys numbered as they become known; a code never changes.

    Cost follows the keys that are asked for, not those that are known. A hash finds the known keys
    that may be among them; which ones are is decided by the values themselves.
    """

    def __init__(self) -> None:
        self._chunks: list[pa.Table] = []
        self._hashes = np.empty(0, dtype=np.uint64)  # sorted, and beside it the codes
        self._codes = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def size(self) -> int:
        """About how many bytes the known keys take."""
        own = self._hashes.nbytes + self._codes.nbytes
        return own + sum(chunk.get_total_buffer_size() for chunk in self._chunks)

    @property
    def table(self) -> pa.Table:
        """The known keys, in the order of their codes."""
        if len(self._chunks) > _MANY_CHUNKS:
            self._chunks = [pa.concat_tables(self._chunks).combine_chunks()]
        return pa.concat_tables(self._chunks)

    def codes_of(self, tables: Sequence[pa.Table]) -> list[np.ndarray]:
        """The codes of these keys, known or new, for each table."""
        asked = pa.concat_tables(tables)
        hashes = _hashes(asked)
        codes, others = self._known_codes(asked, hashes)
        if len(others):
            codes[others] = self._codes_of(asked.take(pa.array(others)), hashes[others])
        return np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1])

    def _known_codes(self, asked: pa.Table, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The codes of known keys that are the first of their hash, as most are; and the other rows."""
        if not len(self):
            return np.empty(len(hashes), dtype=np.int32), np.arange(len(hashes))
        position = np.minimum(search(self._hashes, hashes), len(self) - 1)
        codes = self._codes[position]
        same = self._hashes[position] == hashes
        known = self.table.take(pa.array(codes))
        for pair in zip(flat_table(known).columns, flat_table(asked).columns, strict=True):
            same &= _equal(*pair)
        return codes, np.flatnonzero(~same)

    def _codes_of(self, asked: pa.Table, hashes: np.ndarray) -> np.ndarray:
        """The codes of keys of which some are new, or share a hash with another."""
        near = self._codes[self._positions_of(hashes)]
        known = [self.table.take(pa.array(near))] if len(near) else []
        distinct, codes = encode(pa.concat_tables([*known, asked]))
        fresh = distinct.slice(len(near))
        numbers = np.arange(len(self), len(self) + fresh.num_rows, dtype=np.int32)
        self._add(fresh, numbers)
        return np.concatenate([near, numbers])[codes[len(near) :]]

    def _positions_of(self, hashes: np.ndarray) -> np.ndarray:
        """Where these hashes stand in the index, if they do; one may stand there several times."""
        wanted = np.sort(hashes)  # far faster than np.unique
        wanted = wanted[np.diff(wanted, prepend=~wanted[:1]) != 0]
        first = np.searchsorted(self._hashes, wanted)
        count = np.searchsorted(self._hashes, wanted, side="right") - first
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(first, count) + within

    def _add(self, fresh: pa.Table, codes: np.ndarray) -> None:
        if not len(codes):
            return
        self._chunks.append(fresh)
        hashes = _hashes(fresh)
        order = np.argsort(hashes)
        positions = np.searchsorted(self._hashes, hashes[order])
        self._hashes = np.insert(self._hashes, positions, hashes[order])
        self._codes = np.insert(self._codes, positions, codes[order])


def _hashes(keys: pa.Table) -> np.ndarray:
    """The hashes that keys are looked up by, in this process only."""
    return keyed_hash(keys, _SECRET)


def bucket_of(keys: pa.Table, buckets: Sequence[int]) -> np.ndarray:
    """The bucket label of each key."""
    return bucket_of_hash(hash_columns(keys), buckets)


def bucket_of_hash(hashes: np.ndarray, buckets: Sequence[int]) -> np.ndarray:
    """The bucket label of each hash."""
    position = (hashes % np.uint64(len(buckets))).astype(np.int64)
    return np.asarray(buckets, dtype=np.int32)[position]


def key_table(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The key columns, in one form for equal values; windows without a key share one constant."""
    if not names:
        return pa.table({GLOBAL: pa.array(np.zeros(rows.num_rows, dtype=np.int8))})
    keys = rows.select(names)
    for place, column in enumerate(keys.columns):
        if pa.types.is_floating(column.type):
            keys = keys.set_column(place, keys.field(place), _one_form(column))
    return keys


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """Which values are equal, row by row? Null equals null; NaN equals nothing."""
    equal = pc.fill_null(pc.equal(one, other), False)
    return np.asarray(pc.or_(equal, pc.and_(one.is_null(), other.is_null())))


def _encode_column(column: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    if pa.types.is_floating(column.type):
        column = _one_form(column)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else None
    if encoded is None:
        return np.zeros(0, dtype=np.int32), 0
    return np.asarray(encoded.indices), len(encoded.dictionary)


def _one_form(floats: pa.ChunkedArray) -> pa.ChunkedArray:
    """-0.0 is 0.0, and every NaN the same."""
    floats = pc.add(floats, pa.scalar(0.0, floats.type))
    return pc.if_else(pc.is_nan(floats), pa.scalar(float("nan"), floats.type), floats)


def _first_occurrences(codes: np.ndarray, distinct: int) -> np.ndarray:
    first = np.empty(distinct, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first
