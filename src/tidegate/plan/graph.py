"""A plan as a graph of operators, as far as watermarks care."""

from __future__ import annotations

from tidegate.plan.nodes import Derived, Emit, Output, stages_of
from tidegate.plan.time import Micros
from tidegate.plan.watermarks import Operator, WatermarkPropagator

#: The sources together: their watermark is the lowest of theirs.
SOURCES = "sources"


def operator_names(plan: Output) -> list[str]:
    """What the operators of a chain are called, in order."""
    return [f"{number} {_name(stage)}" for number, stage in enumerate(stages_of(plan), 1)]


def graph_of(plan: Output) -> dict[str, Operator]:
    """Sources and operators; each holds back what it may still put out for the one that reads it."""
    names, stages = operator_names(plan), stages_of(plan)
    graph = {SOURCES: Operator()}
    for place, (name, read) in enumerate(zip(names, [SOURCES, *names], strict=False)):
        reader = stages[place + 1].feed if place + 1 < len(stages) else None
        graph[name] = Operator((read,), reader.hold_back if isinstance(reader, Derived) else 0)
    return graph


def held_back(plan: Output) -> Micros:
    """How far the watermark that an operator works by lies behind that of the sources."""
    propagator = WatermarkPropagator(graph_of(plan))
    propagator.advance(SOURCES, 0)
    return Micros(-(propagator.input_of(operator_names(plan)[-1]) or 0))


def _name(stage: Output) -> str:
    return str(stage.windowed.window) if isinstance(stage, Emit) else "reorder"
