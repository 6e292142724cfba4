"""What kernels with aggregates share: those of windows, and of folds, which have none."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from tidegate.operators.accumulators import Accumulators
from tidegate.operators.kernel import retractions_first
from tidegate.operators.keyed import KeyedKernel, Turn
from tidegate.operators.late import AllowedLatenessTracker
from tidegate.plan.windowing import Emit

#: Due as soon as the watermark moves at all, or is known at all.
ANY_TIME = -(1 << 62)


class AggregateKernel(KeyedKernel):
    """A kernel of aggregates by key, for one logical plan."""

    def __init__(self, plan: Emit) -> None:
        super().__init__(plan)
        self.accumulators = Accumulators(plan.input.aggregates)
        self.emission = plan.emission
        self.retracts = plan.retracts

    def put_out(self, turn: Turn) -> None:
        super().put_out(turn)
        if self.retracts:
            turn.out.tables = retractions_first(turn.out.tables)


class WindowKernel(AggregateKernel):
    """A kernel of keyed windows with aggregates."""

    def __init__(self, plan: Emit) -> None:
        super().__init__(plan)
        self.lateness = AllowedLatenessTracker(plan.windowed.lateness)

    @abstractmethod
    def bounds(self, results: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The start and the end of each result's window."""

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return dict(
            zip(("window_start", "window_end"), map(pa.array, self.bounds(results)), strict=True)
        )
