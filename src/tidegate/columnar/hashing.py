"""Hashes of values that never change: state is laid out by them and outlives every library version.

Those without a secret can be forged. They decide where rows go, which costs balance and no row: buckets,
shards of admission, what is shed. What a row *is* they never decide: keys that share a hash are compared
by value, and ids of which nothing else is kept have digests with a secret.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Which rows of an array, and a number for each, or one for all.
Rows = np.ndarray | slice
Words = np.ndarray | np.uint64

_NULL = np.uint64(0x9E3779B97F4A7C15)
_PRIME = np.uint64(0x100000001B3)
#: How many hashes of 32 bits make a digest.
_LANES, _HALF = 4, np.uint64(32)
#: So many rows are hashed at a time: what is made on the way then stays in the processor's cache.
_AT_ONCE = 1 << 15
#: Values of more words than this are hashed before they are.
_LONG_WORDS = 32
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


def digest_columns(table: pa.Table, secret: bytes) -> tuple[np.ndarray, np.ndarray]:
    """128 bits per row, in two halves, that stand for its values: the columns' order counts.

    Two rows that differ, chosen by somebody who does not know the secret, have the same ones with a
    probability of 2⁻¹²⁸ over all secrets, as far as SHAKE-256 and BLAKE2b cannot be told from chance.
    Whoever knows the secret can make up as many such rows as they like.
    """
    one, two, three, four = _lanes(table, secret, _LANES)
    return one | two >> _HALF, three | four >> _HALF


def keyed_hash(table: pa.Table, secret: bytes) -> np.ndarray:
    """The first half of the digest, for those who compare values afterwards."""
    one, two = _lanes(table, secret, _LANES // 2)
    return one | two >> _HALF


def _lanes(table: pa.Table, secret: bytes, count: int) -> list[np.ndarray]:
    """Independent hashes of 32 bits for each row, in the upper halves of words.

    A lane is the sum of a row's pieces of 32 bits, each multiplied by a random number of 64 bits that
    belongs to its position ("multilinear" hashing: Lemire and Kaser, Strongly universal string hashing
    is fast). If two rows differ in a position that both have, the upper halves are the same for one in
    2³² of the choices of its number, whatever the rows are. They do: a value begins with its length, so
    none is the beginning of another, and each column has positions of its own.
    """
    table = flat_table(table)
    begins = range(0, max(table.num_rows, 1), _AT_ONCE)
    parts = [_lanes_at_once(table.slice(begin, _AT_ONCE), secret, count) for begin in begins]
    return [np.concatenate(lane) for lane in zip(*parts, strict=True)]


def _lanes_at_once(table: pa.Table, secret: bytes, count: int) -> list[np.ndarray]:
    totals = [np.full(table.num_rows, start) for start in _numbers(secret, b"start", _LANES)[:count]]
    for index, column in enumerate(table.columns):
        own = _numbers(secret, index.to_bytes(4, "little"), 2 * _LANES * (_LONG_WORDS + 1))
        # Two for each lane and word: those of the lengths, then those of the values.
        factors = own.reshape(_LONG_WORDS + 1, _LANES, 2)
        for (rows, word), numbers in zip(_words(_whole(column), secret), factors, strict=False):
            low, high = word & _FIRST_BYTES[4], word >> _HALF
            for total, (one, two) in zip(totals, numbers, strict=False):
                total[rows] += low * one + high * two
    return [total & ~_FIRST_BYTES[4] for total in totals]


def _numbers(secret: bytes, name: bytes, count: int) -> np.ndarray:
    """Numbers that are random to everybody who does not know the secret."""
    return np.frombuffer(hashlib.shake_256(secret + name).digest(8 * count), dtype="<u8")


def _words(array: pa.Array, secret: bytes) -> Iterator[tuple[Rows, Words]]:
    """Values as words of 64 bits, their length first: which rows have one more, and what it is.

    A null has none.
    """
    present = np.flatnonzero(array.is_valid()) if array.null_count else slice(None)
    bits = _bits(array)
    if bits is not None:
        yield present, np.uint64(1)
        yield present, bits[present]
        return
    offsets, data = _bytes(array)
    yield present, np.diff(offsets)[present].astype(np.uint64) + np.uint64(1)
    yield from _words_of_bytes(*_shortened(offsets, data, secret))


def _words_of_bytes(offsets: np.ndarray, data: np.ndarray) -> Iterator[tuple[Rows, Words]]:
    lengths, begin = np.diff(offsets), offsets[:-1]
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    words = np.ndarray(len(data) + 1, dtype="<u8", buffer=padded, strides=(1,))  # one from each byte on
    for start in range(0, lengths.max(initial=0), 8):
        # Where all rows go on, and most often they do, nothing is looked up.
        goes_on = lengths > start
        rows = slice(None) if goes_on.all() else np.flatnonzero(goes_on)
        left = np.minimum(lengths[rows] - start, 8)
        yield rows, words[begin[rows] + start] & _FIRST_BYTES[left]


def _shortened(offsets: np.ndarray, data: np.ndarray, secret: bytes) -> tuple[np.ndarray, np.ndarray]:
    """The same bytes, a keyed hash in place of each value that is longer than there are numbers for."""
    lengths = np.diff(offsets)
    if lengths.max(initial=0) <= 8 * _LONG_WORDS:
        return offsets, data
    values = np.split(data, offsets[1:-1])
    short = [
        np.frombuffer(hashlib.blake2b(value.tobytes(), key=secret).digest(), np.uint8)
        if len(value) > 8 * _LONG_WORDS
        else value
        for value in values
    ]
    return np.cumsum([0, *map(len, short)]), np.concatenate(short)


def hash_array(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """One 64-bit hash per value; null hashes to a constant."""
    array = _whole(values)
    if pa.types.is_nested(array.type):
        return hash_columns(pa.table({str(n): part for n, part in enumerate(_flat_parts(array))}))
    bits = _bits(array)
    hashed = _hash_bytes(array) if bits is None else mix(bits)
    if array.null_count:
        hashed = np.where(np.asarray(array.is_null()), _NULL, hashed)
    return hashed


# -- nested values --------------------------------------------------------------------------------


def flat_table(table: pa.Table) -> pa.Table:
    """Columns without structs and lists that are equal where the given ones are."""
    if not any(pa.types.is_nested(kind) for kind in table.schema.types):
        return table
    parts = [part for column in table.columns for part in _flat_parts(_whole(column))]
    return pa.table({str(number): part for number, part in enumerate(parts)})


def _flat_parts(array: pa.Array) -> list[pa.Array]:
    """The fields of a struct, and whether it is there; a list is the bytes of its elements."""
    if pa.types.is_struct(array.type):
        fields = [part for field in array.flatten() for part in _flat_parts(field)]
        return [array.is_valid(), *fields]
    return [_bytes_of_lists(array)] if pa.types.is_nested(array.type) else [array]


def _bytes_of_lists(lists: pa.Array) -> pa.Array:
    """The bytes of all elements behind each other: as none is the beginning of another, they differ."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    parts = [_bytes_of_values(part) for part in _flat_parts(lists.flatten())]
    elements = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), b"")
    return pc.if_else(lists.is_valid(), joined, pa.scalar(None, pa.binary()))


