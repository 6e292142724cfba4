"""Rows exactly at the watermark: who takes them for late, and whom that may surprise."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.plan.feeds import made_due, processing_time, sources_below
from tidegate.plan.inlets import KeyBy
from tidegate.plan.nodes import Output
from tidegate.plan.passages import Reorder
from tidegate.plan.policies import LatePolicy, Reassign, SideOutput
from tidegate.plan.windowing import Emit, WindowBy

#: The least tolerance that there is: Spark counts in milliseconds, and rounds up.
_ENOUGH = "1 millisecond"


def tie_warnings(operators: Iterable[Output]) -> list[str]:
    """For each operator that may drop rows of the highest event time: a sentence that says so."""
    found = (_of_stage(operator) for operator in operators)
    return [warning for warning in found if warning is not None]


def tie_warning(node: WindowBy | Reorder) -> str | None:
    """Why rows of the highest event time may be late, if so.

    Without a tolerance the watermark is that time, and rows of the next micro-batch may still have it.
    """
    if isinstance(node, Reorder):
        return _warning("reorder()", node.input, node.late)
    return _warning(str(node.window), node.input, node.late) if node.window.by_row else None


def _of_stage(stage: Output) -> str | None:
    if isinstance(stage, Emit):
        return tie_warning(stage.windowed)
    return tie_warning(stage) if isinstance(stage, Reorder) else None


def _warning(operator: str, keyed: KeyBy, late: LatePolicy) -> str | None:
    rows = keyed.input
    if made_due(rows) or processing_time(rows) or isinstance(late, Reassign):
        return None  # none of these rows is late, or they count as they are
    if all(source.tolerance for source in sources_below(rows)):
        return None
    fate = f"go to the channel {late.channel!r}" if isinstance(late, SideOutput) else "are dropped"
    return (
        f"{operator} with a tolerance of zero: a row at the watermark is late, so rows that share the "
        f"highest event time of an earlier micro-batch {fate}; a tolerance of {_ENOUGH!r} keeps them. "
        "The counter 'late_rows_at_watermark' says how many there were"
    )
