"""The columns that tell results apart: a table that is kept up to date needs all of them."""

from __future__ import annotations

from tidegate.connectors import SINKS
from tidegate.errors import PlanError
from tidegate.plan.channels import MAIN
from tidegate.sql.program import Insert


def check_result_key(insert: Insert) -> None:
    """Refuse a query whose sink finds rows by their identity, and which leaves out a part of it."""
    sink, plan = insert.sinks.get(MAIN), insert.plan
    if sink is None or not SINKS[sink.connector].by_key:
        return
    if plan is None:
        return
    missing = [column for column in plan.result_key if column not in insert.kept.values()]
    if missing:
        raise PlanError(
            f"the SELECT leaves out {', '.join(map(repr, missing))}; a table tells results apart by "
            f"{', '.join(map(repr, plan.result_key))}: select all of them, or write to files"
        )
