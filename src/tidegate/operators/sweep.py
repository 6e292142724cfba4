"""The session sweep: which intervals of a key touch, directly or through others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.operators.ranges import running
from tidegate.operators.timeline import Timeline


@dataclass(frozen=True)
class Sweep:
    """Intervals joined into sessions; sessions are numbered, and each has its key and its bounds."""

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
    """Join intervals `[start, end]` of one key that touch.

    In the order of their starts an interval begins a session if it lies beyond the furthest end so
    far. With a maximum length, those that start in different multiples of it are never joined.
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
