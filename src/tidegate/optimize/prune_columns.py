"""Read only the columns that keys, windows and aggregates need.

Before: Events[columns=(ts, user, price, agent, referrer)]
After:  Events[columns=(ts, user, price)]

Where rows themselves go on, around a window each, in pairs or to a side output, every column stays:
pruning there would silently cut what users see. What removes duplicates needs the id besides.
"""

from tidegate.plan.nodes import AnyOperator


def prune_columns(plan: AnyOperator) -> AnyOperator:
    read = plan.columns_read
    return plan if read is None else plan.map_inputs(lambda one: one.through(one.upstream.only(read)))
