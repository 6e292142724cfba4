"""Which kernel runs an operator, and how it is placed among the others of a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow, Vertex
from tidegate.kernels.admission.kernel import AdmissionKernel
from tidegate.kernels.contract import (
    Clock,
    Input,
    Kernel,
    KeyedKernel,
    Outcome,
    Unpack,
    retractions_first,
)
from tidegate.kernels.dedupe import DedupeKernel
from tidegate.kernels.folds import FoldKernel
from tidegate.kernels.joins.fixed_windows import FixedWindowJoin
from tidegate.kernels.joins.kernel import JoinKernel
from tidegate.kernels.joins.sessions import SessionJoin
from tidegate.kernels.messages import Message
from tidegate.kernels.rows.reorder import ReorderKernel
from tidegate.kernels.rows.sliding import SlidingKernel
from tidegate.kernels.sessions.kernel import SessionKernel
from tidegate.kernels.windows.kernel import SliceKernel
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Join
from tidegate.plan.pass_through import Admit, Dedupe, Reorder
from tidegate.plan.time import render
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import AllTime, Hopping, Session, Sliding
from tidegate.state.pages import BucketState

#: The kernel of each operator, by what it is and what its windows are.
KERNELS: dict[tuple[type, ...], Callable[[Any], Kernel]] = {
    (WindowedAggregate, Hopping): SliceKernel,
    (WindowedAggregate, Session): SessionKernel,
    (WindowedAggregate, Sliding): SlidingKernel,
    (WindowedAggregate, AllTime): FoldKernel,
    (Join, Hopping, Hopping): lambda plan: JoinKernel(FixedWindowJoin(plan)),
    (Join, Session, Session): lambda plan: JoinKernel(SessionJoin(plan)),
    (Reorder,): ReorderKernel,
    (Dedupe,): DedupeKernel,
    (Admit,): AdmissionKernel,
}


def kernels_of(dataflow: Dataflow, *, ansi: bool = True) -> list[Kernel]:
    """The kernel of each vertex; in Spark's ANSI mode, the default, results that overflow are errors."""
    return [_placed(vertex, ansi) for vertex in dataflow.vertices]


def unpack_of(dataflow: Dataflow, kernels: Sequence[Kernel], channel: str) -> Unpack:
    """How rows of a channel are read: results by their operator; other rows travel as they are."""
    if vertex := dataflow.outputs.get(channel):
        return kernels[vertex.number].unpack
    schema = dataflow.channels[channel]
    return lambda tables: tables[-1].cast(schema)


def _placed(vertex: Vertex, ansi: bool) -> Kernel:
    operator, output_channel = vertex.operator, vertex.channel or MAIN
    kernel = KERNELS[type(operator), *map(type, operator.windows)](operator)
    if isinstance(kernel, KeyedKernel):
        kernel.reports_overflow = ansi
    inputs = list(zip(vertex.edges, kernel.inputs, strict=True))
    for edge, input in inputs:
        input.connect(edge.name)
    if vertex.number == 0 and output_channel == MAIN:
        return kernel  # it reads sources, and nothing stands before it
    triggered = frozenset(input.name for edge, input in inputs if edge.watermark_triggered)
    return Chained(kernel, vertex.delay, triggered, output_channel, retracts=operator.retracts)


class Chained:
    """A kernel behind others: it ingests their results first, and its watermark is delayed.

    What the operators before it emitted because of the watermark came before the watermark. So it is
    ingested under the watermark of the batch before, under which none of it can be late. After that the
    watermark advances, less what the operators before may still hold.
    """

    def __init__(
        self,
        kernel: Kernel,
        delay: int,
        triggered: frozenset[str],
        output_channel: str = MAIN,
        *,
        retracts: bool,
    ) -> None:
        self.kernel = kernel
        self.delay = delay
        #: The inputs with results that the watermark triggered. The others have rows of sources.
        self.triggered = triggered
        self.output_channel = output_channel
        self.retracts = retracts

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.kernel.inputs

    def step(self, state: BucketState, messages: Sequence[Message], clock: Clock) -> Outcome:
        before = [message for message in messages if message.name in self.triggered]
        others = [message for message in messages if message.name not in self.triggered]
        outcome = self.kernel.step(state, before, Clock(None, clock.now)) if before else Outcome()
        if clock.watermark is not None or others or not before:
            reached = None if clock.watermark is None else clock.watermark - self.delay
            outcome = outcome.then(self.kernel.step(state, others, Clock(reached, clock.now)))
        if self.retracts:
            outcome.tables = retractions_first(outcome.tables)
        outcome.tables = [
            (self.output_channel if name == MAIN else name, sent) for name, sent in outcome.tables
        ]
        if outcome.due is not None:
            outcome.due += self.delay
        return outcome

    def physical_operators(self) -> list[str]:
        first, *others = self.kernel.physical_operators()
        if not self.triggered:
            return [first, *others]
        return [f"{first} behind the sources by {render(self.delay)}", *others]

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self.kernel.unpack(tables)
