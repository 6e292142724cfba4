"""The arithmetic of slices, for all sizes and slides up to 40, against counting by hand."""

import numpy as np
import pytest

from tests.support.plans import hopping
from tidegate.kernels.windows.slices import Slicing

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
