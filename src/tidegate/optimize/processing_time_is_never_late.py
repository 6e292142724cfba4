"""Rows stamped with the time they came at count, also where the machine's clock has gone back.

Before: Window[…, late=drop] ← KeyBy ← Events[time=processing_time(…)]
After:  Window[…, late=reassign(36500 days)] ← KeyBy ← Events[time=processing_time(…)]

A row whose stamp lies behind the watermark is not late: the clock was wrong, and the row is moved to
where time already is.
"""

from dataclasses import replace

from tidegate.plan.inputs import Input
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import Reassign
from tidegate.plan.time import LONGEST

_WHATEVER_THE_CLOCK_DOES = Reassign(LONGEST)


def processing_time_is_never_late(plan: AnyOperator) -> AnyOperator:
    return plan.map_inputs(_never_late)


def _never_late(one: Input) -> Input:
    return replace(one, late=_WHATEVER_THE_CLOCK_DOES) if one.upstream.processing_time else one
