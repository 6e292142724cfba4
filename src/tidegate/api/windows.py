"""Windows: how rows are grouped in time."""

from __future__ import annotations

from tidegate.errors import PlanError
from tidegate.plan.time import Duration, micros, signed_micros
from tidegate.plan.windows import Hopping, Session, Sliding


def tumbling(size: Duration, offset: Duration = "0 s") -> Hopping:
    """Windows of a fixed size, one after the other.

    >>> print(tg.tumbling("10 seconds"))
    tumbling(10 seconds)
    """
    length = micros(size, "tumbling(size)")
    return Hopping(length, length, signed_micros(offset, "tumbling(offset)"))


def hopping(size: Duration, slide: Duration, offset: Duration = "0 s") -> Hopping:
    """Windows of a fixed size that start every `slide`. They overlap, or leave gaps.

    Spark, Flink and Beam call these windows "sliding".

    >>> print(tg.hopping("1 minute", "10 seconds"))
    hopping(1 minute, 10 seconds)
    """
    return Hopping(
        micros(size, "hopping(size)"),
        micros(slide, "hopping(slide)"),
        signed_micros(offset, "hopping(offset)"),
    )


def session(
    gap: Duration | None = None, *, gap_column: str | None = None, max_length: Duration | None = None
) -> Session:
    """Sessions: rows of a key that are at most `gap` apart, across any number of batches.

    With `gap_column`, each row has its own gap, a day-time interval. With `max_length`, sessions are
    cut at multiples of it since 1970, so that none is longer.

    >>> print(tg.session("10 minutes", max_length="1 day"))
    session(10 minutes, max_length=1 day)
    """
    limit = None if max_length is None else micros(max_length, "session(max_length)")
    if gap is not None and gap_column is None:
        return Session(micros(gap, "session(gap)"), limit)
    if gap is None and isinstance(gap_column, str):
        return Session(gap_column, limit)
    raise PlanError(
        "session() takes either a gap, such as '10 minutes', or gap_column, the name of a column; "
        f"got gap={gap!r}, gap_column={gap_column!r}"
    )


def sliding(
    lookback: Duration, lookahead: Duration | None = None, *, when: str | None = None
) -> Sliding:
    """A window around each row: the rows of its key, from `lookback` before to `lookahead` after it.

    SQL writes such windows as `OVER (… RANGE …)`. What Spark, Flink and Beam call "sliding" windows
    is `tg.hopping`.

    Each row has one result: its own columns and the aggregates. Without a lookahead, the result is
    emitted at once, over the rows that have arrived. With one, it is emitted when the watermark has
    passed the end of the window. `when` is a condition in SQL over the row's columns: rows that do not
    meet it are part of windows, but have no result.

    >>> print(tg.sliding("10 seconds", "15 seconds", when="kind = 'alarm'"))
    sliding(10 seconds, 15 seconds, when="kind = 'alarm'")
    """
    if when is not None and not isinstance(when, str):
        raise PlanError(f"sliding(when) is a condition as text, such as 'price > 10', got {when!r}")
    return Sliding(
        micros(lookback, "sliding(lookback)", zero=True),
        None if lookahead is None else micros(lookahead, "sliding(lookahead)", zero=True),
        when,
    )
