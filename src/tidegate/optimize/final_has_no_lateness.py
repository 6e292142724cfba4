"""`final()` waits for nobody: the allowed lateness below it is zero.

Before: Emit[final] ← Aggregate ← Window[…, allowed_lateness=5 seconds]
After:  Emit[final] ← Aggregate ← Window[…, allowed_lateness=0 seconds]
"""

from dataclasses import replace

from tidegate.plan.nodes import Output
from tidegate.plan.policies import OnWindowClose
from tidegate.plan.rewrite import with_input
from tidegate.plan.time import Micros
from tidegate.plan.windowing import Emit


def final_has_no_lateness(plan: Output) -> Output:
    if not isinstance(plan, Emit) or plan.emission != OnWindowClose(final=True):
        return plan
    window = replace(plan.windowed, lateness=Micros(0))
    return with_input(plan, with_input(plan.input, window))
