"""Rows in order: Reorder holds them until the watermark has passed them."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import EmitRows, KeyedKernel, StepContext
from tidegate.kernels.inputs import Arrival
from tidegate.kernels.rows.row_table import RowLayout, RowTable, in_time, row_input
from tidegate.plan.pass_through import Reorder


class ReorderKernel(KeyedKernel):
    """Releases rows in the order of event time, then arrival."""

    table = RowTable("rows", TIME)

    def __init__(self, plan: Reorder) -> None:
        [input] = plan.inputs
        self.layout = RowLayout.of(input)
        super().__init__(plan, row_input(input, self.layout))

    def physical_operators(self) -> list[str]:
        return [f"Reorder[{self.layout.columns}, late={self.input.router.policy}]"]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        previous, now = context.watermarks
        self._release(self.table.between(context.state, previous + 1, now), context.emit)
        fresh = in_time(self.input, context, arrivals)
        if fresh is not None:
            # What the late policy moved to the watermark goes behind all that was before it.
            self._release(fresh.filter(pl.col(TIME) <= now), context.emit)
            self.table.keep(context.state, fresh.filter(pl.col(TIME) > now), oldest=now + 1)
        self.table.expire(context, now + 1)
        return self.table.next_after(context.state, now)

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return self.layout.times(results)

    def _release(self, rows: pl.DataFrame | None, emit: EmitRows) -> None:
        if rows is not None:
            emit(self.layout.restored(rows.sort(TIME, maintain_order=True)))
