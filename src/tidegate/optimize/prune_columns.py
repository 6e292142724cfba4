"""Read only the columns that keys, windows and aggregates need.

Before: Events[columns=(ts, user, price, agent, referrer)]
After:  Events[columns=(ts, user, price)]

A side output hands rows on unchanged, so its source keeps every column: pruning there would
silently cut what the late channel shows.
"""

from dataclasses import replace

from tidegate.plan.nodes import Emit, with_input
from tidegate.plan.policies import SideOutput


def prune_columns(plan: Emit) -> Emit:
    aggregation = plan.input
    window = aggregation.input
    keyed = window.input
    if isinstance(window.late, SideOutput):
        return plan
    aggregated = [aggregate.column for _, aggregate in aggregation.aggregates]
    read = {keyed.input.time, *keyed.keys, window.gap_column, *aggregated}
    columns = tuple(name for name in keyed.input.row_schema.names if name in read)
    source = replace(keyed.input, columns=columns)
    keyed = with_input(keyed, source)
    return with_input(plan, with_input(aggregation, with_input(window, keyed)))
