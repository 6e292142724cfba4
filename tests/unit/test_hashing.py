"""Hashes never change: state is laid out by them, and outlives every version of every library."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidegate.columnar.hashing import digest_columns, hash_array, hash_columns, keyed_hash

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


# -- digests --------------------------------------------------------------------------------------


SECRET = bytes(range(32))


def digests(*columns, secret=SECRET) -> list[tuple[int, int]]:
    table = pa.table(list(columns), names=[f"c{place}" for place in range(len(columns))])
    one, two = digest_columns(table, secret)
    assert keyed_hash(table, secret).tolist() == one.tolist()
    return list(zip(one.tolist(), two.tolist(), strict=True))


# These, too, are stored.
DIGESTS = [
    (pa.bool_(), True, (0x43E108A77B7390FF, 0x072524B98A48DA12)),
    (pa.int8(), -5, (0x7A8B56CE172DEBF0, 0xFD0E73F1968D1464)),
    (pa.int64(), 7, (0x7F0BDD803F827717, 0xD7E842590CBE1376)),
    (pa.uint64(), 2**64 - 1, (0xA1FD3A09EF37DAAA, 0x883B325C98308FFC)),
    (pa.float64(), -1.25, (0x6A7DB5F610254F08, 0xB94245C4AD940557)),
    (pa.float64(), math.nan, (0xDA5553EC373E9120, 0xC79F8038B702AC9E)),
    (pa.decimal128(10, 2), Decimal("-12.30"), (0x1360A4042034FAC0, 0xEAD8F09908C1D80D)),
    (pa.string(), "", (0xBA048FD985711550, 0xE459F51EC9DFFB2D)),
    (pa.string(), "ann", (0x35E2B3A3CF2FEBD2, 0x02B642798C77AEEC)),
    (pa.large_string(), "日本 and more", (0xB092FEDF3141A2F2, 0x3F0F74111BE2937F)),
    (pa.binary(), b"\x00\xff", (0x12BB7D453C638A9B, 0xBBBD03969818AC0C)),
    (pa.date32(), date(2024, 5, 1), (0x20090CBA1DEC6222, 0xF27007418AFE10AD)),
    (
        pa.timestamp("us", tz="UTC"),
        datetime(2024, 5, 1, 12, tzinfo=UTC),
        (0x87F4B672DDC09474, 0x4785EECCBEF6EB34),
    ),
    (pa.int64(), None, (0xDBD415EAE691546E, 0x2ADDF79E1DC72412)),
]


@pytest.mark.parametrize(("kind", "value", "expected"), DIGESTS, ids=lambda value: str(value)[:24])
def test_digests_stay_what_they_were(kind, value, expected):
    assert digests(pa.array([value], kind)) == [expected]


@pytest.mark.parametrize(("kind", "value", "expected"), DIGESTS, ids=lambda value: str(value)[:24])
def test_another_secret_makes_other_digests(kind, value, expected):
    [other] = digests(pa.array([value], kind), secret=bytes(32))
    assert not {*other} & {*expected}


def test_the_digest_of_several_columns_stays_what_it_was():
    columns = [pa.array(["ann", None]), pa.array([7, 8], pa.int64())]
    assert digests(*columns) == [
        (0x8E242134A1533FFB, 0xA4FA24E669A34CE2),
        (0xDD61566B470C99DA, 0x7A8611DCAC1DE87E),
    ]
    assert not {*digests(*columns)} & {*digests(*columns[::-1])}


# Numbers whose products with a random number have the fewest random bits.
POWERS = [1 << place for place in (0, 1, 31, 32, 62)]


@pytest.mark.parametrize("power", POWERS)
def test_whatever_the_secret_is_numbers_are_told_apart_in_every_part_of_a_digest(power):
    numbers = pa.array([5, 5 + power], pa.int64())
    for place in range(300):
        (one, two), (other, another) = digests(numbers, secret=place.to_bytes(32, "big"))
        parts = [(one ^ other) >> 32, (one ^ other) % (1 << 32), (two ^ another) >> 32]
        assert all([*parts, (two ^ another) % (1 << 32)])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary()], ids=str)
def test_long_values_are_told_apart_by_each_byte_and_by_their_length(kind):
    texts = ["x" * length for length in (248, 255, 256, 257, 264, 300, 5000)]
    texts += ["x" * place + "y" + "x" * (299 - place) for place in (0, 7, 150, 298, 299)]
    array = pa.array([*texts, None, *texts[:3]]).cast(kind)
    alone = [digests(array.slice(place, 1))[0] for place in range(len(array))]
    assert digests(array) == alone
    assert len({*alone}) == len(texts) + 1
    assert not {*digests(array, secret=bytes(32))} & {*alone[: len(texts)]}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_digests_do_not_depend_on_chunks_slices_and_neighbours(kind):
    values = ["", "a", None, "a" * 7, "a" * 8, "a" * 9, "bb", "a" * 100, None, "end", "a\0", "a\0\0"]
    whole = pa.array(values).cast(kind)
    alone = [digests(whole.slice(place, 1))[0] for place in range(len(values))]
    assert digests(whole) == alone
    assert digests(whole.slice(3, 5)) == alone[3:8]
    assert digests(pa.chunked_array([whole.slice(0, 4), whole.slice(4)])) == alone
    assert len({*alone}) == len(values) - 1  # null is one value
    assert digests(whole.slice(0, 0)) == []


def test_digests_tell_null_from_every_value_and_columns_from_each_other():
    null = 0x9E3779B97F4A7C15 - (1 << 64)
    numbers = pa.array([None, null, ~null, 0], pa.int64())
    assert len({*digests(numbers)}) == 4
    texts = [pa.array(column) for column in (["ab", "a", "", "abc"], ["c", "bc", "abc", ""])]
    assert len({*digests(*texts), *digests(*texts[::-1])}) == 6  # two are the same the other way round


def test_equal_numbers_have_equal_digests():
    floats = digests(pa.array([0.0, -0.0, math.nan, -math.nan]))
    assert [len({*floats[:2]}), len({*floats[2:]}), len({*floats})] == [1, 1, 2]
    assert digests(pa.array([5], pa.int8())) == digests(pa.array([5], pa.int64()))


def test_both_halves_of_digests_spread():
    for column in (pa.array(np.arange(100_000)), pa.array([f"user-{i}" for i in range(100_000)])):
        for half in zip(*digests(column), strict=True):
            assert len({*half}) == 100_000
            for shift in (0, 20, 56):
                counts = np.bincount([number >> shift & 63 for number in half])
                assert counts.min() > 0.85 * 100_000 / 64


def test_many_rows_hash_as_each_by_itself():
    """They are hashed some at a time, and one is the last or the first of those."""
    names = [None if row % 1000 == 7 else f"{row:x}" * (row % 3) for row in range(70_000)]
    table = pa.table({"name": pa.array(names), "number": pa.array(range(70_000))})
    edges = [0, 7, 32_767, 32_768, 32_769, 65_535, 65_536, 69_999]
    together = [hash_columns(table), keyed_hash(table, b"s"), *digest_columns(table, b"s")]
    for row in edges:
        alone = table.slice(row, 1)
        each = [hash_columns(alone), keyed_hash(alone, b"s"), *digest_columns(alone, b"s")]
        assert [hashed[row] for hashed in together] == [hashed[0] for hashed in each]
