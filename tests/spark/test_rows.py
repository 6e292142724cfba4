"""What sinks get of rows that are late, filtered out or invalid, and what the counters say of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.test_windows import BATCHES, run, tumbling
from tidegate.cli.progress import Reports
from tidegate.pipeline.load import load
from tidegate.pipeline.start import start


def json_rows(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


# -- late rows ----------------------------------------------------------------------------------


def test_in_json_durations_of_late_rows_are_seconds(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    result = tumbling(click_stream(BATCHES), late=tg.late.side_output("late"), allowed_lateness="2 s")
    run(result, tmp_path / "ckpt", main=tg.sinks.discard(), late=tg.sinks.json(tmp_path / "late"))
    [row] = json_rows(tmp_path / "late")
    assert row["late_by"] == 14.0
    assert row["allowed_lateness"] == 2.0
    assert row["late_operator"] == "1 tumbling(10 seconds)"


def test_in_parquet_they_are_intervals(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    result = tumbling(click_stream(BATCHES), late=tg.late.side_output("late"))
    run(result, tmp_path / "ckpt", main=tg.sinks.discard(), late=tg.sinks.parquet(tmp_path / "late"))
    late = spark.read.parquet(str(tmp_path / "late"))
    assert late.schema["late_by"].dataType.simpleString() == "interval day to second"
    [row] = late.collect()
    assert (row["late_by"].total_seconds(), row["allowed_lateness"].total_seconds()) == (14, 0)


# -- rows out -------------------------------------------------------------------------------------

FILTERED = """
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH (connector = 'files', format = 'json', path = 'clicks', maxFilesPerTrigger = '1');
CREATE SINK rich WITH (connector = 'files', format = 'json', path = 'rich');
INSERT INTO rich
SELECT user, window_start, window_end, sum(price) AS spend
FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '10' SECOND) HAVING sum(price) > 8;
"""

PASSING = """
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE)
WITH (connector = 'files', format = 'json', path = 'clicks', maxFilesPerTrigger = '1');
CREATE SINK rich WITH (connector = 'files', format = 'json', path = 'rich');
INSERT INTO rich SELECT user, price * 2 AS twice FROM clicks WHERE price > 8;
"""


def write_lines(folder: Path, *files: str) -> None:
    """Files that Spark takes in this order."""
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(files, len([*folder.iterdir()])):
        path = folder / f"{number:03d}.txt"
        path.write_text(text, "utf-8")
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))


def clicks(*prices: float, begin: int) -> str:
    return "\n".join(
        json.dumps({"ts": f"2024-05-01T12:00:{begin + n:02d}Z", "user": f"u{n}", "price": price})
        for n, price in enumerate(prices)
    )


def finished(spark: Any, file: Path) -> Any:
    [job] = load(file)
    query = start(spark, job, once=True)
    query.await_termination()
    return query


@pytest.mark.parametrize("program", [FILTERED, PASSING], ids=["having", "where"])
def test_rows_out_are_those_that_were_written(spark: Any, tmp_path: Path, program: str) -> None:
    file = tmp_path / "rich.sql"
    file.write_text(program)
    write_lines(tmp_path / "clicks", clicks(9, 1, 10, 2, begin=0), clicks(1, 1, 1, begin=30))
    query = finished(spark, file)
    assert query.metrics["rows_out"] == len(json_rows(tmp_path / "rich")) == 2
    assert sum(batch.rows_out for batch in Reports("rich", query).new()) == 2
    reported = [one.observedMetrics.get("tidegate") for one in query.spark.recentProgress]
    assert all(one is None or "rows_out" not in one.asDict() for one in reported), "no other number"
    write_lines(tmp_path / "clicks", clicks(20, 3, begin=50))
    again = finished(spark, file)
    written = len(json_rows(tmp_path / "rich"))
    assert again.metrics["rows_out"] == written - 2
