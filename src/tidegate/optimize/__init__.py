"""Logical rewrites: one rule a module, applied once each in this order."""

from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.nodes import Emit

RULES = (final_has_no_lateness, prune_columns)


def optimize(plan: Emit) -> Emit:
    """The plan that means the same and does less."""
    for rule in RULES:
        plan = rule(plan)
    return plan
