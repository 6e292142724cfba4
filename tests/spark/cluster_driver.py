"""The driver of a session on a cluster, in a process of its own that does as it is told.

`python -m tests.spark.cluster_driver MASTER [NAME=VALUE …]`: each line on its standard input is a JSON
list, the name of a command and its arguments; each line on its standard output is what that gave.
"""

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import tidegate as tg
from tests.spark.class_archive import java_options
from tests.spark.cluster_programs import CASES, EVENTS, changes, events, sinks, totals
from tests.spark.files import file_stream
from tests.support.cluster import executors_below
from tidegate.cli.failures import cause
from tidegate.kernels.shedding import PARTS, Load
from tidegate.spark.versions import STATE_FORMAT_2

#: A session that knows nothing of tidegate. Executors have one core each.
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    # A test may kill one task more often than Spark would put up with.
    "spark.task.maxFailures": "20",
    "spark.executor.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    # Without the second format of state two attempts of a task are refused.
    "spark.speculation": "true" if STATE_FORMAT_2.here else "false",
    "spark.speculation.interval": "100ms",
    # Also of the only task of a stage: when it takes longer than this, as one does that is held.
    "spark.speculation.task.duration.threshold": "3s",
    "spark.speculation.minTaskRuntime": "3s",
}

Command = Callable[..., Any]
COMMANDS: dict[str, Command] = {}


def command(function: Command) -> Command:
    COMMANDS[function.__name__] = function
    return function


def streams(spark: Any, folder: str, sources: int) -> list[Any]:
    return [file_stream(spark, Path(folder, f"in-{number}"), EVENTS) for number in range(sources)]


@command
def run(spark: Any, name: str, folder: str, dsn: str) -> Any:
    """Run a program over all there is; its plan is left for those who know what must come out."""
    case = CASES[name]
    result = case.build(*streams(spark, folder, case.sources))
    if name != "steps":  # the function of a step is only known where it is shipped to
        Path(folder, "plan").write_bytes(pickle.dumps(result.node))
    query = result.start(
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
        sinks=sinks(result, case.sink, folder, dsn),
    )
    query.await_termination()
    return query.metrics


@command
def under_load(spark: Any) -> None:
    """From now on the machine is as busy as can be."""
    full = {name: weight for name, (weight, _) in PARTS.items()}
    Load.parts = lambda _: full  # type: ignore[method-assign]


@command
def failed(spark: Any, folder: str) -> str:
    """What is told of a batch whose step is in a module that only the driver has."""
    from other_steps import in_cents  # type: ignore[import-not-found]

    [stream] = streams(spark, folder, 1)
    result = events(stream).map(in_cents).key_by("user").agg(cents=tg.sum("cents"))
    query = result.start(checkpoint=f"{folder}/checkpoint", main=tg.sinks.discard())
    try:
        query.await_termination()
    except Exception as error:
        return cause(error)
    return "it ran"


@command
def ship(spark: Any, *files: str) -> None:
    for file in files:
        spark.sparkContext.addPyFile(file)


@command
def places(spark: Any) -> Any:
    """Where the driver and the executors are at home, and what executors see of the driver's folder."""
    hidden = tempfile.gettempdir()
    Path(hidden, "of-the-driver").touch()

    def seen(_: int) -> tuple[list[str], bool]:
        import os
        import tempfile

        here = [tempfile.gettempdir(), os.getcwd(), os.path.expanduser("~")]
        return here, os.path.exists(f"{hidden}/of-the-driver")

    found = spark.sparkContext.parallelize(range(8), 8).map(seen).collect()
    own = [hidden, os.getcwd(), os.path.expanduser("~")]
    return {"driver": own, "executors": [place for place, _ in found], "see": [see for _, see in found]}


@command
def drained(spark: Any, folder: str) -> Any:
    """A fold over a folder that our own reader reads, with a pace; its snapshot, and a drain."""
    rows = tg.read_folder(
        spark, f"{folder}/in-0", schema=EVENTS, format="parquet",
        pace=tg.pace("1 second", least=1, start=50),
    )  # fmt: skip
    fold = totals(tg.events(rows, time="ts").key_by("user")).emit(tg.emit.on_update())
    query = fold.start(
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
        main=tg.sinks.parquet(f"{folder}/main"),
    )
    query.await_termination()
    snapshot = tg.read_snapshot(query.snapshot())
    counts = [name for name, _ in snapshot.state].index("n.n")
    query.stop(drain=True)
    users = [(key[0], state[counts]) for key, state in snapshot.rows]
    return {"users": users, "metrics": query.metrics}


class Killing:
    """A sink that kills executors when the batch is computed, and not yet written."""

    def __init__(self, given: Any, at: int) -> None:
        self._given, self._at = given, at

    def prepare(self, target: Any) -> Any:
        write = self._given.prepare(target)

        def kill_and_write(rows: Any, batch_id: int) -> None:
            if batch_id == self._at:
                for executor in executors_below(os.environ["CLUSTER_FOLDER"]):
                    executor.kill()
                    psutil.wait_procs([executor])
            write(rows, batch_id)

        return kill_and_write


@command
def killed(spark: Any, folder: str, at: int) -> Any:
    """Windows whose rows pass a step that may be held, into files; executors are killed in a batch."""
    from own_steps import held  # type: ignore[import-not-found]

    [stream] = streams(spark, folder, 1)
    rows = events(stream)
    # What must come out is what comes out without the step.
    Path(folder, "plan").write_bytes(pickle.dumps(changes(rows).node))
    query = changes(rows.map(held(f"{folder}/held"))).start(
        checkpoint=f"{folder}/checkpoint",
        trigger={"availableNow": True},
        main=Killing(tg.sinks.parquet(f"{folder}/main"), at),
    )
    query.await_termination()
    return query.metrics


def main(master: str, *settings: str) -> None:
    given = dict(text.split("=", 1) for text in settings)
    spark = SparkSession.builder.master(master).config(map=SETTINGS | given).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print("answer", json.dumps(COMMANDS[name](spark, *arguments)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
