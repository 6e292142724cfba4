"""Optimizer rules: one golden file each with the plan before and after, and what must not change."""

from dataclasses import replace

import pytest

from tests.golden import assert_golden
from tests.support.plans import ROWS, SECOND, hopping, logical_plan
from tidegate.dataflow import compile
from tidegate.dataflow.explain import render_logical
from tidegate.kernels import aggregates as a
from tidegate.optimize import RULES, optimize
from tidegate.optimize.final_has_no_lateness import final_has_no_lateness
from tidegate.optimize.processing_time_is_never_late import processing_time_is_never_late
from tidegate.optimize.prune_columns import prune_columns
from tidegate.plan.pass_through import Reorder
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.plan.windows import Sliding

TOTALS = (*ROWS, ("total", a.Sum("price")))
MINUTE = hopping(60 * SECOND)
FINAL = logical_plan(MINUTE, emission=OnWindowClose(final=True), lateness=5 * SECOND)
WIDE = logical_plan(MINUTE, TOTALS)

STAMPED = WIDE.with_upstream(replace(WIDE.upstream, declared=ProcessingTime(Micros(SECOND))))

EXAMPLES = {
    final_has_no_lateness: FINAL,
    processing_time_is_never_late: STAMPED,
    prune_columns: WIDE,
}

UNTOUCHED = [
    (final_has_no_lateness, logical_plan(MINUTE, emission=OnWindowClose(), lateness=5 * SECOND)),
    (final_has_no_lateness, logical_plan(MINUTE, emission=Retracting(), lateness=5 * SECOND)),
    (final_has_no_lateness, logical_plan(MINUTE, lateness=5 * SECOND)),
    (processing_time_is_never_late, WIDE),
    (prune_columns, logical_plan(MINUTE, TOTALS, late=SideOutput("late"))),
    (prune_columns, logical_plan(Sliding(Micros(5)), TOTALS)),
    (prune_columns, Reorder(WIDE.keyed)),
]


def test_each_rule_has_an_example():
    assert [rule.__name__ for rule in RULES if rule not in EXAMPLES] == []


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.__name__)
def test_each_rule_before_and_after(rule):
    before = EXAMPLES[rule]
    after = rule(before)
    assert after != before
    assert rule(after) == after
    text = f"-- before\n{render_logical(before)}\n\n-- after\n{render_logical(after)}\n"
    assert_golden(f"rule_{rule.__name__}", text)


@pytest.mark.parametrize(("rule", "plan"), UNTOUCHED, ids=lambda value: getattr(value, "__name__", ""))
def test_plans_a_rule_must_leave_alone(rule, plan):
    assert rule(plan) == plan


def test_pruning_keeps_what_reassigned_rows_need():
    plan = prune_columns(logical_plan(MINUTE, TOTALS, keys=("shop",), late=Reassign(Micros(5))))
    assert plan.input.input.schema.names == ["ts", "shop", "price"]


@pytest.mark.parametrize("plan", [FINAL, WIDE, *(plan for _, plan in UNTOUCHED)])
def test_optimizing_keeps_the_result_and_settles(plan):
    optimized = optimize(plan)
    assert optimized.schema == plan.schema
    assert compile(optimized).channels == compile(plan).channels
    assert optimize(optimized) == optimized
