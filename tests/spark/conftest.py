"""Streams for tests: each micro-batch is one file, so that tests decide where the cuts are."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

CLICKS = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("user", pa.string()), ("price", pa.float64())]
)

#: 2024-05-01 12:00:00 UTC: far enough from zero for Spark to know a watermark.
NOON = 1_714_564_800_000_000

Click = tuple[float | None, str | None, float | None]


def write_batches(folder: Path, batches: Sequence[Sequence[Click]], start: int = 0) -> None:
    """One parquet file a batch; seconds count from noon."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(batches, start):
        times = [None if t is None else NOON + round(t * 1_000_000) for t, _, _ in rows]
        columns = [times, [user for _, user, _ in rows], [price for _, _, price in rows]]
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, CLICKS, strict=True)], schema=CLICKS
        )
        staged = folder / f"_{number:05d}"
        pq.write_table(table, staged)
        # Spark takes files in the order of their modification times.
        os.utime(staged, (1_000_000_000 + number, 1_000_000_000 + number))
        staged.rename(folder / f"{number:05d}.parquet")


@pytest.fixture
def click_stream(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """`click_stream(batches)`: a streaming DataFrame that yields one batch a micro-batch."""

    def make(batches: Sequence[Sequence[Click]], folder: str = "clicks") -> Any:
        write_batches(tmp_path / folder, batches)
        reader = spark.readStream.schema("ts timestamp, user string, price double")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / folder))

    return make


def run(result: Any, checkpoint: Path, **sinks: Any) -> Any:
    """Run a result over everything there is, and come back when it is done."""
    query = result.start(checkpoint=checkpoint, trigger={"availableNow": True}, **sinks)
    query.await_termination()
    return query


def seconds(instant: Any) -> float:
    """A result's timestamp as seconds from noon."""
    return instant.timestamp() - NOON / 1_000_000
