"""Rows stamped with the time they came at count, also where the machine's clock has gone back.

Before: Window[…, late=drop] ← KeyBy ← Events[time=processing_time(…)]
After:  Window[…, late=reassign(36500 days)] ← KeyBy ← Events[time=processing_time(…)]

A row whose stamp lies behind the watermark is not late: the clock was wrong, and the row is moved to
where time already is.
"""

from dataclasses import replace

from tidegate.plan.nodes import Derived, Output, Reorder, sources_of, with_input
from tidegate.plan.policies import Reassign
from tidegate.plan.time import LONGEST

_WHATEVER_THE_CLOCK_DOES = Reassign(LONGEST)


def processing_time_is_never_late(plan: Output) -> Output:
    if isinstance(plan.feed, Derived) or not sources_of(plan)[0].processing_time:
        return plan
    if isinstance(plan, Reorder):
        return replace(plan, late=_WHATEVER_THE_CLOCK_DOES)
    window = replace(plan.windowed, late=_WHATEVER_THE_CLOCK_DOES)
    return with_input(plan, with_input(plan.input, window))
