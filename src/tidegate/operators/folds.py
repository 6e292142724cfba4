"""Running folds: FoldPreAggregate → FoldMerge → FoldEmit.

A fold is the one session of its key, which takes in every row and ends with time. So it is kept and
put out as sessions are: an entry for each key that a batch changed, of which the latest counts.
"""

from __future__ import annotations

from collections import Counter

import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import ROWS, Partials, Turn
from tidegate.operators.late import NEVER, instants
from tidegate.operators.session_emit import Changed, carried, session_emit
from tidegate.operators.session_merge import NUMBER
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.state import KEY
from tidegate.operators.windowed import AggregateKernel
from tidegate.plan.windowing import Emit

#: When folds end: only THE_END comes so late.
END_OF_TIME = 1 << 60


class FoldKernel(AggregateKernel):
    """One state for each key, for ever."""

    def __init__(self, plan: Emit) -> None:
        super().__init__(plan)
        self.emit = session_emit(plan.emission, self.accumulators)

    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""
        by = ", ".join(self.keys) or "global"
        return [f"FoldPreAggregate[{by}]", "FoldMerge[by key]", f"FoldEmit[{self.emission}]"]

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A partial state for each key."""
        distinct, codes = keys.encode(self.key_table(rows))
        coded = blobs.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(KEY, codes), pl.Series(TIME, instants(rows, self.time))
        )
        return Partials(distinct, self.accumulators.partial(coded, [KEY], pl.len().alias(ROWS)))

    def advance(self, turn: Turn) -> int | None:
        def put(rows: pl.DataFrame) -> None:
            turn.put(rows.drop(START, END))

        was, now = (NEVER if time is None else time for time in (turn.was, turn.watermark))
        store = SessionStore(turn.state)
        self.emit.close(store, was, now, turn.now, put)
        self.emit.take_in(store, self._take_in(store, turn), now, turn.now, put)
        store.forget(now)
        due = self.emit.next_due(store, now)
        return None if due == END_OF_TIME else due

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return {}

    def _take_in(self, store: SessionStore, turn: Turn) -> Changed | None:
        """The folds of the keys that came, as they are now and as they were."""
        parts = [arrival.states for arrival in turn.arrivals if len(arrival.states)]
        if not parts:
            return None
        came = pl.concat(parts).drop(ROWS)
        before = store.of_keys(came[KEY].to_numpy(), after=NEVER)
        together = came if before is None else pl.concat([before, came], how="diagonal")
        merged = self.accumulators.merge(together, [KEY], *carried(together))
        return Changed(_as_sessions(merged), None if before is None else _as_sessions(before))


def _as_sessions(folds: pl.DataFrame) -> pl.DataFrame:
    """Sessions over all time; there is one for each key, so its code is its number."""
    start, end = pl.lit(0, dtype=pl.Int64), pl.lit(END_OF_TIME, dtype=pl.Int64)
    return folds.with_columns(start.alias(START), end.alias(END), pl.col(KEY).alias(NUMBER))
