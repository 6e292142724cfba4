"""Ranges of time over only those rows that arrived before the one that asks.

Up to the first row that is still missing, everything in a window has arrived: that part is one range
of time. Only the rest, the *frontier*, needs a closer look, and it is as long as rows come out of
order. It is cut, in the order of time, into blocks of 1, 2, 4 … rows; in each block rows stand in the
order they arrived, so that what has arrived is its head. A frontier of n rows costs 2·log n heads,
and rows that come in order cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate.operators.ranges import Pieces
from tidegate.operators.timeline import Timeline

_SHORT = 1 << 16


def arrived_ranges(timeline: Timeline, known: int, rows: np.ndarray, lookback: int) -> list[Pieces]:
    """For each asking row the pieces that make up its window, in the order of time.

    The timeline's first `known` rows came in earlier batches, the others now, in this order; `rows`
    are those of the latter that ask.
    """
    arrival = _arrival(timeline, known)
    # Neighbours in time ask for neighbours: in this order all that follows goes straight through memory.
    asking = np.argsort(timeline.position[rows])
    rows = rows[asking]
    own = timeline.position[rows]
    oldest = timeline.first_from(timeline.key[rows], timeline.time[rows] - lookback)
    missing = _first_missing(timeline, arrival)[rows]
    settled = np.minimum(missing - 1, own)
    pieces = list(_nonempty(timeline.order, oldest, settled, asking))
    late = missing < own
    if late.any():
        begin, end = np.maximum(oldest, missing)[late], own[late]
        frontier = Frontier.of(timeline, arrival, begin, end)
        pieces += frontier.heads(begin, end, arrival[rows[late]], asking[late])
    return pieces


def _arrival(timeline: Timeline, known: int) -> np.ndarray:
    """When each row arrived: rows of earlier batches before all others, as if they had come in order."""
    in_time = timeline.order
    arrived = np.concatenate([in_time[in_time < known], np.arange(known, len(in_time))])
    arrival = np.empty(len(arrived), dtype=np.int64)
    arrival[arrived] = np.arange(len(arrived))
    return arrival


def _first_missing(timeline: Timeline, arrival: np.ndarray) -> np.ndarray:
    """For each row the earliest place in time of a row of its key that arrived after it."""
    by_arrival = np.argsort(arrival, kind="stable")
    rows = by_arrival[np.argsort(timeline.key[by_arrival], kind="stable")]
    # Keys follow each other in both orders, so a later key's places never come first.
    places = np.concatenate([timeline.position[rows[1:]], [len(rows)]])
    missing = np.empty(len(rows), dtype=np.int64)
    missing[rows] = np.minimum.accumulate(places[::-1])[::-1]
    return missing


@dataclass(frozen=True)
class Frontier:
    """The rows of all frontiers, in the order of time, closed up; and when each arrived."""

    row: np.ndarray
    arrival: np.ndarray
    #: Where a place in the timeline is found here.
    place: np.ndarray

    @classmethod
    def of(cls, timeline: Timeline, arrival: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Frontier:
        borders = np.zeros(len(timeline.order) + 1, dtype=np.int64)
        np.add.at(borders, begin, 1)
        np.add.at(borders, end + 1, -1)
        covered = np.cumsum(borders[:-1]) > 0
        row = timeline.order[covered]
        return cls(row, arrival[row], np.cumsum(covered) - 1)

    def heads(
        self, begin: np.ndarray, end: np.ndarray, asked_at: np.ndarray, asking: np.ndarray
    ) -> list[Pieces]:
        """What has arrived between these places in time, both included."""
        by_arrival = np.argsort(self.arrival)
        ranked = self.arrival[by_arrival]
        # How many of these rows had arrived: compared instead of times of arrival from here on.
        upto = np.searchsorted(ranked, asked_at, side="right")
        left, right = self.place[begin], self.place[end] + 1
        heads: list[Pieces] = []
        tails: list[Pieces] = []
        level = 0
        while len(asking):
            block = _Blocks.of(by_arrival, level)
            odd_left, odd_right = (left & 1) == 1, (right & 1) == 1
            heads += block.heads(self.row, left[odd_left], upto[odd_left], asking[odd_left])
            tails += block.heads(self.row, right[odd_right] - 1, upto[odd_right], asking[odd_right])
            left, right = (left + odd_left) >> 1, (right - odd_right) >> 1
            open_ = left < right
            left, right, upto, asking = left[open_], right[open_], upto[open_], asking[open_]
            level += 1
        return heads + tails[::-1]


@dataclass(frozen=True)
class _Blocks:
    """Places in time in blocks of `size`, and in each block in the order of arrival."""

    size: int
    order: np.ndarray
    word: np.ndarray

    @classmethod
    def of(cls, by_arrival: np.ndarray, level: int) -> _Blocks:
        number = by_arrival >> level
        # Small numbers are sorted by their digits, which is far faster.
        small = number.astype(np.uint16) if len(number) >> level < _SHORT else number
        order = np.argsort(small, kind="stable")
        return cls(1 << level, by_arrival[order], number[order] * len(order) + order)

    def heads(
        self, rows: np.ndarray, block: np.ndarray, upto: np.ndarray, asking: np.ndarray
    ) -> Iterator[Pieces]:
        count = np.searchsorted(self.word, block * len(self.order) + upto)
        return _nonempty(rows[self.order], block << self._level, count - 1, asking, self.size)

    @property
    def _level(self) -> int:
        return self.size.bit_length() - 1


def _nonempty(
    rows: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    asking: np.ndarray,
    block: int | None = None,
) -> Iterator[Pieces]:
    filled = low <= high
    if filled.any():
        yield Pieces(rows, low[filled], high[filled], asking[filled], block)
