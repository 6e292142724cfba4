"""SessionMerge: what came, joined with the live sessions of the same keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tidegate.operators.late import Bounds, ClosedWindows
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.state import KEY
from tidegate.operators.sweep import Sweep, sweep

#: The number of a session in a sweep.
NUMBER = "__tidegate_number"


@dataclass(frozen=True)
class Joined:
    """Live sessions, and behind them what came, swept together."""

    states: pl.DataFrame
    live_count: int
    swept: Sweep

    @property
    def touched(self) -> np.ndarray:
        """Which sessions hold something that came?"""
        return self.swept.holds(slice(self.live_count, None))

    def too_late(self, horizon: int) -> np.ndarray:
        """Which of the states are in a session without a live one in it that would be closed?"""
        has_live = self.swept.holds(slice(None, self.live_count))
        return (~has_live & (self.swept.end <= horizon))[self.swept.number]

    def bounds_of(self, parts: Sequence[pl.DataFrame]) -> ClosedWindows:
        """The sessions that states of what came, given in its parts, are in."""
        numbers = np.split(self.swept.number[self.live_count :], ends_of_parts(parts))

        def bounds(part: int, places: np.ndarray) -> Bounds:
            number = numbers[part][places]
            return self.swept.start[number], self.swept.end[number]

        return bounds

    def numbered(self) -> pl.DataFrame:
        return self.states.with_columns(pl.Series(NUMBER, self.swept.number))

    def replaced(self) -> pl.DataFrame | None:
        """The live sessions that got something new."""
        live = self.numbered()[: self.live_count]
        grown = live.filter(pl.Series(self.touched[live[NUMBER].to_numpy()]))
        return grown if len(grown) else None


def join_live(
    store: SessionStore, parts: Sequence[pl.DataFrame], horizon: int, max_length: int | None
) -> Joined | None:
    """Join what came, each from `START` to `END`, with the live sessions that it touches."""
    if not any(map(len, parts)):
        return None
    came = pl.concat(parts)
    live = store.of_keys(came[KEY].to_numpy(), after=horizon)
    together = came if live is None else pl.concat([live, came], how="diagonal")
    key, start, end = (together[name].to_numpy() for name in (KEY, START, END))
    return Joined(together, 0 if live is None else len(live), sweep(key, start, end, max_length))


def ends_of_parts(parts: Sequence[pl.DataFrame]) -> np.ndarray:
    """Where one part ends and the next begins, once they lie behind each other."""
    return np.cumsum([len(part) for part in parts])[:-1]


def ends_of(time: np.ndarray, gap: int | np.ndarray, longest: int | None) -> np.ndarray:
    """How far each row reaches."""
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
