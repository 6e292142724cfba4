"""Ranges of time that only hold rows which arrived before the row that asks.

Up to the first row that is still missing, everything in a window has arrived: that part is one range
of time. Only the rest, the *frontier*, needs a closer look, and it is as long as rows come out of
order. It is cut, in the order of time, into blocks of 1, 2, 4 … rows; in each block rows stand in the
order they arrived, so that what has arrived is its head. A frontier of n rows costs about log n
heads, and rows that come in order cost nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tidegate.columnar.ranges import Pieces, binary_digits
from tidegate.columnar.sorting import stable_order
from tidegate.columnar.timeline import Timeline

#: Frontiers of so many rows are looked at together.
_AT_ONCE = 1 << 16

#: How many times as long as it must be a frontier may become, to begin where a block does.
_LONGER = 2


def arrived_before(timeline: Timeline, known: int, rows: np.ndarray, lookback: int) -> list[Pieces]:
    """The pieces of each asking row's window that had arrived before it, in the order of time.

    Pieces are positions in the timeline. Its first `known` rows came in earlier batches, the others
    now, in this order; `rows` are those of the latter that ask, in the order of time.
    """
    own = timeline.position[rows]
    oldest = timeline.first_from(timeline.key[rows], timeline.time[rows] - lookback)
    missing = np.maximum(_first_missing(timeline, known)[rows - known], oldest)
    settled, late = np.minimum(missing, own), np.flatnonzero(missing < own)
    heads: list[Pieces] = []
    for some in _together(timeline.key[rows[late]]):
        asking = late[some]
        frontiers = Frontiers.of(timeline, oldest[asking], missing[asking], own[asking])
        settled[asking] = frontiers.begin
        heads += (replace(piece, asking=asking[piece.asking]) for piece in frontiers.heads())
    filled = np.flatnonzero(settled > oldest)
    return [Pieces(None, oldest[filled], settled[filled] - 1, filled), *heads]


def _together(key: np.ndarray) -> Iterator[slice]:
    """Rows, key after key, in parts of about that many; keys stay whole."""
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    parts = begins[np.diff(begins // _AT_ONCE, prepend=-1) > 0].tolist()
    yield from (slice(begin, end) for begin, end in zip(parts, [*parts[1:], len(key)], strict=False))


def _first_missing(timeline: Timeline, known: int) -> np.ndarray:
    """For each row that came now the earliest position of a row of its key that came after it."""
    by_key = stable_order(timeline.key[known:])
    # Keys follow each other in both orders, so a later key's positions never come first.
    positions = np.append(timeline.position[known:][by_key[1:]], len(timeline.key))
    missing = np.empty(len(by_key), dtype=np.int64)
    missing[by_key] = np.minimum.accumulate(positions[::-1])[::-1]
    return missing


@dataclass(frozen=True)
class _Runs:
    """The rows that frontiers cover, key after key: a run of them for each key."""

    #: Where in the timeline the first row is.
    since: int
    #: Where in the timeline each row is; and which of them is where, from the first one on.
    position: np.ndarray
    number: np.ndarray
    #: The run of each row, and its place in there.
    run: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, timeline: Timeline, low: np.ndarray, high: np.ndarray) -> _Runs:
        """Of the rows in any of these ranges of the timeline, both ends included."""
        since, until = int(low.min()), int(high.max()) + 1
        covered = _covered(low - since, high - since, until - since)
        position = since + np.flatnonzero(covered)
        key = timeline.key[timeline.order[position]]
        begins = np.append(True, key[1:] != key[:-1])
        run = np.cumsum(begins) - 1
        place = np.arange(len(position)) - np.flatnonzero(begins)[run]
        return cls(since, position, np.cumsum(covered) - 1, run, place)

    def numbers(self, positions: np.ndarray) -> np.ndarray:
        """Which of the rows are at these positions of the timeline."""
        return self.number[positions - self.since]

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.bincount(self.run)


@dataclass(frozen=True)
class Frontiers:
    """The rows of all frontiers in *slots*, where each run is cut into blocks of its own size.

    A block of a run has 2^level slots, enough for its longest frontier, and is halved again and again.
    Runs with larger blocks come first, so that all slots with blocks of a size lie together. What fills
    up the last block of a run never arrives.
    """

    #: Where in the timeline each frontier begins.
    begin: np.ndarray
    #: The slots where each one begins, and of the row that asks.
    first: np.ndarray
    own: np.ndarray
    #: Where in the timeline the row of each slot is, and when it arrived.
    position: np.ndarray
    arrived: np.ndarray
    #: The slots, block after block; in each in the order in which rows arrived.
    by_arrival: np.ndarray
    #: How many slots have blocks that are halved into blocks of each level.
    halved: np.ndarray

    @classmethod
    def of(
        cls, timeline: Timeline, oldest: np.ndarray, missing: np.ndarray, own: np.ndarray
    ) -> Frontiers:
        earliest = np.maximum(oldest, missing - (_LONGER - 1) * (own - missing))
        runs = _Runs.of(timeline, earliest, own)
        earliest, missing, own = (runs.numbers(positions) for positions in (earliest, missing, own))
        begin = own - runs.place[own] + _begin(*(runs.place[one] for one in (earliest, missing, own)))
        first_of_run = np.flatnonzero(np.diff(runs.run[own], prepend=-1))
        level = binary_digits(np.maximum.reduceat(own - begin, first_of_run)).astype(np.int64)
        slots, start = _aligned(runs.lengths, level)
        slot = start[runs.run] + runs.place
        position, arrived = (
            np.zeros(slots.sum(), dtype=np.int64),
            np.full(slots.sum(), len(timeline.key)),
        )
        position[slot], arrived[slot] = runs.position, timeline.order[runs.position]
        sizes = np.argsort(-level, kind="stable")
        of_slot = np.repeat(level[sizes], slots[sizes])
        block = np.arange(len(of_slot)) >> of_slot << of_slot
        by_arrival = stable_order(block * (len(timeline.key) + 1) + arrived)
        halved = np.array([slots[level > size].sum() for size in range(int(level.max()))])
        return cls(runs.position[begin], slot[begin], slot[own], position, arrived, by_arrival, halved)

    def heads(self) -> list[Pieces]:
        """What had arrived of each frontier before the asking row, in the order of time.

        From where it begins a frontier ascends to ever larger blocks, and from the largest one it
        descends to the asking row. On the way down blocks are the left halves of those that hold the
        asking row, and halving these tells how many rows of the left half had arrived before it.
        """
        up: list[Pieces] = []
        down: list[Pieces] = []
        order = self.by_arrival.copy()
        for level in reversed(range(len(self.halved))):
            blocks = order[: self.halved[level]]
            halves = _Halves.part(blocks, level)
            down += self._descending(halves)
            up += self._ascending(blocks, level)
        return [*up[::-1], *down]

    def _descending(self, halves: _Halves) -> Iterator[Pieces]:
        level = halves.level
        asks = halves.lefts_before > 0
        asks &= self._first_of_slot[halves.right] <= halves.block << level + 1
        chosen = np.flatnonzero(asks)
        if len(chosen):
            low = halves.block[chosen] << level
            high = low + halves.lefts_before[chosen] - 1
            asking = self._asking_of_slot[halves.right[chosen]]
            yield Pieces(self.position[halves.left], low, high, asking, level)

    def _ascending(self, order: np.ndarray, level: int) -> Iterator[Pieces]:
        block = -(-self.first[self._ascends] >> level)
        here = np.flatnonzero((block & 1 == 1) & (block < self.own[self._ascends] >> level))
        if len(here):
            asking = self._ascends[here]
            blocks, number = _distinct(block[here], len(order) >> level)
            slots, low = order.reshape(-1, 1 << level)[blocks].ravel(), number << level
            count = _smaller(self.arrived[slots], low, level, self.arrived[self.own[asking]])
            some = np.flatnonzero(count)
            low, high = low[some], (low + count - 1)[some]
            yield Pieces(self.position[slots], low, high, asking[some], level)

    @cached_property
    def _ascends(self) -> np.ndarray:
        """The frontiers that do not begin where a block with the asking row does."""
        digits = binary_digits(self.first ^ self.own)
        return np.flatnonzero(self.own >> digits << digits != self.first)

    @cached_property
    def _first_of_slot(self) -> np.ndarray:
        """Where the frontier of the row in each slot begins; behind all slots if it has none."""
        first = np.full(len(self.position), len(self.position))
        first[self.own] = self.first
        return first

    @cached_property
    def _asking_of_slot(self) -> np.ndarray:
        asking = np.empty(len(self.position), dtype=np.int64)
        asking[self.own] = np.arange(len(self.own))
        return asking


@dataclass(frozen=True)
class _Halves:
    """Blocks parted in halves of 2^level slots; in each half these are in the order of arrival."""

    level: int
    left: np.ndarray
    right: np.ndarray
    #: The block of each slot of the right halves, and how many of its left half had arrived before.
    block: np.ndarray
    lefts_before: np.ndarray

    @classmethod
    def part(cls, order: np.ndarray, level: int) -> _Halves:
        """Part the blocks of an order, in place."""
        on_right = order & (1 << level) != 0
        rights = np.flatnonzero(on_right)
        left, right = order[np.flatnonzero(~on_right)], order[rights]
        number = np.arange(len(rights))
        block = number >> level
        rights -= number
        rights -= block << level
        halves = order.reshape(-1, 2, 1 << level)
        halves[:, 0], halves[:, 1] = left.reshape(-1, 1 << level), right.reshape(-1, 1 << level)
        return cls(level, left, right, block, rights)


def _aligned(lengths: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many slots runs of these lengths have in whole blocks, and the first: large blocks first."""
    slots = -(-lengths >> level) << level
    order = np.argsort(-level, kind="stable")
    start = np.empty(len(lengths), dtype=np.int64)
    start[order] = np.cumsum(slots[order]) - slots[order]
    return slots, start


