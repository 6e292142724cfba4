"""Windows: which rows belong together."""

from tidegate.errors import PlanError
from tidegate.plan.time import Duration, micros, signed_micros
from tidegate.plan.windows import Hopping, Session


def tumbling(size: Duration, offset: Duration = "0 s") -> Hopping:
    """Windows of one size, end to end.

    >>> print(tumbling("10 seconds"))
    tumbling(10 seconds)
    """
    length = micros(size, "tumbling(size)")
    return Hopping(length, length, signed_micros(offset, "tumbling(offset)"))


def hopping(size: Duration, slide: Duration, offset: Duration = "0 s") -> Hopping:
    """Windows of one size that start every `slide`; they overlap, or leave gaps.

    >>> print(hopping("1 minute", "10 seconds"))
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
    """Rows of a key that lie at most `gap` apart, however many batches they come in.

    With `gap_column` each row has its own gap, a day-time interval. With `max_length` sessions are
    cut at its multiples since 1970, so that none is longer.

    >>> print(session("10 minutes", max_length="1 day"))
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
