"""Logical rewrites: one rule a module, applied once each in this order, to each operator."""

from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.fuse_steps import fuse_steps
from tidegate.optimize.processing_time_is_never_late import processing_time_is_never_late
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator, Plan
from tidegate.plan.sources import Derived
from tidegate.plan.steps import Fusion

#: Rules that look at one operator.
RULES = (final_has_no_lateness, processing_time_is_never_late)


def optimize(plan: Plan, fusion: Fusion | None = None) -> Plan:
    """The plan that means the same and does less."""
    fusion = fusion or Fusion()
    # Of what operators share each reads other columns, so all columns stay.
    prunes = not plan.shares
    optimized = {
        name: _optimized(operator, fusion, prunes=prunes) for name, operator in plan.outputs.items()
    }
    return plan.with_outputs(optimized)


def _optimized(plan: AnyOperator, fusion: Fusion, *, prunes: bool) -> AnyOperator:
    def below(one: Input) -> Input:
        upstream = one.upstream
        if upstream.operator is None:
            return one
        rows = Derived(_optimized(upstream.operator, fusion, prunes=prunes), upstream.time)
        return one.through(upstream.over(rows))

    plan = plan.map_inputs(below)
    for rule in RULES:
        plan = rule(plan)
    plan = prune_columns(plan) if prunes else plan
    return fuse_steps(plan, fusion)
