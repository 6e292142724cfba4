"""Whole jobs side by side: `python -m benchmarks.jobs [WORKLOAD…] [--engines …]`.

Each job has a process of its own. It reads 5 M events, writes its results to Parquet, and ends. Its time
is that of the process, from start to end. The table goes to the terminal, as Markdown.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from benchmarks import data
from benchmarks.jobs import on_flink
from benchmarks.jobs.workload import EVENTS, WORKLOADS, Workload

ENGINES = ("tidegate", "spark", "flink")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.jobs", description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="all without")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    options = parser.parse_args(arguments)
    events = data.folder(EVENTS)
    if "flink" in options.engines:
        on_flink.install()
    print("| workload | " + " | ".join(f"{engine}, s" for engine in options.engines) + " | answers |")
    print("|---|" + "---|" * (len(options.engines) + 1), flush=True)
    agree = [
        compare(WORKLOADS[name], options.engines, events) for name in options.workloads or WORKLOADS
    ]
    return 0 if all(agree) else 1


def compare(workload: Workload, engines: Sequence[str], events: Path) -> bool:
    """Run the job on each engine that has the window; do the answers agree?"""
    ran = [engine for engine in engines if engine != "spark" or workload.on_spark]
    found = {engine: run(engine, workload, events) for engine in ran}
    times = (f"{found[engine][0]:.1f}" if engine in found else "–" for engine in engines)
    agree = len({answer for _, answer in found.values()}) == 1
    print(
        f"| {workload.name} | " + " | ".join(times) + f" | {'equal' if agree else found} |", flush=True
    )
    return agree


def run(engine: str, workload: Workload, events: Path) -> tuple[float, tuple[float, ...]]:
    """How long the job took, and what the results add up to."""
    given = on_flink.events_for(events) if engine == "flink" else events
    with tempfile.TemporaryDirectory(dir=data.CACHE) as results:
        if engine == "flink":
            command = on_flink.command(workload, given, results)
        else:
            module = [sys.executable, "-m", "benchmarks.jobs.on_spark"]
            command = [
                *module,
                engine,
                workload.name,
                str(given.absolute()),
                str(Path(results).absolute()),
            ]
        begun = time.perf_counter()
        ended = subprocess.run(command, check=False, capture_output=True, text=True, env=_environment())
        took = time.perf_counter() - begun
        if ended.returncode:
            raise SystemExit(f"{workload.name} on {engine} failed:\n{ended.stderr[-2000:]}")
        return took, _answer(workload, Path(results) / "rows")


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.getcwd()}


def _answer(workload: Workload, rows: Path) -> tuple[float, ...]:
    """Results, events in them, and money, without those of the closing event's own windows.

    Around rows only results are counted: what has arrived before a row is each engine's own affair.
    """
    # The results of Flink's tasks have no suffix.
    files = [str(file) for file in rows.iterdir() if file.is_file() and file.name[0] not in "._"]
    table = duckdb.read_parquet(files)
    if not workload.on_spark:
        [counted] = table.aggregate("count(*)").fetchall()
        return counted
    # Flink ends with a watermark that closes everything: the closing event costs nothing.
    kept = table.filter("spend <> 0 or n <> 1")
    [summed] = kept.aggregate("count(*), sum(n)::bigint, round(sum(spend))").fetchall()
    return summed


if __name__ == "__main__":
    sys.exit(main())
