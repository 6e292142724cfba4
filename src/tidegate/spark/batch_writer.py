"""Micro-batches: what each has emitted is written into the sink of every channel, and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate.connectors import ArrowWrite, StagedWrite, Write
from tidegate.dataflow import Dataflow
from tidegate.dataflow.identity import Identity
from tidegate.kernels.messages import Kind, Message
from tidegate.observe.metrics import BatchCounts, Metrics
from tidegate.plan.channels import MAIN, ROWS_IN
from tidegate.spark.checkpoint.metadata import MetricsFile, ProgressFile
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.checkpoint.state_summary import StateSummary
from tidegate.spark.executors import missing_modules_told
from tidegate.spark.interruption import told_in_short
from tidegate.spark.load_shedding import Shedding
from tidegate.spark.lower import counted_as, is_output
from tidegate.spark.rate_control import RateControl, now

Select = Callable[[DataFrame], DataFrame]
RowsOf = Callable[[str, DataFrame], DataFrame]


class Program(Protocol):
    """What runs on Spark, as a value: how to get the rows of a channel out of a batch of messages."""

    @property
    def dataflow(self) -> Dataflow: ...
    @property
    def identity(self) -> Identity: ...
    def channel(self, name: str, packed: DataFrame, /) -> DataFrame: ...
    def facts(self, packed: DataFrame, content_of: Collection[str] = (), /) -> DataFrame: ...
    def delivers(self, channel: str, write: object, /) -> bool: ...
    def unpacked(self, channel: str, blobs: Iterable[bytes], /) -> pa.Table: ...


@dataclass
class BatchWriter:
    """Writes the batches of one start of a query. Over Spark Connect it is shipped to the server."""

    program: Program
    writes: Mapping[str, Write]
    checkpoint: str
    ownership: Ownership
    rate_control: RateControl
    progress: ProgressFile | None = None
    shedding: Shedding | None = None
    #: What is written of the results, if not all of them: rows are counted after it.
    selects: Select | None = None
    #: Where metrics are left for a client that is not in this process.
    metrics_file: MetricsFile | None = None
    #: The batch that was written last, or is being written; -1 before the first.
    last: int = -1

    def __call__(self, packed: DataFrame, batch_id: int) -> None:
        with told_in_short(), missing_modules_told():
            self._write(packed, batch_id)

    @cached_property
    def metrics(self) -> Metrics:
        return Metrics(self.program.dataflow)

    @cached_property
    def summary(self) -> StateSummary | None:
        """What the query keeps, for those who ask without Spark."""
        return StateSummary(self.checkpoint, self.metrics) if self.program.dataflow.vertices else None

    def totals(self) -> dict[str, float]:
        """Every counter since the start, and what shedding and rate control say."""
        shedding = self.shedding.coordinator.metrics() if self.shedding else {}
        return self.metrics.totals() | shedding | self.rate_control.metrics()

    def _write(self, packed: DataFrame, batch_id: int) -> None:
        self.ownership.check()
        self.last, begun = batch_id, now()
        if self.summary is not None:
            self.summary.begin(batch_id)
        counts = self.write_channels(packed, batch_id, self.program.channel, self._delivered)
        if self.summary is not None:
            self.summary.write(batch_id)
        if self.progress is not None:
            self.progress.write(self.metrics.sources.metadata())
        rows = counts.counters[ROWS_IN]
        if self.shedding is not None:
            told = self.shedding.after(batch_id, self.metrics.load, rows, now() - begun)
            self.rate_control.throttle(told.throttle)
        self.rate_control.observe(rows, begun)
        self._leave_metrics()

    def write_channels(
        self, packed: DataFrame, batch_id: int, rows_of: RowsOf, delivered: Collection[str] = ()
    ) -> BatchCounts:
        """Count what a batch has emitted, and write the rows of each channel.

        Those of `delivered` channels come with the messages. Others are computed from them by Spark.
        """
        if self.writes.keys() <= set(delivered):
            return self._write_counted(packed, batch_id, rows_of, delivered)
        # Several channels are written from one computation: without this each would run it again.
        packed.persist()
        try:
            return self._write_counted(packed, batch_id, rows_of, delivered)
        finally:
            packed.unpersist()

    @cached_property
    def _delivered(self) -> frozenset[str]:
        """The channels that a batch writes in the one job that computes it."""
        delivers = self.program.delivers
        return frozenset(channel for channel, write in self.writes.items() if delivers(channel, write))

    def _write_counted(
        self, packed: DataFrame, batch_id: int, rows_of: RowsOf, delivered: Collection[str]
    ) -> BatchCounts:
        facts, results = self.program.facts(packed, delivered), None
        if self.selects is not None:
            # Kept for the sink, which selects again: so results are unpacked once.
            results = rows_of(MAIN, packed).persist()
            leaving = counted_as(MAIN, self.selects(results))
            facts = facts.where(~is_output(MAIN)).unionAll(leaving.select(facts.columns))
        try:
            found = [Message(**row.asDict(recursive=True)) for row in facts.collect()]
            at = time.time_ns() // 1000
            self.ownership.check()  # once more: the batch has been computed meanwhile
            counts = self.metrics.record(batch_id, found, at)
            for channel, write in self.writes.items():
                if not counts.rows[channel]:
                    continue
                if channel in delivered:
                    self._write_delivered(channel, write, found, batch_id)
                else:
                    kept = channel == MAIN and results is not None
                    write(results if kept else rows_of(channel, packed), batch_id)
        finally:
            if results is not None:
                results.unpersist()
        return counts

    def _write_delivered(
        self, channel: str, write: object, messages: Iterable[Message], batch_id: int
    ) -> None:
        content = [
            bytes(one.blob)
            for one in messages
            if one.kind == Kind.OUTPUT and one.name == channel and one.blob is not None
        ]
        if isinstance(write, StagedWrite):
            write.commit(content, batch_id)
        elif isinstance(write, ArrowWrite):
            write.write_rows(self.program.unpacked(channel, content), batch_id)

    def _leave_metrics(self) -> None:
        if self.metrics_file is not None:
            self.metrics_file.write(self.last, self.totals(), self.metrics)
