"""Adaptive batching: how many rows a micro-batch should have to take as long as it may.

What a batch takes is taken to be a fixed part and a part for each row. Both are fitted to the last
batches; as long as these were too much alike to tell the parts apart, all is put down to the rows,
which errs towards small steps. A step is at most a doubling or a halving, and small ones are not made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidegate.errors import PlanError

#: How many batches are looked back on.
_MEMORY = 8

#: The largest step, up or down.
_STEP = 2.0

#: Steps that would change less than this share are not made.
_REST = 0.08

#: Sizes that differ by less than this share say nothing of what a row takes.
_SPREAD = 0.25

#: How much less each batch counts than the one after it.
_FADING = 0.8


@dataclass(frozen=True)
class BatchPoint:
    """A batch that was run: its rows, and the seconds it took."""

    rows: int
    latency: float


@dataclass
class AdaptiveBatcher:
    """Picks the rows of the next micro-batch, between bounds, to hold a target latency."""

    #: In seconds.
    target: float
    least: int = 1_000
    most: int = 10_000_000
    start: int | None = None
    points: deque[BatchPoint] = field(default_factory=lambda: deque(maxlen=_MEMORY))
    #: What the next batch should have.
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        if self.target <= 0:
            raise PlanError(f"the target latency of batches must be positive, got {self.target} s")
        if not 0 < self.least <= self.most:
            raise PlanError(f"batches of {self.least} to {self.most} rows: give bounds in order, from 1")
        self.rows = self._bounded(self.least if self.start is None else self.start)

    def observe(self, rows: int, latency: float) -> int:
        """Take in a batch that has been run; the rows that the next one should have."""
        if rows <= 0 or latency <= 0:
            return self.rows
        self.points.append(BatchPoint(rows, latency))
        # A batch that was not filled shows only that fewer rows came, unless even they took too long.
        if rows >= self.rows or latency > self.target:
            self._step_towards(self._wanted())
        return self.rows

    def metrics(self) -> dict[str, float]:
        """The choice, what it is to reach within which bounds, and what it is based on."""
        return {
            "batch_rows": self.rows,
            "batch_rows_least": self.least,
            "batch_rows_most": self.most,
            "batch_target_seconds": self.target,
            "batch_points": len(self.points),
        }

    def _step_towards(self, wanted: float) -> None:
        if abs(wanted - self.rows) > _REST * self.rows:
            step = min(max(wanted, self.rows / _STEP), self.rows * _STEP)
            self.rows = self._bounded(round(step))

    def _bounded(self, rows: int) -> int:
        return min(max(rows, self.least), self.most)

    def _wanted(self) -> float:
        """The rows that would take just as long as the target."""
        weights = [_FADING**age for age in reversed(range(len(self.points)))]
        total = sum(weights)
        weighed = list(zip(weights, self.points, strict=True))
        rows = sum(weight * point.rows for weight, point in weighed) / total
        latency = sum(weight * point.latency for weight, point in weighed) / total
        per_row = self._per_row(weighed, rows, latency)
        return rows + (self.target - latency) / per_row

    def _per_row(self, weighed: list[tuple[float, BatchPoint]], rows: float, latency: float) -> float:
        """What a row takes: the slope of the line through the points, or all where there is none."""
        sizes = [point.rows for _, point in weighed]
        if max(sizes) - min(sizes) > _SPREAD * rows:
            spread = sum(weight * (point.rows - rows) ** 2 for weight, point in weighed)
            common = sum(
                weight * (point.rows - rows) * (point.latency - latency) for weight, point in weighed
            )
            # Rows take something, and not more than everything.
            if 0 < common / spread <= latency / rows:
                return common / spread
        return latency / rows
