"""Tumbling and hopping windows: SlicePreAggregate → SliceMerge → SliceStore → WindowEmit.

State is slices, not windows: each row is merged into one slice, and a window is put together from
its slices when it is emitted. A tumbling window is one slice.
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
from tidegate.kernels.late import NEVER, AllowedLatenessTracker, Bounds, window_times
from tidegate.kernels.windows.emit import Progress, window_emit
from tidegate.kernels.windows.slices import SLICE, WINDOW, SliceStore, Slicing
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import Hopping
from tidegate.state.pages import KEY

_POSITION = "__tidegate_position"

#: Windows end when the watermark reaches their end, whoever waits for late rows.
_PROMPT = AllowedLatenessTracker()


@dataclass(frozen=True)
class SlicePreAggregate:
    """A partial state for each key and slice."""

    columns: KeyColumns
    slicing: Slicing
    accumulators: Accumulators

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """The states of rows; those in no window are counted and left out."""
        time = self.columns.times(rows)
        number, inside = self.slicing.slice_of(time)
        distinct, codes = self.columns.encode(rows)
        coded = ipc.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(KEY, codes), pl.Series(SLICE, number), pl.Series(TIME, time)
        )
        assigned = coded
        if not inside.all():
            counts["unassigned"] += int(len(inside) - inside.sum())
            assigned = coded.filter(pl.Series(inside))
        states = self.accumulators.partial(assigned, [KEY, SLICE], pl.len().alias(ROWS))
        owner = np.where(inside, _owners(coded, states), -1) if owners else None
        return Partials(distinct, states, owner)


class SliceKernel(KeyedKernel):
    """Windows over slices."""

    def __init__(self, plan: WindowedAggregate) -> None:
        [input] = plan.inputs
        self.columns = KeyColumns.of(input)
        window = plan.windowed.window
        assert isinstance(window, Hopping)
        self.emission = plan.emission
        self.slicing = Slicing(window)
        self.accumulators = Accumulators(plan.input.computed)
        self.lateness = AllowedLatenessTracker(input.lateness)
        self.emitter = window_emit(plan.emission)
        preaggregate = SlicePreAggregate(self.columns, self.slicing, self.accumulators)
        super().__init__(plan, KeyedInput(input, preaggregate))

    def physical_operators(self) -> list[str]:
        slices = self.slicing.per_window
        store = [f"SliceStore[{slices} slices a window]", "SliceMerge[by window]"]
        return [
            f"SlicePreAggregate[{self.columns}]",
            f"SliceMerge[by slice, late={self.input.router.policy}]",
            *(store if slices > 1 else []),
            f"WindowEmit[{self.emission}]",
        ]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        store = SliceStore(context.state, self.slicing, self.accumulators)
        progress = self._progress(context)
        self.emitter.close(store, progress, context.emit)
        fresh = self._ingest(context, arrivals, progress.closed)
        self.emitter.ingest(store, fresh, progress, context.emit)
        store.expire(progress.closed)
        return self._due(store, progress)

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        number = results.column(WINDOW).to_numpy()
        return window_times(self.slicing.start(number), self.slicing.end(number))

    def _progress(self, context: StepContext) -> Progress:
        def last(watermark: int | None, lateness: AllowedLatenessTracker) -> int:
            return NEVER if watermark is None else self.slicing.last_ended(lateness.horizon(watermark))

        return Progress(
            closed=last(context.watermark, self.lateness),
            ended=last(context.watermark, _PROMPT),
            previously_closed=last(context.previous_watermark, self.lateness),
            previously_ended=last(context.previous_watermark, _PROMPT),
            now=context.now,
        )

    def _ingest(
        self, context: StepContext, arrivals: Sequence[Arrival], closed: int
    ) -> pl.DataFrame | None:
        """The batch's states, merged, without those that came too late."""
        parts = [arrival.states for arrival in arrivals]
        if closed > NEVER:
            last_late = self.slicing.first_slice(closed + 1) - 1
            too_late = [part[SLICE].to_numpy() <= last_late for part in parts]
            parts = self.input.route_late(
                context, arrivals, too_late, lambda n, late: self._last_windows(parts[n][late])
            )
        return self._merge_arrivals(parts)

    def _last_windows(self, states: pl.DataFrame) -> Bounds:
        """The window of each state that closes last."""
        window = self.slicing.last_window(states[SLICE].to_numpy())
        return self.slicing.start(window), self.slicing.end(window)

    def _merge_arrivals(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        filled = [part for part in parts if len(part)]
        if len(filled) > 1:
            return self.accumulators.merge(pl.concat(filled), [KEY, SLICE])
        return filled[0].drop(ROWS) if filled else None

    def _due(self, store: SliceStore, progress: Progress) -> int | None:
        """When the next window falls due, or the first page can be dropped."""
        last = store.last_window_of_a_page()
        if last is None:
            return None
        over = self.lateness.closes_at(self.slicing.end(last))
        due = self.emitter.next_due(store, progress, self.lateness)
        return over if due is None else min(due, over)


def _owners(rows: pl.DataFrame, states: pl.DataFrame) -> np.ndarray:
    """The position of each row's state; -1 where there is none."""
    positions = states.select(KEY, SLICE).with_row_index(_POSITION)
    owned = rows.select(KEY, SLICE).join(positions, on=[KEY, SLICE], how="left", maintain_order="left")
    return owned[_POSITION].cast(pl.Int64).fill_null(-1).to_numpy()
