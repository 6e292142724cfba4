"""Logical rewrites: one rule a module, applied once each in this order, to each operator of a chain."""

from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.processing_time_is_never_late import processing_time_is_never_late
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.nodes import Derived, Output, with_feed

RULES = (final_has_no_lateness, processing_time_is_never_late, prune_columns)


def optimize(plan: Output) -> Output:
    """The plan that means the same and does less."""
    if isinstance(plan.feed, Derived):
        plan = with_feed(plan, Derived(optimize(plan.feed.input), plan.feed.time))
    for rule in RULES:
        plan = rule(plan)
    return plan
