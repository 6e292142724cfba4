"""Invalid rows: which rows an operator cannot use, why, and how the `errors` channel shows them.

A source marks the rows that it knows to be invalid: the column `INVALID_ROW` holds such a row as JSON
text, since operators only get the columns they need. Where only the source knows the reason, the reason
stands before the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar import ipc
from tidegate.kernels.messages import Message
from tidegate.kernels.row_text import row_texts
from tidegate.plan.channels import ERROR_CHANNEL, ERRORS
from tidegate.plan.time import Micros, render

#: An invalid row as text, null for valid rows; and what separates the reason before it.
INVALID_ROW, REASON_END = "__tidegate_invalid_row", "\0"


# -- reasons --------------------------------------------------------------------------------------


def time_is_null(time: str) -> str:
    return f"event time {time!r} is null"


def time_is_unreadable(time: str, type: str) -> str:
    return f"event time {time!r} cannot be read as {type}"


def time_is_too_far_ahead(max_future: Micros) -> str:
    return f"event time is more than {render(max_future)} ahead of the clock"


NO_MESSAGE = "no message with an event time"


# -- rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A reason why rows are invalid, and which rows it applies to."""

    reason: str
    applies: Callable[[pa.Table], pa.ChunkedArray]


def needs_time(time: str) -> Rule:
    return Rule(time_is_null(time), lambda rows: rows.column(time).is_null())


def needs_gap(gap: int | str) -> tuple[Rule, ...]:
    """A gap of each row's own must be there, and be positive."""
    if not isinstance(gap, str):
        return ()

    def is_not_positive(rows: pa.Table) -> pa.ChunkedArray:
        return pc.less_equal(rows.column(gap).cast(pa.int64()), 0)

    return (
        Rule(f"gap {gap!r} is null", lambda rows: rows.column(gap).is_null()),
        Rule(f"gap {gap!r} is not positive", is_not_positive),
    )


def separate(rows: pa.Table, rules: Iterable[Rule], bucket: int) -> tuple[pa.Table, list[Message]]:
    """The valid rows, and the others for the `errors` channel; the first rule that applies decides."""
    errors = []
    for rule in rules:
        hit = rule.applies(rows)
        if pc.any(hit).as_py():
            errors.append(_errors(rule.reason, rows.filter(hit), bucket))
            rows = rows.filter(pc.invert(hit))
    return rows, errors


def _errors(reason: str, rows: pa.Table, bucket: int) -> Message:
    marked = [text.split(REASON_END, 1) for text in _texts(rows)]
    reasons = [known[0] if known else reason for *known, _ in marked]
    table = pa.table([reasons, [row for *_, row in marked]], schema=ERRORS)
    return Message.output(bucket, ERROR_CHANNEL, rows.num_rows, ipc.encode([table]))


def _texts(rows: pa.Table) -> list[str]:
    """Rows as text; those that became invalid after their source have none yet."""
    marked = INVALID_ROW in rows.column_names
    texts: list[str | None] = rows.column(INVALID_ROW).to_pylist() if marked else [None] * rows.num_rows
    known = [text for text in texts if text is not None]
    if len(known) == len(texts):
        return known
    whole = row_texts(rows.drop_columns(INVALID_ROW) if marked else rows)
    return [text or own for text, own in zip(texts, whole, strict=True)]