def _bytes_of_values(array: pa.Array) -> pa.Array:
    """A zero for null; else a one, and the value, or its length and the value."""
    bits = _bits(array)
    if bits is not None:
        told = _after_a_one(bits)
    else:
        offsets, data = _bytes(array)
        content = pa.Array.from_buffers(
            pa.large_binary(), len(array), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        ).cast(pa.binary())
        lengths = _after_a_one(np.diff(offsets).astype(np.uint64))
        told = pc.binary_join_element_wise(lengths, content, pa.scalar(b"", pa.binary()))
    return pc.if_else(array.is_valid(), told, pa.scalar(b"\0", pa.binary()))


def _after_a_one(words: np.ndarray) -> pa.Array:
    spelled = np.ones((len(words), 9), dtype=np.uint8)
    spelled[:, 1:] = words.astype("<u8").view(np.uint8).reshape(-1, 8)
    offsets = np.arange(len(words) + 1, dtype=np.int32) * 9
    return pa.Array.from_buffers(
        pa.binary(), len(words), [None, pa.py_buffer(offsets), pa.py_buffer(spelled.tobytes())]
    )


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
    """Some values at a time."""
    begins = range(0, max(len(offsets) - 1, 1), _AT_ONCE)
    return np.concatenate(
        [_sums_at_once(offsets[begin : begin + _AT_ONCE + 1], data) for begin in begins]
    )


def _sums_at_once(offsets: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Byte after byte, of all values that have one there."""
    lengths, begin = np.diff(offsets), offsets[:-1]
    total, shortest = np.zeros(len(begin), dtype=np.uint64), lengths.min(initial=len(data))
    for position in range(lengths.max(initial=0)):
        rows = slice(None) if position < shortest else np.flatnonzero(lengths > position)
        bytes_there = data[begin[rows] + position].astype(np.uint64)
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
