"""Rows sorted by key, time and arrival, and where ranges of time lie in this order.

Time is any number that has an order: microseconds, or the numbers of slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tidegate.columnar.sorting import search, stable_order

_WORD = 62


@dataclass(frozen=True)
class Timeline:
    """An order of rows. Positions are those in this order; `key` and `time` are in arrival order."""

    key: np.ndarray
    time: np.ndarray

    @cached_property
    def order(self) -> np.ndarray:
        """The rows in the order of key, time and arrival."""
        return stable_order(self.word)

    @cached_property
    def position(self) -> np.ndarray:
        """The position of each row."""
        position = np.empty(len(self.order), dtype=np.int64)
        position[self.order] = np.arange(len(self.order))
        return position

    def first_from(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The first position of a key's rows at that time or after it, or where the next key begins."""
        return search(self._sorted, self._word(self._known(key), time))

    def last_until(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The last position of a key's rows at that time or before it, or of the key before."""
        return search(self._sorted, self._word(self._known(key), time), "right") - 1

    def _known(self, key: np.ndarray) -> np.ndarray:
        """Keys beyond the rows' own count as one key after the last."""
        return np.minimum(key, self._last_key + 1)

    @cached_property
    def _last_key(self) -> int:
        return int(self.key.max())

    @cached_property
    def word(self) -> np.ndarray:
        """Key and time of each row as one number, which sorts several times faster than two."""
        return self._word(self.key, self.time)

    @cached_property
    def _sorted(self) -> np.ndarray:
        return self.word[self.order]

    @cached_property
    def _epoch(self) -> int:
        return int(self.time.min()) - 1

    @cached_property
    def _bits(self) -> int:
        return (int(self.time.max()) - self._epoch + 1).bit_length()

    @cached_property
    def _moments(self) -> np.ndarray | None:
        """All distinct times, if key and time do not fit in one word; ranks then stand for them."""
        fits = (self._last_key + 1).bit_length() + self._bits <= _WORD
        return None if fits else np.unique(self.time)

    def _word(self, key: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Key and time as one number of the same order; times beyond the rows' own are clipped."""
        if self._moments is None:
            since = np.clip(time - self._epoch, 0, (1 << self._bits) - 1)
            return (key.astype(np.int64) << self._bits) | since
        # Times between two moments must compare as between: twice the rank, and one more.
        after = np.searchsorted(self._moments, time, side="right")
        at = np.searchsorted(self._moments, time)
        return (key.astype(np.int64) << 33) | (at + after)
