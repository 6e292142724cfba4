"""Slices: the shortest stretches of time that no window edge cuts, and the store that keeps them.

Edges lie at `k·slide + offset` and `k·slide + offset + size`. Where the slide divides the size
these coincide and a slide is one slice; otherwise each slide is cut in two. Slices and windows are
numbered; the arithmetic works on plain integers and on NumPy arrays alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import polars as pl

from tidegate.columnar.timeline import Timeline
from tidegate.kernels.accumulators import Accumulators, StatesInOrder
from tidegate.plan.windows import Hopping
from tidegate.state.pages import KEY, BucketState

Number = TypeVar("Number", int, np.ndarray)

#: The numbers of a slice and of a window.
SLICE, WINDOW = "__tidegate_slice", "__tidegate_window"
_TABLE = "slices"

#: Windows are put together, and sent, so many at a time: then they stay in the processor's cache.
_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Slicing:
    """Slices and windows of one hopping (or tumbling) specification."""

    window: Hopping

    @property
    def gaps(self) -> bool:
        """Does some time belong to no window?"""
        return self.window.slide > self.window.size

    @property
    def cut(self) -> int:
        """Where inside a slide the second slice begins; 0 means a slide is one slice."""
        return 0 if self.gaps else self.window.size % self.window.slide

    @property
    def per_slide(self) -> int:
        return 2 if self.cut else 1

    @property
    def per_window(self) -> int:
        """How many slices every window is made of."""
        whole = max(1, self.window.size // self.window.slide)
        return whole * self.per_slide + (1 if self.cut else 0)

    def slice_of(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slice of each event time, and whether it belongs to any window."""
        shifted = time - self.window.offset
        slide, inside = np.floor_divide(shifted, self.window.slide), np.ones(len(time), dtype=bool)
        if not self.gaps and not self.cut:
            return slide, inside
        phase = shifted - slide * self.window.slide
        return (
            (slide, phase < self.window.size) if self.gaps else (slide * 2 + (phase >= self.cut), inside)
        )

    def first_window(self, slice_: Number) -> Number:
        """The first window that holds the slice."""
        # A window starts with slice per_slide·k and is per_window slices long.
        return -((self.per_window - 1 - slice_) // self.per_slide)

    def last_window(self, slice_: Number) -> Number:
        """The last window that holds the slice."""
        return slice_ // self.per_slide

    def first_slice(self, window: Number) -> Number:
        return window * self.per_slide

    def last_slice(self, window: Number) -> Number:
        return window * self.per_slide + self.per_window - 1

    def start(self, window: Number) -> Number:
        return window * self.window.slide + self.window.offset

    def end(self, window: Number) -> Number:
        return self.start(window) + self.window.size

    def last_ended(self, time: Number) -> Number:
        """The last window with `end <= time`."""
        return (time - self.window.offset - self.window.size) // self.window.slide


@dataclass(frozen=True)
class Windows:
    """Windows by key and number, each with the first and the last row of its slices."""

    key: np.ndarray
    number: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Slices:
    """Slices by key and time. A slice in several pages has a row of each, in their order."""

    rows: pl.DataFrame
    slicing: Slicing
    accumulators: Accumulators
    timeline: Timeline

    @classmethod
    def of(cls, rows: pl.DataFrame, slicing: Slicing, accumulators: Accumulators) -> Slices:
        timeline = Timeline(rows[KEY].to_numpy(), rows[SLICE].to_numpy())
        return cls(rows, slicing, accumulators, timeline)

    def windows_between(self, first: int, last: int) -> Iterator[Windows]:
        """Every window `first … last` that has data, once; some at a time.

        A slice owns the windows that hold it but not the key's next slice: they end between the
        two. Counting those enumerates the windows without expanding rows by windows.
        """
        key, number = self._key, self._number
        begins, ends = self.slicing.first_window(number), self.slicing.last_window(number)
        over = ends + 1
        if len(key) > 1:
            next_begins = np.where(key[1:] == key[:-1], begins[1:] - 1, ends[:-1])
            ends[:-1] = np.minimum(ends[:-1], next_begins)
        begins, ends = np.maximum(begins, first), np.minimum(ends, last)
        count = np.maximum(ends - begins + 1, 0)
        upto = np.cumsum(count)
        before = upto - count
        # A slice is left out from the first window on that it does not belong to, so windows need not
        # look for their first slice: which slice owns that window, and how far into its own ones?
        owner = self.timeline.last_until(key, self.slicing.last_slice(over))
        left_out = before[owner] + np.clip(over - begins[owner], 0, count[owner])
        for rows in _parts(upto):
            start, end = int(before[rows.start]), int(upto[rows.stop - 1])
            window = np.arange(start, end) + np.repeat((begins - before)[rows], count[rows])
            gone = slice(*np.searchsorted(left_out, (start, end)))
            going = np.bincount(left_out[gone] - start, minlength=end - start)
            low = gone.start + np.cumsum(going)
            high = np.repeat(np.arange(rows.start, rows.stop), count[rows])
            yield Windows(np.repeat(key[rows], count[rows]), window, low, high)

    def locate(self, key: np.ndarray, window: np.ndarray) -> Windows:
        """Those of the given windows that have data."""
        high = self.timeline.last_until(key, self.slicing.last_slice(window))
        low = self._first_row(key, window)
        filled = low <= high
        return Windows(key[filled], window[filled], low[filled], high[filled])

    def results(self, windows: Windows) -> pl.DataFrame:
        """The finished aggregates of the windows, beside key and number."""
        states = self._states(windows).with_columns(
            pl.Series(KEY, windows.key), pl.Series(WINDOW, windows.number)
        )
        return self.accumulators.finish(states, KEY, WINDOW)

    def _states(self, windows: Windows) -> pl.DataFrame:
        if (windows.low == windows.high).all():
            return self.rows.drop(KEY, SLICE)[self.timeline.order[windows.high]]
        return self._in_order.ranges(windows.low, windows.high)

    def _first_row(self, key: np.ndarray, window: np.ndarray) -> np.ndarray:
        return self.timeline.first_from(key, self.slicing.first_slice(window))

    @cached_property
    def _in_order(self) -> StatesInOrder:
        return self.accumulators.in_order(self.rows, self.timeline.order)

    @cached_property
    def _key(self) -> np.ndarray:
        return self.timeline.key[self.timeline.order]

    @cached_property
    def _number(self) -> np.ndarray:
        return self.timeline.time[self.timeline.order]


def _parts(upto: np.ndarray) -> Iterator[slice]:
    """Rows in parts of about as many windows, given how many windows the rows up to each one own."""
    edges = np.searchsorted(upto, np.arange(0, upto[-1], _AT_ONCE), side="right")
    ends = np.append(edges[1:], len(upto))[: len(edges)]
    yield from (slice(begin, end) for begin, end in zip(edges, ends, strict=True) if begin < end)


@dataclass(frozen=True)
class SliceStore:
    """The slices of one bucket."""

    state: BucketState
    slicing: Slicing
    accumulators: Accumulators

    def append(self, slices: pl.DataFrame | None) -> None:
        if slices is not None:
            self.state.append(_TABLE, slices, SLICE, self._page_width)

    def between(self, first: int, last: int, keys: np.ndarray | None = None) -> Slices | None:
        """The slices that windows `first … last`, of these keys, are made of; None: there are none."""
        low, high = self.slicing.first_slice(first), self.slicing.last_slice(last)
        inside = pl.col(SLICE).is_between(low, high)
        pages = self.state.load(_TABLE, low, high)
        pages = pages if keys is None else self.state.of_keys(pages, keys)
        pages = [page.filter(inside) for page in pages]
        pages = [page for page in pages if len(page)]
        if not pages:
            return None
        # Where windows are merged column by column, merging what is in several pages first is waste.
        merged = len(pages) > 1 and not self.accumulators.columnwise
        rows = self._merge(pages) if merged else pl.concat(pages)
        return Slices.of(rows, self.slicing, self.accumulators)

    def expire(self, closed: int) -> None:
        """Drop what only windows up to `closed` needed, and compact pages."""
        self.state.drop_below(_TABLE, self.slicing.first_slice(closed + 1))
        self.state.compact(_TABLE, self._merge, SLICE, self._page_width)

    def next_window(self, after: int) -> int | None:
        """A window after the given one before which none with data comes."""
        candidates = []
        for page in self.state.pages(_TABLE):
            first = max(self.slicing.first_window(page.low), after + 1)
            if first <= self.slicing.last_window(page.high):
                candidates.append(first)
        return min(candidates, default=None)

    def last_window_of_a_page(self) -> int | None:
        """The window at whose close the first page can be dropped."""
        pages = self.state.pages(_TABLE)
        return min((self.slicing.last_window(page.high) for page in pages), default=None)

    @property
    def _page_width(self) -> int:
        # A page covers about a quarter of a window, so that it is dropped soon after its slices close.
        return max(1, self.slicing.per_window // 4)

    def _merge(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        return self.accumulators.merge(pl.concat(pages), [KEY, SLICE])
