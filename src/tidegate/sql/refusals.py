"""What other systems' expressions have and ours cannot: refused in its place, with what to write."""

from __future__ import annotations

from tidegate.sql.source import Text
from tidegate.sql.spans import Span, calls_in, references
from tidegate.sql.windows import elsewhere

_RANKS = ("row_number", "rank", "dense_rank", "ntile", "percent_rank", "cume_dist")

_JOIN_INSTEAD = (
    "join the streams in windows, with JOIN … ON …; in a LEFT JOIN the other side's columns are NULL "
    "where nothing met the row"
)


def refuse_foreign(text: Text, span: Span) -> None:
    """Refuse what no expression over a stream can have: queries, OVER, others' functions for windows."""
    _refuse_queries(text, span)
    for call in calls_in(span):
        if call.over:
            ranks = call.name.lower() in _RANKS
            instead = (
                "the greatest and the latest of a window are max(…) and last(…)"
                if ranks
                else "slidingwindow(…) in GROUP BY looks around each row"
            )
            raise text.refuse(
                call.span, f"{call.name}(…) OVER is not supported: instead of OVER, {instead}"
            )
        if refused := elsewhere(text, call):
            raise refused


def _refuse_queries(text: Text, span: Span) -> None:
    for place in range(len(span) - 1):
        if not (span.says(place, "(") and span.says(place + 1, "SELECT", "WITH")):
            continue
        if span.says(place - 1, "EXISTS"):
            raise text.refuse(
                span.tokens[place - 1], f"EXISTS (SELECT …) is not supported: {_JOIN_INSTEAD}"
            )
        if span.says(place - 1, "IN", "ANY", "SOME", "ALL"):
            word = span.tokens[place - 1].text.upper()
            raise text.refuse(
                span.tokens[place - 1], f"{word} (SELECT …) is not supported: {_JOIN_INSTEAD}"
            )
        raise text.refuse(
            span.tokens[place + 1],
            "a query inside an expression is not supported: make it a view, and join it",
        )


def refuse_window_time(text: Text, span: Span) -> None:
    """Refuse the column that Flink has beside window_start and window_end."""
    for reference in references(span):
        if reference.names[-1].lower() == "window_time":
            raise text.refuse(
                reference.span,
                "window_time: results go on by window_end here: write window_end, which Flink's "
                "window_time is a millisecond before",
            )
