"""From an optimized plan to a dataflow: the only place that asks a plan who reads whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow, Edge, Vertex
from tidegate.errors import PlanError
from tidegate.plan.channels import COUNTERS, ERROR_CHANNEL, ERRORS
from tidegate.plan.identity import Values
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator, Plan
from tidegate.plan.sources import Source
from tidegate.plan.steps import Policy
from tidegate.plan.time import Micros

#: What an input reads that is not another operator, in checkpoints.
SOURCES = "sources"


def compile(plan: Plan) -> Dataflow:
    """The dataflow of a plan. Operators that branches share are one vertex, and run once."""
    builder = _Builder(dict(plan.outputs), plan.shares)
    for operator in plan.outputs.values():
        builder.add(operator)
    vertices = tuple(builder.vertices)
    return Dataflow(
        tuple(builder.sources[number] for number in sorted(builder.sources)),
        vertices,
        _channels(builder.outputs, vertices),
        _counters(vertices),
        _shedding(vertices),
    )


@dataclass
class _Builder:
    """A dataflow as far as it has been built."""

    outputs: Mapping[str, AnyOperator]
    shares: bool
    vertices: list[Vertex] = field(default_factory=list)
    sources: dict[int, Source] = field(default_factory=dict)

    def add(self, operator: AnyOperator) -> int:
        """The number of an operator; it is added after those it reads, unless a branch has added it."""
        for known in self.vertices if self.shares else ():
            if known.operator == operator:
                return known.number
        upstream = [self._upstream(one) for one in operator.inputs]
        number = len(self.vertices)
        name = f"{number + 1} {operator.title}"
        names = [name] if len(upstream) == 1 else [f"{name}, {side}" for side in operator.input_names]
        delays = map(operator.watermark_delay, operator.inputs)
        edges = tuple(map(_edge, names, operator.inputs, upstream, delays))
        channel = next((name for name, end in self.outputs.items() if end == operator), None)
        self.vertices.append(
            Vertex(
                number,
                self._id(operator),
                name,
                operator,
                edges,
                self._delay(edges),
                channel,
                self._identity(operator, edges, channel),
            )
        )
        return number

    def _upstream(self, one: Input) -> int | tuple[int, ...]:
        """Another vertex, or sources. Branches share those they have in common; others share none."""
        if one.upstream.operator is not None:
            return self.add(one.upstream.operator)
        numbers = []
        for source in one.upstream.read:
            number = source.number if self.shares else len(self.sources)
            self.sources[number] = source
            numbers.append(number)
        return tuple(numbers)

    def _id(self, operator: AnyOperator) -> str:
        """Its kind, numbered from the sources on: windows, keys and operators of other kinds may change.

        Results side by side may be renamed, so their names are no part of it.
        """
        before = sum(vertex.operator.kind == operator.kind for vertex in self.vertices)
        return f"{operator.kind} {before + 1}" if before else operator.kind

    def _identity(self, operator: AnyOperator, edges: tuple[Edge, ...], channel: str | None) -> Values:
        own = operator.identity()
        read = (SOURCES if edge.vertex is None else self.vertices[edge.vertex].id for edge in edges)
        inputs = {
            name: {"reads": upstream, **given}
            for upstream, (name, given) in zip(read, own["inputs"].items(), strict=True)
        }
        return own | {"inputs": inputs, "settings": {"channel": channel, **operator.settings()}}

    def _delay(self, edges: tuple[Edge, ...]) -> Micros:
        delays = [
            edge.delay + (0 if edge.vertex is None else self.vertices[edge.vertex].delay)
            for edge in edges
        ]
        return Micros(max(delays))


def _edge(name: str, one: Input, upstream: int | tuple[int, ...], delay: Micros) -> Edge:
    *before, last = one.upstream.python_stages or (None,)
    fused = last.steps if last is not None and last.packed else ()
    apart = [*before, last] if last is not None and not last.packed else before
    return Edge(
        name,
        one,
        upstream,
        delay,
        tuple(stage.steps for stage in apart),
        fused,
        one.upstream.watermark_triggered,
    )


def _channels(outputs: Mapping[str, AnyOperator], vertices: tuple[Vertex, ...]) -> dict[str, pa.Schema]:
    """Every channel, with the columns of its rows; results by their names."""
    channels = {name: operator.schema for name, operator in outputs.items()} | {ERROR_CHANNEL: ERRORS}
    for name, columns in (sent for vertex in vertices for sent in vertex.operator.side_outputs):
        schema = pa.schema([column.with_nullable(True) for column in columns])
        if channels.setdefault(name, schema) != schema:
            raise PlanError(f"rows of other columns go to the channel {name!r} already: name another")
    return channels


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
