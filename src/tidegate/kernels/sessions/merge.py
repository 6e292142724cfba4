"""SessionMerge: which intervals of a key touch, and what arrives merged with the live sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidegate.columnar.ranges import running
from tidegate.columnar.timeline import Timeline
from tidegate.kernels.late import Bounds, ClosedWindows
from tidegate.kernels.sessions.store import END, START, SessionStore
from tidegate.state.pages import KEY

#: The number of a session in a sweep.
NUMBER = "__tidegate_number"


@dataclass(frozen=True)
class Sweep:
    """Intervals merged into sessions; sessions are numbered, and each has its key and its bounds."""

    #: The session of each interval.
    number: np.ndarray
    key: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def __len__(self) -> int:
        return len(self.key)

    def holds(self, intervals: slice) -> np.ndarray:
        """Does a session hold any of these intervals?"""
        held = np.zeros(len(self), dtype=bool)
        held[self.number[intervals]] = True
        return held


def sweep(key: np.ndarray, start: np.ndarray, end: np.ndarray, max_length: int | None) -> Sweep:
    """Merge intervals `[start, end]` of one key that touch.

    In the order of their starts an interval begins a session if it lies beyond the furthest end so
    far. With a maximum length, those that start in different multiples of it are never merged.
    """
    order = np.argsort(Timeline(key, start).word) if len(key) else np.empty(0, dtype=np.int64)
    key, start, end = key[order], start[order], end[order]
    apart = np.diff(key) != 0
    if max_length:
        apart |= np.diff(start // max_length) != 0
    furthest = end
    if ((np.diff(end) < 0) & ~apart).any():  # never with one gap for all rows
        furthest = running(end, np.concatenate([[0], np.cumsum(apart)]), np.maximum)
    begins = np.ones(len(key), dtype=bool)
    begins[1:] = apart | (start[1:] > furthest[:-1])
    first = np.flatnonzero(begins)
    number = np.empty(len(key), dtype=np.int32)
    number[order] = np.cumsum(begins, dtype=np.int32) - 1
    ends = np.maximum.reduceat(end, first) if len(first) else end
    return Sweep(number, key[first], start[first], ends)


@dataclass(frozen=True)
class Merged:
    """Live sessions, and behind them the states that arrived, swept together."""

    states: pl.DataFrame
    live_count: int
    swept: Sweep

    @property
    def touched(self) -> np.ndarray:
        """Which sessions hold something that arrived?"""
        return self.swept.holds(slice(self.live_count, None))

    def too_late(self, horizon: int) -> np.ndarray:
        """Which states are in a session that would be closed and has no live session in it?"""
        has_live = self.swept.holds(slice(None, self.live_count))
        return (~has_live & (self.swept.end <= horizon))[self.swept.number]

    def bounds_of(self, parts: Sequence[pl.DataFrame]) -> ClosedWindows:
        """The bounds of the sessions that arriving states, given in their parts, are in."""
        numbers = np.split(self.swept.number[self.live_count :], ends_of_parts(parts))

        def bounds(part: int, positions: np.ndarray) -> Bounds:
            number = numbers[part][positions]
            return self.swept.start[number], self.swept.end[number]

        return bounds

    def numbered(self) -> pl.DataFrame:
        return self.states.with_columns(pl.Series(NUMBER, self.swept.number))

    def replaced(self) -> pl.DataFrame | None:
        """The live sessions that got something new."""
        live = self.numbered()[: self.live_count]
        grown = live.filter(pl.Series(self.touched[live[NUMBER].to_numpy()]))
        return grown if len(grown) else None


def merge_live(
    store: SessionStore, parts: Sequence[pl.DataFrame], horizon: int, max_length: int | None
) -> Merged | None:
    """Merge states, each from `START` to `END`, with the live sessions that they touch."""
    if not any(map(len, parts)):
        return None
    came = pl.concat(parts)
    live = store.of_keys(came[KEY].to_numpy(), after=horizon)
    together = came if live is None else pl.concat([live, came], how="diagonal")
    key, start, end = (together[name].to_numpy() for name in (KEY, START, END))
    return Merged(together, 0 if live is None else len(live), sweep(key, start, end, max_length))


def ends_of_parts(parts: Sequence[pl.DataFrame]) -> np.ndarray:
    """Where one part ends and the next begins, once they are concatenated."""
    return np.cumsum([len(part) for part in parts])[:-1]


def ends_of(time: np.ndarray, gap: int | np.ndarray, longest: int | None) -> np.ndarray:
    """The end of the session of each row alone."""
    end = time + gap
    return end if longest is None else np.minimum(end, (time // longest + 1) * longest)


def bounded(states: pl.DataFrame, swept: Sweep) -> pl.DataFrame:
    """States of numbered sessions with their keys and bounds."""
    number = states[NUMBER].to_numpy()
    return states.with_columns(
        pl.Series(KEY, swept.key[number]),
        pl.Series(START, swept.start[number]),
        pl.Series(END, swept.end[number]),
    )
