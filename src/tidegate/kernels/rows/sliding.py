"""Windows around rows: SlidingWindow, aggregation included.

A row's window is a range of its key's rows in the order of time. With a lookahead all rows of the
range count, so it is one range, asked for when the watermark has passed it. Without, only those
count that arrived before the row itself: see `arrived`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.columnar.timeline import Timeline
from tidegate.kernels.accumulators import TIME, Accumulators
from tidegate.kernels.contract import KeyedKernel, StepContext
from tidegate.kernels.inputs import Arrival, Partials
from tidegate.kernels.rows.arrival_order import arrived_before
from tidegate.kernels.rows.row_table import RowLayout, RowTable, in_time, row_input
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import Sliding
from tidegate.state.pages import KEY, BucketState

_TRIGGER = "__tidegate_trigger"


@dataclass(frozen=True)
class SlidingPreAggregate:
    """Rows as they are, each with the partial state of itself, and whether it meets the condition."""

    layout: RowLayout
    window: Sliding
    accumulators: Accumulators

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        time = self.layout.columns.times(rows)
        own = ipc.to_polars(rows.select(self.accumulators.columns))
        states = self.accumulators.of_rows(own.with_columns(pl.Series(TIME, time)))
        if self.window.when is not None:
            states = states.with_columns(self._triggers(rows))
        return self.layout.states(rows, self.layout.key_table(rows), states)

    def _triggers(self, rows: pa.Table) -> pl.Series:
        assert self.window.when is not None
        meets = pl.sql_expr(self.window.when).fill_null(False).alias(_TRIGGER)
        columns = rows.select(self.layout.schema.names)
        return ipc.to_polars(columns).with_columns(meets)[_TRIGGER]


class SlidingKernel(KeyedKernel):
    """One result for each row that meets the condition, over the rows around it."""

    def __init__(self, plan: WindowedAggregate) -> None:
        [input] = plan.inputs
        window = plan.windowed.window
        assert isinstance(window, Sliding)
        self.window = window
        self.layout = RowLayout.of(input)
        self.accumulators = Accumulators(plan.input.computed)
        self.table = RowTable("rows", TIME, max(1, window.lookback + window.reach))
        preaggregate = SlidingPreAggregate(self.layout, window, self.accumulators)
        super().__init__(plan, row_input(input, self.layout, preaggregate))

    def physical_operators(self) -> list[str]:
        return [
            f"SlidingWindow[{self.layout.columns}, {self.window}, "
            f"late={self.input.router.policy}, fused with the aggregates]"
        ]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        previous, now = context.watermarks
        state, ahead = context.state, self.window.reach
        # A row that the late policy moves to the watermark looks back from there.
        oldest = now - ahead - self.window.lookback
        if self.window.lookahead is not None:
            due = self.table.between(state, previous - ahead + 1, now - ahead)
            context.emit(self._complete(state, due))
        fresh = in_time(self.input, context, arrivals)
        if fresh is not None and self.window.lookahead is None:
            context.emit(self._arrived(state, fresh))
            self.table.keep(state, fresh.select(self._content(fresh)), oldest)
        elif fresh is not None:
            self.table.keep(state, fresh, oldest)
            # What the late policy moved to the watermark may be due at once.
            context.emit(self._complete(state, fresh.filter(pl.col(TIME) <= now - ahead)))
        self.table.expire(context, oldest)
        return self._due(state, now)

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return self.layout.times(results)

    def _due(self, state: BucketState, now: int) -> int | None:
        """When the next result is complete, or the first page can be dropped."""
        last = self.table.last_of_a_page(state)
        if last is None:
            return None
        over = last + self.window.reach + self.window.lookback + 1
        if self.window.lookahead is None:
            return over
        pending = self.table.next_after(state, now - self.window.reach)
        return over if pending is None else min(over, pending + self.window.reach)

    # -- results ------------------------------------------------------------------------------

    def _complete(self, state: BucketState, rows: pl.DataFrame | None) -> pl.DataFrame:
        """The results of rows whose ranges are complete, in the order of time."""
        triggers = None if rows is None else self.layout.restored(self._triggers(rows))
        if triggers is None or not len(triggers):
            return pl.DataFrame()
        triggers = triggers[_order_of_time(triggers)]
        # In the order of the timeline neighbours ask for neighbours, which is far faster.
        asking = Timeline(triggers[KEY].to_numpy(), triggers[TIME].to_numpy())
        key, time = asking.key[asking.order], asking.time[asking.order]
        low, high = time - self.window.lookback, time + self.window.reach
        content = pl.concat(self._around(state, key, int(low.min()), int(high.max())))
        timeline = Timeline(content[KEY].to_numpy(), content[TIME].to_numpy())
        states = self.accumulators.in_order(content, timeline.order)
        merged = states.ranges(timeline.first_from(key, low), timeline.last_until(key, high))
        return self._results(triggers, merged[asking.position])

    def _arrived(self, state: BucketState, fresh: pl.DataFrame) -> pl.DataFrame:
        """The results of rows over what has arrived up to each of them."""
        key, time = fresh[KEY].to_numpy(), fresh[TIME].to_numpy()
        low = int(time.min()) - self.window.lookback
        before = self._around(state, key, low, int(time.max()))
        content = pl.concat([*before, fresh.select(self._content(fresh))])
        known = len(content) - len(fresh)
        asks = np.arange(len(content)) >= known
        if self.window.when is not None:
            asks[known:] = fresh[_TRIGGER].to_numpy()
        if not asks.any():
            return pl.DataFrame()
        timeline = Timeline(content[KEY].to_numpy(), content[TIME].to_numpy())
        rows = timeline.order[asks[timeline.order]]
        pieces = arrived_before(timeline, known, rows, self.window.lookback)
        own = timeline.position[rows]
        merged = self.accumulators.in_order(content, timeline.order).pieces(own, pieces)
        as_they_came = np.empty(len(fresh), dtype=np.int64)
        as_they_came[rows - known] = np.arange(len(rows))
        triggers = self.layout.restored(self._triggers(fresh))
        return self._results(triggers, merged[as_they_came[asks[known:]]])

    def _around(self, state: BucketState, key: np.ndarray, low: int, high: int) -> list[pl.DataFrame]:
        """What is held of these keys between these times, and perhaps a little more."""
        pages = [page.select(self._content(page)) for page in self.table.pages(state, low, high)]
        return state.of_keys(pages, key)

    def _content(self, rows: pl.DataFrame) -> list[str]:
        """The columns that other rows' windows need."""
        return [KEY, TIME, *(name for name in rows.columns if name in self.accumulators.state_columns)]

    def _triggers(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows if self.window.when is None else rows.filter(pl.col(_TRIGGER))

    def _results(self, triggers: pl.DataFrame, merged: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([triggers, self.accumulators.finish(merged)], how="horizontal")


def _order_of_time(rows: pl.DataFrame) -> np.ndarray:
    return Timeline(np.zeros(len(rows), dtype=np.int64), rows[TIME].to_numpy()).order
