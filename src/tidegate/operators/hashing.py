"""A hash of values that never changes: state is laid out by it and outlives every library version."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)
_POWERS = np.array([pow(int(_PRIME), i, 1 << 64) for i in range(64)], dtype=np.uint64)


def mix(x: np.ndarray) -> np.ndarray:
    """splitmix64's finalizer: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_columns(table: pa.Table) -> np.ndarray:
    """One 64-bit hash per row; the columns' order counts."""
    total = np.zeros(table.num_rows, dtype=np.uint64)
    for column in table.columns:
        total = mix(total * _PRIME + hash_array(column))
    return total


def hash_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """One 64-bit hash per value; null hashes to a constant."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):  # combine_chunks of nothing
        array = pa.array([], type=values.type)
    hashed = _hash_valid(array)
    if array.null_count:
        hashed = np.where(np.asarray(array.is_null()), _NULL, hashed)
    return hashed


def _hash_valid(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_floating(kind):
        numbers = _numpy(pc.cast(array, pa.float64()), 0.0) + 0.0  # -0.0 and 0.0 are one value
        numbers[np.isnan(numbers)] = np.nan
        return mix(numbers.view(np.uint64))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return mix(_numpy(pc.cast(array, pa.int64(), safe=False), 0).view(np.uint64))
    if pa.types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return mix(_numpy(pc.cast(array.view(wide), pa.int64()), 0).view(np.uint64))
    if pa.types.is_decimal(kind):
        array = pc.cast(array, pa.string())
    return _hash_bytes(pc.cast(array, pa.large_binary()))


def _numpy(array: pa.Array, null: float) -> np.ndarray:
    return np.array(array.fill_null(null), copy=True)


def _hash_bytes(array: pa.Array) -> np.ndarray:
    """A polynomial over each value's bytes, and its length, in one pass over the shared buffer."""
    count = len(array)
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1, array.offset * 8) if count else None
    if offsets is None:
        return np.zeros(0, dtype=np.uint64)
    lengths = np.diff(offsets)
    total = np.zeros(count, dtype=np.uint64)
    if data_buffer is not None and offsets[-1] > offsets[0]:
        data = np.frombuffer(data_buffer, np.uint8, offsets[-1] - offsets[0], offsets[0])
        position = np.arange(len(data)) - np.repeat(offsets[:-1] - offsets[0], lengths)
        # Powers repeat after 64 bytes; folding the block number in keeps long values apart.
        terms = (data.astype(np.uint64) + np.uint64(1)) * _POWERS[position & 63]
        terms += (position >> 6).astype(np.uint64) * np.uint64(0x9E3779B1) * terms
        filled = lengths > 0
        starts = (offsets[:-1] - offsets[0])[filled]
        total[filled] = np.add.reduceat(terms, starts)
    return mix(total + lengths.astype(np.uint64) * _NULL)
