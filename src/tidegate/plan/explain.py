"""Plans as text: one line a node, inputs indented below it."""

from collections.abc import Iterator, Sequence

from tidegate.plan.feeds import Feed, Node, Source, Union, crossings, origin
from tidegate.plan.graph import places_of
from tidegate.plan.inlets import Inlet
from tidegate.plan.nodes import Output, Plan, Together, sources_of, stages_of
from tidegate.plan.time import render


def render_logical(plan: Node) -> str:
    """The logical tree, the result on top. What operators side by side share is drawn once."""
    drawn: list[Node] | None = [] if isinstance(plan, Together) else None

    def lines(node: Node, depth: int) -> Iterator[str]:
        known = drawn is not None and isinstance(node, Output) and node in drawn
        yield "  " * depth + node.label() + (" (as above)" if known else "")
        if known:
            return
        if drawn is not None:
            drawn.append(node)
        for child in node.inputs:
            yield from lines(child, depth + 1)

    return "\n".join(lines(plan, 0))


def render_physical(plan: Plan, stages: Sequence[Sequence[str]]) -> str:
    """The physical stages of each operator, the last on top, as the logical tree is drawn.

    An operator that several read is drawn once, and named where it is read again.
    """
    sources, places = sources_of(plan), places_of(plan)
    drawn: set[int] = set()

    def operator(number: int, depth: int) -> Iterator[str]:
        place, (first, *others) = places[number], stages[number]
        if number in drawn:
            yield "  " * depth + f"{[first, *others][-1]} (as above)"
            return
        drawn.add(number)
        ways = [_way(inlet) for inlet in place.stage.inlets]
        if len(ways) == 1:
            first = _fused(ways[0][0], first)
        for stage in reversed([first, *others]):
            yield "  " * depth + stage
            depth += 1
        for (packed, steps), feed in zip(ways, place.feeds, strict=True):
            shown = [_fused(packed, "pack"), *steps] if packed and len(ways) > 1 else steps
            yield from ("  " * (depth + n) + step for n, step in enumerate(shown))
            yield from below(feed, depth + len(shown))

    def below(feed: int | tuple[int, ...], depth: int) -> Iterator[str]:
        if isinstance(feed, int):
            yield from operator(feed, depth)
        else:
            yield from ("  " * depth + _watermark(sources[number]) for number in feed)

    if not isinstance(plan, Together):
        return "\n".join(operator(len(places) - 1, 0))
    number_of = {name: stages_of(plan).index(end) for name, end in plan.branches}
    return "\n".join(
        line for name, number in number_of.items() for line in (f"{name}:", *operator(number, 1))
    )


def _way(inlet: Inlet) -> tuple[list[str], list[str]]:
    """What is done with rows together with packing, and the steps before, the last on top."""
    *others, last = crossings(inlet.feed) or (None,)
    apart = [one for one in (last, *reversed(others)) if one is not None and not one.packed]
    read = ["read"] if not apart and _packed_where_read(inlet.feed) else []
    steps = map(str, last.steps) if last is not None and last.packed else ()
    return [*read, *steps], [one.label() for one in apart]


def _packed_where_read(feed: Feed) -> bool:
    below = origin(feed)
    sources = below.inputs if isinstance(below, Union) else (below,)
    return all(isinstance(source, Source) and source.packed_where_read for source in sources)


def _fused(done: list[str], pack: str) -> str:
    return f"Fused[{', '.join(done)}, {pack}]" if done else pack


def _watermark(source: Source) -> str:
    if source.processing_time:
        return f"ProcessTimeWatermark[{source.declared}]"
    idle = "" if source.idle_after is None else f", idle after {render(source.idle_after)}"
    read = source.time if source.declared is None else f"{source.time} from {source.declared}"
    return f"EventTimeWatermark[{read}, tolerance={render(source.tolerance)}{idle}]"
