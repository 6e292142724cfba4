"""WindowEmit: which windows a batch emits, and in which form. One class per kind of strategy.

Each is called twice a batch: to `close` windows that nothing can change any more, before the batch's
rows are looked at, and to `ingest` those rows and emit what they change. Window numbers stand for time:
`closed` is the last window nothing can change, `ended` the last one whose end has passed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidegate.kernels.changelog import latest, net_change
from tidegate.kernels.contract import EmitRows
from tidegate.kernels.late import ANY_TIME, NEVER, AllowedLatenessTracker
from tidegate.kernels.windows.slices import SLICE, WINDOW, SliceStore, Slicing
from tidegate.plan.policies import Emission, OnWatermark, Retracting
from tidegate.state.pages import KEY

#: The table of rows as they were last emitted, when, and whether the window has changed since.
_EMITTED, _AT, _PENDING = "emitted", "__tidegate_at", "__tidegate_pending"
_IDENTITY = [KEY, WINDOW]


@dataclass(frozen=True)
class Progress:
    """Where event time stands for a bucket, in window numbers: now, and at its previous step."""

    closed: int
    ended: int
    previously_closed: int
    previously_ended: int
    now: int


@dataclass(frozen=True)
class EmitOnClose:
    """One row per window, when it closes."""

    def close(self, store: SliceStore, progress: Progress, emit: EmitRows) -> None:
        _emit_between(store, progress.previously_closed + 1, progress.closed, emit)

    def ingest(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, emit: EmitRows
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

    def close(self, store: SliceStore, progress: Progress, emit: EmitRows) -> None:
        _emit_between(store, progress.previously_ended + 1, progress.closed, emit)

    def ingest(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, emit: EmitRows
    ) -> None:
        due_from = max(progress.previously_ended, progress.closed) + 1
        key, number = windows_of(fresh, store.slicing, progress.closed + 1, due_from - 1)
        last_emitted = _results(store, key, number)
        store.append(fresh)
        _emit_between(store, due_from, progress.ended, emit)
        now = _results(store, key, number)
        if now is not None:
            names = store.accumulators.names
            change = net_change(last_emitted, now, _IDENTITY, names, Retracting())
            emit(change.filter(pl.col("op") != Retracting().before).drop("op"))

    def next_due(
        self, store: SliceStore, progress: Progress, lateness: AllowedLatenessTracker
    ) -> int | None:
        window = store.next_window(progress.ended)
        return None if window is None else store.slicing.end(window)


@dataclass(frozen=True)
class EmitChanges:
    """The net change of each batch, with retractions; `policy.interval` throttles each window.

    Rows are kept as they were last emitted, so that a retraction equals the row it takes back to the
    bit, whatever the aggregates' arithmetic does.
    """

    policy: Retracting

    def close(self, store: SliceStore, progress: Progress, emit: EmitRows) -> None:
        # Closing only matters to windows with a change that is still pending.
        key, number = self._pending(store, progress.previously_closed + 1, progress.closed)
        self._emit_changes(store, key, number, progress.now, emit)

    def ingest(
        self, store: SliceStore, fresh: pl.DataFrame | None, progress: Progress, emit: EmitRows
    ) -> None:
        store.append(fresh)
        pending = self._pending(store, progress.closed + 1, -NEVER)
        changed = windows_of(fresh, store.slicing, progress.closed + 1, -NEVER)
        key, number = _distinct(*(np.concatenate(pair) for pair in zip(pending, changed, strict=True)))
        key, number = self._unthrottled(store, key, number, progress.now)
        self._emit_changes(store, key, number, progress.now, emit)
        store.state.drop_below(_EMITTED, progress.closed + 1)
        store.state.compact(_EMITTED, _latest, WINDOW, _page_width(store.slicing))

    def next_due(
        self, store: SliceStore, progress: Progress, lateness: AllowedLatenessTracker
    ) -> int | None:
        key, _ = self._pending(store, progress.closed + 1, -NEVER)
        return ANY_TIME if len(key) else None

    def _emit_changes(
        self, store: SliceStore, key: np.ndarray, number: np.ndarray, now: int, emit: EmitRows
    ) -> None:
        results = _results(store, key, number)
        if results is None:
            return
        last_emitted = self._last_emitted(store, key, number)
        emit(net_change(last_emitted, results, _IDENTITY, store.accumulators.names, self.policy))
        self._keep(store, results, now, pending=False)

    def _unthrottled(
        self, store: SliceStore, key: np.ndarray, number: np.ndarray, now: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The windows that may emit now; those that did within the interval become pending."""
        throttles = self.policy.interval and len(key)
        last_emitted = self._last_emitted(store, key, number) if throttles else None
        if last_emitted is None:
            return key, number
        asked = pl.DataFrame({KEY: key, WINDOW: number})
        early = asked.join(last_emitted.filter(pl.col(_AT) + self.policy.interval > now), on=_IDENTITY)
        for (at,), entries in early.partition_by(_AT, as_dict=True).items():
            self._keep(store, entries, at, pending=True)
        rest = asked.join(early, on=_IDENTITY, how="anti")
        return rest[KEY].to_numpy(), rest[WINDOW].to_numpy()

    def _pending(self, store: SliceStore, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Windows that have changed since their row was last emitted."""
        if not self.policy.interval:
            return _NONE
        last_emitted = latest(store.state.load(_EMITTED, first, last), _IDENTITY)
        if last_emitted is None:
            return _NONE
        chosen = last_emitted.filter(pl.col(_PENDING) & pl.col(WINDOW).is_between(first, last))
        return chosen[KEY].to_numpy(), chosen[WINDOW].to_numpy()

    def _last_emitted(
        self, store: SliceStore, key: np.ndarray, number: np.ndarray
    ) -> pl.DataFrame | None:
        pages = store.state.load(_EMITTED, int(number.min()), int(number.max()))
        return latest(store.state.of_keys(pages, key), _IDENTITY)

    def _keep(self, store: SliceStore, entries: pl.DataFrame, at: int, *, pending: bool) -> None:
        columns = [*_IDENTITY, *store.accumulators.names]
        marks = {_AT: pl.lit(at, dtype=pl.Int64), _PENDING: pl.lit(pending)}
        entries = entries.select(columns).with_columns(**marks)
        store.state.append(_EMITTED, entries, WINDOW, _page_width(store.slicing))


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


def _emit_between(store: SliceStore, first: int, last: int, emit: EmitRows) -> None:
    slices = store.between(first, last) if first <= last else None
    if slices is not None:
        for windows in slices.windows_between(first, last):
            emit(slices.results(windows))


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
