"""Late data: how long windows stay open for it, and whether it is dropped, reassigned or routed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.kernels.windows.slices import Number
from tidegate.plan.channels import late_columns
from tidegate.plan.policies import Drop, LatePolicy, Reassign, SideOutput
from tidegate.plan.schema import TIMESTAMP

if TYPE_CHECKING:
    from tidegate.kernels.contract import Outcome

#: Start and end of a window for each of some rows.
Bounds = tuple[np.ndarray, np.ndarray]

#: The bounds of the closed windows of states, given the arrival they came with and positions there.
ClosedWindows = Callable[[int, np.ndarray], Bounds]

#: Stands for a time, or a window, long before any data.
NEVER = -(1 << 60)

#: Due as soon as the watermark moves at all, or is known at all.
ANY_TIME = -(1 << 62)

#: The watermark at the end of a batch query, or of a drained one: past the end of every window there
#: is, folds among them, however far an operator's watermark is delayed.
THE_END = 1 << 61

#: Beside rows that were moved in time: the event time they arrived with.
_UNMOVED = "__tidegate_unmoved"


@dataclass(frozen=True)
class AllowedLatenessTracker:
    """How long windows stay open: `[s, e)` closes when the watermark reaches `e + lateness`."""

    lateness: int = 0

    def horizon(self, watermark: int | None) -> int:
        """What ends up to here is closed."""
        return NEVER if watermark is None else watermark - self.lateness

    def closes_at(self, end: Number) -> Number:
        """The watermark at which a window with this end closes."""
        return end + self.lateness


@dataclass(frozen=True)
class SideOutputRouter:
    """Counts late rows, and drops them, moves them to the watermark or sends them to a channel."""

    policy: LatePolicy
    time: str
    lateness: int = 0
    #: Who enforces lateness, as the plan calls it.
    operator: str | None = None

    @property
    def needs_rows(self) -> bool:
        """Does the policy need the rows themselves, not only how many there were?"""
        return not isinstance(self.policy, Drop)

    def moves(self, time: np.ndarray, watermark: int) -> np.ndarray:
        """Which late rows are moved to the watermark."""
        if not isinstance(self.policy, Reassign):
            return np.zeros(len(time), dtype=bool)
        return watermark - time <= self.policy.max_lateness

    def route(
        self,
        count: int,
        rows: pa.Table | None,
        watermark: int,
        outcome: Outcome,
        closed: Bounds | None = None,
    ) -> pa.Table | None:
        """Apply the policy to late rows, given as `rows` where it needs them; the rows that it moved.

        `closed` is the closed window of each row, where the operator has windows.
        """
        outcome.counts["late_rows"] += count
        if rows is None:
            outcome.counts["late_dropped"] += count
            return None
        times = instants(rows, self.time)
        if isinstance(self.policy, SideOutput):
            late_by = watermark - times
            late = self._with_lateness(rows, late_by, watermark, closed)
            outcome.emit(self.policy.channel, late)
            return None
        near = rows.filter(pa.array(self.moves(times, watermark)))
        outcome.counts += Counter(late_reassigned=near.num_rows, late_dropped=count - near.num_rows)
        present = pa.array(np.full(near.num_rows, watermark)).cast(TIMESTAMP)
        kept = near.append_column(_UNMOVED, near.column(self.time))
        return _with_times(kept, self.time, present.cast(near.schema.field(self.time).type))

    def _with_lateness(
        self, rows: pa.Table, late_by: np.ndarray, watermark: int, closed: Bounds | None
    ) -> pa.Table:
        count = rows.num_rows
        start, end = (pa.nulls(count), pa.nulls(count)) if closed is None else map(pa.array, closed)
        values = (
            pa.array(late_by),
            pa.array(np.full(count, watermark)),
            pa.repeat(pa.scalar(self.operator, pa.string()), count),
            start,
            end,
            pa.array(np.full(count, self.lateness)),
        )
        columns = late_columns(rows.schema.field(self.time).type)
        for field, column in zip(columns, values, strict=True):
            rows = rows.append_column(field, column.cast(field.type))
        return rows


def as_arrived(rows: pa.Table, time: str) -> pa.Table:
    """Rows with the event times they arrived with: what keys and ids are taken from.

    A key that moved with its row would belong to another bucket than the one that has the row.
    """
    moved = _UNMOVED in rows.column_names
    return _with_times(rows, time, rows.column(_UNMOVED)) if moved else rows


def _with_times(rows: pa.Table, time: str, times: pa.Array | pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(time), rows.schema.field(time), times)


def window_times(start: np.ndarray, end: np.ndarray) -> dict[str, pa.Array]:
    """The columns that show a result's window."""
    return {"window_start": pa.array(start), "window_end": pa.array(end)}


def instants(rows: pa.Table, time: str) -> np.ndarray:
    """The event times of rows, none of them null, as microseconds."""
    return rows.column(time).cast(pa.int64()).to_numpy()
