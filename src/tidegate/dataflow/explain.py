"""Plans as text: one line a node, inputs indented below it."""

from collections.abc import Iterator, Sequence

from tidegate.dataflow.compile import compile
from tidegate.dataflow.graph import Dataflow, Edge, Vertex
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Plan
from tidegate.plan.sources import Node, Source
from tidegate.plan.steps import Step
from tidegate.plan.time import render


def render_logical(plan: Plan) -> str:
    """The logical tree, the result on top. What several results share is drawn once."""
    shared: tuple[Node, ...] = compile(plan).operators if plan.shares else ()
    drawn: list[Node] = []

    def lines(node: Node, depth: int) -> Iterator[str]:
        known = node in drawn
        yield "  " * depth + node.label() + (" (as above)" if known else "")
        if known:
            return
        if node in shared:
            drawn.append(node)
        for child in node.children:
            yield from lines(child, depth + 1)

    return "\n".join(lines(plan, 0))


def render_physical(dataflow: Dataflow, stages: Sequence[Sequence[str]]) -> str:
    """The physical operators of each vertex, the last on top, as the logical tree is drawn.

    An operator that several read is drawn once, and named where it is read again.
    """
    drawn: set[int] = set()

    def operator(vertex: Vertex, depth: int) -> Iterator[str]:
        first, *others = stages[vertex.number]
        if vertex.number in drawn:
            yield "  " * depth + f"{[first, *others][-1]} (as above)"
            return
        drawn.add(vertex.number)
        fused = [_with_packing(dataflow, edge) for edge in vertex.edges]
        if len(fused) == 1:
            first = _fused(fused[0], first)
        for stage in reversed([first, *others]):
            yield "  " * depth + stage
            depth += 1
        for edge, done in zip(vertex.edges, fused, strict=True):
            before = [_stage(steps) for steps in reversed(edge.stages)]
            shown = [_fused(done, "pack"), *before] if done and len(fused) > 1 else before
            yield from ("  " * (depth + n) + step for n, step in enumerate(shown))
            yield from below(edge, depth + len(shown))

    def below(edge: Edge, depth: int) -> Iterator[str]:
        if edge.vertex is not None:
            yield from operator(dataflow.vertices[edge.vertex], depth)
        yield from ("  " * depth + _watermark(dataflow.sources[number]) for number in edge.sources)

    outputs = dataflow.outputs
    if list(outputs) == [MAIN]:
        return "\n".join(operator(outputs[MAIN], 0))
    return "\n".join(
        line for name, vertex in outputs.items() for line in (f"{name}:", *operator(vertex, 1))
    )


def _with_packing(dataflow: Dataflow, edge: Edge) -> list[str]:
    """What is done with rows in the same Python stage as packing."""
    read = [dataflow.sources[number].packed_where_read for number in edge.sources]
    together = bool(read) and all(read) and not edge.stages
    return [*(["read"] if together else []), *map(str, edge.fused)]


def _stage(steps: Sequence[Step]) -> str:
    """Steps in a Python stage of their own."""
    shown = ", ".join(map(str, steps))
    return f"Fused[{shown}]" if len(steps) > 1 else f"Step[{shown}]"


def _fused(done: list[str], pack: str) -> str:
    return f"Fused[{', '.join(done)}, {pack}]" if done else pack


def _watermark(source: Source) -> str:
    if source.processing_time:
        return f"ProcessTimeWatermark[{source.declared}]"
    idle = "" if source.idle_after is None else f", idle after {render(source.idle_after)}"
    read = source.time if source.declared is None else f"{source.time} from {source.declared}"
    return f"EventTimeWatermark[{read}, tolerance={render(source.tolerance)}{idle}]"
