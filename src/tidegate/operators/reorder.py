"""Rows in order: Reorder holds them until the watermark has passed them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators.accumulators import TIME
from tidegate.operators.kernel import Outcome
from tidegate.operators.keyed import Arrival, Moment, Put
from tidegate.operators.late import NEVER
from tidegate.operators.rows import RowKernel
from tidegate.operators.state import LAST_POSITION, BucketState


class ReorderKernel(RowKernel):
    """Releases rows in the order of event time, then arrival."""

    page_width = LAST_POSITION

    def stages(self) -> list[str]:
        return [f"Reorder[{', '.join(self.keys) or 'global'}, late={self.late}]"]

    def states(self, rows: pa.Table, time: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame()

    def advance(
        self,
        state: BucketState,
        arrivals: Sequence[Arrival],
        moment: Moment,
        out: Outcome,
        put: Put,
    ) -> int | None:
        was, now = (NEVER if time is None else time for time in (moment.was, moment.watermark))
        self._release(self.held_between(state, was + 1, now), put)
        fresh = self.in_time(state, arrivals, moment, out)
        if fresh is not None:
            # What the late policy moved to the watermark goes behind all that was before it.
            self._release(fresh.filter(pl.col(TIME) <= now), put)
            self.keep(state, fresh.filter(pl.col(TIME) > now), oldest=now + 1)
        self.forget(state, now + 1, out)
        return self.next_after(state, now)

    def _release(self, rows: pl.DataFrame | None, put: Put) -> None:
        if rows is not None:
            put(self.restored(rows.sort(TIME, maintain_order=True)))
