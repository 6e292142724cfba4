"""Late rows: how long windows stay open for them, and where they go when that is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tidegate.operators.slicing import Number
from tidegate.plan.channels import LATE_COLUMNS
from tidegate.plan.columns import TIMESTAMP
from tidegate.plan.policies import Drop, LatePolicy, Reassign, SideOutput

if TYPE_CHECKING:
    from tidegate.operators.kernel import Outcome

#: Start and end of a window for each of some rows.
Bounds = tuple[np.ndarray, np.ndarray]

#: The bounds of the closed windows of states, given which arrival they came with and their places there.
ClosedWindows = Callable[[int, np.ndarray], Bounds]

#: Stands for a time, or a window, long before any data.
NEVER = -(1 << 60)

#: The watermark at the end of a batch query, or of a drained one: past the end of every window there
#: is, folds among them, however far operators are held back.
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
    """Late rows counted, and dropped, moved into the present or sent to a channel of their own."""

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
        """Which late rows are moved into the present."""
        if not isinstance(self.policy, Reassign):
            return np.zeros(len(time), dtype=bool)
        return watermark - time <= self.policy.max_lateness

    def route(
        self,
        count: int,
        rows: pa.Table | None,
        watermark: int,
        out: Outcome,
        closed: Bounds | None = None,
    ) -> pa.Table | None:
        """Apply the policy to late rows, given as `rows` where it needs them; those that were moved.

        `closed` is the window of each row that has closed, where the operator has windows.
        """
        out.counts["late_rows"] += count
        if rows is None:
            out.counts["late_dropped"] += count
            return None
        times = instants(rows, self.time)
        if isinstance(self.policy, SideOutput):
            out.emit(
                self.policy.channel, self._with_lateness(rows, watermark - times, watermark, closed)
            )
            return None
        near = rows.filter(pa.array(self.moves(times, watermark)))
        out.counts += Counter(late_reassigned=near.num_rows, late_dropped=count - near.num_rows)
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
        for field, column in zip(LATE_COLUMNS, values, strict=True):
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


def instants(rows: pa.Table, time: str) -> np.ndarray:
    """The event times of rows, none of them null, as microseconds."""
    return rows.column(time).cast(pa.int64()).to_numpy()
