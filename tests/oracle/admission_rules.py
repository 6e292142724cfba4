"""Admission: row by row, in the order of arrival, with tokens counted as fractions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from tests.oracle.rules import Intake
from tidegate.plan.channels import MAIN, REJECTED
from tidegate.plan.pass_through import Admit
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row, micros_of


@dataclass
class Meter:
    """What is known of a stream: what its bucket holds, and when its last row arrived."""

    tokens: Fraction
    arrived: int


class AdmissionRules(Intake):
    """Each row is judged by lag, then jitter, then rate; streams are not split."""

    def __init__(self, plan: Admit) -> None:
        [given] = plan.inputs
        super().__init__(given)
        assert plan.sla.shards == 1, "which shard a row goes to is the kernel's business"
        self.sla = plan.sla
        self.meters: dict[Hashable, Meter] = {}

    def late(self, rows: Sequence[Row]) -> list[bool]:
        return [False] * len(rows)  # what reads the rows judges them

    def batch(
        self, rows_by_input: Sequence[Sequence[Row]], watermark: int | None, now: int
    ) -> BatchResult:
        [rows] = rows_by_input
        result = BatchResult(watermark)
        usable = self.admitted(rows, result)
        for row in sorted(usable, key=lambda row: self._arrived(row, now)):
            whole = {name: row.get(name) for name in self.columns}
            reason, numbers = self._judged(row, self._arrived(row, now))
            if reason is None:
                result.counts["admitted"] += 1
                result.put(MAIN, whole)
            else:
                result.counts[f"rejected_{reason}"] += 1
                result.put(REJECTED, whole | {"reason": reason} | numbers)
        return result

    def _arrived(self, row: Row, now: int) -> int:
        """When a row came: by its own column, or with the batch."""
        given = None if self.sla.arrival is None else row.get(self.sla.arrival)
        return now if given is None else micros_of(given)

    def _judged(self, row: Row, now: int) -> tuple[str | None, Row]:
        meter = self.meters.get(self.key(row))
        arrived = now if meter is None else max(now, meter.arrived)
        lag, gap = now - self.instant(row), None if meter is None else arrived - meter.arrived
        full = self.sla.capacity
        tokens = full if meter is None or gap is None else min(full, meter.tokens + self._refill(gap))
        after = self.meters[self.key(row)] = Meter(tokens, arrived)
        shown = None if gap is None or self.sla.jitter_budget is None else _length(gap)
        numbers = {"lag": _length(lag), "gap": shown, "tokens": None}
        if self.sla.max_lag is not None and lag > self.sla.max_lag:
            return "lag", numbers
        if gap is not None and self.sla.jitter_budget is not None and gap > self.sla.jitter_budget:
            return "jitter", numbers
        if tokens < self.sla.token_cost:
            return "rate", numbers | {"tokens": float(tokens)}
        after.tokens -= self.sla.token_cost
        return None, numbers

    def _refill(self, passed: int) -> Fraction:
        return self.sla.max_rate * passed / 1_000_000


def _length(micros: int) -> timedelta:
    return timedelta(microseconds=micros)
