"""The ways rows take into operators: from a source or another operator, through steps, to a port."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow, Edge
from tidegate.operators.kernel import Kernel, Parcel, Port
from tidegate.operators.shedding import Decision
from tidegate.operators.steps import take_steps
from tidegate.plan.channels import MAIN
from tidegate.plan.steps import Step


@dataclass(frozen=True)
class Way:
    """How rows of a source, or of an operator, come into a port of another."""

    port: Port
    time: str
    #: The steps that they take before, each in a crossing from Spark to Python of its own.
    crossings: tuple[tuple[Step, ...], ...] = ()
    #: Those that they take together with packing.
    steps: tuple[Step, ...] = ()
    #: The column with each row's own gap, where sessions have one.
    gap: str | None = None

    @classmethod
    def of(cls, edge: Edge, gap: str | None, port: Port) -> Way:
        return cls(port, edge.time, edge.stages, edge.fused, gap)

    def in_one(self) -> Way:
        """With all steps together: rows that go several ways are handed over once."""
        steps = (step for crossing in self.crossings for step in crossing)
        return replace(self, crossings=(), steps=(*steps, *self.steps))

    @property
    def sheds(self) -> bool:
        return any(step.sheds is not None for step in self.in_one().steps)

    def pack(
        self, rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
    ) -> Iterator[Parcel]:
        """Parcels for the operator."""
        rows, parcels = take_steps(self.steps, rows, self.time, decision, buckets[0])
        yield from parcels
        yield from self.port.pack(rows, buckets)

    def begins_like(self, other: Way) -> bool:
        """Is the first step the same one?"""
        return self.steps != () and self.steps[:1] == other.steps[:1] and self.time == other.time


def take_steps_or_part(ways: Sequence[Way]) -> bool:
    """Do rows of these ways take steps, or go to several operators?"""
    return len(ways) > 1 or bool(ways[0].in_one().steps)


def gap_at_source(ways: Sequence[Way]) -> str | None:
    """The column with each row's own gap, where it is looked at before any step can change it."""
    return None if take_steps_or_part(ways) else ways[0].gap


def pack_along(
    ways: Sequence[Way], rows: pa.Table, decision: Decision | None, buckets: Sequence[int]
) -> Iterator[Parcel]:
    """Parcels for all operators that rows go to.

    Steps that several ways begin with are taken once. Rows without an event time go the first way
    alone: each of them is one error.
    """
    first, *others = ways
    alike = [way for way in others if way.begins_like(first)]
    if alike:
        taken, parcels = take_steps(first.steps[:1], rows, first.time, decision, buckets[0])
        yield from parcels
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
    """The ways that rows take: those of each source, and those of each operator's results."""

    of_sources: dict[int, list[Way]]
    of_operators: dict[int, list[Way]]

    @classmethod
    def through(cls, dataflow: Dataflow, kernels: Sequence[Kernel]) -> Ways:
        of_sources: dict[int, list[Way]] = {}
        of_operators: dict[int, list[Way]] = {}
        for vertex, kernel in zip(dataflow.vertices, kernels, strict=True):
            for edge, port in zip(vertex.edges, kernel.ports, strict=True):
                way = Way.of(edge, vertex.operator.gap_column, port)
                if edge.vertex is not None:
                    of_operators.setdefault(edge.vertex, []).append(way)
                for source in edge.sources:
                    of_sources.setdefault(source, []).append(way)
        leaving = {number for number, kernel in enumerate(kernels) if kernel.outlet != MAIN}
        return cls(_shared(of_sources), _shared(of_operators, leaving))


def _shared(ways: dict[int, list[Way]], leaving: Collection[int] = ()) -> dict[int, list[Way]]:
    """The ways of rows; to leave the query is one of them."""
    return {
        number: [way.in_one() for way in taken] if len(taken) > 1 or number in leaving else taken
        for number, taken in ways.items()
    }
