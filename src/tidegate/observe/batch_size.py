"""Adaptive batching: how many rows a micro-batch should have to take as long as it may.

What a batch takes is taken to be a fixed part and a part for each row. The latter is the median over
all pairs of the last batches; as long as these were too much alike to tell the parts apart, all is put
down to the rows, which errs towards small steps. Then each batch says which size would have reached the
target, and the median of that is the aim: a batch that something else held up does not change it. A
step is at most a doubling or a halving, and small ones are not made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from statistics import median

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

#: A row takes at least this share of what it would if a batch were nothing but its rows: batches may
#: become faster while they grow, in the first minute of a process, and it is not because they grow.
_LEAST_SHARE = 0.1


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
    #: The part of it that is asked for.
    factor: float = field(init=False, default=1.0)
    #: Has there been a batch? The first one waits for processes to start, and says nothing of others.
    _is_warm: bool = field(init=False, default=False)

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
        if not self._is_warm:
            self._is_warm = True
            return self.rows
        self.points.append(BatchPoint(rows, latency))
        # A batch that was not filled shows only that fewer rows came, unless even they took too long.
        if rows >= self.rows or latency > self.target:
            self._step_towards(self._wanted())
        return self.rows

    @property
    def asked(self) -> int:
        """What is asked of the source: the choice, or less while it is throttled."""
        return max(1, round(self.rows * self.factor))

    def throttle(self, factor: float) -> None:
        """Ask for a part of the choice only; the choice itself still follows latency alone."""
        if not 0 <= factor <= 1:
            raise PlanError(f"batches can be throttled by a factor from 0 to 1, got {factor}")
        self.factor = factor

    def metrics(self) -> dict[str, float]:
        """The choice, what it is to reach within which bounds, and what it is based on."""
        return {
            "batch_rows": self.rows,
            "batch_rows_asked": self.asked,
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
        per_row = self._per_row()
        wanted = [point.rows + (self.target - point.latency) / per_row for point in self.points]
        weights = [_FADING**age for age in reversed(range(len(wanted)))]
        return _weighted_median(wanted, weights)

    def _per_row(self) -> float:
        """What a row takes: the slope between batches of different sizes, or all if there are none."""
        all_of_it = median(point.latency / point.rows for point in self.points)
        slopes = [
            (one.latency - other.latency) / (one.rows - other.rows)
            for one, other in combinations(self.points, 2)
            if abs(one.rows - other.rows) > _SPREAD * min(one.rows, other.rows)
        ]
        # Rows take something, and not more than everything.
        return min(max(median(slopes), _LEAST_SHARE * all_of_it), all_of_it) if slopes else all_of_it


def _weighted_median(values: list[float], weights: list[float]) -> float:
    in_order = sorted(zip(values, weights, strict=True))
    passed = accumulate(weight for _, weight in in_order)
    half = sum(weights) / 2
    return next(value for (value, _), so_far in zip(in_order, passed, strict=True) if so_far >= half)
