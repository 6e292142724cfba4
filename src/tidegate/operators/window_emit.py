"""WindowEmit: which windows a batch puts out, and in which form. One class per kind of strategy.

Each is asked twice a batch: to `close` windows nothing can change any more, before the batch's rows
are looked at, and to `take_in` those rows and say what they change. Window numbers stand for time:
`closed` is the last window nothing can change, `ended` the last one whose end has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidegate.operators.changelog import latest, net_change
from tidegate.operators.keyed import Put
from tidegate.operators.late import NEVER, AllowedLatenessTracker
from tidegate.operators.slice_store import SLICE, WINDOW, SliceStore
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY
from tidegate.operators.windowed import ANY_TIME
from tidegate.plan.policies import Emission, OnWatermark, Retracting

_OUT, _AT, _WAITING = "out", "__tidegate_at", "__tidegate_waiting"
_IDENTITY = [KEY, WINDOW]


@dataclass(frozen=True)
class Progress:
    """Where event time stands for a bucket, in window numbers: now, and at its last step."""

    closed: int
    ended: int
    was_closed: int
    was_ended: int
    now: int


@dataclass(frozen=True)
class EmitOnClose:
    """One row per window, when it closes."""

    def close(self, store: SliceStore, progress: Progress, put: Put) -> None:
        _put_between(store, progress.was_closed + 1, progress.closed, put)

    def take_in(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, put: Put
    ) -> None:
        store.append(fresh)

    def next_due(
        self, store: SliceStore, progress: Progress, lateness: AllowedLatenessTracker
    ) -> int | None:
        window = store.next_window(progress.closed)
        return None if window is None else lateness.closes_at(store.slicing.end(window))


@dataclass(frozen=True)
class EmitOnWatermark:
    """One row per window when its end has passed, and another whenever late rows change it."""

    def close(self, store: SliceStore, progress: Progress, put: Put) -> None:
        _put_between(store, progress.was_ended + 1, progress.closed, put)

    def take_in(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, put: Put
    ) -> None:
        due_from = max(progress.was_ended, progress.closed) + 1
        key, number = windows_of(fresh, store.slicing, progress.closed + 1, due_from - 1)
        out = _results(store, key, number)
        store.append(fresh)
        _put_between(store, due_from, progress.ended, put)
        now = _results(store, key, number)
        if now is not None:
            change = net_change(out, now, _IDENTITY, store.accumulators.names, Retracting())
            put(change.filter(pl.col("op") != Retracting().before).drop("op"))

    def next_due(
        self, store: SliceStore, progress: Progress, lateness: AllowedLatenessTracker
    ) -> int | None:
        window = store.next_window(progress.ended)
        return None if window is None else store.slicing.end(window)


@dataclass(frozen=True)
class EmitChanges:
    """The net change of each batch, with retractions; `policy.interval` makes windows take turns.

    What is out is kept as it went out, so that a retraction equals the row it takes back to the
    bit, whatever the aggregates' arithmetic does.
    """

    policy: Retracting

    def close(self, store: SliceStore, progress: Progress, put: Put) -> None:
        # Closing only matters to windows whose last value still waits for its turn.
        key, number = self._waiting(store, progress.was_closed + 1, progress.closed)
        self._put_changes(store, key, number, progress.now, put)

    def take_in(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, put: Put
    ) -> None:
        store.append(fresh)
        waiting = self._waiting(store, progress.closed + 1, -NEVER)
        changed = windows_of(fresh, store.slicing, progress.closed + 1, -NEVER)
        key, number = _distinct(*(np.concatenate(pair) for pair in zip(waiting, changed, strict=True)))
        key, number = self._whose_turn_it_is(store, key, number, progress.now)
        self._put_changes(store, key, number, progress.now, put)
        store.state.drop_below(_OUT, progress.closed + 1)
        store.state.compact(_OUT, _latest, WINDOW, _page_width(store.slicing))

    def next_due(
        self, store: SliceStore, progress: Progress, lateness: AllowedLatenessTracker
    ) -> int | None:
        key, _ = self._waiting(store, progress.closed + 1, -NEVER)
        return ANY_TIME if len(key) else None

    def _put_changes(
        self, store: SliceStore, key: np.ndarray, number: np.ndarray, now: int, put: Put
    ) -> None:
        results = _results(store, key, number)
        if results is None:
            return
        out = self._out(store, key, number)
        names = store.accumulators.names
        put(net_change(out, results, _IDENTITY, names, self.policy))
        self._keep(store, results, now, waiting=False)

    def _whose_turn_it_is(
        self, store: SliceStore, key: np.ndarray, number: np.ndarray, now: int
    ) -> tuple[np.ndarray, np.ndarray]:
        out = self._out(store, key, number) if self.policy.interval and len(key) else None
        if out is None:
            return key, number
        asked = pl.DataFrame({KEY: key, WINDOW: number})
        early = asked.join(out.filter(pl.col(_AT) + self.policy.interval > now), on=_IDENTITY)
        for (at,), entries in early.partition_by(_AT, as_dict=True).items():
            self._keep(store, entries, at, waiting=True)
        rest = asked.join(early, on=_IDENTITY, how="anti")
        return rest[KEY].to_numpy(), rest[WINDOW].to_numpy()

    def _waiting(self, store: SliceStore, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows that changed after their last row went out."""
        out = latest(store.state.load(_OUT, first, last), _IDENTITY) if self.policy.interval else None
        if out is None:
            return _NONE
        chosen = out.filter(pl.col(_WAITING) & pl.col(WINDOW).is_between(first, last))
        return chosen[KEY].to_numpy(), chosen[WINDOW].to_numpy()

    def _out(self, store: SliceStore, key: np.ndarray, number: np.ndarray) -> pl.DataFrame | None:
        pages = store.state.load(_OUT, int(number.min()), int(number.max()))
        return latest(store.state.of_keys(pages, key), _IDENTITY)

    def _keep(self, store: SliceStore, entries: pl.DataFrame, at: int, *, waiting: bool) -> None:
        columns = [*_IDENTITY, *store.accumulators.names]
        marks = {_AT: pl.lit(at, dtype=pl.Int64), _WAITING: pl.lit(waiting)}
        entries = entries.select(columns).with_columns(**marks)
        store.state.append(_OUT, entries, WINDOW, _page_width(store.slicing))


