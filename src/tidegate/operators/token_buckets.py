"""Token buckets of many streams over many rows at once, exactly as if row by row.

A bucket has two walls: it holds no more than its capacity, and a row that finds less than its cost
is turned away. Each wall alone is a running extremum, which is one vector operation:

- as long as no row is turned away, the level follows from the fullest moment so far;
- as long as the bucket is not full, the number of rows that got in follows from the scarcest one.

So rows are taken in stretches, by the first rule until a row is turned away, by the second until the
bucket is full. A stretch is long where capacity is: from full to empty it takes capacity / cost rows.
Where capacity is small, pauses that fill the bucket are many, and part a stream for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.plan.sla import LARGEST_LEVEL, Budget

#: How many rows of a stream are looked at together at most: what flows in over them fits into 64 bits.
_WIDEST = 1 << 14
assert LARGEST_LEVEL * _WIDEST <= 1 << 61

#: How many rows of all streams at least: fewer cost just as much.
_NARROWEST = 1 << 10

#: Streams are parted where that makes parts of about so many rows.
_APART = 64


@dataclass(frozen=True)
class Spending:
    """What became of rows: who got in, what the bucket held when they came, and what is left."""

    admitted: np.ndarray
    held: np.ndarray
    #: For each stream.
    level: np.ndarray


@dataclass(frozen=True)
class _Stretch:
    """Rows ahead of each stream, by one rule: levels, who gets in, and how far the rule holds."""

    held: np.ndarray
    admitted: np.ndarray
    holds: np.ndarray


#: From levels and what has flowed in since, stream by stream.
_Rule = Callable[[Budget, np.ndarray, np.ndarray], _Stretch]


def _nobody_turned_away(budget: Budget, level: np.ndarray, gained: np.ndarray) -> _Stretch:
    balance = gained - budget.cost * np.arange(gained.shape[1])
    fullest = np.maximum.accumulate(balance, axis=1)
    held = balance + np.minimum(level[:, None], budget.capacity - fullest)
    return _Stretch(held, np.ones(held.shape, dtype=bool), held >= budget.cost)


def _never_full(budget: Budget, level: np.ndarray, gained: np.ndarray) -> _Stretch:
    step = np.arange(gained.shape[1])
    saved = level[:, None] + gained
    # So many could have been paid for up to each row; one row can make up for one only.
    affordable = saved // budget.cost
    admitted = np.minimum(np.minimum.accumulate(affordable - step, axis=1), 1) + step
    before = np.pad(admitted[:, :-1], ((0, 0), (1, 0)))
    held = saved - budget.cost * before
    return _Stretch(held, admitted > before, held < budget.capacity)


def spend(
    budget: Budget, times: np.ndarray, ends: np.ndarray, level: np.ndarray, since: np.ndarray
) -> Spending:
    """Let rows at these instants, in order and stream after stream, take from their bucket.

    `ends` are the places behind each stream's last row; `level` is what buckets held at `since`.
    """
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    filled = starts < ends
    before = np.concatenate([[0], times[:-1]])[: len(times)]
    before[starts[filled]] = since[filled]
    walk = _Walk(budget, inflow(budget, times - before), starts[filled], level[filled])
    while walk.goes_on:
        walk.advance(_nobody_turned_away)
        walk.advance(_never_full)
    left = level.copy()
    left[filled] = walk.level_before(ends[filled])
    return Spending(walk.admitted, walk.held, left)


def inflow(budget: Budget, passed: np.ndarray) -> np.ndarray:
    """What flows into an empty bucket in times of these lengths."""
    return np.minimum(np.minimum(passed, budget.time_to_fill) * budget.refill, budget.capacity)


class _Walk:
    """How far lanes have come: streams, and parts of streams that begin with a full bucket."""

    def __init__(self, budget: Budget, gains: np.ndarray, starts: np.ndarray, level: np.ndarray) -> None:
        self.budget = budget
        self.admitted = np.zeros(len(gains), dtype=bool)
        self.held = np.zeros(len(gains), dtype=np.int64)
        # This sum may run over; the differences that are taken of it do not.
        self._inflow = np.concatenate([[0], np.cumsum(gains)])
        begins = np.zeros(len(gains), dtype=bool)
        begins[starts] = begins[_fresh_starts(budget, gains)] = True
        self._starts = np.flatnonzero(begins)
        self._ends = np.append(self._starts[1:], len(gains))
        self._next = self._starts.copy()
        self._level = np.zeros(len(self._starts), dtype=np.int64)
        self._level[np.searchsorted(self._starts, starts)] = level
        self._width: dict[_Rule, float] = {}

    def level_before(self, places: np.ndarray) -> np.ndarray:
        """What buckets hold in the end whose last rows lie just before these places."""
        return self._level[np.searchsorted(self._starts, places) - 1]

    @property
    def goes_on(self) -> bool:
        return bool((self._next < self._ends).any())

    def advance(self, rule: _Rule) -> None:
        """Take each lane as far as the rule holds, and not further than it pays to look at once."""
        lanes = np.flatnonzero(self._next < self._ends)
        if not len(lanes):
            return
        start, end = self._next[lanes], self._ends[lanes]
        width = self._look_ahead(rule, end - start)
        place = start[:, None] + np.arange(width)
        inside = place < end[:, None]
        place = np.minimum(place, end[:, None] - 1)
        gained = self._inflow[place + 1] - self._inflow[start][:, None]
        ahead = rule(self.budget, self._level[lanes], gained)
        count = _leading(ahead.holds & inside)
        self._take(lanes, place, count, ahead)
        self._width[rule] = 2 * float(count.mean())

    def _look_ahead(self, rule: _Rule, left: np.ndarray) -> int:
        useful = min(float(left.mean()), self._width.get(rule, _WIDEST))
        return int(min(max(useful, _NARROWEST / len(left), 1), _WIDEST, left.max()))

    def _take(self, lanes: np.ndarray, place: np.ndarray, count: np.ndarray, ahead: _Stretch) -> None:
        taken = np.arange(place.shape[1]) < count[:, None]
        rows = place[taken]
        self.admitted[rows], self.held[rows] = ahead.admitted[taken], ahead.held[taken]
        moved = np.flatnonzero(count)
        last = moved, count[moved] - 1
        self._level[lanes[moved]] = ahead.held[last] - self.budget.cost * ahead.admitted[last]
        self._next[lanes] += count


def _fresh_starts(budget: Budget, gains: np.ndarray) -> np.ndarray:
    """Rows that find a full bucket whatever was before them: some of them, not too near each other."""
    full = np.flatnonzero(gains == budget.capacity)
    return full[np.diff(full // _APART, prepend=-1) > 0]


def _leading(holds: np.ndarray) -> np.ndarray:
    """How many hold from the beginning on, line by line."""
    return np.where(holds.all(axis=1), holds.shape[1], holds.argmin(axis=1))
