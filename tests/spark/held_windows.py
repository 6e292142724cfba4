"""Hopping windows whose stateful task can be held up, for tests with two writers of one checkpoint.

`python -m tests.spark.held_windows FOLDER FORMAT FENCE [finish | hold N | speculate N MASTER]`. `FORMAT`
is Spark's format of state; in 1 the session forbids another one. `FENCE` is `fenced`, or `open`: then
tasks do not look whether they may commit. With `hold` each attempt at the stateful task of batch N
leaves a file `held-<attempt>` in the folder, and waits for one named `go-<attempt>`. With `speculate`
the same happens on a cluster, and Spark starts a second attempt while the first one waits.
"""

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

import tidegate as tg
from tests.spark.killed_windows import run_windows
from tests.spark.kills import ROOT
from tidegate.spark import classic, lower, query, session
from tidegate.spark.processor import KernelProcessor

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    # Of a single task: when it takes longer than this, which no task does that is not held.
    "spark.speculation.task.duration.threshold": "10s",
    "spark.speculation.minTaskRuntime": "10s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
}


@dataclass
class HeldStep:
    """A kernel's step that waits in one batch until it is let go."""

    step: Any
    folder: str
    batch: str

    def __call__(self, *given: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") == self.batch:
            Path(self.folder, f"held-{context.attemptNumber()}").touch()
            while not Path(self.folder, f"go-{context.attemptNumber()}").exists():
                time.sleep(0.005)
        return self.step(*given)


def held(kernel: Any, folder: str, batch: str) -> Any:
    kernel.step = HeldStep(kernel.step, folder, batch)
    return kernel


def prepare(folder: str, state_format: str, fence: str, hold: str | None) -> None:
    """Change what is shipped to tasks, and what the session allows."""

    def processor(work: Any, operator: str, plan: str) -> KernelProcessor:
        work = work if fence == "fenced" else replace(work, ownership=None)
        work = work if hold is None else replace(work, kernel=held(work.kernel, folder, hold))
        return KernelProcessor(work, operator, plan)

    lower.KernelProcessor = processor  # type: ignore[attr-defined, assignment, misc]
    if state_format == "1":
        session._set_format = lambda *_: False
        query.refuse_speculation = lambda *_: None  # type: ignore[attr-defined]


def cluster(master: str, settings: dict[str, str]) -> Any:
    """Executors of one core each, which speculate."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    wanted = classic._TUNED | SPECULATION | settings | {"spark.executorEnv.PYTHONPATH": path}
    return SparkSession.builder.master(master).appName("held").config(map=wanted).getOrCreate()


def main(
    folder: str, state_format: str, fence: str, how: str = "", batch: str | None = None, master: str = ""
) -> None:
    prepare(folder, state_format, fence, batch)
    settings = {FORMAT: state_format, "spark.sql.shuffle.partitions": "1"}
    spark = cluster(master, settings) if master else tg.local_spark(cores=1, app="held", **settings)
    run_windows(spark, folder, finish=how == "finish")


if __name__ == "__main__":
    main(*sys.argv[1:])
