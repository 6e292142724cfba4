"""Logical rewrites: one rule a module, applied once each in this order, to each operator."""

from dataclasses import replace

from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.processing_time_is_never_late import processing_time_is_never_late
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.nodes import Derived, Inlet, Output, with_inlets

RULES = (final_has_no_lateness, processing_time_is_never_late, prune_columns)


def optimize(plan: Output) -> Output:
    """The plan that means the same and does less."""
    plan = with_inlets(plan, _optimized)
    for rule in RULES:
        plan = rule(plan)
    return plan


def _optimized(inlet: Inlet) -> Inlet:
    if not isinstance(inlet.feed, Derived):
        return inlet
    feed = Derived(optimize(inlet.feed.input), inlet.feed.time)
    return replace(inlet, keyed=replace(inlet.keyed, input=feed))
