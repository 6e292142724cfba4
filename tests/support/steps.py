"""Plans with map, filter and shed steps, and the fusion settings to try them with."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.kernels.steps import filter_step, map_step
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.sources import Derived, Stepped, Upstream
from tidegate.plan.steps import Frames, Fusion, Policy, Shed

#: Fusion as it can be set, from everything in one Python stage to nothing.
FUSIONS = {
    "fused": Fusion(),
    "packing alone": Fusion(pack=False),
    "maps alone": Fusion(maps=False),
    "filters alone": Fusion(filters=False),
    "kinds alone": Fusion(across=False),
    "two at most": Fusion(max_depth=2),
    "unfused": Fusion(maps=False, filters=False, across=False, pack=False),
}


def mapped(feed: Upstream, function: Callable[[Any], Any], frames: Frames = "polars") -> Stepped:
    return Stepped(feed, (map_step(function, frames, feed.schema, feed.time),))


def filtered(feed: Upstream, function: Callable[[Any], Any], frames: Frames = "polars") -> Stepped:
    return Stepped(feed, (filter_step(function, frames, feed.schema),))


def shedding(feed: Upstream, policy: Policy = "strict", priority: str | None = None) -> Stepped:
    return Stepped(feed, (Shed(policy, priority, feed.schema),))


def with_steps(plan: AnyOperator, stepped: Callable[[Upstream], Upstream]) -> AnyOperator:
    """The plan with steps before each operator, on all sides; it then reads all columns."""

    def through(given: Input) -> Input:
        rows = given.upstream.origin
        if isinstance(rows, Derived):
            rows = replace(rows, input=with_steps(rows.input, stepped))
        else:
            rows = _unpruned(rows)
        return given.through(stepped(given.upstream.over(rows)))

    return plan.map_inputs(through)


def _unpruned(rows: Any) -> Any:
    return rows.with_sources(lambda source: replace(source, columns=None))


def in_circles(feed: Upstream) -> Upstream:
    """Steps of all kinds that change nothing."""
    feed = filtered(
        mapped(feed, lambda rows: rows.clone()), lambda rows: rows[rows.columns[0]].is_null() | True
    )
    feed = mapped(feed, lambda rows: rows.slice(0), "arrow")
    return mapped(feed, lambda rows: rows.reverse().reverse())
