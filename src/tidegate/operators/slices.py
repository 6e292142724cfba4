"""Tumbling and hopping windows: SlicePreAggregate → SliceMerge → SliceStore → WindowEmit.

State is slices, not windows: each row is merged into one slice, and a window is put together from
its slices when it is emitted. A tumbling window is one slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import ROWS, Partials, Turn
from tidegate.operators.late import NEVER, AllowedLatenessTracker, Bounds, instants
from tidegate.operators.slice_store import SLICE, WINDOW, SliceStore
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY
from tidegate.operators.window_emit import Progress, window_emit
from tidegate.operators.windowed import WindowKernel
from tidegate.plan.windowing import Emit
from tidegate.plan.windows import Hopping

_PLACE = "__tidegate_place"

#: A window ends, for who does not wait for late rows, when the watermark reaches its end.
_PROMPT = AllowedLatenessTracker()


class SliceKernel(WindowKernel):
    """Windows over slices."""

    def __init__(self, plan: Emit) -> None:
        super().__init__(plan)
        window = plan.windowed.window
        assert isinstance(window, Hopping)
        self.slicing = Slicing(window)
        self.emit = window_emit(plan.emission)

    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""
        by, slices = ", ".join(self.keys) or "global", self.slicing.per_window
        store = [f"SliceStore[{slices} slices a window]", "SliceMerge[by window]"]
        return [
            f"SlicePreAggregate[{by}]",
            f"SliceMerge[by slice, late={self.router.policy}]",
            *(store if slices > 1 else []),
            f"WindowEmit[{self.emission}]",
        ]

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A partial state per key and slice; rows in no window are counted and left out."""
        time = instants(rows, self.time)
        number, inside = self.slicing.slice_of(time)
        distinct, codes = keys.encode(self.key_table(rows))
        coded = blobs.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(KEY, codes), pl.Series(SLICE, number), pl.Series(TIME, time)
        )
        placed = coded
        if not inside.all():
            counts["unassigned"] += int(len(inside) - inside.sum())
            placed = coded.filter(pl.Series(inside))
        states = self.accumulators.partial(placed, [KEY, SLICE], pl.len().alias(ROWS))
        owner = np.where(inside, _owners(coded, states), -1) if owners else None
        return Partials(distinct, states, owner)

    def advance(self, turn: Turn) -> int | None:
        store = SliceStore(turn.state, self.slicing, self.accumulators)
        progress = self._progress(turn)
        self.emit.close(store, progress, turn.put)
        fresh = self._take_in(turn, progress.closed)
        self.emit.take_in(store, fresh, progress, turn.put)
        store.forget(progress.closed)
        return self._due(store, progress)

    def bounds(self, results: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        number = results.column(WINDOW).to_numpy()
        return self.slicing.start(number), self.slicing.end(number)

    def _progress(self, turn: Turn) -> Progress:
        def last(watermark: int | None, lateness: AllowedLatenessTracker) -> int:
            return NEVER if watermark is None else self.slicing.last_ended(lateness.horizon(watermark))

        return Progress(
            closed=last(turn.watermark, self.lateness),
            ended=last(turn.watermark, _PROMPT),
            was_closed=last(turn.was, self.lateness),
            was_ended=last(turn.was, _PROMPT),
            now=turn.now,
        )

    def _take_in(self, turn: Turn, closed: int) -> pl.DataFrame | None:
        """The batch's states, merged, without those that came too late."""
        parts = [arrival.states for arrival in turn.arrivals]
        if closed > NEVER:
            last_late = self.slicing.first_slice(closed + 1) - 1
            too_late = [part[SLICE].to_numpy() <= last_late for part in parts]
            parts = self.part_late(turn, too_late, lambda n, late: self._last_windows(parts[n][late]))
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
        """When the next window falls due, or the first page can go."""
        last = store.last_window_of_a_page()
        if last is None:
            return None
        gone = self.lateness.closes_at(self.slicing.end(last))
        due = self.emit.next_due(store, progress, self.lateness)
        return gone if due is None else min(due, gone)


def _owners(rows: pl.DataFrame, states: pl.DataFrame) -> np.ndarray:
    """The place of each row's state; -1 where there is none."""
    places = states.select(KEY, SLICE).with_row_index(_PLACE)
    placed = rows.select(KEY, SLICE).join(places, on=[KEY, SLICE], how="left", maintain_order="left")
    return placed[_PLACE].cast(pl.Int64).fill_null(-1).to_numpy()
