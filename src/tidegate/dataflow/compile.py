"""From an optimized plan to a dataflow: the only place that walks a plan to see who reads whom."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tidegate.dataflow.graph import Dataflow, Edge, Vertex
from tidegate.errors import PlanError
from tidegate.plan.counters import COUNTERS
from tidegate.plan.feeds import Source, crossings, made_due, read_by
from tidegate.plan.inlets import Inlet
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import Output, Plan, Together, outlets_of
from tidegate.plan.steps import Policy
from tidegate.plan.time import Micros


def compile(plan: Plan) -> Dataflow:
    """The dataflow of a plan. Operators that branches share are one vertex, and run once."""
    builder = _Builder(shares=isinstance(plan, Together))
    for channel, operator in outlets_of(plan).items():
        builder.add(operator, channel)
    vertices = tuple(builder.vertices)
    return Dataflow(
        tuple(builder.sources[number] for number in sorted(builder.sources)),
        vertices,
        plan.channels,
        _counters(vertices),
        _shedding(vertices),
    )


@dataclass
class _Builder:
    """A dataflow as far as it has been built."""

    shares: bool
    vertices: list[Vertex] = field(default_factory=list)
    sources: dict[int, Source] = field(default_factory=dict)

    def add(self, operator: Output, channel: str | None = None) -> int:
        """The number of an operator; it is added after those it reads, unless a branch has added it."""
        for known in self.vertices if self.shares else ():
            if known.operator == operator:
                if channel is not None:
                    self.vertices[known.number] = replace(known, channel=channel)
                return known.number
        upstream = [self._upstream(inlet) for inlet in operator.inlets]
        number = len(self.vertices)
        name = f"{number + 1} {operator.title}"
        names = [name] if len(upstream) == 1 else [f"{name}, {side}" for side in SIDES]
        edges = tuple(map(_edge, names, operator.inlets, upstream))
        self.vertices.append(Vertex(number, name, operator, edges, self._delay(edges), channel))
        return number

    def _upstream(self, inlet: Inlet) -> int | tuple[int, ...]:
        """Another vertex, or sources. Branches share those they have in common; others share none."""
        if inlet.above:
            return self.add(inlet.above.input)
        numbers = []
        for source in read_by(inlet.feed):
            number = source.number if self.shares else len(self.sources)
            self.sources[number] = source
            numbers.append(number)
        return tuple(numbers)

    def _delay(self, edges: tuple[Edge, ...]) -> Micros:
        delays = [
            edge.delay + (0 if edge.vertex is None else self.vertices[edge.vertex].delay)
            for edge in edges
        ]
        return Micros(max(delays))


def _edge(name: str, inlet: Inlet, upstream: int | tuple[int, ...]) -> Edge:
    *before, last = crossings(inlet.feed) or (None,)
    fused = last.steps if last is not None and last.packed else ()
    apart = [*before, last] if last is not None and not last.packed else before
    return Edge(
        name,
        inlet,
        upstream,
        inlet.above.hold_back if inlet.above else Micros(0),
        tuple(crossing.steps for crossing in apart),
        fused,
        made_due(inlet.feed),
    )


def _counters(vertices: tuple[Vertex, ...]) -> tuple[str, ...]:
    """Every counter that operators, and the steps before them, may keep."""
    own = [name for vertex in vertices for name in vertex.operator.counters]
    steps = (step for vertex in vertices for edge in vertex.edges for step in edge.steps)
    return tuple(dict.fromkeys([*COUNTERS, *own, *(name for step in steps for name in step.counters)]))


def _shedding(vertices: tuple[Vertex, ...]) -> Policy | None:
    steps = (step for vertex in vertices for edge in vertex.edges for step in edge.steps)
    policies = {step.sheds for step in steps if step.sheds is not None}
    if len(policies) > 1:
        raise PlanError(f"shed() with several policies in one query: {', '.join(sorted(policies))}")
    return policies.pop() if policies else None
