"""Overlapping ranges merged at once equal each range merged by itself."""

import math
import random

import numpy as np
import polars as pl
import pytest

from tidegate.columnar import ranges
from tidegate.columnar.ranges import Pieces, binary_digits, count_pieces, merge_columns, merge_tree

BY_HAND = {"sum": sum, "min": min, "max": max}


def windows(chance: random.Random, per_window: int):
    """Slices of several keys, with gaps, and the ranges of all windows over them."""
    place, rows, ranges = 0, [], []
    for _ in range(chance.randrange(1, 4)):
        place += 10 * per_window - place % per_window  # the next key begins far away
        slices = sorted(chance.sample(range(3 * per_window), chance.randrange(1, 3 * per_window)))
        rows += [place + number for number in slices]
        for start in range(place - per_window + 1, place + 3 * per_window):
            inside = [i for i, row in enumerate(rows) if start <= row < start + per_window]
            if inside:
                ranges.append((inside[0], inside[-1]))
        place += 3 * per_window
    low, high = (np.array(column) for column in zip(*ranges, strict=True))
    return rows, low, high


@pytest.mark.parametrize("how", BY_HAND)
@pytest.mark.parametrize("per_window", [2, 3, 7, 16])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_columns_merge_as_each_range_by_itself(how, per_window, kind):
    for seed in range(15):
        chance = random.Random(seed)
        rows, low, high = windows(chance, per_window)
        values = np.array([chance.randrange(-50, 50) for _ in rows], dtype=kind)
        merged = merge_columns({"v": values}, {"v": how}, low, high)["v"]
        expected = [BY_HAND[how](values[a : b + 1].tolist()) for a, b in zip(low, high, strict=True)]
        assert merged.tolist() == expected
        assert merged.dtype == kind


@pytest.mark.parametrize("near", [0, 1, 1000])
@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_ranges_merge_alike_however_many_at_a_time(at_once, near, monkeypatch):
    """And whether all blocks up to the last one are taken, or those that are asked for."""
    monkeypatch.setattr(ranges, "_AT_ONCE", at_once)
    monkeypatch.setattr(ranges, "_NEAR", near)
    chance = random.Random(at_once)
    values = np.array(chance.choices(range(-50, 50), k=77))
    low = np.array([chance.randrange(77) for _ in range(40)])
    high = np.array([chance.randrange(a, 77) for a in low])
    merged = merge_columns({"v": values}, {"v": "sum"}, low, high)["v"]
    assert merged.tolist() == [sum(values[a : b + 1]) for a, b in zip(low, high, strict=True)]


def test_pieces_are_counted_with_the_row_of_each_result():
    one = Pieces(None, np.array([3, 5]), np.array([4, 5]), np.array([0, 2]))
    other = Pieces(np.arange(8), np.array([0]), np.array([3]), np.array([2]), 2)
    assert count_pieces(4, [one, other]).tolist() == [3, 1, 6, 1]


@pytest.mark.parametrize("how", BY_HAND)
@pytest.mark.parametrize("count", [1, 2, 3, 8, 33, 64, 100])
def test_ranges_of_any_length_merge_as_each_by_itself(how, count):
    values = np.array(random.Random(count).choices(range(-50, 50), k=count))
    low, high = np.nonzero(np.triu(np.ones((count, count), dtype=bool)))
    merged = merge_columns({"v": values}, {"v": how}, low, high)["v"]
    expected = [BY_HAND[how](values[a : b + 1].tolist()) for a, b in zip(low, high, strict=True)]
    assert merged.tolist() == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
def test_a_bad_number_stays_in_its_windows(bad):
    """Differences of prefix sums would spread it to everything that follows."""
    rows = np.arange(40)
    values = np.ones(40)
    values[17] = bad
    low, high = rows[:-3], rows[3:]
    merged = merge_columns({"v": values}, {"v": "sum"}, low, high)["v"]
    touched = (low <= 17) & (high >= 17)
    assert (merged[~touched] == 4.0).all()
    assert not (merged[touched] == 4.0).any()


def test_nan_is_greater_than_any_number():
    values = np.array([math.nan, 1.0, math.nan, math.nan, 5.0, 2.0])
    low, high = np.array([0, 1, 2, 4]), np.array([1, 2, 3, 5])
    for how, expected in (
        ("min", [1.0, 1.0, math.nan, 2.0]),
        ("max", [math.nan, math.nan, math.nan, 5.0]),
    ):
        merged = merge_columns({"v": values}, {"v": how}, low, high)["v"]
        assert np.array_equal(merged, expected, equal_nan=True)


def concatenate(states: pl.DataFrame, group: str) -> pl.DataFrame:
    return states.group_by(group).agg(pl.col("items").explode())


@pytest.mark.parametrize("count", [1, 2, 3, 8, 31, 64, 100])
def test_the_tree_merges_each_range_in_row_order(count):
    """Lists show both: nothing missing or twice, and the order rows arrived in."""
    chance = random.Random(count)
    rows = pl.DataFrame({"items": [[i] for i in range(count)]})
    low = np.array([chance.randrange(count) for _ in range(60)])
    high = np.array([chance.randrange(a, count) for a in low])
    merged = merge_tree(rows, concatenate, low, high)
    assert merged["items"].to_list() == [list(range(a, b + 1)) for a, b in zip(low, high, strict=True)]


def test_no_ranges_merge_to_nothing():
    none = np.empty(0, dtype=np.int64)
    assert merge_tree(pl.DataFrame({"items": [[1]]}), concatenate, none, none).rows() == []
    got = merge_columns({"v": np.ones(3)}, {"v": "sum"}, none, none)
    assert got["v"].tolist() == []


def test_binary_digits_are_those_of_python():
    numbers = [0, 1, 2, 3, 4, 7, 8, 1 << 20, (1 << 20) - 1, 1 << 52, (1 << 53) - 1]
    assert binary_digits(np.array(numbers)).tolist() == [number.bit_length() for number in numbers]
