"""What holds for every operator: what comes first in a micro-batch, and what becomes of late rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Protocol

from tidegate.kernels.row_text import row_text
from tidegate.plan.channels import ERROR_CHANNEL, MAIN
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.testing.results import BatchResult, frozen
from tidegate.testing.table import Row, instant_of, micros_of


class Intake:
    """One input of an operator: which of its rows can be used, and which come too late."""

    def __init__(self, given: Input) -> None:
        self.policy = given.late
        self.keys = given.keyed.keys
        self.time = given.upstream.time
        self.columns = given.upstream.schema.names
        #: What the watermark made another operator put out is never late: that one has judged it.
        self.judges = not given.upstream.watermark_triggered
        #: What another operator put out came in once already.
        self.reads = given.upstream.operator is None
        #: What it tells late rows: its operator, and how much lateness that allows.
        self.operator: str | None = None
        self.lateness: int = given.lateness
        self.watermark: int | None = None
        #: The rows of this batch that can be used, late ones included.
        self.arrived: list[Row] = []

    @property
    def intakes(self) -> tuple[Intake, ...]:
        """The inputs of an operator that has no other."""
        return (self,)

    # -- what inputs differ in --------------------------------------------------------------------

    def late(self, rows: Sequence[Row]) -> list[bool]:
        """For each row of a batch: does it come too late?"""
        return [self.passed(self.instant(row)) for row in rows]

    def closed_window(self, row: Row) -> tuple[int, int] | None:
        """The last window of a late row to close, if there are windows."""
        return None

    def has_room(self, time: int) -> bool:
        """Can a row of that time count anywhere at all?"""
        return True

    def fault(self, row: Row) -> str | None:
        """Why a row cannot be used, if so."""
        return f"event time {self.time!r} is null" if row.get(self.time) is None else None

    # -- rows -------------------------------------------------------------------------------------

    def admitted(self, rows: Sequence[Row], result: BatchResult) -> list[Row]:
        """The rows of a batch that are taken in; of the others the result tells."""
        self.arrived = [row for row in rows if self._usable(row, result)]
        late = self.late(self.arrived) if self.judges else [False] * len(self.arrived)
        judged = zip(self.arrived, late, strict=True)
        placed = [self._handled(row, result) if is_late else row for row, is_late in judged]
        return [row for row in placed if row is not None]

    def passed(self, time: int) -> bool:
        """Has the watermark reached that time?"""
        return self.watermark is not None and self.watermark >= time

    def instant(self, row: Row) -> int:
        return micros_of(row[self.time])

    def key(self, row: Row) -> tuple[Hashable, ...]:
        """The row's key, as it compares to others."""
        return tuple(frozen(row.get(name)) for name in self.keys)

    def _usable(self, row: Row, result: BatchResult) -> bool:
        if self.reads:
            result.counts["rows_in"] += 1
        if reason := self.fault(row):
            result.counts["errors"] += 1
            result.put(ERROR_CHANNEL, {"reason": reason, "row": row_text(row)})
            return False
        if not self.has_room(self.instant(row)):
            result.counts["unassigned"] += 1
            return False
        return True

    def _handled(self, row: Row, result: BatchResult) -> Row | None:
        """What the late policy does with a row; the row comes back if it was moved to the watermark."""
        assert self.watermark is not None
        late_by = self.watermark - self.instant(row)
        result.counts["late_rows"] += 1
        result.counts["late_rows_at_watermark"] += late_by == 0
        if isinstance(self.policy, SideOutput):
            unchanged = {name: row.get(name) for name in self.columns}
            result.put(self.policy.channel, unchanged | self._told(row, late_by, self.watermark))
        elif isinstance(self.policy, Reassign) and late_by <= self.policy.max_lateness:
            result.counts["late_reassigned"] += 1
            if self.has_room(self.watermark):
                return row | {self.time: instant_of(self.watermark)}
            result.counts["unassigned"] += 1
        else:
            assert isinstance(self.policy, Drop | Reassign)
            result.counts["late_dropped"] += 1
        return None

    def _told(self, row: Row, late_by: int, watermark: int) -> Row:
        """What the channel of late rows says of a row, beside its own columns."""
        window = self.closed_window(row)
        start, end = (None, None) if window is None else map(instant_of, window)
        return {
            "late_by": timedelta(microseconds=late_by),
            "watermark": instant_of(watermark),
            "late_operator": self.operator,
            "late_window_start": start,
            "late_window_end": end,
            "allowed_lateness": timedelta(microseconds=self.lateness),
        }


class OperatorRules(Protocol):
    """What one operator must put out in each micro-batch."""

    @property
    def intakes(self) -> tuple[Intake, ...]:
        """Its inputs, in their order."""
        ...

    def batch(
        self, rows_by_input: Sequence[Sequence[Row]], watermark: int | None, now: int
    ) -> BatchResult: ...


class Rules(Intake, ABC):
    """An operator with one input."""

    def __init__(self, plan: AnyOperator) -> None:
        [given] = plan.inputs
        super().__init__(given)
        #: Has the watermark moved in this batch?
        self.moved = False

    def batch(
        self, rows_by_input: Sequence[Sequence[Row]], watermark: int | None, now: int
    ) -> BatchResult:
        """Close what the watermark makes due, then judge the rows by it and take them in.

        What another operator emitted because of W came before W: it is taken in first.
        """
        [rows] = rows_by_input
        result = BatchResult(watermark)
        out = [] if self.judges else self.put(self.admitted(rows, result))
        self.moved, self.watermark = watermark != self.watermark, watermark
        out += self.close(now)
        out += self.put(self.admitted(rows, result)) if self.judges else []
        result.put(MAIN, *self.arranged([*out, *self.settle(now)]))
        return result

    # -- what operators differ in -----------------------------------------------------------------

    @abstractmethod
    def close(self, now: int) -> list[Row]:
        """What leaves since the watermark is where it is."""

    @abstractmethod
    def put(self, rows: Sequence[Row]) -> list[Row]:
        """Keep a batch's rows, none of them late; what leaves with them at once."""

    @abstractmethod
    def settle(self, now: int) -> list[Row]:
        """What else there is to say at the end of a batch."""

    def arranged(self, out: list[Row]) -> list[Row]:
        """What leaves in this batch, in an order that is promised."""
        return out
