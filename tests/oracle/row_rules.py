"""Windows around rows and rows in order: every row that came in time is kept in one list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tests.oracle.answers import Answer, answers_of
from tests.oracle.rules import Rules
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.pass_through import Reorder
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import Sliding
from tidegate.testing.table import Row, to_arrow


class SlidingRules(Rules):
    """For each row that meets the condition, the aggregates over the rows around it."""

    def __init__(
        self, plan: WindowedAggregate, window: Sliding, answers: Mapping[type[Aggregate], Answer]
    ) -> None:
        super().__init__(plan)
        self.window = window
        self.schema = plan.upstream.schema
        self.aggregation = plan.input
        self.answers = answers
        #: Every row that came in time, in the order of arrival.
        self.content: list[Row] = []
        #: Rows whose range is not complete.
        self.waiting: list[Row] = []

    def put(self, rows: Sequence[Row]) -> list[Row]:
        results = []
        for row in rows:
            self.content.append(row)
            if self._has_a_window(row):
                if self.window.lookahead is None:
                    results.append(self._result(row, reach=0))
                else:
                    self.waiting.append(row)
        return results

    def close(self, now: int) -> list[Row]:
        reach = self.window.lookahead or 0
        due = [row for row in self.waiting if self.passed(self.instant(row) + reach)]
        self.waiting = [row for row in self.waiting if not self.passed(self.instant(row) + reach)]
        return [self._result(row, reach) for row in due]

    def settle(self, now: int) -> list[Row]:
        """Rows that were moved to the watermark may be due as soon as they are there."""
        return self.close(now)

    def _result(self, row: Row, reach: int) -> Row:
        first, last = self.instant(row) - self.window.lookback, self.instant(row) + reach
        around = [
            (self.instant(other), other)
            for other in self.content
            if self.key(other) == self.key(row) and first <= self.instant(other) <= last
        ]
        own = {name: row.get(name) for name in self.columns}
        return own | answers_of(self.answers, self.aggregation, around)

    def _has_a_window(self, row: Row) -> bool:
        if self.window.when is None:
            return True
        alone = pl.DataFrame(pl.from_arrow(to_arrow([row], self.schema)))
        return alone.select(pl.sql_expr(self.window.when)).item() is True


class ReorderRules(Rules):
    """Rows wait until the watermark has passed them, and leave in the order of time, then arrival."""

    def __init__(self, plan: Reorder) -> None:
        super().__init__(plan)
        self.waiting: list[Row] = []

    def put(self, rows: Sequence[Row]) -> list[Row]:
        self.waiting += rows
        return []

    def close(self, now: int) -> list[Row]:
        due = [row for row in self.waiting if self.passed(self.instant(row))]
        self.waiting = [row for row in self.waiting if not self.passed(self.instant(row))]
        whole = ({name: row.get(name) for name in self.columns} for row in due)
        return sorted(whole, key=self.instant)  # of equal ones the first to arrive stays first

    def settle(self, now: int) -> list[Row]:
        """Rows that were moved to the watermark go on at once."""
        return self.close(now)
