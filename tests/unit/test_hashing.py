"""Hashes never change: state is laid out by them, and outlives every version of every library."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidegate.operators.hashing import hash_array, hash_columns

# A change of one of these numbers makes every checkpoint unreadable.
GOLDEN = [
    (pa.bool_(), True, 0x5692161D100B05E5),
    (pa.bool_(), False, 0x0000000000000000),
    (pa.int8(), -5, 0x47F541C0F2A7A74E),
    (pa.int16(), 300, 0xFD9B51D44D197A96),
    (pa.int32(), -70000, 0x1894541E3E2A99BD),
    (pa.int64(), 0, 0x0000000000000000),
    (pa.int64(), -(2**63), 0x25C26EA579CEA98A),
    (pa.uint64(), 2**64 - 1, 0xB4D055FCF2CBBD7B),
    (pa.float32(), 0.5, 0x0440FE4CE5F2D375),
    (pa.float64(), 0.0, 0x0000000000000000),
    (pa.float64(), -1.25, 0x082326FCFC522FC6),
    (pa.float64(), math.nan, 0x469BF2DCC1AA179B),
    (pa.float64(), math.inf, 0xCE5683AAAEDC68D0),
    (pa.decimal128(10, 2), Decimal("-12.30"), 0x1E6A86AB6F8CF0B9),
    (pa.decimal128(38, 2), Decimal("-12.30"), 0x1E6A86AB6F8CF0B9),
    (pa.string(), "", 0x0000000000000000),
    (pa.string(), "ann", 0x53A22753D1E7D2BD),
    (pa.string(), "日本", 0x334459335F6EBA65),
    (pa.large_string(), "ann", 0x53A22753D1E7D2BD),
    (pa.string(), "long " * 100, 0xE26DCE373CE9AC4D),
    (pa.binary(), b"\x00\xff", 0xB5D165C7B335930C),
    (pa.date32(), date(2024, 5, 1), 0x2DF06CFD63BB6F8B),
    (pa.timestamp("us", tz="UTC"), datetime(2024, 5, 1, 12, tzinfo=UTC), 0x86981D80D30848CB),
    (pa.timestamp("us"), datetime(1969, 12, 31), 0xA295BE7871B22F05),
    (pa.int64(), None, 0x9E3779B97F4A7C15),
]


@pytest.mark.parametrize(("kind", "value", "expected"), GOLDEN, ids=lambda value: str(value)[:24])
def test_hashes_stay_what_they_were(kind, value, expected):
    assert hash_array(pa.array([value], kind)).tolist() == [expected]


def test_the_hash_of_several_columns_stays_what_it_was():
    table = pa.table({"a": pa.array(["ann", None]), "b": pa.array([7, 8], pa.int64())})
    assert hash_columns(table).tolist() == [0xA90EC6D099632B4E, 0x52B9D5666A9D9CAC]
    assert hash_columns(table.select(["b", "a"])).tolist() != hash_columns(table).tolist()


def test_equal_floats_have_equal_hashes():
    values = hash_array(pa.array([0.0, -0.0, math.nan, -math.nan, float("nan")]))
    assert len(set(values[:2].tolist())) == 1
    assert len(set(values[2:].tolist())) == 1


def test_a_narrow_float_hashes_as_the_wide_one_it_equals():
    assert hash_array(pa.array([1.5], pa.float32())) == hash_array(pa.array([1.5], pa.float64()))


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.string(), pa.bool_(), pa.float64(), pa.date32()], ids=str
)
def test_every_null_has_one_hash(kind):
    assert (
        hash_array(pa.array([None], kind)).tolist() == hash_array(pa.array([None], pa.int8())).tolist()
    )


def test_chunks_slices_and_offsets_do_not_matter():
    values = ["", "a", None, "a" * 63, "a" * 64, "a" * 65, "bb", "日本語", None, "end"]
    for kind in (pa.string(), pa.large_string()):
        whole = pa.array(values, kind)
        expected = [hash_array(pa.array([value], kind))[0] for value in values]
        assert hash_array(whole).tolist() == expected
        assert hash_array(whole.slice(3, 5)).tolist() == expected[3:8]
        chunked = pa.chunked_array([whole.slice(0, 4), whole.slice(4)])
        assert hash_array(chunked).tolist() == expected
    numbers = pa.array([1, None, 3, 4])
    assert hash_array(numbers.slice(1)).tolist() == hash_array(numbers).tolist()[1:]


def test_nothing_hashes_to_nothing():
    assert hash_array(pa.array([], pa.string())).tolist() == []
    assert hash_array(pa.chunked_array([], pa.int64())).tolist() == []
    assert hash_array(pa.array(["", ""])).shape == (2,)


def test_long_strings_that_differ_in_one_place_differ():
    base = "x" * 300
    variants = [base[:i] + "y" + base[i + 1 :] for i in range(300)] + [base, base + "x", base * 2]
    # Blocks that trade places must not cancel out.
    variants += ["a" * 64 + "b" * 64, "b" * 64 + "a" * 64]
    assert len(set(hash_array(pa.array(variants)).tolist())) == len(variants)


def test_hashes_spread():
    hashes = hash_array(pa.array(np.arange(100_000)))
    assert len(set(hashes.tolist())) == 100_000
    for modulus in (2, 7, 64):
        counts = np.bincount((hashes % np.uint64(modulus)).astype(int), minlength=modulus)
        assert counts.min() > 0.9 * 100_000 / modulus
    texts = hash_array(pa.array([f"user-{i}" for i in range(100_000)]))
    assert len(set(texts.tolist())) == 100_000
