"""The counters of a query: what each operator, and each step before it, counts."""

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
