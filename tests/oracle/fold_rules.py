"""Duplicates: row by row, in the order of arrival, against a dictionary of ids."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tests.oracle.rules import Rules
from tidegate.plan.pass_through import Dedupe
from tidegate.plan.policies import Reassign
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row


class DedupeRules(Rules):
    """The first row of each id goes on at once; the id is remembered for some time."""

    def __init__(self, plan: Dedupe) -> None:
        super().__init__(plan)
        self.within = plan.within
        #: By Spark's rules a row that the watermark has reached is late, whatever is remembered.
        self.by_spark = plan.rule is not None
        self.late_after = 0 if self.by_spark else plan.within
        #: The event time of the first row of each id.
        self.seen: dict[Hashable, int] = {}

    def admitted(self, rows: Sequence[Row], result: BatchResult) -> list[Row]:
        self.arrived = [row for row in rows if self._usable(row, result)]
        first = (self._judged(row, result) for row in self.arrived)
        return [row for row in first if row is not None]

    def _judged(self, row: Row, result: BatchResult) -> Row | None:
        late = self.passed(self.instant(row) + self.late_after)
        if late and self.by_spark and not self._is_near(row):
            return self._handled(row, result)
        if self.key(row) in self.seen:
            result.counts["duplicates_filtered"] += 1
            return None
        counted = self._handled(row, result) if late else row
        if counted is not None:
            self.seen[self.key(row)] = self.instant(counted)
        return counted

    def _is_near(self, row: Row) -> bool:
        """Is a late row moved to the watermark?"""
        assert self.watermark is not None
        most = self.policy.max_lateness if isinstance(self.policy, Reassign) else -1
        return self.watermark - self.instant(row) <= most

    def put(self, rows: Sequence[Row]) -> list[Row]:
        return [{name: row.get(name) for name in self.columns} for row in rows]

    def close(self, now: int) -> list[Row]:
        kept = {one: time for one, time in self.seen.items() if not self.passed(time + self.within)}
        self.seen = kept
        return []

    def settle(self, now: int) -> list[Row]:
        return []
