"""`final()` waits for nobody: the allowed lateness below it is zero.

Before: Emit[final] ← Aggregate ← Window[…, allowed_lateness=5 seconds]
After:  Emit[final] ← Aggregate ← Window[…, allowed_lateness=0 seconds]
"""

from dataclasses import replace

from tidegate.plan.nodes import AnyOperator
from tidegate.plan.time import Micros


def final_has_no_lateness(plan: AnyOperator) -> AnyOperator:
    if not plan.final:
        return plan
    return plan.map_inputs(lambda one: replace(one, lateness=Micros(0)))
