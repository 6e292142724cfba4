"""A plan as a graph of operators: who feeds whom, and how far watermarks lie behind."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from tidegate.plan.feeds import read_by
from tidegate.plan.inlets import Inlet
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import Join, Output, Plan, Together, outlets_of, stages_of
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.time import Micros
from tidegate.plan.watermarks import Operator, WatermarkPropagator
from tidegate.plan.windowing import Emit

#: The sources together: their watermark is the lowest of theirs.
SOURCES = "sources"


@dataclass(frozen=True)
class Place:
    """An operator where it stands: its number in `stages_of`, and for each inlet what feeds it.

    That is another operator by its number, or sources by theirs in `sources_of`.
    """

    stage: Output
    number: int
    feeds: tuple[int | tuple[int, ...], ...]


def places_of(plan: Plan) -> tuple[Place, ...]:
    """The operators of a plan, each after those that feed it."""
    # What operators side by side read of one source, or of one operator, they share.
    shares = isinstance(plan, Together)
    places: list[Place] = []
    sources = count()

    def place(stage: Output) -> int:
        for known in places if shares else ():
            if known.stage == stage:
                return known.number
        feeds = tuple(_feed(inlet) for inlet in stage.inlets)
        places.append(Place(stage, len(places), feeds))
        return len(places) - 1

    def _feed(inlet: Inlet) -> int | tuple[int, ...]:
        if inlet.above is not None:
            return place(inlet.above.input)
        return tuple(one.number if shares else next(sources) for one in read_by(inlet.feed))

    for end in outlets_of(plan).values():
        place(end)
    return tuple(places)


def operator_names(plan: Plan) -> list[str]:
    """What the operators of a plan are called, in order."""
    return [f"{number} {_name(stage)}" for number, stage in enumerate(stages_of(plan), 1)]


def input_names(stage: Output, operator: str) -> list[str]:
    """What the inputs of an operator are called: as itself, or by their sides."""
    if isinstance(stage, Join):
        return [f"{operator}, {side}" for side in SIDES]
    return [operator]


def graph_of(plan: Plan) -> dict[str, Operator]:
    """Sources and operators; each holds back what it may still put out for those that read it."""
    names = operator_names(plan)
    read: list[tuple[str, ...]] = []
    held = [0] * len(names)
    for place in places_of(plan):
        feeders = [names[feed] if isinstance(feed, int) else SOURCES for feed in place.feeds]
        read.append(tuple(dict.fromkeys(feeders)))
        for inlet, feed in zip(place.stage.inlets, place.feeds, strict=True):
            if isinstance(feed, int) and inlet.above is not None:
                held[feed] = max(held[feed], inlet.above.hold_back)
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
