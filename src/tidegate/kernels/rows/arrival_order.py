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

import numpy as np

from tidegate.columnar.ranges import Pieces, binary_digits
from tidegate.columnar.timeline import Timeline

_SHORT = 1 << 16


def arrived_before(timeline: Timeline, known: int, rows: np.ndarray, lookback: int) -> list[Pieces]:
    """The pieces of each asking row's window that had arrived before it, in the order of time.

    The timeline's first `known` rows came in earlier batches, the others now, in this order; `rows`
    are those of the latter that ask, in the order of time.
    """
    own = timeline.position[rows]
    oldest = timeline.first_from(timeline.key[rows], timeline.time[rows] - lookback)
    missing = np.maximum(_first_missing(timeline, known)[rows - known], oldest)
    settled, late = np.minimum(missing, own), np.flatnonzero(missing < own)
    heads: list[Pieces] = []
    if len(late):
        frontier = Frontier.of(timeline, oldest[late], missing[late], own[late])
        settled[late] = frontier.begin
        heads = [replace(piece, asking=late[piece.asking]) for piece in frontier.heads()]
    return [*_nonempty(timeline.order, oldest, settled - oldest, np.arange(len(rows))), *heads]


def _first_missing(timeline: Timeline, known: int) -> np.ndarray:
    """For each row that came now the earliest position of a row of its key that came after it."""
    key = timeline.key[known:]
    # Small numbers are sorted by their digits, which is far faster.
    by_key = np.argsort(key.astype(np.uint16) if key.max() < _SHORT else key, kind="stable")
    # Keys follow each other in both orders, so a later key's positions never come first.
    positions = np.append(timeline.position[known:][by_key[1:]], len(timeline.key))
    missing = np.empty(len(by_key), dtype=np.int64)
    missing[by_key] = np.minimum.accumulate(positions[::-1])[::-1]
    return missing


@dataclass(frozen=True)
class Frontier:
    """The rows of all frontiers, in the order of time, closed up; and which of them each one needs."""

    #: The row at each slot.
    row: np.ndarray
    #: The slots in the order their rows arrived.
    by_arrival: np.ndarray
    #: Where in the timeline each frontier begins.
    begin: np.ndarray
    #: The slot before that, and that of the asking row: what is between them is needed.
    before: np.ndarray
    own: np.ndarray

    @classmethod
    def of(
        cls, timeline: Timeline, oldest: np.ndarray, missing: np.ndarray, own: np.ndarray
    ) -> Frontier:
        # It may begin before the first missing row: at the edge of a large block it needs few of them.
        earliest = np.maximum(oldest, 2 * missing - own)
        covered = _covered(earliest, own, len(timeline.order))
        position, slot = np.flatnonzero(covered), np.cumsum(covered) - 1
        begin = _roundest(slot[earliest], slot[missing])
        arrived = timeline.position[covered[timeline.position]]
        return cls(timeline.order[position], slot[arrived], position[begin], begin - 1, slot[own])

    def heads(self) -> list[Pieces]:
        """What had arrived of each frontier before the asking row, in the order of time.

        Blocks are halved again and again, and paths lead down to both ends of a frontier. Where the
        asking row is in a right half, the left one is needed, unless the frontier begins in there;
        where it does, those right halves are needed that lie behind its beginning.
        """
        order = self.by_arrival
        ends = _Path(np.arange(len(self.own)), self.own, _inverse(order)[self.own])
        starts = ends.only(np.empty(0, dtype=np.int64))
        behind: list[Pieces] = []
        ahead: list[Pieces] = []
        for level in reversed(range((len(order) - 1).bit_length())):
            halves = _Halves.of(order, level)
            end, start = halves.part(ends), halves.part(starts)
            whole = end.on_right & (end.block > self.before)
            begins = end.on_right & (end.block <= self.before) & (self.before < end.middle)
            rows = self.row[halves.parted]
            ahead += end.left_heads(rows, np.flatnonzero(whole))
            behind += start.right_heads(rows, np.flatnonzero(~start.on_right))
            inner = start.down().and_also(_Path(ends.asking, self.before, end.in_left).only(begins))
            # One that begins right behind its block needs nothing of it.
            starts = inner.only((inner.slot + 1) % (1 << level) != 0)
            ends, order = end.down(), halves.parted
        return behind[::-1] + ahead


