"""The rules, written for reading: every window keeps a list of its own rows, and nothing is clever.

It shares no code with the kernels. Where a kernel and these rules disagree, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from tidegate.plan.aggregate import Aggregate
from tidegate.plan.nodes import MAIN, Derived, Output, Reorder, stages_of
from tidegate.plan.windows import Sliding
from tidegate.testing.answers import ANSWERS, Answer
from tidegate.testing.results import BatchResult
from tidegate.testing.row_rules import ReorderRules, SlidingRules
from tidegate.testing.rules import Rules
from tidegate.testing.table import Row
from tidegate.testing.window_rules import WindowRules


class Oracle:
    """What each micro-batch of a plan must put out, operator by operator.

    Windows that wait for their turn (`periodic`) are heard when their bucket is: `bucket_of` says
    which one a row of the last operator's input belongs to.
    """

    def __init__(
        self,
        plan: Output,
        answers: Mapping[type[Aggregate], Answer] | None = None,
        bucket_of: Callable[[Row], Hashable] = lambda _: None,
    ) -> None:
        known = {**ANSWERS, **(answers or {})}
        self.operators = [_rules_of(stage, known, bucket_of) for stage in stages_of(plan)]
        self.held_back = _held_back(plan)

    def batch(self, rows: Sequence[Row], watermark: int | None, now: int = 0) -> BatchResult:
        """One micro-batch: each operator takes what the one before it put out."""
        result = BatchResult(watermark)
        for rules, behind in zip(self.operators, self.held_back, strict=True):
            reached = None if watermark is None else watermark - behind
            got = rules.batch(rows, reached, now)
            if rules is not self.operators[0]:
                del got.counts["rows_in"]  # these came in once already
            result.counts += got.counts
            rows = got.channels.pop(MAIN, [])
            for channel, others in got.channels.items():
                result.put(channel, *others)
        result.put(MAIN, *rows)
        return result

    def end(self) -> BatchResult:
        """The end of a batch query: everything closes."""
        return self.batch([], 1 << 60)

    def results(self) -> list[Row]:
        """The current results of all open windows of the last operator."""
        last = self.operators[-1]
        assert isinstance(last, WindowRules), "only windows have results that may still change"
        return last.results()


def _rules_of(
    stage: Output,
    answers: Mapping[type[Aggregate], Answer],
    bucket_of: Callable[[Row], Hashable],
) -> Rules:
    if isinstance(stage, Reorder):
        return ReorderRules(stage)
    window = stage.windowed.window
    if isinstance(window, Sliding):
        return SlidingRules(stage, window, answers)
    return WindowRules(stage, window, answers, bucket_of)


def _held_back(plan: Output) -> list[int]:
    """How far each operator lies behind the sources: what those above it may still put out."""
    behind = [0]
    for stage in stages_of(plan)[1:]:
        assert isinstance(stage.feed, Derived)
        behind.append(behind[-1] + stage.feed.hold_back)
    return behind
