"""Sessions: SessionPreAggregate → SessionMerge → SessionEmit.

Pack joins the rows of a chunk into small sessions; the step joins those with the live sessions of
their keys by the same sweep. Whether rows are late shows only after that.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.invalid_rows import needs_gap
from tidegate.operators.keyed import ROWS, Partials, Turn
from tidegate.operators.late import instants
from tidegate.operators.session_emit import Changed, carried, session_emit
from tidegate.operators.session_merge import (
    NUMBER,
    Joined,
    bounded,
    ends_of,
    ends_of_parts,
    join_live,
)
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.sweep import sweep
from tidegate.operators.windowed import WindowKernel
from tidegate.plan.time import LONGEST
from tidegate.plan.windowing import Emit
from tidegate.plan.windows import Session


class SessionKernel(WindowKernel):
    """Sessions that grow and merge across micro-batches."""

    def __init__(self, plan: Emit) -> None:
        super().__init__(plan)
        window = plan.windowed.window
        assert isinstance(window, Session)
        self.window = window
        self.emit = session_emit(plan.emission, self.accumulators)
        if isinstance(window.gap, str):
            self.invalid += needs_gap(window.gap)

    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""
        return [
            f"SessionPreAggregate[{', '.join(self.keys) or 'global'}]",
            f"SessionMerge[late={self.router.policy}]",
            f"SessionEmit[{self.emission}]",
        ]

    # -- pack ---------------------------------------------------------------------------------

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A partial state for each key and run of rows that belong together."""
        distinct, codes = keys.encode(self.key_table(rows))
        time = instants(rows, self.time)
        gap, longest = self.window.gap, self.window.max_length
        # A row's own gap has no bound, and what lies past the end of time is lost.
        reach = np.minimum(np.asarray(self._gap(rows)), LONGEST) if isinstance(gap, str) else gap
        swept = sweep(codes, time, ends_of(time, reach, longest), longest)
        coded = blobs.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(NUMBER, swept.number), pl.Series(TIME, time)
        )
        states = self.accumulators.partial(coded, [NUMBER], pl.len().alias(ROWS))
        states = states.sort(NUMBER) if owners else states
        states = bounded(states, swept).drop(NUMBER)
        return Partials(distinct, states, swept.number if owners else None)

    def _gap(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows.column(self.window.gap).cast(pa.duration("us")).cast(pa.int64())

    # -- step ---------------------------------------------------------------------------------

    def advance(self, turn: Turn) -> int | None:
        was, horizon = (self.lateness.horizon(time) for time in (turn.was, turn.watermark))
        store = SessionStore(turn.state)
        self.emit.close(store, was, horizon, turn.now, turn.put)
        changed = self._take_in(store, turn, horizon)
        self.emit.take_in(store, changed, horizon, turn.now, turn.put)
        store.forget(horizon)
        due = self.emit.next_due(store, horizon)
        return None if due is None else self.lateness.closes_at(due)

    def bounds(self, results: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        return results.column(START).to_numpy(), results.column(END).to_numpy()

    def _take_in(self, store: SessionStore, turn: Turn, horizon: int) -> Changed | None:
        """Join what came with the live sessions it touches; what would be closed then is late."""
        parts, longest = [arrival.states for arrival in turn.arrivals], self.window.max_length
        joined = join_live(store, parts, horizon, longest)
        if joined is None or turn.watermark is None:
            return self._merge(joined)
        too_late = joined.too_late(horizon)
        if too_late.any():
            too_late, closed = too_late[joined.live_count :], joined.bounds_of(parts)
            parts = self.part_late(turn, np.split(too_late, ends_of_parts(parts)), closed)
            joined = join_live(store, parts, horizon, longest)
        return self._merge(joined)

    def _merge(self, joined: Joined | None) -> Changed | None:
        """The sessions that got something new, and the live ones that went into them."""
        if joined is None:
            return None
        pieces = joined.numbered().filter(pl.Series(joined.touched[joined.swept.number]))
        merged = self.accumulators.merge(pieces, [NUMBER], *carried(pieces))
        return Changed(bounded(merged, joined.swept), joined.replaced())