@dataclass(frozen=True)
class _Path:
    """On the way to slots, block by block: `count` rows of the block had arrived."""

    asking: np.ndarray
    slot: np.ndarray
    count: np.ndarray

    def only(self, chosen: np.ndarray) -> _Path:
        return _Path(self.asking[chosen], self.slot[chosen], self.count[chosen])

    def and_also(self, other: _Path) -> _Path:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return _Path(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class _Halves:
    """Blocks parted in halves of 2^level slots; in each half these are in the order of arrival."""

    level: int
    #: All slots, half after half.
    parted: np.ndarray
    #: How many of the first slots, 0 … all, are in left halves, when blocks are not parted.
    lefts: np.ndarray

    @classmethod
    def of(cls, order: np.ndarray, level: int) -> _Halves:
        on_left = order & (1 << level) == 0
        lefts = np.zeros(len(order) + 1, dtype=np.int64)
        np.cumsum(on_left, out=lefts[1:])
        left, right = order[on_left], order[~on_left]
        full = len(right) >> level << level  # only the last block may be cut short
        pairs = np.stack([half[:full].reshape(-1, 1 << level) for half in (left, right)], axis=1)
        return cls(level, np.concatenate([pairs.ravel(), left[full:], right[full:]]), lefts)

    def part(self, path: _Path) -> _Parting:
        block = path.slot >> self.level + 1 << self.level + 1
        in_left = self.lefts[block + path.count] - (block >> 1)
        return _Parting(self.level, path, block, path.slot & (1 << self.level) != 0, in_left)


@dataclass(frozen=True)
class _Parting:
    """Where paths come to halves: which one they lead to, and how many rows of the left had arrived."""

    level: int
    path: _Path
    #: The first slot of the block.
    block: np.ndarray
    on_right: np.ndarray
    in_left: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """The first slot of the right half."""
        return self.block + (1 << self.level)

    def left_heads(self, rows: np.ndarray, chosen: np.ndarray) -> Iterator[Pieces]:
        count = self.in_left[chosen]
        return _nonempty(rows, self.block[chosen], count, self.path.asking[chosen], self.level)

    def right_heads(self, rows: np.ndarray, chosen: np.ndarray) -> Iterator[Pieces]:
        count = (self.path.count - self.in_left)[chosen]
        return _nonempty(rows, self.middle[chosen], count, self.path.asking[chosen], self.level)

    def down(self) -> _Path:
        on = np.where(self.on_right, self.path.count - self.in_left, self.in_left)
        return replace(self.path, count=on)


def _nonempty(
    rows: np.ndarray, low: np.ndarray, count: np.ndarray, asking: np.ndarray, level: int | None = None
) -> Iterator[Pieces]:
    filled = np.flatnonzero(count > 0)
    if len(filled):
        low = low[filled]
        yield Pieces(rows, low, low + count[filled] - 1, asking[filled], level)


def _covered(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Which of `count` slots lie in any of these ranges, both ends included?"""
    borders = np.bincount(low, minlength=count) - np.bincount(high + 1, minlength=count)[:count]
    return np.cumsum(borders) > 0


def _inverse(order: np.ndarray) -> np.ndarray:
    slot = np.empty(len(order), dtype=np.int64)
    slot[order] = np.arange(len(order))
    return slot


def _roundest(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The number of `low … high` (both included) that the highest power of two divides."""
    digits = binary_digits((low - 1) ^ high) - 1
    return np.where(low > 0, high >> digits << digits, 0)
