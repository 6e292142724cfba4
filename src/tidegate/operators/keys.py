"""Keys as integers: values are looked at once per batch, everything after works on codes."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.hashing import hash_columns

#: The key column of windows without a key.
GLOBAL = "__tidegate_global"


def encode(table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """The distinct rows in order of first appearance, and each row's place among them.

    Rows that come first get the same codes whatever follows them, so encoding known keys with new
    ones behind them leaves the known codes as they were.
    """
    codes, distinct = _encode_column(table.column(0))
    for column in table.columns[1:]:
        more, count = _encode_column(column)
        pairs = codes.astype(np.int64) * count + more
        codes, distinct = _encode_column(pa.chunked_array([pa.array(pairs)]))
    first = _first_occurrences(codes, distinct)
    return table.take(pa.array(first)), codes


def concat(tables: Sequence[pa.Table]) -> tuple[pa.Table, list[np.ndarray]]:
    """The distinct rows of all tables, and each table's codes among them."""
    keys, codes = encode(pa.concat_tables(tables))
    return keys, np.split(codes, np.cumsum([t.num_rows for t in tables])[:-1])


def bucket_of(keys: pa.Table, buckets: Sequence[int]) -> np.ndarray:
    """The bucket label of each key."""
    place = (hash_columns(keys) % np.uint64(len(buckets))).astype(np.int64)
    return np.asarray(buckets, dtype=np.int32)[place]


def key_table(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The key columns; windows without a key share one constant."""
    if not names:
        return pa.table({GLOBAL: pa.array(np.zeros(rows.num_rows, dtype=np.int8))})
    return rows.select(names)


def _encode_column(column: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    if pa.types.is_floating(column.type):
        column = pc.add(column, pa.scalar(0.0, column.type))  # -0.0 is 0.0
        column = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks) if encoded.num_chunks else None
    if encoded is None:
        return np.zeros(0, dtype=np.int32), 0
    return np.asarray(encoded.indices), len(encoded.dictionary)


def _first_occurrences(codes: np.ndarray, distinct: int) -> np.ndarray:
    first = np.empty(distinct, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first
