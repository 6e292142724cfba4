"""Rewriting plans: the same operators over other rows, checked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tidegate.plan.feeds import Derived, Feed, Node, Source, Union, crossings, origin
from tidegate.plan.inlets import Inlet
from tidegate.plan.nodes import Output

N = TypeVar("N", bound=Node)


def with_input(node: N, child: Node) -> N:
    """The node over another input, checked again."""
    return replace(node, input=child)  # type: ignore[type-var]


def with_inlets(plan: Output, change: Callable[[Inlet], Inlet]) -> Output:
    """The operator over other rows, or with other policies."""
    return plan.with_inlets([change(inlet) for inlet in plan.inlets])


def with_feed(plan: Output, feed: Feed) -> Output:
    """The operator over other rows, the same on all sides."""
    return with_inlets(plan, lambda inlet: replace(inlet, keyed=replace(inlet.keyed, input=feed)))


def with_numbers(plan: Output, numbers: Sequence[int]) -> Output:
    """The plan with its sources, from left to right, numbered."""
    left = iter(numbers)

    def numbered(inlet: Inlet) -> Inlet:
        rows = origin(inlet.feed)
        if isinstance(rows, Derived):
            return over(inlet, replace(rows, input=below(rows.input)))
        if isinstance(rows, Union):
            return over(inlet, Union(tuple(replace(one, number=next(left)) for one in rows.inputs)))
        return over(inlet, replace(rows, number=next(left)))

    def below(stage: Output) -> Output:
        return with_inlets(stage, numbered)

    return below(plan)


def over(inlet: Inlet, rows: Source | Union | Derived) -> Inlet:
    """The inlet with its rows coming from elsewhere, through the same steps."""
    feed: Feed = rows
    for crossing in crossings(inlet.feed):
        feed = replace(crossing, input=feed)
    return replace(inlet, keyed=replace(inlet.keyed, input=feed))
