"""Start a case in a process of its own, and watch the memory of its process tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.data import CACHE

ROOT = Path(__file__).resolve().parent.parent
_SAMPLE_EVERY = 0.2
_TIMEOUT = 45 * 60
#: One case in another Python: the last line that it prints is the result.
_ELSEWHERE = """
import json, sys
from benchmarks.launch import run_case
print(json.dumps(run_case(sys.argv[1], {quick})))
"""
#: The same for a query as users start it, into files of Parquet: it needs nothing but the public API.
_INTO_FILES = """
import json, statistics, sys, tempfile
import tidegate as tg
from benchmarks import data
from benchmarks.cases import catalogue
from benchmarks.engines import paced_results
from benchmarks.run import _sources

case = catalogue({quick})[sys.argv[1]]
settings = {{"spark.sql.streaming.numRecentProgressUpdates": "1000"}} | case.conf
spark = tg.local_spark(cores=2, **settings)
[rows] = _sources(case, spark)
result = paced_results(case, rows).emit(getattr(tg.emit, case.emission)())
with tempfile.TemporaryDirectory(dir=data.CACHE) as folder:
    sink, now = tg.sinks.parquet(folder + "/results"), {{"availableNow": True}}
    query = result.start(checkpoint=folder + "/checkpoint", trigger=now, main=sink)
    query.await_termination()
    progress = [json.loads(batch.json) for batch in query.spark.recentProgress]
times = [one["durationMs"]["triggerExecution"] for one in progress if one["numInputRows"]][case.warmup:]
print(json.dumps({{"steady": {{"mean_ms": statistics.fmean(times)}}}}))
"""


class CaseFailed(Exception):
    """A case ended without a result."""


@dataclass
class Peaks:
    """The highest resident memory seen, in bytes.

    Python workers are forked, and pages they share are counted for each of them.
    """

    jvm: int = 0
    python: int = 0

    def sample(self, tree: list[psutil.Process]) -> None:
        jvm = python = 0
        for process in tree[1:]:  # without the process that only submits the query
            try:
                size, name = process.memory_info().rss, process.name()
            except psutil.Error:  # it has ended meanwhile
                continue
            if name.startswith("java"):
                jvm += size
            elif name.startswith("python"):
                python += size
        self.jvm, self.python = max(self.jvm, jvm), max(self.python, python)


class Others:
    """How much of the machine was busy with something else, which makes figures doubtful."""

    def __init__(self) -> None:
        self._began, self._busy_before = time.monotonic(), _busy()
        self._own: dict[int, float] = {}

    def sample(self, tree: list[psutil.Process]) -> None:
        for process in tree:
            try:
                times = process.cpu_times()
            except psutil.Error:  # it has ended meanwhile: its last sample stands
                continue
            self._own[process.pid] = times.user + times.system

    def share(self) -> float:
        available = (time.monotonic() - self._began) * (psutil.cpu_count() or 1)
        return max(0.0, _busy() - self._busy_before - sum(self._own.values())) / available


def run_case(name: str, quick: bool) -> dict[str, Any]:
    """The result of one case, run in a fresh interpreter and a fresh JVM."""
    logs = CACHE / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    stem = logs / name.replace("/", "-")
    command = [sys.executable, "-m", "benchmarks.run", name, *(["--quick"] if quick else [])]
    # Spark's workers import the processors of this package too. Each has one thread, as a kernel alone.
    environment = os.environ | {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "POLARS_MAX_THREADS": "1",
    }
    out, err = stem.with_suffix(".out"), stem.with_suffix(".err")
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment)
        peaks, others = _watch(process)
    if process.returncode:
        raise CaseFailed(f"{name} ended with code {process.returncode}, see {err}\n{_tail(err)}")
    result = json.loads(out.read_text().splitlines()[-1])
    return result | {"peak_rss_bytes": asdict(peaks), "others_cpu": others}


def steady_ms(name: str, python: Path, checkout: Path, quick: bool, *, files: bool = False) -> float:
    """The mean time of a steady batch of a case of some checkout, in the environment of a Python."""
    command = [python, "-c", (_INTO_FILES if files else _ELSEWHERE).format(quick=quick), name]
    environment = os.environ | {
        "PYTHONPATH": f"{checkout}{os.pathsep}{checkout / 'src'}",
        "POLARS_MAX_THREADS": "1",
    }
    ran = subprocess.run(
        command, cwd=checkout, env=environment, check=False, capture_output=True, text=True
    )
    if ran.returncode:
        raise SystemExit(f"{name} failed in {checkout} with {python}:\n{ran.stderr[-2000:]}")
    mean: float = json.loads(ran.stdout.splitlines()[-1])["steady"]["mean_ms"]
    return mean


def _watch(process: subprocess.Popen[bytes]) -> tuple[Peaks, float]:
    peaks, others, deadline = Peaks(), Others(), time.monotonic() + _TIMEOUT
    root = psutil.Process(process.pid)
    try:
        while process.poll() is None and time.monotonic() < deadline:
            tree = [root, *_descendants(root)]
            peaks.sample(tree)
            others.sample(tree)
            time.sleep(_SAMPLE_EVERY)
    finally:
        if process.poll() is None:
            _end(root)
            process.wait()
    return peaks, others.share()


def _busy() -> float:
    """Seconds that all cores together have worked, since the machine started."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0) - getattr(times, "guest", 0)


def _end(root: psutil.Process) -> None:
    for process in [*_descendants(root), root]:
        try:
            process.kill()
        except psutil.Error:  # it has ended by itself
            continue


def _descendants(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.Error:
        return []


def _tail(log: Path) -> str:
    return "\n".join(log.read_text().splitlines()[-15:])
