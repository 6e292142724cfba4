"""Sessions: SessionPreAggregate → SessionMerge → SessionEmit.

Pack joins the rows of a chunk into small sessions; the step joins those with the live sessions of
their keys by the same sweep. Whether rows are late shows only after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import ROWS, Partials, Turn
from tidegate.operators.late import instants
from tidegate.operators.session_emit import NUMBER, Changed, carried, session_emit
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.state import KEY
from tidegate.operators.sweep import Sweep, sweep
from tidegate.operators.windowed import WindowKernel
from tidegate.plan.nodes import Emit
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
            self.faults += [
                (f"gap {window.gap!r} is null", lambda rows: rows.column(window.gap).is_null()),
                (f"gap {window.gap!r} is not positive", lambda rows: pc.less_equal(self._gap(rows), 0)),
            ]

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
        distinct, codes = keys.encode(keys.key_table(rows, self.keys))
        time = instants(rows, self.time)
        swept = sweep(codes, time, self._end(rows, time), self.window.max_length)
        coded = blobs.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(NUMBER, swept.number), pl.Series(TIME, time)
        )
        states = self.accumulators.partial(coded, [NUMBER], pl.len().alias(ROWS))
        states = states.sort(NUMBER) if owners else states
        states = _bounded(states, swept).drop(NUMBER)
        return Partials(distinct, states, swept.number if owners else None)

    def _end(self, rows: pa.Table, time: np.ndarray) -> np.ndarray:
        """How far each row reaches."""
        gap = self.window.gap
        end = time + (np.asarray(self._gap(rows)) if isinstance(gap, str) else gap)
        longest = self.window.max_length
        return end if longest is None else np.minimum(end, (time // longest + 1) * longest)

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
        parts = [arrival.states for arrival in turn.arrivals]
        joined = self._join(store, parts, horizon)
        if joined is None or turn.watermark is None:
            return self._merge(joined)
        too_late = ~joined.has_live & (joined.swept.end <= horizon)
        if too_late.any():
            places = np.cumsum([joined.live_count, *map(len, parts)])
            gone = np.split(too_late[joined.swept.number], places)[1:-1]
            parts = self.part_late(turn, gone)
            joined = self._join(store, parts, horizon)
        return self._merge(joined)

    def _join(self, store: SessionStore, parts: Sequence[pl.DataFrame], horizon: int) -> Joined | None:
        if not any(map(len, parts)):
            return None
        came = pl.concat(parts)
        live = store.of_keys(came[KEY].to_numpy(), after=horizon)
        together = came if live is None else pl.concat([live, came], how="diagonal")
        key, start, end = (together[name].to_numpy() for name in (KEY, START, END))
        swept = sweep(key, start, end, self.window.max_length)
        return Joined(together, 0 if live is None else len(live), swept)

    def _merge(self, joined: Joined | None) -> Changed | None:
        """The sessions that got something new, and the live ones that went into them."""
        if joined is None:
            return None
        touched = joined.touched[joined.swept.number]
        numbered = joined.states.with_columns(pl.Series(NUMBER, joined.swept.number))
        replaced = numbered[: joined.live_count].filter(pl.Series(touched[: joined.live_count]))
        pieces = numbered.filter(pl.Series(touched))
        merged = self.accumulators.merge(pieces, [NUMBER], *carried(pieces))
        return Changed(_bounded(merged, joined.swept), replaced if len(replaced) else None)


@dataclass(frozen=True)
class Joined:
    """Live sessions, and behind them what came, swept together."""

    states: pl.DataFrame
    live_count: int
    swept: Sweep

    @property
    def has_live(self) -> np.ndarray:
        return self.swept.holds(slice(None, self.live_count))

    @property
    def touched(self) -> np.ndarray:
        return self.swept.holds(slice(self.live_count, None))


def _bounded(states: pl.DataFrame, swept: Sweep) -> pl.DataFrame:
    """States of numbered sessions with their keys and bounds."""
    number = states[NUMBER].to_numpy()
    return states.with_columns(
        pl.Series(KEY, swept.key[number]),
        pl.Series(START, swept.start[number]),
        pl.Series(END, swept.end[number]),
    )
