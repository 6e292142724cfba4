"""Rows in order: Reorder holds them until the watermark has passed them."""

from __future__ import annotations

import polars as pl

from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import Put, Turn
from tidegate.operators.late import NEVER
from tidegate.operators.row_table import RowTable
from tidegate.operators.rows import RowKernel


class ReorderKernel(RowKernel):
    """Releases rows in the order of event time, then arrival."""

    table = RowTable("rows", TIME)

    def stages(self) -> list[str]:
        return [f"Reorder[{', '.join(self.keys) or 'global'}, late={self.router.policy}]"]

    def advance(self, turn: Turn) -> int | None:
        was, now = (NEVER if time is None else time for time in (turn.was, turn.watermark))
        self._release(self.table.between(turn.state, was + 1, now), turn.put)
        fresh = self.in_time(turn)
        if fresh is not None:
            # What the late policy moved to the watermark goes behind all that was before it.
            self._release(fresh.filter(pl.col(TIME) <= now), turn.put)
            self.table.keep(turn.state, fresh.filter(pl.col(TIME) > now), oldest=now + 1)
        self.forget(turn, now + 1)
        return self.table.next_after(turn.state, now)

    def _release(self, rows: pl.DataFrame | None, put: Put) -> None:
        if rows is not None:
            put(self.restored(rows.sort(TIME, maintain_order=True)))
