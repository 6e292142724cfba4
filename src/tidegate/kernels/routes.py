"""The routes rows take into operators: from a source or another operator, through steps, to an input."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow, Edge, Vertex
from tidegate.kernels.contract import Input, Kernel
from tidegate.kernels.messages import Message
from tidegate.kernels.shedding import Decision
from tidegate.kernels.steps import take_steps
from tidegate.plan.channels import MAIN
from tidegate.plan.steps import Step


@dataclass(frozen=True)
class Route:
    """How rows of a source, or of an operator, reach an input of another."""

    input: Input
    #: The number of the operator.
    vertex: int
    time: str
    #: Steps that run before packing, each in a Python stage of its own.
    stages: tuple[tuple[Step, ...], ...] = ()
    #: Steps that run together with packing.
    steps: tuple[Step, ...] = ()
    #: The column with each row's own gap, where sessions have one.
    gap: str | None = None

    @classmethod
    def of(cls, vertex: Vertex, edge: Edge, input: Input) -> Route:
        gap = vertex.operator.gap_column
        return cls(input, vertex.number, edge.time, edge.stages, edge.fused, gap)

    def in_one(self) -> Route:
        """The same route with all steps together: rows that go several routes cross to Python once."""
        steps = (step for stage in self.stages for step in stage)
        return replace(self, stages=(), steps=(*steps, *self.steps))

    @property
    def sheds(self) -> bool:
        return any(step.sheds is not None for step in self.in_one().steps)

    def pack(
        self, rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
    ) -> Iterator[Message]:
        """Messages for the input, after the steps."""
        if self.steps:
            rows, messages = take_steps(self.steps, rows, self.time, decision, buckets[0])
            yield from messages
        for message in self.input.pack(rows, buckets):
            yield message.addressed_to(self.vertex)

    def begins_like(self, other: Route) -> bool:
        """Is the first step the same one?"""
        return self.steps != () and self.steps[:1] == other.steps[:1] and self.time == other.time


def take_steps_or_part(routes: Sequence[Route]) -> bool:
    """Do rows of these routes take steps, or go to several operators?"""
    return len(routes) > 1 or bool(routes[0].in_one().steps)


def gap_at_source(routes: Sequence[Route]) -> str | None:
    """The column with each row's own gap, if no step can change it before it is checked."""
    return None if take_steps_or_part(routes) else routes[0].gap


def pack_along(
    routes: Sequence[Route], rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
) -> Iterator[Message]:
    """Messages for all operators that read these rows.

    Steps that several routes begin with run once. Rows without an event time only take the first
    route: each of them is one error.
    """
    first, *others = routes
    alike = [route for route in others if route.begins_like(first)]
    if alike:
        taken, messages = take_steps(first.steps[:1], rows, first.time, decision, buckets[0])
        yield from messages
        behind = [replace(route, steps=route.steps[1:]) for route in (first, *alike)]
        yield from pack_along(behind, taken, decision, buckets)
    else:
        yield from first.pack(rows, decision, buckets)
    apart = [route for route in others if not route.begins_like(first)]
    if apart:
        valid = rows.filter(rows.column(first.time).is_valid())
        yield from pack_along(apart, valid, decision, buckets)


@dataclass(frozen=True)
class Routes:
    """The routes of each source's rows, and of each operator's results."""

    of_sources: dict[int, list[Route]]
    of_operators: dict[int, list[Route]]

    @classmethod
    def through(cls, dataflow: Dataflow, kernels: Sequence[Kernel]) -> Routes:
        of_sources: dict[int, list[Route]] = {}
        of_operators: dict[int, list[Route]] = {}
        for vertex, kernel in zip(dataflow.vertices, kernels, strict=True):
            for edge, input in zip(vertex.edges, kernel.inputs, strict=True):
                route = Route.of(vertex, edge, input)
                if edge.vertex is not None:
                    of_operators.setdefault(edge.vertex, []).append(route)
                for source in edge.sources:
                    of_sources.setdefault(source, []).append(route)
        leaving = {number for number, kernel in enumerate(kernels) if kernel.output_channel != MAIN}
        return cls(_shared(of_sources), _shared(of_operators, leaving))


def _shared(routes: dict[int, list[Route]], leaving: Collection[int] = ()) -> dict[int, list[Route]]:
    """The routes of rows; leaving the query counts as one of them."""
    return {
        number: [route.in_one() for route in taken] if len(taken) > 1 or number in leaving else taken
        for number, taken in routes.items()
    }
