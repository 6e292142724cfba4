"""A host for kernels without Spark: micro-batches of plain rows in, rows by channel out.

It does what the Spark processor does: packs rows, routes parcels to buckets, keeps the watermark,
wakes buckets that have something due, and loses its memory when told to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from tidegate.operators import blobs
from tidegate.operators.kernel import COUNTER, Clock, Kernel, Outcome, Parcel
from tidegate.operators.kernels import kernel_of
from tidegate.operators.state import BucketState, MemoryPages, Resident
from tidegate.operators.windowed import BROKEN
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, Emit, Source, WindowBy
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row, as_json, micros_of, to_arrow

#: After every event time, as at the end of a batch query.
END_OF_TIME = 1 << 60
_OUTPUTS = {MAIN, ERROR_CHANNEL}
_WIDEST_TIMER = 1 << 63


@dataclass
class Watermark:
    """The highest event time of earlier batches minus the tolerance, never going back."""

    tolerance: int
    #: Spark counts whole milliseconds and knows no watermark at or before 1970.
    as_spark: bool = False
    value: int | None = None

    def observe(self, times: Iterable[int]) -> None:
        """Take in a batch's event times; they count from the next batch on."""
        highest = max(times, default=None)
        if highest is None:
            return
        reached = highest - self.tolerance
        if self.as_spark:
            reached = (highest // 1000 + -self.tolerance // 1000) * 1000
            if reached <= 0:
                return
        self.value = reached if self.value is None else max(self.value, reached)


@dataclass
class Bucket:
    """What is kept of a bucket: its stored pages, and when it wants to be woken."""

    pages: MemoryPages = field(default_factory=MemoryPages)
    due: int | None = None


class KernelHost:
    """Runs one plan's kernel over micro-batches; `now`, its processing time, is set by the test."""

    def __init__(
        self,
        plan: Emit,
        *,
        buckets: int = 1,
        as_spark: bool = False,
        kernel: Kernel | None = None,
    ) -> None:
        self.plan = plan
        self.kernel = kernel or kernel_of(plan)
        self.watermark = Watermark(self._source.tolerance, as_spark)
        self.now = 0
        self._buckets = {label: Bucket() for label in range(buckets)}
        self._residents: dict[tuple[int, int], Resident] = {}

    def batch(self, rows: Sequence[Row], *, worker: int = 0, packs: int = 1) -> BatchResult:
        """One micro-batch at the time `now`.

        `worker` is the process whose memory the batch meets: the one that served the batch before,
        or another, which may be several batches behind. `packs` is how many partitions pack rows.
        """
        result = self._run(rows, self.watermark.value, worker, packs)
        times = (row.get(self._source.time) for row in rows)
        self.watermark.observe(micros_of(time) for time in times if time is not None)
        return result

    def failed_batch(self, rows: Sequence[Row], *, worker: int = 0) -> None:
        """An attempt at a micro-batch that is not committed: only the worker's memory has seen it."""
        kept = {label: Bucket(MemoryPages(b.pages), b.due) for label, b in self._buckets.items()}
        self._run(rows, self.watermark.value, worker, 1)
        self._buckets = kept

    def end(self) -> BatchResult:
        """The end of a batch query: the watermark passes everything."""
        return self._run([], END_OF_TIME, 0, 1)

    def restart(self) -> None:
        """Forget everything that is not stored, as new worker processes would."""
        self._residents.clear()

    @property
    def stored(self) -> dict[int, MemoryPages]:
        """The stored pages of each bucket."""
        return {label: bucket.pages for label, bucket in self._buckets.items()}

    @property
    def _window(self) -> WindowBy:
        return self.plan.input.input

    @property
    def _source(self) -> Source:
        return self._window.input.input

    def _run(self, rows: Sequence[Row], watermark: int | None, worker: int, packs: int) -> BatchResult:
        result = BatchResult(watermark)
        inbox: dict[int, list[Parcel]] = {}
        for parcel in self._pack(rows, packs):
            if parcel.channel in _OUTPUTS or parcel.channel.startswith(COUNTER):
                self._deliver(parcel, result)
            else:
                inbox.setdefault(parcel.bucket, []).append(parcel)
        for label, bucket in self._buckets.items():
            woken = bucket.due is not None and watermark is not None and bucket.due <= watermark
            if label in inbox or woken:
                outcome = self._step(label, inbox.get(label, []), Clock(watermark, self.now), worker)
                for parcel in outcome.parcels(label):
                    self._deliver(parcel, result)
        return result

    def _pack(self, rows: Sequence[Row], packs: int) -> Iterable[Parcel]:
        labels = list(self._buckets)
        size = -(-len(rows) // packs)
        for start in range(0, len(rows), size or 1):
            yield from self.kernel.pack(self._table(rows[start : start + size]), labels)

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        schema = self._source.schema.append(pa.field(BROKEN, pa.string()))
        return to_arrow(({**row, BROKEN: _broken(row, self._window)} for row in rows), schema)

    def _step(self, label: int, inputs: Sequence[Parcel], clock: Clock, worker: int) -> Outcome:
        bucket = self._buckets[label]
        resident = self._residents.setdefault((worker, label), Resident())
        state = BucketState(bucket.pages, "plan", resident)
        outcome = self.kernel.step(state, inputs, clock)
        state.commit()
        _check_due(outcome.due, clock.watermark)
        bucket.due = outcome.due
        return outcome

    def _deliver(self, parcel: Parcel, result: BatchResult) -> None:
        if parcel.channel.startswith(COUNTER):
            result.counts[parcel.channel.removeprefix(COUNTER)] += parcel.rows
            return
        assert parcel.blob is not None
        table = self.kernel.unpack(parcel.channel, blobs.decode(parcel.blob))
        assert table.num_rows == parcel.rows, "a parcel says how many rows it holds"
        assert table.schema.equals(self.plan.channels[parcel.channel]), "a channel keeps its schema"
        result.put(parcel.channel, *table.to_pylist())


def _broken(row: Mapping[str, Any], window: WindowBy) -> str | None:
    """A row that cannot be used, as text: it lacks its event time, or its own gap."""
    gap = timedelta.max if window.gap_column is None else row.get(window.gap_column)
    usable = row.get(window.input.input.time) is not None and gap is not None and gap > timedelta(0)
    return None if usable else as_json(row)


def _check_due(due: int | None, watermark: int | None) -> None:
    """A bucket asks to be woken later than now, at a time that a timer can hold."""
    if due is None:
        return
    assert watermark is None or due > watermark, f"due at {due}, but the watermark is {watermark}"
    assert -_WIDEST_TIMER <= due < _WIDEST_TIMER, f"no timer can be set to {due}"
