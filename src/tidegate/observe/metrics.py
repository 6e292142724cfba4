"""Counters of a running query, one entry a batch: a batch that is replayed counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from threading import Lock

from tidegate.operators.kernel import COUNTER, COUNTERS
from tidegate.plan.nodes import MAIN


class Metrics:
    """Totals since the query started, filled batch by batch."""

    def __init__(self) -> None:
        self._batches: dict[int, Counter[str]] = {}
        self._past: Counter[str] = Counter()
        self._lock = Lock()

    def record(self, batch_id: int, channels: Iterable[tuple[str, int]]) -> Counter[str]:
        """Take in what a batch's packed rows say; the rows per channel come back."""
        counts: Counter[str] = Counter()
        for channel, rows in channels:
            counts[channel] += rows
        with self._lock:
            self._batches[batch_id] = counts
            self._fold_old()
        return counts

    def totals(self) -> dict[str, int]:
        """Every counter by name, and the rows that left: `rows_out`, and `rows_out.<channel>`."""
        with self._lock:
            total = sum(self._batches.values(), Counter(self._past))
        named = dict.fromkeys((*COUNTERS, "rows_out"), 0)
        for channel, rows in total.items():
            named[_name(channel)] = rows
        return named

    def _fold_old(self) -> None:
        # Only the newest batch can be replayed, so older ones need no entry of their own.
        for batch_id in sorted(self._batches)[:-2]:
            self._past += self._batches.pop(batch_id)


def _name(channel: str) -> str:
    if channel.startswith(COUNTER):
        return channel[len(COUNTER) :]
    return "rows_out" if channel == MAIN else f"rows_out.{channel}"
