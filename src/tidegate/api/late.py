"""What becomes of rows whose windows have all closed: `tg.late`. All of them are counted."""

from __future__ import annotations

from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.plan.time import Duration, micros


def drop() -> Drop:
    """They are counted and dropped.

    >>> print(tg.late.drop())
    drop
    """
    return Drop()


def reassign(max_lateness: Duration) -> Reassign:
    """Their event time becomes the watermark, if they are at most this late; else they are dropped.

    >>> print(tg.late.reassign("1 hour"))
    reassign(1 hour)
    """
    return Reassign(micros(max_lateness, "reassign(max_lateness)"))


def side_output(channel: str) -> SideOutput:
    """They go, unchanged, to a channel of their own, which says how late they are and for which window.

    It adds `late_by`, `watermark`, `late_operator`, `late_window_start`, `late_window_end` and
    `allowed_lateness`.

    >>> print(tg.late.side_output("too_late"))
    side_output('too_late')
    """
    return SideOutput(channel)
