"""Plans as text: one line a node, inputs indented below it."""

from collections.abc import Iterator, Sequence

from tidegate.plan.graph import Place, tree_of
from tidegate.plan.nodes import Node, Output, Source, sources_of
from tidegate.plan.time import render


def render_logical(node: Node, depth: int = 0) -> str:
    """The logical tree, the result on top."""
    line = "  " * depth + node.label()
    return "\n".join([line, *(render_logical(child, depth + 1) for child in node.inputs)])


def render_physical(plan: Output, stages: Sequence[Sequence[str]]) -> str:
    """The physical stages of each operator, the last on top, as the logical tree is drawn."""
    sources = sources_of(plan)

    def lines(place: Place, depth: int) -> Iterator[str]:
        for stage in reversed(stages[place.number]):
            yield "  " * depth + stage
            depth += 1
        for feed in place.feeds:
            if isinstance(feed, Place):
                yield from lines(feed, depth)
            else:
                yield from ("  " * depth + _watermark(sources[number]) for number in feed)

    return "\n".join(lines(tree_of(plan), 0))


def _watermark(source: Source) -> str:
    if source.processing_time:
        return f"ProcessTimeWatermark[{source.declared}]"
    idle = "" if source.idle_after is None else f", idle after {render(source.idle_after)}"
    return f"EventTimeWatermark[{source.time}, tolerance={render(source.tolerance)}{idle}]"
