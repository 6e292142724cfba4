"""Windows of fixed length as a side of a join: the stretch a row takes up, and what meets a stretch.

The windows that hold a row lie next to each other, so together they are one stretch. Rows of two sides
meet where their stretches overlap; and as stretches move on with time, the rows that meet a given
one are all rows of their key between two times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidegate.operators.late import NEVER
from tidegate.operators.slicing import Slicing


@dataclass(frozen=True)
class Panes:
    """The windows of one side."""

    slicing: Slicing
    #: Does a row take up its own time only, not that of its windows?
    points: bool = False

    def first(self, time: np.ndarray) -> np.ndarray:
        """The number of the first window that holds each time."""
        return self.slicing.first_window(self.slicing.slice_of(time)[0])

    def first_start(self, time: np.ndarray) -> np.ndarray:
        """The start of the first window that holds each time."""
        return self.slicing.start(self.first(time))

    def last_end(self, time: np.ndarray) -> np.ndarray:
        """The end of the last window that holds each time."""
        return self.slicing.end(self.slicing.last_window(self.slicing.slice_of(time)[0]))

    def stretch(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From where up to where, without it, a row at each time takes up."""
        if self.points:
            return time, time + 1
        return self.first_start(time), self.last_end(time)

    def times_meeting(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between which times, both included, rows of this side meet `[start, end)`."""
        if self.points:
            return start, end - 1
        first = self.slicing.start(self.slicing.last_ended(start) + 1)
        return first, self._last_begun(end) - 1

    def last_meeting(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The end of the last window of this side that overlaps `[start, end)`, if there is one."""
        last = self._last_begun(end)
        return np.where(last > start, last, NEVER)

    def _last_begun(self, end: np.ndarray) -> np.ndarray:
        """The end of the last window that begins before `end`."""
        window = self.slicing.window
        return self.slicing.end((end - 1 - window.offset) // window.slide)

    def shown(self, time: np.ndarray, since: np.ndarray | None = None) -> np.ndarray:
        """The first window that holds each time and, if given, ends after `since`."""
        first = self.first(time)
        return first if since is None else np.maximum(first, self.slicing.last_ended(since) + 1)
