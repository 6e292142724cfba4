"""Rows exactly at the watermark: who takes them for late, and whom that may surprise."""

from __future__ import annotations

from tidegate.plan.inputs import Input

#: The least tolerance that there is: Spark counts in milliseconds, and rounds up.
_ENOUGH = "1 millisecond"


def tie_warning(operator: str, rows: Input) -> str | None:
    """Why rows of the highest event time may be late for an operator to which a row at W is, if so.

    Without a tolerance the watermark is that time, and rows of the next micro-batch may still have it.
    """
    feed, late = rows.feed, rows.late
    if feed.watermark_triggered or feed.processing_time or late.moves:
        return None  # none of these rows is late, or they count as they are
    if all(source.tolerance for source in feed.sources):
        return None
    fate = "are dropped" if late.channel is None else f"go to the channel {late.channel!r}"
    return (
        f"{operator} with a tolerance of zero: a row at the watermark is late, so rows that share the "
        f"highest event time of an earlier micro-batch {fate}; a tolerance of {_ENOUGH!r} keeps them. "
        "The counter 'late_rows_at_watermark' says how many there were"
    )
