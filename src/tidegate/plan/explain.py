"""Plans as text: one line a node, inputs indented below it."""

from collections.abc import Sequence

from tidegate.plan.nodes import Node, Output, Source, sources_of
from tidegate.plan.time import render


def render_logical(node: Node, depth: int = 0) -> str:
    """The logical tree, the result on top."""
    line = "  " * depth + node.label()
    return "\n".join([line, *(render_logical(child, depth + 1) for child in node.inputs)])


def render_physical(plan: Output, stages: Sequence[str]) -> str:
    """A physical chain, the last stage on top, as the logical tree is drawn; sources at its foot."""
    sources = ["  " * len(stages) + _watermark(source) for source in sources_of(plan)]
    lines = ["  " * depth + stage for depth, stage in enumerate(reversed(stages))]
    return "\n".join([*lines, *sources])


def _watermark(source: Source) -> str:
    if source.processing_time:
        return f"ProcessTimeWatermark[{source.declared}]"
    idle = "" if source.idle_after is None else f", idle after {render(source.idle_after)}"
    return f"EventTimeWatermark[{source.time}, tolerance={render(source.tolerance)}{idle}]"
