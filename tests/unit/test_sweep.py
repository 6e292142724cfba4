"""The sweep against the definition: intervals that touch belong together, and so do their neighbours."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.kernels.sessions.merge import sweep

intervals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(-60, 60), st.integers(0, 25)), min_size=0, max_size=40
)


def by_definition(rows, max_length):
    """For each interval the smallest one that it is tied to, directly or through others."""
    tied = list(range(len(rows)))

    def touch(one, other):
        (key, start, reach), (key2, start2, reach2) = rows[one], rows[other]
        cell = max_length and (start // max_length != start2 // max_length)
        return key == key2 and not cell and start <= start2 + reach2 and start2 <= start + reach

    changed = True
    while changed:
        changed = False
        for one in range(len(rows)):
            for other in range(len(rows)):
                if touch(one, other) and tied[one] != tied[other]:
                    tied[one] = tied[other] = min(tied[one], tied[other])
                    changed = True
    return tied


@settings(max_examples=100)
@given(rows=intervals, max_length=st.sampled_from([None, 7, 40]), scale=st.sampled_from([1, 10**12]))
def test_intervals_that_touch_are_one_session(rows, max_length, scale):
    key = np.array([row[0] for row in rows], dtype=np.int32)
    start = np.array([row[1] for row in rows], dtype=np.int64) * scale
    end = start + np.array([row[2] for row in rows], dtype=np.int64) * scale
    swept = sweep(key, start, end, max_length and max_length * scale)
    tied = by_definition(rows, max_length)
    for one in range(len(rows)):
        session = swept.number[one]
        members = [other for other in range(len(rows)) if tied[other] == tied[one]]
        assert [n for n in range(len(rows)) if swept.number[n] == session] == members
        assert swept.key[session] == key[one]
        assert swept.start[session] == start[members].min()
        assert swept.end[session] == end[members].max()


@pytest.mark.parametrize("apart", [1, 1 << 40])
def test_keys_and_times_too_far_apart_for_one_number_are_sorted_all_the_same(apart):
    key = np.array([2_000_000, 0, 2_000_000, 0], dtype=np.int32)
    start = np.array([5, 3, 4, 5], dtype=np.int64) * apart
    swept = sweep(key, start, start + apart, None)
    assert swept.number.tolist() == [2, 0, 2, 1]
    assert swept.end.tolist() == [4 * apart, 6 * apart, 6 * apart]
