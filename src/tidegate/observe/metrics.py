"""Counters of a running query, one entry a batch: a batch that is replayed counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from threading import Lock

from tidegate.dataflow import Dataflow
from tidegate.observe.progress import SourceProgress
from tidegate.operators.kernel import COUNTER, GAUGE, HEARTBEAT, HIGHEST, LOAD
from tidegate.plan.channels import MAIN

#: By an operator's plan, then by bucket: what is kept there.
Kept = dict[str, dict[int, dict[str, int]]]

#: What gauges of state are called, and the operator of those that an earlier run has seen.
_STATE, _BEFORE = "state_", "before"

#: Of so many batches it is known what each put out: Spark tells of as many.
_REMEMBERED = 100

#: A bucket, a channel, and how many rows (or how much of something) it has there.
Packed = tuple[int, str, int]


@dataclass
class Metrics:
    """Totals since the query started, filled batch by batch."""

    dataflow: InitVar[Dataflow]
    sources: SourceProgress = field(init=False)
    counters: tuple[str, ...] = field(init=False)
    outlets: frozenset[str] = field(init=False)
    #: How busy the busiest machine was in the newest batch, in shares of ten thousand.
    load: dict[str, int] = field(default_factory=dict)
    _batches: dict[int, Counter[str]] = field(default_factory=dict)
    _past: Counter[str] = field(default_factory=Counter)
    _rows_out: dict[int, int] = field(default_factory=dict)
    _held: dict[tuple[int, str], int] = field(default_factory=dict)
    _reached: int | None = None
    _passed: int | None = None
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self, dataflow: Dataflow) -> None:
        self.sources = SourceProgress.of(dataflow)
        self.counters = dataflow.counters
        self.outlets = frozenset(dataflow.outputs)

    def record(self, batch_id: int, packed: Iterable[Packed], now: int) -> Counter[str]:
        """Take in what a batch's packed rows say; the rows per channel come back."""
        counts: Counter[str] = Counter()
        highest: dict[str, int] = {}
        with self._lock:
            self.load.clear()
            for bucket, channel, rows in packed:
                if channel.startswith(GAUGE):
                    self._hold(bucket, channel.removeprefix(GAUGE), rows)
                elif channel.startswith(LOAD):
                    name = channel.removeprefix(LOAD)
                    self.load[name] = max(rows, self.load.get(name, 0))
                elif channel.startswith((HIGHEST, HEARTBEAT)):
                    highest[channel] = max(rows, highest.get(channel, rows))
                else:
                    counts[channel] += rows
            self._passed, self._reached = self._reached, self.sources.aligner.watermark
            self._observe(highest, now)
            self._batches[batch_id] = counts
            self._rows_out[batch_id] = sum(counts[outlet] for outlet in self.outlets)
            self._fold_old()
        return counts

    def totals(self) -> dict[str, int]:
        """Every counter by name, and the rows that left: `rows_out`, and `rows_out.<channel>`.

        Beside them what event time says: rows held back, entries in state, the highest time seen
        (microseconds since 1970), and how often the watermark has moved.
        """
        with self._lock:
            total = sum(self._batches.values(), Counter(self._past))
            held = {name: self._held_by_all(name) for name in ("buffer_size", "state_rows")}
            named = dict.fromkeys((*self.counters, "rows_out"), 0)
            for channel, rows in total.items():
                named[_name(channel)] = rows
            named["rows_out"] = sum(total[outlet] for outlet in self.outlets)
            named["late_dropped_count"] = named["late_dropped"]
            return named | held | self.sources.metrics()

    def kept(self) -> Kept:
        """What each bucket of each operator keeps, by the operator's plan: gauges without a prefix."""
        kept: Kept = {}
        with self._lock:
            for (bucket, name), held in self._held.items():
                if name.startswith(_STATE):
                    gauge, plan, _ = name.removeprefix(_STATE).split(".")
                    kept.setdefault(plan, {}).setdefault(bucket, {})[gauge] = held
        return kept

    def restore(self, kept: Kept) -> None:
        """Go on from what an earlier run has seen; each bucket until this one looks at it."""
        with self._lock:
            for plan, buckets in kept.items():
                for bucket, gauges in buckets.items():
                    for gauge, held in gauges.items():
                        self._held.setdefault((bucket, f"{_STATE}{gauge}.{plan}.{_BEFORE}"), held)

    def _hold(self, bucket: int, name: str, held: int) -> None:
        self._held[bucket, name] = held
        if name.startswith(_STATE):
            self._held.pop((bucket, f"{name.rpartition('.')[0]}.{_BEFORE}"), None)

    def rows_out_in(self, batch_id: int) -> int | None:
        """The rows that left in a batch, if it was one of the last."""
        with self._lock:
            return self._rows_out.get(batch_id)

    def _held_by_all(self, gauge: str) -> int:
        """What all buckets of all operators hold of something."""
        return sum(rows for (_, name), rows in self._held.items() if name.partition(".")[0] == gauge)

    @property
    def reached(self) -> int | None:
        """The watermark that the newest batch has brought about; None while there is none."""
        with self._lock:
            return self.sources.aligner.watermark

    @property
    def passed(self) -> int | None:
        """The watermark of the batch before the newest: what it made due is out."""
        return self._passed

    def watermarks(self) -> Mapping[str, int | None]:
        """Where event time stands for each operator."""
        with self._lock:
            return self.sources.watermarks()

    def _observe(self, highest: Mapping[str, int], now: int) -> None:
        for channel, time in highest.items():
            self.sources.observe(int(channel[1:]), time, now if channel[0] == HIGHEST else None)

    def _fold_old(self) -> None:
        # Only the newest batch can be replayed, so older ones need no entry of their own.
        for batch_id in sorted(self._batches)[:-2]:
            self._past += self._batches.pop(batch_id)
        for batch_id in sorted(self._rows_out)[:-_REMEMBERED]:
            del self._rows_out[batch_id]


def _name(channel: str) -> str:
    if channel.startswith(COUNTER):
        return channel[len(COUNTER) :]
    return "rows_out" if channel == MAIN else f"rows_out.{channel}"
