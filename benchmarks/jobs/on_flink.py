"""A job on Flink: its SQL in a JVM of its own, with RocksDB and a checkpoint every two seconds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.cases import Session, Sliding
from benchmarks.jobs.workload import TOLERANCE, Workload

_HERE = Path(__file__).parent
_FLINK = data.CACHE / "flink"
#: What Java keeps from Flink's libraries unless it is told.
_OPENED = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "nio", "time")]
_PROGRAM = """\
SET 'parallelism.default' = '2';
SET 'pipeline.object-reuse' = 'true';
SET 'state.backend.type' = 'rocksdb';
SET 'execution.checkpointing.interval' = '2 s';
SET 'execution.checkpointing.incremental' = 'true';
SET 'execution.checkpointing.dir' = '{folder}/checkpoints';
SET 'table.local-time-zone' = 'UTC';
CREATE TABLE events (
  ts TIMESTAMP(3), `user` STRING, price DOUBLE,
  WATERMARK FOR ts AS ts - INTERVAL '{tolerance}' SECOND
) WITH ('connector' = 'filesystem', 'path' = '{events}', 'format' = 'parquet');
CREATE TABLE results ({columns})
WITH ('connector' = 'filesystem', 'path' = '{folder}/rows', 'format' = 'parquet');
INSERT INTO results {query};
"""


def install() -> None:
    """Copy Flink's jars and compile the runner; Maven and a JDK are needed."""
    if (_FLINK / "classes" / "RunSql.class").exists():
        return
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise SystemExit(f"jobs on Flink need {tool}: leave them out with --engines tidegate spark")
    jars = f"-DoutputDirectory={(_FLINK / 'jars').absolute()}"
    copy = ["mvn", "-q", "-B", "-f", str(_HERE / "pom.xml"), "dependency:copy-dependencies", jars]
    subprocess.run(copy, check=True)
    classes, runner = str(_FLINK / "classes"), str(_HERE / "RunSql.java")
    subprocess.run(["javac", "-cp", f"{_FLINK}/jars/*", "-d", classes, runner], check=True)


def events_for(folder: Path) -> Path:
    """The events in two files, one for each task, in their order.

    Flink takes the files of a folder in no order: of twenty files it would find most events late.
    """
    dealt = folder.with_name(f"{folder.name}-flink")
    if not dealt.exists():
        draft = dealt.with_name(f"{dealt.name}.{os.getpid()}.draft")
        draft.mkdir(parents=True)
        table = pa.concat_tables(pq.read_table(file) for file in sorted(folder.iterdir()))
        for task in range(2):
            rows = table.take(np.arange(task, table.num_rows, 2))
            pq.write_table(rows, draft / f"{task}.parquet", compression="snappy")
        draft.rename(dealt)
    return dealt


def command(workload: Workload, events: Path, results: str) -> list[str]:
    """What runs the job."""
    query, columns = _sql(workload.window)
    program = Path(results) / "program.sql"
    program.write_text(
        _PROGRAM.format(
            folder=Path(results).absolute().as_uri(),
            tolerance=TOLERANCE,
            events=events.absolute().as_uri(),
            columns=columns,
            query=query,
        )
    )
    return [
        "java",
        "-Xmx4g",
        *_OPENED,
        "-cp",
        f"{_FLINK}/classes:{_FLINK}/jars/*",
        "RunSql",
        str(program),
    ]


def _sql(window: Any) -> tuple[str, str]:
    """The query, and the columns of its results."""
    bounds, totals = "window_start, window_end", "COUNT(*) AS n, SUM(price) AS spend"
    columns = "`user` STRING, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, spend DOUBLE"
    if isinstance(window, Sliding):
        over = f"ORDER BY ts RANGE BETWEEN INTERVAL '{window.lookback}' SECOND PRECEDING AND CURRENT ROW"
        return (
            "SELECT ts, `user`, price, COUNT(*) OVER w, SUM(price) OVER w FROM events "
            f"WINDOW w AS (PARTITION BY `user` {over})",
            "ts TIMESTAMP(3), `user` STRING, price DOUBLE, n BIGINT, spend DOUBLE",
        )
    if isinstance(window, Session):
        table = (
            f"SESSION(TABLE events PARTITION BY `user`, DESCRIPTOR(ts), INTERVAL '{window.gap}' SECOND)"
        )
    elif window.copies == 1:
        table = f"TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '{window.size}' SECOND)"
    else:
        size, slide = f"INTERVAL '{window.size}' SECOND(3)", f"INTERVAL '{window.slide}' SECOND"
        table = f"HOP(TABLE events, DESCRIPTOR(ts), {slide}, {size})"
    return f"SELECT `user`, {bounds}, {totals} FROM TABLE({table}) GROUP BY `user`, {bounds}", columns
