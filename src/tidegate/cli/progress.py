"""What a batch did, from what Spark reports of it and what the query knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class Batch:
    """One micro-batch of a query."""

    query: str
    batch: int
    rows_in: int
    rows_out: int
    rows_per_second: float
    #: The one in force during the batch; None while there is none.
    watermark: datetime | None
    late_rows: int
    errors: int
    #: Entries in state after it, as far as the query knows by now.
    open: int
    state_bytes: int
    milliseconds: int

    @property
    def behind(self) -> float | None:
        """Seconds from the watermark to now."""
        return None if self.watermark is None else (datetime.now(UTC) - self.watermark).total_seconds()


class Reports:
    """The batches of a query, each once."""

    def __init__(self, name: str, query: Any) -> None:
        self.name = name
        self.query = query
        self._last = -1

    def new(self) -> Iterator[Batch]:
        """The batches that have been reported since the last time."""
        for progress in self.query.spark.recentProgress:
            if progress.batchId > self._last:
                self._last = progress.batchId
                yield self._batch(progress)

    def _batch(self, progress: Any) -> Batch:
        counts = (progress.observedMetrics or {}).get("tidegate")
        counted = counts.asDict() if counts else {}
        rows_out = self.query.rows_out_in(progress.batchId)
        return Batch(
            self.name,
            progress.batchId,
            counted.get("rows_in", progress.numInputRows),
            0 if rows_out is None else rows_out,
            round(progress.processedRowsPerSecond or 0.0, 1),
            _watermark(progress.eventTime.get("watermark")),
            counted.get("late_rows", 0),
            counted.get("errors", 0),
            self.query.metrics.get("state_rows", 0),
            sum(_bytes(operator) for operator in progress.stateOperators),
            progress.batchDuration,
        )


def _watermark(text: str | None) -> datetime | None:
    """Spark's zero is that there is none."""
    known = datetime.fromisoformat(text) if text else None
    return known if known and known.timestamp() > 0 else None


def _bytes(operator: Any) -> int:
    """What the state takes in memory and in files of RocksDB."""
    return int(operator.memoryUsedBytes + operator.customMetrics.get("rocksdbSstFileSize", 0))
