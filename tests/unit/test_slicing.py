"""The arithmetic of slices, for all sizes and slides up to 40, against counting by hand."""

import random

import numpy as np
import polars as pl
import pytest

from tests.support.plans import hopping
from tidegate.kernels.accumulators import Accumulators
from tidegate.kernels.windows import slices
from tidegate.kernels.windows.slices import SLICE, Slices, Slicing
from tidegate.state.pages import KEY

LONGEST = 40
OFFSETS = (0, 3, -17)
TIMES = np.arange(-95, 130)


def windows_at(time: int, size: int, slide: int, offset: int) -> list[int]:
    """The numbers k of the windows [k·slide + offset, + size) that hold a time."""
    numbers = range(-200, 200) if slide == 1 else range(-210 // slide - 2, 210 // slide + 2)
    return [k for k in numbers if k * slide + offset <= time < k * slide + offset + size]


@pytest.mark.parametrize("size", range(1, LONGEST + 1))
def test_a_slice_belongs_to_the_windows_that_hold_its_times(size):
    for slide in range(1, LONGEST + 1):
        for offset in OFFSETS if slide % 4 == size % 4 else OFFSETS[:1]:
            slicing = Slicing(hopping(size, slide, offset))
            number, inside = slicing.slice_of(TIMES)
            first, last = slicing.first_window(number), slicing.last_window(number)
            for i, time in enumerate(TIMES.tolist()):
                expected = windows_at(time, size, slide, offset)
                assert inside[i] == bool(expected), (size, slide, offset, time)
                if expected:
                    assert [first[i], last[i]] == [expected[0], expected[-1]], (
                        size,
                        slide,
                        offset,
                        time,
                    )


@pytest.mark.parametrize("size", range(1, LONGEST + 1))
def test_a_window_is_made_of_exactly_its_slices(size):
    for slide in range(1, LONGEST + 1):
        slicing = Slicing(hopping(size, slide, offset=5))
        for window in (-3, 0, 4):
            times = np.arange(slicing.start(window), slicing.end(window))
            assert len(times) == size
            numbers, inside = slicing.slice_of(times)
            assert inside.all()
            expected = range(slicing.first_slice(window), slicing.last_slice(window) + 1)
            assert np.unique(numbers).tolist() == list(expected)
            assert len(expected) == slicing.per_window


@pytest.mark.parametrize(("size", "slide"), [(10, 10), (10, 3), (10, 5), (3, 10), (1, 1), (40, 7)])
def test_slices_never_cross_a_window_edge(size, slide):
    slicing = Slicing(hopping(size, slide))
    numbers, inside = slicing.slice_of(TIMES)
    for number in np.unique(numbers[inside]).tolist():
        memberships = {
            tuple(windows_at(time, size, slide, 0))
            for time in TIMES[inside & (numbers == number)].tolist()
        }
        assert len(memberships) == 1


@pytest.mark.parametrize(("size", "slide", "offset"), [(10, 10, 0), (10, 3, 1), (3, 10, -4), (7, 7, 2)])
def test_the_last_ended_window_is_the_last_whose_end_has_come(size, slide, offset):
    slicing = Slicing(hopping(size, slide, offset))
    for time in range(-60, 60):
        last = slicing.last_ended(time)
        assert slicing.end(last) <= time < slicing.end(last + 1)


def test_a_tumbling_window_is_one_slice():
    assert Slicing(hopping(10)).per_window == 1
    assert Slicing(hopping(60, 10)).per_window == 6
    assert Slicing(hopping(10, 4)).per_window == 5  # edges at 0, 2, 4, 6, 8, 10
    assert Slicing(hopping(4, 10)).per_window == 1


def test_times_far_from_the_epoch():
    slicing = Slicing(hopping(60_000_000, 7_000_000, 1))
    for time in (-(10**17), 10**17, 253_402_300_799_999_999):
        [number], [inside] = slicing.slice_of(np.array([time]))
        first, last = slicing.first_window(number), slicing.last_window(number)
        assert inside
        assert slicing.start(last) <= time < slicing.start(last + 1)
        assert slicing.end(first - 1) <= time < slicing.end(first)


SPECIFICATIONS = [(10, 10), (12, 3), (7, 3), (3, 7), (40, 1)]


@pytest.mark.parametrize("at_once", [1, 6, 1 << 17])
@pytest.mark.parametrize(("size", "slide"), SPECIFICATIONS, ids=str)
def test_windows_with_data_are_listed_with_their_slices(size, slide, at_once, monkeypatch):
    """Once each, between the first and the last one asked for, however many at a time."""
    monkeypatch.setattr(slices, "_AT_ONCE", at_once)
    slicing, chance = Slicing(hopping(size, slide)), random.Random(size)
    for _ in range(30):
        times = np.array([chance.randrange(-60, 90) for _ in range(chance.randrange(1, 25))])
        number, inside = slicing.slice_of(times)
        number = number[inside]
        key = np.array([chance.randrange(3) for _ in number], dtype=np.int32)
        if not len(number):
            continue
        rows = pl.DataFrame({KEY: key, SLICE: number})
        found = Slices.of(rows, slicing, Accumulators(()))
        first, last = sorted(chance.randrange(-60, 90) for _ in range(2))
        in_order = sorted(zip(key.tolist(), number.tolist(), strict=True))
        expected = {}
        for place, (own, slice_) in enumerate(in_order):
            begin, end = max(slicing.first_window(slice_), first), min(slicing.last_window(slice_), last)
            for window in range(begin, end + 1):
                low, _ = expected.get((own, window), (place, place))
                expected[own, window] = (low, place)
        listed = {}
        for part in found.windows_between(first, last):
            columns = (part.key, part.number, part.low, part.high)
            for own, window, low, high in zip(*(column.tolist() for column in columns), strict=True):
                assert (own, window) not in listed
                listed[own, window] = (low, high)
        assert listed == expected
