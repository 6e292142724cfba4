"""Channels: the ways by which rows leave a query, and the columns they have there."""

from __future__ import annotations

import pyarrow as pa

from tidegate.errors import PlanError
from tidegate.plan.schema import TIMESTAMP

WINDOW_COLUMNS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))
OP = pa.field("op", pa.string())
ERRORS = pa.schema([("reason", pa.string()), ("row", pa.string())])
#: What the channel of late rows adds: how late a row is, for whom, and what would have taken it in time.
#: Operators without windows leave the bounds null.
LATE_COLUMNS = (
    pa.field("late_by", pa.duration("us")),
    pa.field("watermark", TIMESTAMP),
    pa.field("late_operator", pa.string()),
    pa.field("late_window_start", TIMESTAMP),
    pa.field("late_window_end", TIMESTAMP),
    pa.field("allowed_lateness", pa.duration("us")),
)


def late_columns(time: pa.DataType) -> tuple[pa.Field, ...]:
    """What the channel adds for rows whose event times have a type; bounds of windows have it, too."""
    return tuple(
        field.with_type(time) if field.name.startswith("late_window") else field
        for field in LATE_COLUMNS
    )


REJECTED_COLUMNS = (
    pa.field("reason", pa.string()),
    pa.field("lag", pa.duration("us")),
    pa.field("gap", pa.duration("us")),
    pa.field("tokens", pa.float64()),
)
MAIN, ERROR_CHANNEL, REJECTED, SHED = "main", "errors", "rejected", "shed"


def check_channel(name: object, refusal: str) -> None:
    """Refuse a name that a channel cannot have."""
    if not (isinstance(name, str) and name.strip() and name.isprintable()):
        raise PlanError(f"{refusal}: take a text of printable letters")
    if name in (MAIN, ERROR_CHANNEL):
        raise PlanError(f"{refusal}: queries have a channel of that name already")


#: How many rows came in: counted where they did, not again by every operator that reads them.
ROWS_IN = "rows_in"

#: Counted for every query. They reach Spark's progress and `query.metrics`.
COUNTERS = (
    ROWS_IN,
    "errors",
    "unassigned",
    "late_rows",
    "late_dropped",
    "late_reassigned",
)

#: That of operators for which a row at the watermark is late: how many late rows lie exactly there.
LATE_AT_WATERMARK = "late_rows_at_watermark"

JOIN_COUNTERS = ("left_rows", "right_rows", "joined_pairs", "windows_closed")

DEDUPE_COUNTERS = ("duplicates_filtered",)

#: Together they are the rows that came.
ADMISSION_COUNTERS = ("admitted", "rejected_lag", "rejected_jitter", "rejected_rate")

#: Rows that a step leaves out.
FILTERED, SHED_ROWS = "filtered", "shed"
