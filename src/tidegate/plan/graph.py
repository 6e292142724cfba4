"""A plan as a graph of operators, as far as watermarks care."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from tidegate.plan.nodes import Admit, Dedupe, Derived, Emit, Join, Output, Reorder, read_by, stages_of
from tidegate.plan.time import Micros
from tidegate.plan.watermarks import Operator, WatermarkPropagator

#: The sources together: their watermark is the lowest of theirs.
SOURCES = "sources"


@dataclass(frozen=True)
class Place:
    """An operator where it stands: its number in `stages_of`, and for each inlet what feeds it.

    That is another operator, or sources by their numbers in `sources_of`.
    """

    stage: Output
    number: int
    feeds: tuple[Place | tuple[int, ...], ...]

    def from_the_end(self) -> Iterator[Place]:
        """This operator, then those that feed it, from left to right."""
        yield self
        for feed in self.feeds:
            if isinstance(feed, Place):
                yield from feed.from_the_end()


def tree_of(plan: Output) -> Place:
    """The operators of a plan as a tree."""
    numbers, sources = count(), count()

    def place(stage: Output) -> Place:
        feeds = tuple(
            place(inlet.feed.input)
            if isinstance(inlet.feed, Derived)
            else tuple(next(sources) for _ in read_by(inlet.feed))
            for inlet in stage.inlets
        )
        return Place(stage, next(numbers), feeds)

    return place(plan)


def operator_names(plan: Output) -> list[str]:
    """What the operators of a plan are called, in order."""
    return [f"{number} {_name(stage)}" for number, stage in enumerate(stages_of(plan), 1)]


def graph_of(plan: Output) -> dict[str, Operator]:
    """Sources and operators; each holds back what it may still put out for the one that reads it."""
    names = operator_names(plan)
    read: dict[int, tuple[str, ...]] = {}
    held = dict.fromkeys(range(len(names)), 0)
    for place in tree_of(plan).from_the_end():
        feeders = [names[feed.number] if isinstance(feed, Place) else SOURCES for feed in place.feeds]
        read[place.number] = tuple(dict.fromkeys(feeders))
        for inlet, feed in zip(place.stage.inlets, place.feeds, strict=True):
            if isinstance(feed, Place) and isinstance(inlet.feed, Derived):
                held[feed.number] = inlet.feed.hold_back
    operators = {name: Operator(read[n], held[n]) for n, name in enumerate(names)}
    return {SOURCES: Operator(), **operators}


def held_back(plan: Output) -> Micros:
    """How far the watermark that an operator works by lies behind that of the sources."""
    propagator = WatermarkPropagator(graph_of(plan))
    propagator.advance(SOURCES, 0)
    return Micros(-(propagator.input_of(operator_names(plan)[-1]) or 0))


def _name(stage: Output) -> str:
    if isinstance(stage, Join):
        return f"{stage.left.window} × {stage.right.window}"
    if isinstance(stage, Emit):
        return "fold" if stage.input.folds else str(stage.windowed.window)
    return {Dedupe: "dedupe", Admit: "admit", Reorder: "reorder"}[type(stage)]
