"""Pieces of windows over what has arrived, against looking at each row by itself."""

import random

import numpy as np
import pytest

from tidegate.columnar.timeline import Timeline
from tidegate.kernels.rows import arrival_order
from tidegate.kernels.rows.arrival_order import arrived_before


def rows_by_hand(key, time, row, lookback):
    """The rows that count for one that came now, which is the last of them, in the order of time."""
    before = (other for other in range(row) if key[other] == key[row])
    return sorted(
        (other for other in before if time[row] - lookback <= time[other] <= time[row]),
        key=lambda other: (time[other], other),
    )


def rows_of(pieces, timeline):
    """For each range of each piece who asks for it, and its rows."""
    for piece in pieces:
        order = timeline.order if piece.rows is None else timeline.order[piece.rows]
        for low, high, asking in zip(piece.low, piece.high, piece.asking, strict=True):
            yield asking, order[low : high + 1]


def rows_of_pieces(pieces, timeline, count):
    got = [[] for _ in range(count)]
    for asking, rows in rows_of(pieces, timeline):
        got[asking] += rows.tolist()
    return got


@pytest.mark.parametrize("at_once", [4, 1 << 16])
@pytest.mark.parametrize("disorder", [0, 3, 40, 1000])
@pytest.mark.parametrize("lookback", [0, 5, 60, 10_000])
def test_pieces_hold_what_arrived_before_once_each(disorder, lookback, at_once, monkeypatch):
    monkeypatch.setattr(arrival_order, "_AT_ONCE", at_once)
    for seed in range(25):
        chance = random.Random(seed)
        size = chance.randrange(1, 120)
        known = chance.randrange(size)
        key = np.array([chance.choice([0, 0, 0, 1, 2]) for _ in range(size)])
        time = np.array([row - chance.randint(0, disorder) for row in range(size)])
        timeline = Timeline(key, time)
        share = chance.choice([0.3, 1])
        asking = np.array(
            [row for row in range(known, size) if chance.random() <= share], dtype=np.int64
        )
        rows = timeline.order[np.sort(timeline.position[asking])]
        pieces = arrived_before(timeline, known, rows, lookback)
        for row, got in zip(rows.tolist(), rows_of_pieces(pieces, timeline, len(rows)), strict=True):
            assert sorted(got) == sorted(rows_by_hand(key, time, row, lookback))


@pytest.mark.parametrize("lookback", [15, 80])
def test_pieces_come_in_the_order_of_time(lookback):
    """Aggregates that have an order, `first` among them, merge pieces as they come."""
    chance = random.Random(5)
    time = np.array([row - chance.randint(0, 30) for row in range(300)])
    timeline = Timeline(np.zeros(300, dtype=np.int64), time)
    pieces = arrived_before(timeline, 100, timeline.order[timeline.order >= 100], lookback)
    latest = np.full(200, -1000)
    for asking, rows in rows_of(pieces, timeline):
        assert latest[asking] <= time[rows].min()
        latest[asking] = time[rows].max()
