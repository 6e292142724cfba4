"""A host for kernels without Spark: micro-batches of plain rows in, rows by channel out.

It does what the Spark processor does: packs rows, routes messages to buckets, keeps the watermark,
wakes buckets that have something due, and loses its memory when told to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.dataflow.watermarks import SparkWatermarkGenerator, WatermarkAligner, WatermarkGenerator
from tidegate.kernels.contract import Clock, Kernel, Outcome
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.late import THE_END
from tidegate.kernels.messages import Kind, Message
from tidegate.kernels.registry import kernels_of, unpack_of
from tidegate.kernels.routes import Route, Routes, gap_at_source, pack_along
from tidegate.kernels.row_text import row_text
from tidegate.kernels.shedding import Decision
from tidegate.plan.channels import MAIN, ROWS_IN
from tidegate.plan.nodes import Plan
from tidegate.plan.sources import Source
from tidegate.state.pages import BucketState, MemoryPages, Resident
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row, micros_of, to_arrow

_WIDEST_TIMER = 1 << 63

#: A bucket of an operator: the operator's number in the chain, and the bucket's label.
Slot = tuple[int, int]


@dataclass
class Bucket:
    """What is kept of a bucket: its stored pages, and when it wants to be woken."""

    pages: MemoryPages = field(default_factory=MemoryPages)
    due: int | None = None


class KernelHost:
    """Runs the kernels of one plan over micro-batches. The test sets `now`, the processing time."""

    def __init__(
        self,
        plan: Plan,
        *,
        buckets: int = 1,
        as_spark: bool = False,
        kernel: Kernel | None = None,
    ) -> None:
        self.dataflow = compile(plan)
        self.kernels = [kernel] if kernel else kernels_of(self.dataflow)
        self.routes = Routes.through(self.dataflow, self.kernels)
        #: What is said about the load, in plans that shed.
        self.decision: Decision | None = None
        self.sources = self.dataflow.sources
        generator = SparkWatermarkGenerator if as_spark else WatermarkGenerator[int]
        self.generators = [generator(source.tolerance) for source in self.sources]
        self.aligner = WatermarkAligner[int](map(str, range(len(self.sources))))
        self.now = 0
        self._labels = range(buckets)
        self._buckets = {place: Bucket() for place in self._places()}
        self._residents: dict[tuple[int, Slot], Resident] = {}

    def batch(self, *rows: Sequence[Row], worker: int = 0, packs: int = 1) -> BatchResult:
        """One micro-batch at the time `now`: the rows of each source.

        `worker` is the process that runs the batch: that of the last one, or another, whose memory may
        be several batches old. `packs` is the number of partitions that pack rows.
        """
        result = self._run(rows, self.watermark_micros, worker, packs)
        self.observe(*rows)
        return result

    def observe(self, *rows: Sequence[Row]) -> None:
        """Advance the watermark by the rows of each source."""
        for number, (source, own) in enumerate(zip(self.sources, rows, strict=True)):
            times = (row.get(source.time) for row in own)
            seen = self.generators[number].observe(micros_of(t) for t in times if t is not None)
            self.aligner.update(str(number), seen)

    def advance_to(self, watermark: int) -> None:
        """Advance the watermark of every source, without rows."""
        for number, generator in enumerate(self.generators):
            self.aligner.update(str(number), generator.advance_to(watermark))

    @property
    def watermark_micros(self) -> int | None:
        """The lowest watermark of all sources; None while one has none."""
        return self.aligner.watermark

    def failed_batch(self, *rows: Sequence[Row], worker: int = 0) -> None:
        """Run a micro-batch without committing it: only the worker's memory changes."""
        kept = {place: Bucket(MemoryPages(b.pages), b.due) for place, b in self._buckets.items()}
        self._run(rows, self.watermark_micros, worker, 1)
        self._buckets = kept

    def end(self) -> BatchResult:
        """The end of a batch query: the watermark passes everything."""
        return self._run([[] for _ in self.sources], THE_END, 0, 1)

    def restart(self) -> None:
        """Discard everything that is not stored, as new worker processes do."""
        self._residents.clear()

    @property
    def stored(self) -> dict[Slot, MemoryPages]:
        """The stored pages of each operator's buckets."""
        return {place: bucket.pages for place, bucket in self._buckets.items()}

    def _places(self) -> Iterator[Slot]:
        return ((number, label) for number in range(len(self.kernels)) for label in self._labels)

    def _run(
        self, rows: Sequence[Sequence[Row]], watermark: int | None, worker: int, packs: int
    ) -> BatchResult:
        result = BatchResult(watermark)
        clock = Clock(watermark, self.now)
        messages: list[Message] = []
        for source, routes in self.routes.of_sources.items():
            messages += self._pack(self.sources[source], routes, rows[source], packs)
        for number, kernel in enumerate(self.kernels):
            merged = self._merge(number, messages, clock, worker)
            messages = list(self._repack(kernel, self.routes.of_operators.get(number, []), merged))
        for message in messages:
            self._deliver(message, result)
        return result

    def _pack(
        self, source: Source, routes: Sequence[Route], rows: Sequence[Row], packs: int
    ) -> Iterator[Message]:
        size = -(-len(rows) // packs)
        for sender, start in enumerate(range(0, len(rows), size or 1)):
            some = rows[start : start + size]
            yield Message.counter(0, ROWS_IN, len(some))
            yield from self._along(routes, self._table(source, gap_at_source(routes), some), sender)

    def _repack(
        self, above: Kernel, routes: Sequence[Route], messages: Iterable[Message]
    ) -> Iterator[Message]:
        """What one operator emitted, packed for those that read it; all else passes through."""
        for message in messages:
            is_result = message.kind == Kind.OUTPUT and message.name == above.output_channel
            if is_result and routes:
                rows = above.unpack(ipc.decode(message.blob or b""))
                yield from self._along(routes, rows, message.bucket)
            if not (is_result and routes) or above.output_channel != MAIN:
                yield message

    def _along(self, routes: Sequence[Route], rows: pa.Table, sender: int) -> Iterator[Message]:
        # The steps of all Python stages are the same steps: what differs on Spark is where they run.
        packed = pack_along([route.in_one() for route in routes], rows, self.decision, self._labels)
        yield from (message._replace(sender=sender) for message in packed)

    def _merge(
        self, number: int, messages: Iterable[Message], clock: Clock, worker: int
    ) -> Iterator[Message]:
        inbox: dict[int, list[Message]] = {}
        for message in messages:
            if message.is_for(number):
                inbox.setdefault(message.bucket, []).append(message)
            else:
                yield message
        for label in self._labels:
            due = self._buckets[number, label].due
            woken = due is not None and clock.watermark is not None and due <= clock.watermark
            if label in inbox or woken:
                outcome = self._step((number, label), inbox.get(label, []), clock, worker)
                yield from outcome.messages(label, number)

    def _table(self, source: Source, gap: str | None, rows: Sequence[Row]) -> pa.Table:
        schema = source.schema.append(pa.field(INVALID_ROW, pa.string()))
        return to_arrow(({**row, INVALID_ROW: _invalid(row, source.time, gap)} for row in rows), schema)

    def _step(self, place: Slot, inputs: Sequence[Message], clock: Clock, worker: int) -> Outcome:
        bucket = self._buckets[place]
        resident = self._residents.setdefault((worker, place), Resident())
        state = BucketState(bucket.pages, "plan", resident)
        outcome = self.kernels[place[0]].step(state, inputs, clock)
        state.commit()
        _check_due(outcome.due, clock.watermark)
        bucket.due = outcome.due
        return outcome

    def _deliver(self, message: Message, result: BatchResult) -> None:
        match message:
            case Message(kind=Kind.COUNTER, name=str(name), value=int(value)):
                result.counts[name] += value
            case Message(kind=Kind.OUTPUT, name=str(channel), blob=bytes(blob)):
                table = unpack_of(self.dataflow, self.kernels, channel)(ipc.decode(blob))
                assert table.num_rows == message.rows, "a message says how many rows it holds"
                assert table.schema.equals(self.dataflow.channels[channel]), "a channel keeps its schema"
                result.put(channel, *table.to_pylist())
            case _:
                assert message.kind == Kind.GAUGE, "nothing else is left when all operators have run"


def _invalid(row: Mapping[str, Any], time: str, gap_column: str | None) -> str | None:
    """An invalid row as text: it lacks its event time, or its own gap."""
    gap = timedelta.max if gap_column is None else row.get(gap_column)
    usable = row.get(time) is not None and gap is not None and gap > timedelta(0)
    return None if usable else row_text(row)


def _check_due(due: int | None, watermark: int | None) -> None:
    """A bucket asks to be woken later than now, at a time that a timer can hold."""
    if due is None:
        return
    assert watermark is None or due > watermark, f"due at {due}, but the watermark is {watermark}"
    assert -_WIDEST_TIMER <= due < _WIDEST_TIMER, f"no timer can be set to {due}"
