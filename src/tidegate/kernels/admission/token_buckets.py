"""Token buckets of many streams over many rows at once, with the same result as row by row.

A bucket has two limits: it holds no more than its capacity, and a row that finds less than its cost
is rejected. Each limit alone is a running extremum, which is one vector operation:

- as long as no row is rejected, the level follows from the fullest moment so far;
- as long as the bucket is not full, the number of admitted rows follows from the scarcest moment.

So rows are processed in stretches: by the first rule until a row is rejected, by the second until the
bucket is full. A large capacity makes long stretches: from full to empty it takes capacity / cost rows.
With a small capacity many pauses fill the bucket, and each of them splits the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.columnar.ranges import accumulated
from tidegate.plan.sla import LARGEST_LEVEL, Budget

#: The most rows of a stream that are processed together: their inflow fits into 64 bits.
_WIDEST = 1 << 14
assert LARGEST_LEVEL * _WIDEST <= 1 << 61

#: The fewest rows of all streams: fewer cost just as much.
_NARROWEST = 1 << 10

#: Streams are split into parts of about this many rows.
_APART = 64


@dataclass(frozen=True)
class Spending:
    """Which rows were admitted, what the bucket held when they arrived, and what is left."""

    admitted: np.ndarray
    held: np.ndarray
    #: For each stream.
    level: np.ndarray


@dataclass(frozen=True)
class _Stretch:
    """The next rows of each stream by one rule: levels, who is admitted, and how far the rule holds."""

    held: np.ndarray
    admitted: np.ndarray
    holds: np.ndarray


#: From levels and what has flowed in since, stream by stream.
_Rule = Callable[[Budget, np.ndarray, np.ndarray], _Stretch]


def _nobody_turned_away(budget: Budget, level: np.ndarray, gained: np.ndarray) -> _Stretch:
    balance = gained - budget.cost * np.arange(gained.shape[1])
    fullest = accumulated(balance, np.maximum)
    held = balance + np.minimum(level[:, None], budget.capacity - fullest)
    return _Stretch(held, np.ones(held.shape, dtype=bool), held >= budget.cost)


def _never_full(budget: Budget, level: np.ndarray, gained: np.ndarray) -> _Stretch:
    step = np.arange(gained.shape[1])
    saved = level[:, None] + gained
    # The number of rows that could be paid for up to each row; each row admits one at most.
    affordable = saved // budget.cost
    admitted = np.minimum(accumulated(affordable - step, np.minimum), 1) + step
    before = np.pad(admitted[:, :-1], ((0, 0), (1, 0)))
    held = saved - budget.cost * before
    return _Stretch(held, admitted > before, held < budget.capacity)


def spend(
    budget: Budget, times: np.ndarray, ends: np.ndarray, level: np.ndarray, since: np.ndarray
) -> Spending:
    """Let rows at these instants, in order and stream after stream, take from their bucket.

    `ends` are the positions behind each stream's last row; `level` is what buckets held at `since`.
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
    """The progress of lanes: streams, and parts of streams that begin with a full bucket."""

    def __init__(self, budget: Budget, gains: np.ndarray, starts: np.ndarray, level: np.ndarray) -> None:
        self.budget = budget
        self.admitted = np.zeros(len(gains), dtype=bool)
        self.held = np.zeros(len(gains), dtype=np.int64)
        # This sum may overflow; differences of it do not.
        self._inflow = np.concatenate([[0], np.cumsum(gains)])
        begins = np.zeros(len(gains), dtype=bool)
        begins[starts] = begins[_fresh_starts(budget, gains)] = True
        self._starts = np.flatnonzero(begins)
        self._ends = np.append(self._starts[1:], len(gains))
        self._next = self._starts.copy()
        self._level = np.zeros(len(self._starts), dtype=np.int64)
        self._level[np.searchsorted(self._starts, starts)] = level
        self._width: dict[_Rule, float] = {}

    def level_before(self, positions: np.ndarray) -> np.ndarray:
        """The final levels of the buckets whose last rows lie just before these positions."""
        return self._level[np.searchsorted(self._starts, positions) - 1]

    @property
    def goes_on(self) -> bool:
        return bool((self._next < self._ends).any())

    def advance(self, rule: _Rule) -> None:
        """Advance each lane as far as the rule holds, but no further than pays at once."""
        lanes = np.flatnonzero(self._next < self._ends)
        if not len(lanes):
            return
        start, end = self._next[lanes], self._ends[lanes]
        width = self._look_ahead(rule, end - start)
        position = start[:, None] + np.arange(width)
        inside = position < end[:, None]
        position = np.minimum(position, end[:, None] - 1)
        gained = self._inflow[position + 1] - self._inflow[start][:, None]
        ahead = rule(self.budget, self._level[lanes], gained)
        count = _leading(ahead.holds & inside)
        self._take(lanes, position, count, ahead)
        self._width[rule] = 2 * float(count.mean())

    def _look_ahead(self, rule: _Rule, left: np.ndarray) -> int:
        useful = min(float(left.mean()), self._width.get(rule, _WIDEST))
        return int(min(max(useful, _NARROWEST / len(left), 1), _WIDEST, left.max()))

    def _take(self, lanes: np.ndarray, position: np.ndarray, count: np.ndarray, ahead: _Stretch) -> None:
        taken = np.flatnonzero(np.arange(position.shape[1]) < count[:, None])
        rows = position.take(taken)
        self.admitted[rows], self.held[rows] = ahead.admitted.take(taken), ahead.held.take(taken)
        moved = np.flatnonzero(count)
        last = moved, count[moved] - 1
        self._level[lanes[moved]] = ahead.held[last] - self.budget.cost * ahead.admitted[last]
        self._next[lanes] += count


def _fresh_starts(budget: Budget, gains: np.ndarray) -> np.ndarray:
    """Some rows, not too close to each other, that find a full bucket whatever came before them."""
    full = np.flatnonzero(gains == budget.capacity)
    return full[np.diff(full // _APART, prepend=-1) > 0]


def _leading(holds: np.ndarray) -> np.ndarray:
    """The number of leading true values in each line."""
    first_false = holds.argmin(axis=1)
    return np.where(holds[:, 0] & (first_false == 0), holds.shape[1], first_false)
