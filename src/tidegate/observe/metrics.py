"""Counters of a running query, one entry a batch: a batch that is replayed counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from threading import Lock

from tidegate.dataflow import Dataflow
from tidegate.kernels.messages import Kept, Kind, Message
from tidegate.observe.progress import SourceProgress
from tidegate.plan.channels import MAIN

#: What is kept, by the number of an operator, then by bucket.
KeptByAll = dict[int, dict[int, Kept]]

#: For how many batches the number of results is kept: Spark reports as many.
_REMEMBERED = 100


@dataclass
class BatchCounts:
    """What a batch has counted, and how many rows it has in each channel."""

    counters: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)

    def add(self, other: BatchCounts) -> None:
        self.counters.update(other.counters)
        self.rows.update(other.rows)


@dataclass
class Metrics:
    """Totals since the query started, filled batch by batch."""

    dataflow: InitVar[Dataflow]
    sources: SourceProgress = field(init=False)
    counters: tuple[str, ...] = field(init=False)
    output_channels: frozenset[str] = field(init=False)
    #: How busy the busiest machine was in the newest batch, in shares of ten thousand.
    load: dict[str, int] = field(default_factory=dict)
    _batches: dict[int, BatchCounts] = field(default_factory=dict)
    _past: BatchCounts = field(default_factory=BatchCounts)
    _rows_out: dict[int, int] = field(default_factory=dict)
    #: By operator, bucket and name.
    _gauges: dict[tuple[int, int, str], int] = field(default_factory=dict)
    _state: KeptByAll = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self, dataflow: Dataflow) -> None:
        self.sources = SourceProgress.of(dataflow)
        self.counters = dataflow.counters
        # Without an operator rows pass as they are.
        self.output_channels = frozenset(dataflow.outputs or {MAIN})

    def record(self, batch_id: int, messages: Iterable[Message], now: int) -> BatchCounts:
        """Take in what a batch's messages say; what they count comes back."""
        counts = BatchCounts()
        highest: dict[tuple[str, int], int] = {}
        with self._lock:
            self.load.clear()
            for message in messages:
                self._take(message, counts, highest)
            for (kind, source), time in highest.items():
                self.sources.observe(source, time, now if kind == Kind.HIGH_WATER_MARK else None)
            self._batches[batch_id] = counts
            self._rows_out[batch_id] = self._leaving(counts)
            self._fold_old()
        return counts

    def _take(self, message: Message, counts: BatchCounts, highest: dict[tuple[str, int], int]) -> None:
        match message:
            case Message(kind=Kind.OUTPUT, name=str(name), rows=int(rows)):
                counts.rows[name] += rows
            case Message(kind=Kind.COUNTER, name=str(name), value=int(value)):
                counts.counters[name] += value
            case Message(kind=Kind.GAUGE, name=str(name), vertex=int(vertex), value=int(value)):
                self._gauges[vertex, message.bucket, name] = value
            case Message(kind=Kind.STATE, vertex=int(vertex), kept=dict(kept)):
                self._state.setdefault(vertex, {})[message.bucket] = kept
            case Message(kind=Kind.LOAD, name=str(name), value=int(value)):
                self.load[name] = max(value, self.load.get(name, 0))
            case Message(kind=Kind.HIGH_WATER_MARK | Kind.HEARTBEAT, source=int(source), time=int(time)):
                seen = message.kind, source
                highest[seen] = max(time, highest.get(seen, time))
            case _:
                raise ValueError(f"no message for the driver: {message}")

    def totals(self) -> dict[str, int]:
        """Every counter by name, and the rows that left: `rows_out`, and `rows_out.<channel>`.

        Beside them what event time says: rows held back, entries in state, the highest time seen
        (microseconds since 1970), and how often the watermark has moved.
        """
        with self._lock:
            total = BatchCounts()
            for counts in (self._past, *self._batches.values()):
                total.add(counts)
            named = dict.fromkeys((*self.counters, "rows_out"), 0) | total.counters
            named |= {
                f"rows_out.{name}": rows for name, rows in total.rows.items() if rows and name != MAIN
            }
            named["rows_out"] = self._leaving(total)
            named["late_dropped_count"] = named["late_dropped"]
            held = {"buffer_size": self._buffered(), "state_rows": self._kept_rows()}
            return named | held | self.sources.metrics()

    def kept(self) -> KeptByAll:
        """What each bucket of each operator keeps."""
        with self._lock:
            return {vertex: dict(buckets) for vertex, buckets in self._state.items()}

    def restore(self, kept: KeptByAll) -> None:
        """Go on from what an earlier run has seen; each bucket until this one looks at it."""
        with self._lock:
            for vertex, buckets in kept.items():
                self._state[vertex] = buckets | self._state.get(vertex, {})

    def rows_out_by_batch(self) -> dict[str, int]:
        """The rows that each of the last batches emitted, by its number as text, as JSON has it."""
        with self._lock:
            return {str(batch): rows for batch, rows in self._rows_out.items()}

    def _buffered(self) -> int:
        """The rows that all buckets of all operators buffer."""
        return sum(held for (_, _, name), held in self._gauges.items() if name == "buffer_size")

    def _kept_rows(self) -> int:
        """The entries that they keep."""
        kept = (kept for buckets in self._state.values() for kept in buckets.values())
        return sum(one["rows"] or 0 for one in kept)

    def _leaving(self, counts: BatchCounts) -> int:
        return sum(counts.rows[outlet] for outlet in self.output_channels)

    @property
    def reached(self) -> int | None:
        """The watermark that the newest batch has brought about; None while there is none."""
        with self._lock:
            return self.sources.aligner.watermark

    def watermarks(self) -> Mapping[str, int | None]:
        """Where event time stands for each operator."""
        with self._lock:
            return self.sources.watermarks()

    def _fold_old(self) -> None:
        # Only the newest batch can be replayed, so older ones need no entry of their own.
        for batch_id in sorted(self._batches)[:-2]:
            self._past.add(self._batches.pop(batch_id))
        for batch_id in sorted(self._rows_out)[:-_REMEMBERED]:
            del self._rows_out[batch_id]
