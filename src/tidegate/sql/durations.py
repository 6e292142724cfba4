"""Intervals in the text as durations."""

from __future__ import annotations

from tidegate.plan.time import Micros, micros, signed_micros
from tidegate.sql.source import Text
from tidegate.sql.spans import Span, bare


def duration(text: Text, span: Span, what: str, *, zero: bool = False) -> Micros:
    """A positive length of time, or zero where that means something."""
    with text.at(span):
        return micros(_written(text, span, what), what, zero=zero)


def offset(text: Text, span: Span, what: str) -> Micros:
    """A length of time of either sign."""
    with text.at(span):
        return signed_micros(_written(text, span, what), what)


def _written(text: Text, span: Span, what: str) -> str:
    """The interval as `10 seconds`."""
    if span.says(0, "-") and len(span) > 1:
        return f"-{_written(text, span[1:], what)}"
    inner = bare(span)
    if inner.says(0, "INTERVAL") and 2 <= len(inner) <= 4:
        sign = "-" if inner.says(1, "-") else ""
        value, *unit = inner.tokens[1 + bool(sign) :]
        if value.kind in ("string", "number") and [part.kind for part in unit] in ([], ["word"]):
            number = value.value if value.kind == "string" else value.text
            return " ".join([sign + number, *(part.text for part in unit)])
    if inner.says(0, "INTERVAL") and len(inner) > 4 and inner.tokens[1].kind in ("string", "number"):
        # Several units, such as 2 hours 30 minutes, or '1 02:30' DAY TO MINUTE.
        return " ".join(part.text for part in inner.tokens)
    raise text.refuse(
        span, f"{what} is an interval, such as INTERVAL '10' SECOND or INTERVAL '90 minutes'"
    )
