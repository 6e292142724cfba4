"""A query as a value: its sources, its operators, how rows get from one to the next, where they leave.

Everything here is known before any Spark. Nothing here walks a plan: `compile` did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tidegate.plan.channels import LATE_COLUMNS, REJECTED, REJECTED_COLUMNS
from tidegate.plan.identity import Values
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.sources import Source
from tidegate.plan.steps import Policy, Step
from tidegate.plan.time import Micros


@dataclass(frozen=True)
class Edge:
    """Rows on their way into an operator: of sources, or another operator's results, through steps."""

    #: What late rows and messages call it: the operator, and of several inputs which one.
    name: str
    input: Input
    #: The sources, by number, or the vertex whose results these are.
    upstream: tuple[int, ...] | int
    #: How far the watermark of these rows lies behind that of the operator they come from.
    delay: Micros
    #: Steps that run before packing, each tuple in a Python stage of its own.
    stages: tuple[tuple[Step, ...], ...] = ()
    #: Steps that run together with packing.
    fused: tuple[Step, ...] = ()
    #: Were the results triggered by the watermark? Then they came before it, and none of them is late.
    watermark_triggered: bool = False

    @property
    def sources(self) -> tuple[int, ...]:
        """The sources it reads; none if it reads an operator."""
        return () if isinstance(self.upstream, int) else self.upstream

    @property
    def vertex(self) -> int | None:
        """The operator it reads, if it reads one."""
        return self.upstream if isinstance(self.upstream, int) else None

    @property
    def time(self) -> str:
        return self.input.upstream.time

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*(step for stage in self.stages for step in stage), *self.fused)


@dataclass(frozen=True)
class Vertex:
    """One stateful operator."""

    number: int
    #: What checkpoints call it: it stays where windows, keys or other operators change.
    id: str
    #: What metrics, explain and messages call it.
    name: str
    operator: AnyOperator
    edges: tuple[Edge, ...]
    #: How far the watermark it works by lies behind that of the sources.
    delay: Micros
    #: The channel of its results; None if only other operators read them.
    channel: str | None
    #: What its stored state depends on, and under `settings` what may change between two starts.
    identity: Values


@dataclass(frozen=True)
class Dataflow:
    """All there is to know about a query. Each vertex stands after those it reads."""

    sources: tuple[Source, ...]
    vertices: tuple[Vertex, ...]
    #: Every channel, with the columns of its rows.
    channels: Mapping[str, pa.Schema]
    counters: tuple[str, ...]
    #: How it sheds load, if it does.
    shedding: Policy | None = None

    @property
    def outputs(self) -> dict[str, Vertex]:
        """The operators whose results are written, by channel."""
        leaving = {vertex.channel: vertex for vertex in self.vertices}
        return {channel: leaving[channel] for channel in self.channels if channel in leaving}

    @property
    def operators(self) -> tuple[AnyOperator, ...]:
        return tuple(vertex.operator for vertex in self.vertices)

    def first_read_by(self, vertex: Vertex) -> list[int]:
        """The sources that a vertex reads and none before it."""
        before = {one for v in self.vertices[: vertex.number] for e in v.edges for one in e.sources}
        read = dict.fromkeys(one for edge in vertex.edges for one in edge.sources)
        return [one for one in read if one not in before]

    @property
    def late_channels(self) -> set[str]:
        """The channels that late rows go to."""
        channels = {edge.input.late.channel for vertex in self.vertices for edge in vertex.edges}
        return {channel for channel in channels if channel is not None}

    def added_durations(self, channel: str) -> tuple[str, ...]:
        """The intervals among the columns that a channel adds to rows."""
        added: tuple[pa.Field, ...] = REJECTED_COLUMNS if channel == REJECTED else ()
        if channel in self.late_channels:
            added = LATE_COLUMNS
        return tuple(field.name for field in added if pa.types.is_duration(field.type))

    @property
    def may_be_idle(self) -> bool:
        return any(source.idle_after is not None for source in self.sources)
