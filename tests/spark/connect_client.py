"""Programs of a Spark Connect client, each in a process of its own: `python -m … PROGRAM URL FOLDER`.

A thin client has neither py4j nor classic PySpark: with `--thin` an import of them fails here too.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Programs = dict[str, Callable[..., Any]]
PROGRAMS: Programs = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


def stream(spark: Any, folder: str) -> Any:
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    return reader.option("maxFilesPerTrigger", 1).parquet(folder)


def visits(spark: Any, folder: str) -> Any:
    import tidegate as tg

    events = tg.events(stream(spark, f"{folder}/clicks"), time="ts", tolerance="1 second")
    late = tg.late.side_output("late")
    windows = events.key_by("user").window(tg.session("10 seconds"), late=late)
    return windows.agg(n=tg.count(), spend=tg.sum("price")).emit(tg.emit.changelog())


def started(spark: Any, folder: str, dsn: str, trigger: dict[str, Any] | None) -> Any:
    import tidegate as tg

    sinks = {
        "main": tg.sinks.postgres(dsn, "visits"),
        "late": tg.sinks.json(f"{folder}/late"),
        "errors": tg.sinks.parquet(f"{folder}/errors"),
    }
    return visits(spark, folder).start(checkpoint=f"{folder}/checkpoint", trigger=trigger, sinks=sinks)


@program
def readme(spark: Any, folder: str) -> Any:
    """The program of README, over a Connect session."""
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    [block] = [one for one in text.split("```python\n")[1:] if "tg.local_spark" in one]
    code = block.partition("```")[0].replace("tg.local_spark(cores=2)", "given")
    names: dict[str, Any] = {"given": spark}
    exec(code, names)
    rows = spark.read.parquet(f"{names['folder']}/main").orderBy("user", "window_start").collect()
    return [[row.user, row.clicks, row.spend, row.op] for row in rows]


@program
def sessions(spark: Any, folder: str, dsn: str) -> Any:
    query = started(spark, folder, dsn, {"availableNow": True})
    query.await_termination()
    marks = {name: at and at.isoformat() for name, at in query.watermarks.items()}
    return {"metrics": query.metrics, "watermarks": marks, "rows_out": query.rows_out_in(0)}


@program
def drained(spark: Any, folder: str, dsn: str) -> Any:
    """Started again, and drained; a start after that says so."""
    from tidegate.errors import CheckpointDrained

    query = started(spark, folder, dsn, {"availableNow": True})
    query.await_termination()
    query.stop(drain=True)
    try:
        started(spark, folder, dsn, None)
    except CheckpointDrained as refused:
        return str(refused)
    return "started"


@program
def forever(spark: Any, folder: str, dsn: str) -> None:
    """Runs until it is killed."""
    started(spark, folder, dsn, None)
    print("started", flush=True)
    sys.stdin.read()


@program
def joined(spark: Any, folder: str) -> Any:
    import tidegate as tg

    sides = (
        tg.events(stream(spark, f"{folder}/{side}"), time="ts")
        .key_by("user")
        .window(tg.tumbling("10 s"))
        for side in ("left", "right")
    )
    left, right = sides
    query = left.join(right, how="left").start(
        checkpoint=f"{folder}/join",
        trigger={"availableNow": True},
        main=tg.sinks.parquet(f"{folder}/pairs"),
    )
    query.await_termination()
    query.stop(drain=True)
    rows = spark.read.parquet(f"{folder}/pairs").collect()
    return sorted([row.user, row.price_left, row.price_right] for row in rows)


@program
def paced_folder(spark: Any, folder: str) -> Any:
    """Files by our own reader, with a pace; totals as a fold, with its snapshot."""
    import tidegate as tg

    schema = "ts timestamp, user string, price double"
    pace = tg.pace("1 second", least=1, start=2)
    clicks = tg.read_folder(spark, f"{folder}/clicks", schema=schema, format="parquet", pace=pace)
    totals = tg.events(clicks, time="ts").key_by("user").agg(n=tg.count(), spend=tg.sum("price"))
    query = totals.emit(tg.emit.on_update()).start(
        checkpoint=f"{folder}/totals",
        trigger={"availableNow": True},
        main=tg.sinks.parquet(f"{folder}/changes"),
    )
    query.await_termination()
    snapshot = tg.read_snapshot(query.snapshot())
    return {"metrics": query.metrics, "users": [key for (key,), _ in snapshot.rows]}


@program
def refused(spark: Any, folder: str) -> Any:
    """What cannot work from here is refused by name."""
    import tidegate as tg

    messages = []
    for sink in (tg.sinks.memory(), tg.sinks.console()):
        try:
            visits(spark, folder).start(
                checkpoint=f"{folder}/refused", main=sink, late=tg.sinks.discard()
            )
        except tg.errors.ChannelError as error:
            messages.append(str(error))
    return messages


class Absent:
    """Finds that what thin clients lack is not installed."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name.partition(".")[0] == "py4j" or name.startswith("pyspark.core"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(name: str, url: str, *arguments: str) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    print(json.dumps(PROGRAMS[name](spark, *arguments)), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[0] == "--thin":
        given.pop(0)
        sys.meta_path.insert(0, Absent())
    main(*given)
