"""The ways rows take into operators: from a source or another operator, through steps, to an input."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow, Edge, Vertex
from tidegate.operators.kernel import Input, Kernel
from tidegate.operators.messages import Message
from tidegate.operators.shedding import Decision
from tidegate.operators.steps import take_steps
from tidegate.plan.channels import MAIN
from tidegate.plan.steps import Step


@dataclass(frozen=True)
class Way:
    """How rows of a source, or of an operator, reach an input of another."""

    input: Input
    #: The number of the operator.
    vertex: int
    time: str
    #: Steps that run before packing, each in a crossing from Spark to Python of its own.
    crossings: tuple[tuple[Step, ...], ...] = ()
    #: Steps that run together with packing.
    steps: tuple[Step, ...] = ()
    #: The column with each row's own gap, where sessions have one.
    gap: str | None = None

    @classmethod
    def of(cls, vertex: Vertex, edge: Edge, input: Input) -> Way:
        gap = vertex.operator.gap_column
        return cls(input, vertex.number, edge.time, edge.stages, edge.fused, gap)

    def in_one(self) -> Way:
        """The same way with all steps together: rows that go several ways cross to Python once."""
        steps = (step for crossing in self.crossings for step in crossing)
        return replace(self, crossings=(), steps=(*steps, *self.steps))

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

    def begins_like(self, other: Way) -> bool:
        """Is the first step the same one?"""
        return self.steps != () and self.steps[:1] == other.steps[:1] and self.time == other.time


def take_steps_or_part(ways: Sequence[Way]) -> bool:
    """Do rows of these ways take steps, or go to several operators?"""
    return len(ways) > 1 or bool(ways[0].in_one().steps)


def gap_at_source(ways: Sequence[Way]) -> str | None:
    """The column with each row's own gap, if no step can change it before it is checked."""
    return None if take_steps_or_part(ways) else ways[0].gap


def pack_along(
    ways: Sequence[Way], rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
) -> Iterator[Message]:
    """Messages for all operators that read these rows.

    Steps that several ways begin with run once. Rows without an event time only go the first way: each
    of them is one error.
    """
    first, *others = ways
    alike = [way for way in others if way.begins_like(first)]
    if alike:
        taken, messages = take_steps(first.steps[:1], rows, first.time, decision, buckets[0])
        yield from messages
        behind = [replace(way, steps=way.steps[1:]) for way in (first, *alike)]
        yield from pack_along(behind, taken, decision, buckets)
    else:
        yield from first.pack(rows, decision, buckets)
    apart = [way for way in others if not way.begins_like(first)]
    if apart:
        valid = rows.filter(rows.column(first.time).is_valid())
        yield from pack_along(apart, valid, decision, buckets)


@dataclass(frozen=True)
class Ways:
    """The ways of each source's rows, and of each operator's results."""

    of_sources: dict[int, list[Way]]
    of_operators: dict[int, list[Way]]

    @classmethod
    def through(cls, dataflow: Dataflow, kernels: Sequence[Kernel]) -> Ways:
        of_sources: dict[int, list[Way]] = {}
        of_operators: dict[int, list[Way]] = {}
        for vertex, kernel in zip(dataflow.vertices, kernels, strict=True):
            for edge, input in zip(vertex.edges, kernel.inputs, strict=True):
                way = Way.of(vertex, edge, input)
                if edge.vertex is not None:
                    of_operators.setdefault(edge.vertex, []).append(way)
                for source in edge.sources:
                    of_sources.setdefault(source, []).append(way)
        leaving = {number for number, kernel in enumerate(kernels) if kernel.output_channel != MAIN}
        return cls(_shared(of_sources), _shared(of_operators, leaving))


def _shared(ways: dict[int, list[Way]], leaving: Collection[int] = ()) -> dict[int, list[Way]]:
    """The ways of rows; leaving the query counts as one of them."""
    return {
        number: [way.in_one() for way in taken] if len(taken) > 1 or number in leaving else taken
        for number, taken in ways.items()
    }
