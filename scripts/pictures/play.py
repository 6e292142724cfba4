"""Transcripts, played by the kernels: what each batch did, what was late in it, what it left open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidegate.optimize import optimize
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import Retracting, SideOutput
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import AllTime, Sliding
from tidegate.testing import BatchResult, Changelog, KernelHost, Transcript
from tidegate.testing.table import Row
from tidegate.testing.transcript import Step

_SET_ASIDE = "set_aside"


@dataclass(frozen=True)
class Beat:
    """What a batch was given, and what it did."""

    label: str
    #: The rows of each source.
    rows: Sequence[Sequence[Row]]
    result: BatchResult
    #: The rows of the batch that are late.
    late: Sequence[Row] = ()
    #: Windows that have rows and have put out nothing yet.
    open: Sequence[Row] = ()


def as_written(transcript: Transcript, host: KernelHost) -> Iterator[Beat]:
    """The batches of a transcript; one that says what comes out must hold."""
    late_rows, windows = _LateRows(transcript.plan), _OpenWindows(transcript.plan)
    results = []
    for number, step in enumerate(transcript.steps, 1):
        host.now = step.now
        results.append(host.batch(*step.rows))
        late, left_open = late_rows.of(step, results[-1]), windows.after(step, results[-1])
        yield Beat(f"batch {number}", step.rows, results[-1], late, left_open)
    if any(step.expected.channels for step in transcript.steps):
        assert transcript.complaints(results) == [], "a picture shows what its transcript says"


class _LateRows:
    """The same plan with a channel for its late rows."""

    def __init__(self, plan: AnyOperator) -> None:
        numbers = iter(range(len(plan.inputs)))

        def aside(given: Input) -> Input:
            if given.upstream.watermark_triggered:
                return given
            return replace(given, late=SideOutput(f"{_SET_ASIDE}_{next(numbers)}"))

        self._host = KernelHost(optimize(plan.map_inputs(aside)))

    def of(self, step: Step, result: BatchResult) -> list[Row]:
        self._host.now = step.now
        channels = self._host.batch(*step.rows).channels
        late = [row for name, rows in channels.items() if name.startswith(_SET_ASIDE) for row in rows]
        if all(edge.watermark_triggered for edge in self._host.dataflow.vertices[-1].edges):
            return late
        assert len(late) == result.counts["late_rows"], "the same rows are late by either policy"
        return late


class _OpenWindows:
    """The same windows as a changelog: what it has and the plan has not put out yet is open."""

    def __init__(self, plan: AnyOperator) -> None:
        self._out: list[Row] = []
        self._host: KernelHost | None = None
        if not isinstance(plan, WindowedAggregate) or plan.retracts:
            return
        if not isinstance(plan.windowed.window, Sliding | AllTime):
            self._host = KernelHost(WindowedAggregate(plan.input, Retracting()))
            self._table = Changelog(plan.keyed.keys)
            self._identity = (*plan.keyed.keys, "window_start", "window_end")

    def after(self, step: Step, result: BatchResult) -> list[Row]:
        if self._host is None:
            return []
        self._out += result.main
        table = self._table.apply(self._host.batch(*step.rows).main)
        return [row for row in table if not any(self._same(row, out) for out in self._out)]

    def _same(self, row: Row, out: Row) -> bool:
        return all(row[name] == out[name] for name in self._identity)