def _distinct(numbers: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of numbers below a limit, in order, and for each number which one it is."""
    marks = np.zeros(limit, dtype=bool)
    marks[numbers] = True
    return np.flatnonzero(marks), (np.cumsum(marks) - 1)[numbers]


def _smaller(numbers: np.ndarray, low: np.ndarray, level: int, limit: np.ndarray) -> np.ndarray:
    """How many numbers are below a limit, in sorted blocks of 2^level that begin at `low`?"""
    count = np.zeros(len(low), dtype=np.int64)
    for step in (1 << bit for bit in reversed(range(level))):
        count += step * (numbers[low + count + step - 1] < limit)
    return count + (numbers[low + count] < limit)


def _covered(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Which of `count` slots lie in any of these ranges, both ends included?"""
    borders = np.bincount(low, minlength=count) - np.bincount(high + 1, minlength=count)[:count]
    return np.cumsum(borders) > 0


def _begin(low: np.ndarray, high: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Which of `low … high` (both included) a frontier that ends before `own` best begins at.

    Best is the smallest block that has both ends in it, if its beginning lies there: then all blocks
    are on the way down. Otherwise it is the number that the highest power of two divides.
    """
    digits = binary_digits(high ^ own)
    block = own >> digits << digits
    digits = binary_digits((low - 1) ^ high) - 1
    roundest = np.where(low > 0, high >> digits << digits, 0)
    return np.where(block >= low, block, roundest)
