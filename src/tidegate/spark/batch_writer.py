"""Micro-batches: what each has put out is written into the sink of every channel, and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from threading import Lock
from typing import Protocol

from pyspark.sql import DataFrame

from tidegate.connectors import Write
from tidegate.dataflow import Dataflow
from tidegate.dataflow.identity import Identity
from tidegate.errors import StartError
from tidegate.kernels.messages import Message
from tidegate.observe.metrics import BatchCounts, Metrics
from tidegate.plan.channels import MAIN, ROWS_IN
from tidegate.spark.checkpoint.metadata import ProgressFile, last_batch
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.checkpoint.state_summary import StateSummary
from tidegate.spark.interruption import BatchInterrupted, told_in_short
from tidegate.spark.load_shedding import Shedding
from tidegate.spark.lower import counted_as, is_output
from tidegate.spark.rate_control import RateControl, now

#: How long a batch that came after the end waits for the query to be stopped; it takes moments.
_LONGEST_STOP = timedelta(minutes=10)
_PAUSE = 0.01

Select = Callable[[DataFrame], DataFrame]


class Flow(Protocol):
    """A program on Spark: its packed rows, and how to get those of a channel out of a batch of them."""

    @property
    def packed(self) -> DataFrame: ...
    @property
    def dataflow(self) -> Dataflow: ...
    @property
    def identity(self) -> Identity: ...
    def channel(self, name: str, packed: DataFrame, /) -> DataFrame: ...
    def facts(self, packed: DataFrame, /) -> DataFrame: ...


@dataclass
class BatchWriter:
    """Writes the batches of one start of a query."""

    flow: Flow
    writes: Mapping[str, Write]
    checkpoint: str
    ownership: Ownership
    pacing: RateControl
    progress: ProgressFile | None = None
    shedding: Shedding | None = None
    #: What is written of the results, if not all of them: rows are counted after it.
    selects: Select | None = None
    #: The last batch that an earlier run has begun. Its rows may be in the sinks, under its number.
    begun_before: int = -1
    _last: int = -1
    #: Once no batch is to be written any more: does Spark's query still run?
    _stopping: Callable[[], bool] | None = None
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        with told_in_short():
            self._take(packed, batch_id)

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics(self.flow.dataflow)

    @cached_property
    def summary(self) -> StateSummary | None:
        """What the query keeps, for those who ask without Spark."""
        return StateSummary(self.checkpoint, self.metrics) if self.flow.dataflow.vertices else None

    @property
    def last(self) -> int:
        """The batch that was written last, or is being written; -1 before the first."""
        return self._last

    # -- a batch ----------------------------------------------------------------------------------

    def _take(self, packed: DataFrame, batch_id: int) -> None:
        with self._lock:
            if self._stopping is None:
                self._write(packed, batch_id)
                return
        _wait_to_be_stopped(self._stopping)

    def _write(self, packed: DataFrame, batch_id: int) -> None:
        self.ownership.check()
        self._last, begun = batch_id, now()
        if self.summary is not None:
            self.summary.begin(batch_id)
        counts = self.write_channels(packed, batch_id, self.flow.channel)
        if self.summary is not None:
            self.summary.write(batch_id)
        if self.progress is not None:
            self.progress.write(self.metrics.sources.metadata())
        rows = counts.counters[ROWS_IN]
        if self.shedding is not None:
            told = self.shedding.after(batch_id, self.metrics.load, rows, now() - begun)
            self.pacing.throttle(told.throttle)
        self.pacing.observe(rows, begun)

    def write_channels(
        self, packed: DataFrame, batch_id: int, rows_of: Callable[[str, DataFrame], DataFrame]
    ) -> BatchCounts:
        """Count what a batch has put out, and write the rows of each channel."""
        # Several channels are written from one computation: without this each would run it again.
        packed.persist()
        try:
            return self._write_counted(packed, batch_id, rows_of)
        finally:
            packed.unpersist()

    def _write_counted(
        self, packed: DataFrame, batch_id: int, rows_of: Callable[[str, DataFrame], DataFrame]
    ) -> BatchCounts:
        facts, results = self.flow.facts(packed), None
        if self.selects is not None:
            # Kept for the sink, which selects again: so results are unpacked once.
            results = rows_of(MAIN, packed).persist()
            leaving = counted_as(MAIN, self.selects(results))
            facts = facts.where(~is_output(MAIN)).unionAll(leaving.select(facts.columns))
        try:
            found = facts.collect()
            at = time.time_ns() // 1000
            self.ownership.check()  # once more: the batch has been computed meanwhile
            messages = (Message(**row.asDict(recursive=True)) for row in found)
            counts = self.metrics.record(batch_id, messages, at)
            for channel, write in self.writes.items():
                if counts.rows[channel]:
                    kept = channel == MAIN and results is not None
                    write(results if kept else rows_of(channel, packed), batch_id)
        finally:
            if results is not None:
                results.unpersist()
        return counts

    # -- the end ----------------------------------------------------------------------------------

    def end(self, is_active: Callable[[], bool]) -> None:
        """Let the batch that is being written be written and committed, and none after it."""
        self._wait_for(self.begun_before, lambda: max(self._last, self._committed()), is_active)
        with self._lock:
            self._stopping = is_active
        self._wait_for(self._last, self._committed, is_active)

    def _committed(self) -> int:
        return last_batch(self.checkpoint)

    def _wait_for(self, batch: int, reached: Callable[[], int], is_active: Callable[[], bool]) -> None:
        while reached() < batch and is_active():
            time.sleep(_PAUSE)
        if reached() < batch:
            raise StartError(
                f"batch {batch} may have been written, and the query ended before it was committed: "
                "start it again from its checkpoint, and drain it then"
            )


def _wait_to_be_stopped(is_active: Callable[[], bool]) -> None:
    """End a batch that must not be written, in the way that a stop would have ended it.

    Spark takes an interruption for what it is only once the query has been stopped, and any other error
    for a failure. To come back without one would be to say that the batch was written.
    """
    until = now() + _LONGEST_STOP.total_seconds()
    while is_active() and now() < until:
        time.sleep(_PAUSE)
    if is_active():
        raise StartError("the query is being drained: this batch is not written any more")
    raise BatchInterrupted("java.lang.InterruptedException: the query was drained")
