"""Jobs explained: logical and physical plan, what is held back, where rows go."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidegate.connectors import SINKS, SOURCES
from tidegate.dataflow import Dataflow, compile
from tidegate.dataflow.explain import render_logical, render_physical
from tidegate.kernels.registry import kernels_of
from tidegate.optimize import optimize
from tidegate.pipeline.load import Job
from tidegate.plan.nodes import Plan
from tidegate.plan.sources import Node
from tidegate.plan.time import render
from tidegate.sql.program import Projection


def as_text(job: Job) -> str:
    """All of it, one section after the other."""
    sections = {
        "Read": _lines_read(job),
        "Logical plan": _logical(job),
        "Physical plan": _physical(job),
        "Watermarks": [
            f"{operator}: behind the sources by {held}" for operator, held in _hold_backs(job).items()
        ],
        "Written": [*_selected(job), *(f"{channel} → {sink}" for channel, sink in _sinks(job).items())],
    }
    shown = [line for title, lines in sections.items() if lines for line in (f"== {title} ==", *lines)]
    return "\n".join([f"{job.name}, checkpoint {job.checkpoint}", *shown])


def as_json(job: Job) -> dict[str, Any]:
    """The same as values."""
    plan = _plan(job)
    return {
        "name": job.name,
        "checkpoint": job.checkpoint,
        "streams": [one.stream.name for one in job.insert.inputs],
        "logical": None if plan is None else _tree(plan),
        "physical": [] if plan is None else _stages(compile(plan)),
        "hold_backs": _hold_backs(job),
        "channels": {c: s.names for c, s in _channels(job).items()},
        "sinks": _sinks(job),
    }


def as_mermaid(jobs: list[Job]) -> str:
    """Streams, operators and sinks as a flowchart."""
    return "\n".join(["flowchart LR", *(line for n, job in enumerate(jobs) for line in _flow(job, n))])


def _plan(job: Job) -> Plan | None:
    return None if job.insert.plan is None else optimize(job.insert.plan)


def _logical(job: Job) -> list[str]:
    plan = _plan(job)
    return [] if plan is None else render_logical(plan).splitlines()


def _physical(job: Job) -> list[str]:
    plan = _plan(job)
    if plan is None:
        return []
    dataflow = compile(plan)
    return render_physical(dataflow, _stages(dataflow)).splitlines()


def _stages(dataflow: Dataflow) -> list[list[str]]:
    """The physical operators of each vertex."""
    return [kernel.physical_operators() for kernel in kernels_of(dataflow)]


def _hold_backs(job: Job) -> dict[str, str]:
    """How far the watermark of each operator lies behind that of the sources."""
    plan = _plan(job)
    if plan is None:
        return {}
    return {vertex.name: render(vertex.delay) for vertex in compile(plan).vertices}


def _lines_read(job: Job) -> list[str]:
    lines = []
    for one in job.insert.inputs:
        stream = one.stream
        paths = SOURCES[stream.connector].of_kind("path", stream.options).values()
        place = " ".join([stream.connector, *paths])
        lines.append(", ".join([f"{stream.name} ← {place}", *_computed(one.steps)]))
    return lines


def _computed(steps: Iterable[Projection]) -> Iterator[str]:
    """What Spark does to rows on their way into the plan; columns that stay as they are go unsaid."""
    for step in steps:
        if step.where is not None:
            yield f"where {_in_line(step.where)}"
        for name, text in step.columns or ():
            if _plain(text) != name:
                yield f"{_plain(text)} as {name}"


def _in_line(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """An expression in one line, without the quotes of names that need none."""
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", _in_line(text))


def _selected(job: Job) -> list[str]:
    lines = []
    for step in job.insert.steps:
        if step.where is not None:
            lines.append(f"having {_in_line(step.where)}")
        if step.columns is not None:
            shown = (f"{_plain(text)} as {name}" for name, text in step.columns)
            lines.append("select " + ", ".join(shown))
    return lines


def _sinks(job: Job) -> dict[str, str]:
    """Each channel with what becomes of its rows; a connection string is nobody's business."""
    shown = {}
    for channel, table in job.insert.sinks.items():
        declared = SINKS[table.connector].options
        names = {option.name for option in declared if option.required and option.kind != "secret"}
        options = [value for name, value in table.options.items() if name in names]
        shown[channel] = " ".join([table.connector, *options])
    missing = [channel for channel in _channels(job) if channel not in shown]
    return shown | dict.fromkeys(missing, "counted only")


def _channels(job: Job) -> Mapping[str, pa.Schema]:
    return {} if job.insert.plan is None else compile(job.insert.plan).channels


def _tree(node: Node) -> dict[str, Any]:
    return {"node": node.label(), "inputs": [_tree(child) for child in node.children]}


def _flow(job: Job, number: int) -> Iterator[str]:
    plan, streams = _plan(job), [one.stream.name for one in job.insert.inputs]
    for stream in dict.fromkeys(streams):
        yield f"    {stream}[({_label(stream)})]"
    if plan is None:
        yield from (f"    {stream} --> q{number}main" for stream in streams)
    vertices = () if plan is None else compile(plan).vertices
    for vertex in reversed(vertices):
        name = f"q{number}s{vertex.number}"
        yield f"    {name}[{_label(*vertex.operator.labels())}]"
        for edge in vertex.edges:
            upstream = [f"q{number}s{edge.vertex}"] if edge.vertex is not None else []
            upstream += (streams[source] for source in edge.sources)
            yield from (f"    {one} --> {name}" for one in upstream)
    for channel, sink in _sinks(job).items():
        yield f"    q{number}{channel}[({_label(sink)})]"
        if plan is not None:
            last = len(vertices) - 1
            yield f"    q{number}s{last} -- {channel} --> q{number}{channel}"


def _label(*lines: str) -> str:
    return '"' + "<br>".join(line.replace('"', "#quot;") for line in lines) + '"'
