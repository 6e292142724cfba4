"""The arithmetic of slices: the shortest stretches of time that no window edge cuts.

Edges lie at `k·slide + offset` and `k·slide + offset + size`. Where the slide divides the size
these coincide and a slide is one slice; otherwise each slide is cut in two. Slices and windows are
numbered; everything here works on plain integers and on NumPy arrays alike.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tidegate.plan.windows import Hopping

Number = TypeVar("Number", int, np.ndarray)


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
