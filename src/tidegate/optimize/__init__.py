"""Logical rewrites: one rule a module, applied once each in this order, to each operator."""

from dataclasses import replace

from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.fuse_steps import fuse_steps
from tidegate.optimize.processing_time_is_never_late import processing_time_is_never_late
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.inlets import Inlet
from tidegate.plan.nodes import Output, Plan, Together
from tidegate.plan.rewrite import over, with_inlets
from tidegate.plan.steps import Fusion

#: Rules that look at one operator.
RULES = (final_has_no_lateness, processing_time_is_never_late)


def optimize(plan: Plan, fusion: Fusion | None = None) -> Plan:
    """The plan that means the same and does less."""
    fusion = fusion or Fusion()
    if isinstance(plan, Together):
        # Each reads other columns of what they share, so all columns stay.
        branches = ((name, _optimized(branch, fusion)) for name, branch in plan.branches)
        return Together(tuple(branches))
    return _optimized(plan, fusion, prunes=True)


def _optimized(plan: Output, fusion: Fusion, *, prunes: bool = False) -> Output:
    def above(inlet: Inlet) -> Inlet:
        if inlet.above is None:
            return inlet
        feed = replace(inlet.above, input=_optimized(inlet.above.input, fusion, prunes=prunes))
        return over(inlet, feed)

    plan = with_inlets(plan, above)
    for rule in RULES:
        plan = rule(plan)
    plan = prune_columns(plan) if prunes else plan
    return fuse_steps(plan, fusion)
