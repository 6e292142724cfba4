"""SliceStore: the slices of a bucket, and windows put together from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tidegate.operators.accumulators import Accumulators
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY, BucketState

SLICE, WINDOW = "__slice", "__window"
_TABLE = "slices"


@dataclass(frozen=True)
class Windows:
    """Windows by key and number, each with the first and last row of slices it is made of."""

    key: np.ndarray
    number: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Slices:
    """Merged slices, sorted by key and time: one row for each that has data."""

    rows: pl.DataFrame
    slicing: Slicing
    accumulators: Accumulators

    def windows_between(self, first: int, last: int) -> Windows:
        """Every window `first … last` that has data, once.

        A slice owns the windows that hold it but not the key's next slice: they end between the
        two. Counting those enumerates the windows without expanding rows by windows.
        """
        key, number = self._key, self._number
        begins, ends = self.slicing.first_window(number), self.slicing.last_window(number)
        if len(key) > 1:
            next_begins = np.where(key[1:] == key[:-1], begins[1:] - 1, ends[:-1])
            ends[:-1] = np.minimum(ends[:-1], next_begins)
        begins, ends = np.maximum(begins, first), np.minimum(ends, last)
        count = np.maximum(ends - begins + 1, 0)
        high = np.repeat(np.arange(len(key)), count)
        within = np.arange(len(high)) - np.repeat(np.cumsum(count) - count, count)
        window = begins[high] + within
        owner = key[high]
        return Windows(owner, window, self._first_row(owner, window), high)

    def locate(self, key: np.ndarray, window: np.ndarray) -> Windows:
        """The given windows, each of which has data."""
        last = self._places(key, self.slicing.last_slice(window))
        high = np.searchsorted(self._ranked, last, side="right") - 1
        return Windows(key, window, self._first_row(key, window), high)

    def results(self, windows: Windows) -> pl.DataFrame:
        """The finished aggregates of the windows, beside key and number."""
        states = self._states(windows).with_columns(
            pl.Series(KEY, windows.key), pl.Series(WINDOW, windows.number)
        )
        return self.accumulators.finish(states, KEY, WINDOW)

    def _states(self, windows: Windows) -> pl.DataFrame:
        states = self.rows.drop(KEY, SLICE)
        per_window = self.slicing.per_window
        if per_window == 1:
            return states[windows.high]
        return self.accumulators.merge_ranges(
            states,
            windows.low,
            windows.high,
            block=self._places(self._key, self._number // per_window * per_window),
            first_block=self._places(
                windows.key,
                self.slicing.first_slice(windows.number) // per_window * per_window,
            ),
        )

    def _first_row(self, key: np.ndarray, window: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ranked, self._places(key, self.slicing.first_slice(window)))

    @cached_property
    def _key(self) -> np.ndarray:
        return self.rows[KEY].to_numpy()

    @cached_property
    def _number(self) -> np.ndarray:
        return self.rows[SLICE].to_numpy()

    @cached_property
    def _ranked(self) -> np.ndarray:
        return self._places(self._key, self._number)

    def _places(self, key: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Key and slice as one number in sorting order; slices outside the rows stay in order."""
        low, high = int(self._number.min()), int(self._number.max())
        margin = self.slicing.per_window
        span = high - low + 2 * margin + 2
        inside = np.clip(number, low - margin, high + margin)
        return key.astype(np.int64) * span + (inside - low + margin)


@dataclass(frozen=True)
class SliceStore:
    """The slices of one bucket."""

    state: BucketState
    slicing: Slicing
    accumulators: Accumulators

    def append(self, slices: pl.DataFrame) -> None:
        # A page covers about a quarter of a window, so that it goes soon after its slices do.
        self.state.append(_TABLE, slices, SLICE, width=max(1, self.slicing.per_window // 4))

    def between(self, first: int, last: int) -> Slices | None:
        """The slices that windows `first … last` are made of, or nothing where there are none."""
        low, high = self.slicing.first_slice(first), self.slicing.last_slice(last)
        inside = pl.col(SLICE).is_between(low, high)
        pages = [page.filter(inside) for page in self.state.load(_TABLE, low, high)]
        pages = [page for page in pages if len(page)]
        if not pages:
            return None
        rows = pages[0] if len(pages) == 1 else self._merge(pages)
        return Slices(rows.sort(KEY, SLICE), self.slicing, self.accumulators)

    def forget(self, closed: int) -> None:
        """Drop what only windows up to `closed` needed, and merge pages that have piled up."""
        self.state.drop_below(_TABLE, self.slicing.first_slice(closed + 1))
        self.state.compact(_TABLE, self._merge, SLICE)

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

    def _merge(self, pages: list[pl.DataFrame]) -> pl.DataFrame:
        return self.accumulators.merge(pl.concat(pages), [KEY, SLICE])
