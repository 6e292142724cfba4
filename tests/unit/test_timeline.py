"""Rows in order of key, time and arrival: against sorting and counting by hand."""

import random

import numpy as np
import pytest

from tidegate.columnar.timeline import Timeline

#: Times that leave room for keys in one word, and times that do not.
SPANS = {
    "narrow": (-50, 50),
    "one moment": (7, 7),
    "decades": (-(10**15), 10**15),
    "all there is": (-(1 << 61), 1 << 61),
}
EVERY_SPAN = pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)


def timelines(span, count=60):
    """Random rows, few distinct times among them."""
    chance = random.Random(11)
    for _ in range(count):
        size, most = chance.randrange(1, 40), chance.choice([0, 1, 5, 5_000_000])
        moments = [chance.randint(*span) for _ in range(12)]
        keys = [chance.randint(0, most) for _ in range(6)]
        rows = [(chance.choice(keys), chance.choice(moments)) for _ in range(size)]
        yield (
            chance,
            rows,
            Timeline(*(np.array(part, dtype=np.int64) for part in zip(*rows, strict=True))),
        )


@EVERY_SPAN
def test_rows_are_ordered_by_key_then_time_then_arrival(span):
    for _, rows, timeline in timelines(span):
        by_hand = sorted(range(len(rows)), key=lambda row: (*rows[row], row))
        assert timeline.order.tolist() == by_hand
        assert [timeline.order[place] for place in timeline.position] == list(range(len(rows)))


@EVERY_SPAN
def test_ranges_of_time_are_found(span):
    for chance, rows, timeline in timelines(span):
        in_order = sorted(rows)
        times = [time for _, time in rows]
        near = [time + step for time in times for step in (-1, 0, 1)]
        for _ in range(10):
            key = chance.choice(rows)[0]
            low, high = sorted(chance.choice([*near, span[0] - 5, span[1] + 5]) for _ in range(2))
            first = timeline.first_from(np.array([key]), np.array([low]))[0]
            last = timeline.last_until(np.array([key]), np.array([high]))[0]
            inside = [place for place, (k, t) in enumerate(in_order) if k == key and low <= t <= high]
            assert list(range(first, last + 1)) == inside


@EVERY_SPAN
def test_many_ranges_at_once(span):
    for _, rows, timeline in timelines(span, 20):
        first = timeline.first_from(timeline.key, timeline.time)
        last = timeline.last_until(timeline.key, timeline.time)
        assert (last - first + 1).tolist() == [rows.count(row) for row in rows]


def test_the_widest_times_really_do_not_fit_in_one_word():
    wide, narrow = (
        Timeline(np.array([0, 3]), np.array(SPANS[name])) for name in ("all there is", "decades")
    )
    assert wide._moments is not None
    assert narrow._moments is None


def test_neither_is_touched():
    key, time = np.array([1, 0, 1]), np.array([5, 9, 2])
    timeline = Timeline(key, time)
    assert timeline.order.tolist() == [1, 2, 0]
    assert (key.tolist(), time.tolist()) == ([1, 0, 1], [5, 9, 2])


def test_codes_of_keys_may_be_narrow():
    timeline = Timeline(np.array([2, 0, 1], dtype=np.int32), np.array([10**15, 5, 7]))
    assert timeline.order.tolist() == [1, 2, 0]
    assert timeline.first_from(np.array([2], dtype=np.int32), np.array([0])).tolist() == [2]