WindowEmit = EmitOnClose | EmitOnWatermark | EmitChanges


def window_emit(emission: Emission) -> WindowEmit:
    """The strategy as something that runs."""
    if isinstance(emission, Retracting):
        return EmitChanges(emission)
    return EmitOnWatermark() if isinstance(emission, OnWatermark) else EmitOnClose()


def windows_of(
    slices: pl.DataFrame | None, slicing: Slicing, first: int, last: int
) -> tuple[np.ndarray, np.ndarray]:
    """The windows between `first` and `last` that hold any of these slices, once each."""
    if slices is None or first > last:
        return _NONE
    key, number = slices[KEY].to_numpy(), slices[SLICE].to_numpy()
    begins = np.maximum(slicing.first_window(number), first)
    count = np.maximum(np.minimum(slicing.last_window(number), last) - begins + 1, 0)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return _distinct(np.repeat(key, count), np.repeat(begins, count) + within)


_NONE = (np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64))


def _distinct(key: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = pl.DataFrame({KEY: key, WINDOW: number}).unique()
    return pairs[KEY].to_numpy(), pairs[WINDOW].to_numpy()


def _put_between(store: SliceStore, first: int, last: int, put: Put) -> None:
    slices = store.between(first, last) if first <= last else None
    if slices is not None:
        put(slices.results(slices.windows_between(first, last)))


def _results(store: SliceStore, key: np.ndarray, number: np.ndarray) -> pl.DataFrame | None:
    """The results of those windows that have data."""
    slices = store.between(int(number.min()), int(number.max()), key) if len(key) else None
    windows = None if slices is None else slices.locate(key, number)
    return slices.results(windows) if slices is not None and windows else None


def _page_width(slicing: Slicing) -> int:
    return max(1, slicing.per_window // slicing.per_slide // 4)


def _latest(pages: list[pl.DataFrame]) -> pl.DataFrame:
    entries = latest(pages, _IDENTITY)
    assert entries is not None
    return entries
