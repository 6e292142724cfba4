"""Running folds: FoldPreAggregate → FoldMerge → FoldEmit.

A fold is the one session of its key, which ingests every row and ends with time. So it is kept and
emitted as sessions are: an entry for each key that a batch changed, of which the latest counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.kernels.accumulators import TIME, Accumulators
from tidegate.kernels.contract import KeyedKernel, StepContext
from tidegate.kernels.inputs import ROWS, Arrival, KeyColumns, KeyedInput, Partials
from tidegate.kernels.late import NEVER
from tidegate.kernels.sessions.emit import Changed, carried, session_emit
from tidegate.kernels.sessions.merge import NUMBER
from tidegate.kernels.sessions.store import END, START, SessionStore
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.state.pages import KEY

#: When folds end: only THE_END comes so late.
END_OF_TIME = 1 << 60


@dataclass(frozen=True)
class FoldPreAggregate:
    """A partial state for each key."""

    columns: KeyColumns
    accumulators: Accumulators

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        distinct, codes = self.columns.encode(rows)
        coded = ipc.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(KEY, codes), pl.Series(TIME, self.columns.times(rows))
        )
        return Partials(distinct, self.accumulators.partial(coded, [KEY], pl.len().alias(ROWS)))


class FoldKernel(KeyedKernel):
    """One state for each key, for ever."""

    def __init__(self, plan: WindowedAggregate) -> None:
        [input] = plan.inputs
        self.columns = KeyColumns.of(input)
        self.emission = plan.emission
        self.accumulators = Accumulators(plan.input.computed)
        self.emitter = session_emit(plan.emission, self.accumulators)
        super().__init__(plan, KeyedInput(input, FoldPreAggregate(self.columns, self.accumulators)))

    def physical_operators(self) -> list[str]:
        first, last = f"FoldPreAggregate[{self.columns}]", f"FoldEmit[{self.emission}]"
        return [first, "FoldMerge[by key]", last]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        def emit(rows: pl.DataFrame) -> None:
            context.emit(rows.drop(START, END))

        previous, now = context.watermarks
        store = SessionStore(context.state)
        self.emitter.close(store, previous, now, context.now, emit)
        self.emitter.ingest(store, self._ingest(store, arrivals), now, context.now, emit)
        store.expire(now)
        due = self.emitter.next_due(store, now)
        return None if due == END_OF_TIME else due

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return {}

    def _ingest(self, store: SessionStore, arrivals: Sequence[Arrival]) -> Changed | None:
        """The folds of the keys that arrived, as they are now and as they were."""
        parts = [arrival.states for arrival in arrivals if len(arrival.states)]
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
