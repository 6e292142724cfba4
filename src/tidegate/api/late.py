"""What becomes of rows whose windows have all closed: `tg.late`. All of them are counted."""

from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.plan.time import Duration, micros


def drop() -> Drop:
    """They are counted and dropped."""
    return Drop()


def reassign(max_lateness: Duration) -> Reassign:
    """Their event time becomes the watermark, if they are at most this late; else they are dropped."""
    return Reassign(micros(max_lateness, "reassign(max_lateness)"))


def side_output(channel: str) -> SideOutput:
    """They go, unchanged, with `late_by` and `watermark`, to a channel of their own."""
    return SideOutput(channel)
