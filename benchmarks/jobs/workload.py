"""What the jobs compute, and over which events."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import KEYS, SESSION, SPAN, Session, Sliding, Window
from benchmarks.data import Skewed

#: Twenty batches of 250 k events of 50 k skewed keys, a file each, and the event that closes windows.
EVENTS = Skewed(5_000_000, 250_000, 5_000_000 / SPAN, KEYS, files=1)
TOLERANCE = 5


@dataclass(frozen=True)
class Workload:
    """One question: count and sum(price) by user and window."""

    name: str
    window: Window | Session | Sliding

    @property
    def on_spark(self) -> bool:
        """Does Spark have the window?"""
        return not isinstance(self.window, Sliding)


WORKLOADS = {
    one.name: one
    for one in (
        Workload("tumbling", Window(10, 10)),
        Workload("hopping-60-10", Window(60, 10)),
        Workload("sessions", SESSION),
        Workload("hopping-60-1", Window(60, 1)),
        Workload("lookback-10s", Sliding(10)),
    )
}
