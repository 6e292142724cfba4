"""Hashes of values that never change: state is laid out by them and outlives every library version."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULL = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)
#: Where the two halves of a digest begin.
_ONE, _TWO = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)
#: The first so many bytes of a word.
_FIRST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
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


def digest_columns(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """128 bits per row, in two halves, that stand for its values: the columns' order counts.

    Two rows that differ have the same ones with a probability of 2⁻¹²⁸.
    """
    one, two = (np.full(table.num_rows, seed) for seed in (_ONE, _TWO))
    for column in table.columns:
        array = _whole(column)
        null = np.flatnonzero(array.is_null())
        # Two different words: no value is both.
        of_null = mix(one[null] ^ _NULL), mix(two[null] * _PRIME + ~_NULL)
        for rows, word in _words(array):
            one[rows] = mix(one[rows] ^ word)
            two[rows] = mix(two[rows] * _PRIME + word)
        one[null], two[null] = of_null
    return one, two


def _words(array: pa.Array) -> Iterator[tuple[np.ndarray | slice, np.ndarray]]:
    """Values in pieces of 64 bits: which rows have one more, and what it is."""
    bits = _bits(array)
    if bits is not None:
        yield slice(None), bits
        return
    offsets, data = _bytes(array)
    lengths = np.diff(offsets)
    yield slice(None), lengths.astype(np.uint64)
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    words = np.ndarray(len(data) + 1, dtype="<u8", buffer=padded, strides=(1,))  # one from each byte on
    rows, start = np.flatnonzero(lengths), 0
    while len(rows):
        left = lengths[rows] - start
        yield rows, words[offsets[rows] + start] & _FIRST_BYTES[np.minimum(left, 8)]
        rows, start = rows[left > 8], start + 8


def hash_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """One 64-bit hash per value; null hashes to a constant."""
    array = _whole(values)
    bits = _bits(array)
    hashed = _hash_bytes(array) if bits is None else mix(bits)
    if array.null_count:
        hashed = np.where(np.asarray(array.is_null()), _NULL, hashed)
    return hashed


def _whole(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    # combine_chunks of nothing is still in chunks
    return pa.array([], type=values.type) if isinstance(array, pa.ChunkedArray) else array


def _bits(array: pa.Array) -> np.ndarray | None:
    """Values of a fixed width as 64 bits each, equal ones the same."""
    kind = array.type
    if pa.types.is_floating(kind):
        numbers = _numpy(pc.cast(array, pa.float64()), 0.0) + 0.0  # -0.0 and 0.0 are one value
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.uint64)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _numpy(pc.cast(array, pa.int64(), safe=False), 0).view(np.uint64)
    if pa.types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return _numpy(pc.cast(array.view(wide), pa.int64()), 0).view(np.uint64)
    return None


def _numpy(array: pa.Array, null: float) -> np.ndarray:
    return np.array(array.fill_null(null), copy=True)


def _hash_bytes(array: pa.Array) -> np.ndarray:
    """A polynomial over each value's bytes, and its length."""
    offsets, data = _bytes(array)
    lengths = np.diff(offsets)
    long = lengths.max(initial=0) > len(_POWERS)
    total = _sums_of_long(offsets, data) if long else _sums_of_short(offsets, data)
    return mix(total + lengths.astype(np.uint64) * _NULL)


def _sums_of_short(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Byte after byte, of all values that have one there."""
    lengths, total = np.diff(offsets), np.zeros(len(offsets) - 1, dtype=np.uint64)
    for position in range(lengths.max(initial=0)):
        rows = np.flatnonzero(lengths > position)
        bytes_there = data[offsets[rows] + position].astype(np.uint64)
        total[rows] += (bytes_there + np.uint64(1)) * _POWERS[position]
    return total


def _sums_of_long(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """In one pass over the shared buffer."""
    lengths, total = np.diff(offsets), np.zeros(len(offsets) - 1, dtype=np.uint64)
    position = np.arange(len(data)) - np.repeat(offsets[:-1], lengths)
    # Powers repeat after 64 bytes; folding the block number in keeps long values apart.
    terms = (data.astype(np.uint64) + np.uint64(1)) * _POWERS[position & 63]
    terms += (position >> 6).astype(np.uint64) * np.uint64(0x9E3779B1) * terms
    filled = lengths > 0
    total[filled] = np.add.reduceat(terms, offsets[:-1][filled])
    return total


def _bytes(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where the bytes of each value begin, and where the last ones end; and all of them."""
    if pa.types.is_decimal(array.type):
        array = pc.cast(array, pa.string())
    array = pc.cast(array, pa.large_binary())
    _, offset_buffer, data_buffer = array.buffers()
    if not len(array) or data_buffer is None:
        return np.zeros(len(array) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    offsets = np.frombuffer(offset_buffer, np.int64, len(array) + 1, array.offset * 8)
    data = np.frombuffer(data_buffer, np.uint8, offsets[-1] - offsets[0], offsets[0])
    return offsets - offsets[0], data
