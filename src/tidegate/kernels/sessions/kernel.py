"""Sessions: SessionPreAggregate → SessionMerge → SessionEmit.

Pack merges the rows of a chunk into small sessions; the step merges those with the live sessions of
their keys by the same sweep. Only after that is it known whether rows are late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.kernels.accumulators import TIME, Accumulators
from tidegate.kernels.contract import KeyedKernel, StepContext
from tidegate.kernels.inputs import ROWS, Arrival, KeyColumns, KeyedInput, Partials
from tidegate.kernels.invalid_rows import needs_gap
from tidegate.kernels.late import AllowedLatenessTracker, window_times
from tidegate.kernels.sessions.emit import Changed, carried, session_emit
from tidegate.kernels.sessions.merge import (
    NUMBER,
    Merged,
    bounded,
    ends_of,
    ends_of_parts,
    merge_live,
    sweep,
)
from tidegate.kernels.sessions.store import END, START, SessionStore
from tidegate.plan.time import LONGEST
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import Session


@dataclass(frozen=True)
class SessionPreAggregate:
    """A partial state for each key and run of rows that belong together."""

    columns: KeyColumns
    window: Session
    accumulators: Accumulators

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        distinct, codes = self.columns.encode(rows)
        time = self.columns.times(rows)
        gap, longest = self.window.gap, self.window.max_length
        # A row's own gap has no bound, and what lies past the end of time is lost.
        own = np.minimum(np.asarray(_gaps(rows, gap)), LONGEST) if isinstance(gap, str) else gap
        swept = sweep(codes, time, ends_of(time, own, longest), longest)
        coded = ipc.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(NUMBER, swept.number), pl.Series(TIME, time)
        )
        states = self.accumulators.partial(coded, [NUMBER], pl.len().alias(ROWS))
        states = states.sort(NUMBER) if owners else states
        states = bounded(states, swept).drop(NUMBER)
        return Partials(distinct, states, swept.number if owners else None)


def _gaps(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """Each row's own gap, in microseconds."""
    return rows.column(column).cast(pa.duration("us")).cast(pa.int64())


class SessionKernel(KeyedKernel):
    """Sessions that grow and merge across micro-batches."""

    def __init__(self, plan: WindowedAggregate) -> None:
        [input] = plan.inputs
        self.columns = KeyColumns.of(input)
        window = plan.windowed.window
        assert isinstance(window, Session)
        self.emission = plan.emission
        self.window = window
        self.accumulators = Accumulators(plan.input.computed)
        self.lateness = AllowedLatenessTracker(input.lateness)
        self.emitter = session_emit(plan.emission, self.accumulators)
        preaggregate = SessionPreAggregate(self.columns, window, self.accumulators)
        super().__init__(plan, KeyedInput(input, preaggregate, invalid=needs_gap(window.gap)))

    def physical_operators(self) -> list[str]:
        return [
            f"SessionPreAggregate[{self.columns}]",
            f"SessionMerge[late={self.input.router.policy}]",
            f"SessionEmit[{self.emission}]",
        ]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        previous = self.lateness.horizon(context.previous_watermark)
        horizon = self.lateness.horizon(context.watermark)
        store = SessionStore(context.state)
        self.emitter.close(store, previous, horizon, context.now, context.emit)
        changed = self._ingest(store, context, arrivals, horizon)
        self.emitter.ingest(store, changed, horizon, context.now, context.emit)
        store.expire(horizon)
        due = self.emitter.next_due(store, horizon)
        return None if due is None else self.lateness.closes_at(due)

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return window_times(results.column(START).to_numpy(), results.column(END).to_numpy())

    def _ingest(
        self, store: SessionStore, context: StepContext, arrivals: Sequence[Arrival], horizon: int
    ) -> Changed | None:
        """Merge what arrived with the live sessions it touches. If the result is closed, it is late."""
        parts, longest = [arrival.states for arrival in arrivals], self.window.max_length
        merged = merge_live(store, parts, horizon, longest)
        if merged is None or context.watermark is None:
            return self._changed(merged)
        too_late = merged.too_late(horizon)
        if too_late.any():
            too_late, closed = too_late[merged.live_count :], merged.bounds_of(parts)
            split = np.split(too_late, ends_of_parts(parts))
            parts = self.input.route_late(context, arrivals, split, closed)
            merged = merge_live(store, parts, horizon, longest)
        return self._changed(merged)

    def _changed(self, merged: Merged | None) -> Changed | None:
        """The sessions that got something new, and the live ones that went into them."""
        if merged is None:
            return None
        pieces = merged.numbered().filter(pl.Series(merged.touched[merged.swept.number]))
        states = self.accumulators.merge(pieces, [NUMBER], *carried(pieces))
        return Changed(bounded(states, merged.swept), merged.replaced())
