"""Sorting and searching, against doing it by hand."""

import bisect
import random

import numpy as np
import pytest

from tidegate.columnar.sorting import search, stable_order


@pytest.mark.parametrize("largest", [0, 1, 50, 1 << 40, (1 << 62) - 1, (1 << 63) - 1])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 300])
def test_equal_numbers_stay_in_their_order(largest, count):
    """The largest ones leave no room for positions beside them."""
    chance = random.Random(count)
    some = [largest, *(chance.randint(0, largest) for _ in range(9))]
    numbers = [chance.choice(some) for _ in range(count)]
    by_hand = sorted(range(count), key=lambda position: numbers[position])
    assert stable_order(np.array(numbers, dtype=np.int64)).tolist() == by_hand


def test_narrow_numbers_have_room_as_well():
    numbers = np.array([70_000, 5, 70_000, 0], dtype=np.int32)
    assert stable_order(numbers).tolist() == [3, 1, 0, 2]
    assert numbers.tolist() == [70_000, 5, 70_000, 0]


@pytest.mark.parametrize("sorted_before", [False, True])
@pytest.mark.parametrize("looked_for", [0, 1, 100, 3000])
@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_numbers_are_found_in_any_order(count, looked_for, sorted_before):
    chance = random.Random(count)
    numbers = sorted(chance.choices(range(50), k=count))
    wanted = chance.choices(range(-5, 60), k=looked_for)
    wanted = sorted(wanted) if sorted_before else wanted
    given = np.array(numbers, dtype=np.int64), np.array(wanted, dtype=np.int64)
    assert search(*given).tolist() == [bisect.bisect_left(numbers, one) for one in wanted]
    assert search(*given, "right").tolist() == [bisect.bisect_right(numbers, one) for one in wanted]
