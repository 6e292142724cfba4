"""Late policies, `tg.late`: what happens to rows whose windows have all closed. All are counted."""

from __future__ import annotations

from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.plan.time import Duration, micros


def drop() -> Drop:
    """Drop late rows.

    >>> print(tg.late.drop())
    drop
    """
    return Drop()


def reassign(max_lateness: Duration) -> Reassign:
    """Move late rows to the watermark if they are at most `max_lateness` late; drop the others.

    >>> print(tg.late.reassign("1 hour"))
    reassign(1 hour)
    """
    return Reassign(micros(max_lateness, "reassign(max_lateness)"))


def side_output(channel: str) -> SideOutput:
    """Write late rows, unchanged, to a channel of their own.

    It adds the columns `late_by`, `watermark`, `late_operator`, `late_window_start`, `late_window_end`
    and `allowed_lateness`.

    >>> print(tg.late.side_output("too_late"))
    side_output('too_late')
    """
    return SideOutput(channel)
