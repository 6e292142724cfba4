"""The rules, written for reading: every window keeps a list of its own rows, and nothing is clever.

It shares no code with the kernels. Where a kernel and these rules disagree, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from tests.oracle.admission_rules import AdmissionRules
from tests.oracle.answers import ANSWERS, Answer
from tests.oracle.fold_rules import DedupeRules
from tests.oracle.join_rules import join_rules_of
from tests.oracle.row_rules import ReorderRules, SlidingRules
from tests.oracle.rules import OperatorRules
from tests.oracle.window_rules import WindowRules
from tidegate.dataflow import compile
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import MAIN
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import AnyOperator, Join
from tidegate.plan.pass_through import Admit, Dedupe, Reorder
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import AllTime, Hopping, Session, Sliding
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row


class Oracle:
    """What each micro-batch of a plan must put out, operator by operator.

    Windows that wait for their turn (`periodic`) are heard when their bucket is: `bucket_of` says
    which one a row of the last operator's input belongs to.
    """

    def __init__(
        self,
        plan: AnyOperator,
        answers: Mapping[type[Aggregate], Answer] | None = None,
        bucket_of: Callable[[Row], Hashable] = lambda _: None,
    ) -> None:
        known = {**ANSWERS, **(answers or {})}
        self.plan = plan
        stages, names = compile(plan).operators, [vertex.name for vertex in compile(plan).vertices]

        def rules_of(stage: AnyOperator) -> OperatorRules:
            rules = _rules_of(stage, known, bucket_of)
            sides = [f", {side}" for side in SIDES] if isinstance(stage, Join) else [""]
            for intake, side in zip(rules.intakes, sides, strict=True):
                intake.operator = names[stages.index(stage)] + side
            return rules

        self.last = Operator(plan, rules_of)

    def batch(self, rows: Sequence[Row], watermark: int | None, now: int = 0) -> BatchResult:
        """One micro-batch of the plan's only source."""
        return self.batch_of([rows], watermark, now)

    def batch_of(
        self, rows_by_source: Sequence[Sequence[Row]], watermark: int | None, now: int = 0
    ) -> BatchResult:
        """One micro-batch: rows of each source, in the order of the plan's sources."""
        assert len(rows_by_source) == len(self.plan.sources), "rows are given for each source"
        result = BatchResult(watermark)
        result.put(MAIN, *self.last.batch(iter(rows_by_source), result, now))
        return result

    def end(self) -> BatchResult:
        """The end of a batch query: everything closes."""
        return self.batch_of([[] for _ in self.plan.sources], 1 << 61)

    def results(self) -> list[Row]:
        """The current results of all open windows of the last operator."""
        last = self.last.rules
        assert isinstance(last, WindowRules), "only windows have results that may still change"
        return last.results()


class Operator:
    """An operator of a plan, and those that feed it."""

    def __init__(self, stage: AnyOperator, rules_of: Callable[[AnyOperator], OperatorRules]) -> None:
        self.rules = rules_of(stage)
        #: For each input the operator whose results it takes, or the number of sources it reads.
        self.feeds: list[Operator | int] = []
        #: How far it lies behind the sources: what those above it may still put out.
        self.behind = 0
        for given in stage.inputs:
            assert not given.upstream.steps_taken, "what functions do with rows is up to their tests"
            if given.upstream.operator is not None:
                above = Operator(given.upstream.operator, rules_of)
                self.behind = max(self.behind, above.behind + stage.watermark_delay(given))
                self.feeds.append(above)
            else:
                self.feeds.append(len(given.upstream.read))

    def batch(self, sources: Iterator[Sequence[Row]], result: BatchResult, now: int) -> list[Row]:
        """What it puts out, given what those above it do; all that goes elsewhere is in the result."""
        inputs = [self._rows_of(feed, sources, result, now) for feed in self.feeds]
        watermark = result.watermark_micros
        got = self.rules.batch(inputs, None if watermark is None else watermark - self.behind, now)
        result.counts += got.counts
        rows = got.channels.pop(MAIN, [])
        for channel, others in got.channels.items():
            result.put(channel, *others)
        return rows

    def _rows_of(
        self, feed: Operator | int, sources: Iterator[Sequence[Row]], result: BatchResult, now: int
    ) -> list[Row]:
        if isinstance(feed, Operator):
            return feed.batch(sources, result, now)
        return [row for _ in range(feed) for row in next(sources)]


def _rules_of(
    stage: AnyOperator,
    answers: Mapping[type[Aggregate], Answer],
    bucket_of: Callable[[Row], Hashable],
) -> OperatorRules:
    if isinstance(stage, Join):
        return join_rules_of(stage)
    if isinstance(stage, Reorder):
        return ReorderRules(stage)
    if isinstance(stage, Dedupe):
        return DedupeRules(stage)
    if isinstance(stage, Admit):
        return AdmissionRules(stage)
    assert isinstance(stage, WindowedAggregate)
    window = stage.windowed.window
    if isinstance(window, Sliding):
        return SlidingRules(stage, window, answers)
    assert isinstance(window, Hopping | Session | AllTime)
    return WindowRules(stage, window, answers, bucket_of)
