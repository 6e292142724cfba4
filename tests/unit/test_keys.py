"""Keys as integers: first come, first numbered."""

import math
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from tidegate.columnar import key_index


def table_of(**columns):
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def test_codes_follow_first_appearance():
    distinct, codes = key_index.encode(table_of(k=["b", "a", "b", None, "a", None, "c"]))
    assert distinct.to_pylist() == [{"k": "b"}, {"k": "a"}, {"k": None}, {"k": "c"}]
    assert codes.tolist() == [0, 1, 0, 2, 1, 2, 3]


def test_several_columns_are_one_key():
    table = table_of(a=["x", "x", "y", "x", None, None], b=[1, 2, 1, 1, None, 1])
    distinct, codes = key_index.encode(table)
    assert codes.tolist() == [0, 1, 2, 0, 3, 4]
    assert distinct.to_pylist() == [table.to_pylist()[i] for i in (0, 1, 2, 4, 5)]


def test_known_keys_keep_their_codes_when_others_follow():
    index = key_index.KeyIndex()
    (before,) = index.codes_of([table_of(a=[3, 1, None], b=["x", "y", "x"])])
    first, second = index.codes_of(
        [table_of(a=[1, 9, None], b=["y", "x", "x"]), table_of(a=[9, 3], b=["x", "x"])]
    )
    assert before.tolist() == [0, 1, 2]
    assert (first.tolist(), second.tolist()) == ([1, 3, 2], [3, 0])
    assert index.table.to_pylist()[3] == {"a": 9, "b": "x"}


def test_keys_whose_hashes_collide_stay_apart(monkeypatch):
    monkeypatch.setattr(key_index, "_hashes", lambda table: np.zeros(table.num_rows, dtype=np.uint64))
    index = key_index.KeyIndex()
    (some,) = index.codes_of([table_of(k=["a", "b", None])])
    (more,) = index.codes_of([table_of(k=["c", None, "a", "d", "b"])])
    assert (some.tolist(), more.tolist()) == ([0, 1, 2], [3, 2, 0, 4, 1])


@pytest.mark.parametrize("colliding", [False, True])
def test_keys_that_are_all_known_are_found_again(monkeypatch, colliding):
    if colliding:
        monkeypatch.setattr(key_index, "_hashes", lambda rows: np.full(rows.num_rows, 7, np.uint64))
    index = key_index.KeyIndex()
    known = table_of(a=[1.5, None, math.nan, 0.0, 1.5], b=["x", None, "x", "y", "y"])
    index.codes_of([known])
    again = table_of(a=[-0.0, 1.5, -math.nan, None], b=["y", "y", "x", None])
    for asked, codes in ((known, [0, 1, 2, 3, 4]), (again, [3, 4, 2, 1]), (again.slice(3), [1])):
        assert index.codes_of([asked])[0].tolist() == codes
    assert len(index) == 5


def test_an_index_that_grows_in_many_steps_finds_every_key_again():
    index, names = key_index.KeyIndex(), [f"user-{i}" for i in range(500)]
    for low in range(0, 500, 7):
        index.codes_of([table_of(k=names[max(0, low - 3) : low + 7])])
    (codes,) = index.codes_of([table_of(k=names[::-1])])
    assert codes.tolist() == list(range(len(names)))[::-1]
    assert index.table.column("k").to_pylist() == names


@pytest.mark.parametrize(
    "values",
    [
        [True, False, None],
        [1.5, math.inf, -math.inf, None],
        [Decimal("1.50"), Decimal("-2.25")],
        ["", "a", "a" * 1000, "ä", "日本", None],
        [b"", b"\x00", b"\x00\x00"],
        [date(1900, 1, 1), date(2100, 1, 1), None],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_values_of_each_type_are_told_apart(values):
    distinct, codes = key_index.encode(table_of(k=values * 2))
    assert codes.tolist() == list(range(len(values))) * 2
    assert distinct.column("k").to_pylist() == values


def test_floats_that_are_equal_are_one_key():
    distinct, codes = key_index.encode(table_of(k=[0.0, -0.0, math.nan, float("nan"), -math.nan]))
    assert codes.tolist() == [0, 0, 1, 1, 1]
    assert distinct.num_rows == 2


def test_chunks_and_slices_do_not_matter():
    whole = table_of(k=["a", "b", "a", "c", "b"], v=[1, 2, 1, 3, 2])
    chunked = pa.concat_tables([whole.slice(0, 2), whole.slice(2, 1), whole.slice(3)])
    assert (
        key_index.encode(chunked)[1].tolist() == key_index.encode(whole)[1].tolist() == [0, 1, 0, 2, 1]
    )
    assert key_index.encode(whole.slice(2))[1].tolist() == [0, 1, 2]


def test_no_rows_have_no_keys():
    distinct, codes = key_index.encode(table_of(k=["a"]).slice(0, 0))
    assert distinct.num_rows == len(codes) == 0


def test_windows_without_a_key_share_one():
    table = key_index.key_table(table_of(v=[1, 2, 3]), ())
    distinct, codes = key_index.encode(table)
    assert codes.tolist() == [0, 0, 0]
    assert distinct.num_rows == 1


def test_buckets_are_labels_and_take_their_share():
    table = table_of(k=[f"user-{i}" for i in range(4000)])
    labels = [7, 3, 12, 40]
    found = key_index.bucket_of(table, labels)
    assert set(found.tolist()) == set(labels)
    counts = np.array([(found == label).sum() for label in labels])
    assert counts.min() > 850
    assert key_index.bucket_of(table, [5]).tolist() == [5] * 4000
