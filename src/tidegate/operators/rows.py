"""What kernels that keep rows share: rows travel and wait as columns beside their key and time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import (
    ROWS,
    Arrival,
    KeyedInput,
    KeyedKernel,
    Partials,
    Turn,
    columns_of,
    in_schema,
)
from tidegate.operators.late import instants
from tidegate.operators.row_table import RowTable
from tidegate.operators.state import KEY, BucketState
from tidegate.plan.counters import LATE_AT_WATERMARK
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.windowing import Emit

#: Before the names of rows' own columns, which may be anything.
OWN = "__tidegate_row."


class RowInput(KeyedInput):
    """An input whose rows travel and wait as they are."""

    @cached_property
    def own(self) -> list[str]:
        """The columns of a row that are neither its key nor its time."""
        return [name for name in self.row_schema.names if name not in {*self.keys, self.time}]

    @property
    def carries_rows(self) -> bool:
        return False  # states are the rows already

    def states(self, rows: pa.Table, time: np.ndarray) -> pl.DataFrame:
        """What is kept of rows beside their key, time and own columns, one for each."""
        return pl.DataFrame()

    def key_table(self, rows: pa.Table) -> pa.Table:
        """What rows are kept by, under the names by which the operator knows it."""
        own = super().key_table(rows)
        return own.rename_columns(self.known_keys) if self.keys else own

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A state for each row, in the order they came."""
        distinct, codes = keys.encode(self.key_table(rows))
        time = instants(rows, self.time)
        own = blobs.to_polars(rows.select(self.own).rename_columns([OWN + name for name in self.own]))
        placed = pl.DataFrame({KEY: codes, TIME: time, ROWS: np.ones(len(time), dtype=np.int64)})
        return Partials(distinct, pl.concat([placed, self.states(rows, time), own], how="horizontal"))

    def rows_of(self, state: BucketState, arrival: Arrival, chosen: np.ndarray) -> pa.Table:
        rows = blobs.to_arrow(self.restored(arrival.states.filter(pl.Series(chosen))))
        by_key = state.known_keys.take(rows.column(KEY))
        own_keys = {
            own: by_key.column(known) for own, known in zip(self.keys, self.known_keys, strict=True)
        }
        return in_schema(self.row_schema, columns_of(rows) | own_keys | self.times(rows))

    def places_of(self, arrival: Arrival, chosen: np.ndarray) -> np.ndarray:
        return np.flatnonzero(chosen)

    def times(self, rows: pa.Table) -> dict[str, pa.Array]:
        return {self.time: rows.column(TIME)}

    def restored(self, states: pl.DataFrame) -> pl.DataFrame:
        """Rows with their own columns under their own names."""
        own = [pl.col(OWN + name).alias(name) for name in self.own]
        return states.select(KEY, TIME, *own)


class RowKernel(RowInput, KeyedKernel):
    """A kernel whose state is rows; each leaves when its time has come."""

    #: The rows that wait, by their times.
    table: RowTable

    def __init__(self, plan: Emit | Reorder | Dedupe | Admit) -> None:
        super().__init__(plan)
        self.judges = not plan.feed.watermark_triggered

    def in_time(self, turn: Turn) -> pl.DataFrame | None:
        """What came, in that order, without what came too late and is not moved to now."""
        came = self.in_order(turn)
        if came is None or turn.watermark is None or not self.judges:
            return came
        time = came[TIME].to_numpy()
        turn.out.counts[LATE_AT_WATERMARK] += int((time == turn.watermark).sum())
        return self.without_late(turn, came, time <= turn.watermark)

    def in_order(self, turn: Turn) -> pl.DataFrame | None:
        """What came, in that order."""
        parts = [arrival.states for arrival in turn.arrivals if len(arrival.states)]
        if len(parts) <= 1:
            return parts[0] if parts else None
        return pl.concat(parts)[np.argsort(np.concatenate(_side_by_side(turn.arrivals)), kind="stable")]

    def without_late(self, turn: Turn, came: pl.DataFrame, late: np.ndarray) -> pl.DataFrame | None:
        """Rows in their order without the late ones, but for those that are moved to now."""
        if not late.any():
            return came
        assert turn.watermark is not None
        moved = late & self.router.moves(came[TIME].to_numpy(), turn.watermark)
        places = np.concatenate([np.flatnonzero(~late), np.flatnonzero(moved)])
        kept = pl.concat(self.part_late(replace(turn, arrivals=[Arrival(came, 0)]), [late]))
        return kept[np.argsort(places)] if len(kept) else None

    def forget(self, turn: Turn, oldest: int) -> None:
        """Drop what lies wholly before a time, and say how much is left."""
        turn.out.gauges["buffer_size"] = self.table.drop_below(turn.state, oldest)


def _side_by_side(arrivals: Sequence[Arrival]) -> list[np.ndarray]:
    """When the rows of each message arrived, between 0 and 1: those of several senders together.

    Senders are partitions, which are read next to each other. One after the other would send the
    time back to its beginning for each of them.
    """
    total, before = Counter[int](), Counter[int]()
    for arrival in arrivals:
        total[arrival.sender] += len(arrival.states)
    places = []
    for arrival in arrivals:
        here = before[arrival.sender] + np.arange(len(arrival.states)) + 0.5
        places.append(here / max(1, total[arrival.sender]))
        before[arrival.sender] += len(arrival.states)
    return places
