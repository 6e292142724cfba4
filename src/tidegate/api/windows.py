"""Windows: which rows belong together."""

from tidegate.plan.time import Duration, micros, signed_micros
from tidegate.plan.windows import Hopping


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
