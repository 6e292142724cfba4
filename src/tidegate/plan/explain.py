"""Plans as text: one line a node, inputs indented below it."""

from collections.abc import Sequence

from tidegate.plan.nodes import Node


def render_logical(node: Node, depth: int = 0) -> str:
    """The logical tree, the result on top."""
    line = "  " * depth + node.label()
    return "\n".join([line, *(render_logical(child, depth + 1) for child in node.inputs)])


def render_stages(stages: Sequence[str]) -> str:
    """A physical chain, the last stage on top, as the logical tree is drawn."""
    return "\n".join("  " * depth + stage for depth, stage in enumerate(reversed(stages)))
