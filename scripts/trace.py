"""The files of tidegate that a row passes in a real query: `python -m scripts.trace late-click`.

Recorded are files with a function that runs while micro-batches do: in Spark's Python workers, and in
the driver where batches are written. What builds the plan and starts the query is not counted.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tidegate as tg

#: Run by every Python process of the query, from a folder on its path.
_RECORDER = """
import os, sys, threading
package, log = os.environ["TIDEGATE_TRACED"], os.environ["TIDEGATE_TRACE"]
seen = set()

def record(frame, event, argument):
    name = frame.f_code.co_filename
    if event != "call" or name in seen or not name.startswith(package) or imported(frame):
        return
    seen.add(name)
    with open(log, "a") as file:
        file.write(name[len(package) + 1 :] + chr(10))

def imported(frame):
    # Does it run because a module of the package is being imported?
    while frame is not None:
        code, main = frame.f_code, frame.f_globals.get("__name__") == "__main__"  # Spark's daemon
        if code.co_name == "<module>" and code.co_filename.startswith(package) and not main:
            return True
        frame = frame.f_back
    return False

if str(os.getpid()) != os.environ["TIDEGATE_DRIVER"]:
    sys.setprofile(record)
"""

#: Seconds after noon, by batch. The third click of `late-click` is late; that of `session-merge` merges
#: two sessions.
_CLICKS = {"late-click": ([5], [130], [5], [131]), "session-merge": ([0], [50], [25], [90])}


def main(story: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "files"
        log.touch()
        _record(folder, log)
        _run(story, folder)
        files = sorted(set(log.read_text().split()))
    print(*files, f"{len(files)} files", sep="\n")


def _record(folder: Path, log: Path) -> None:
    (folder / "sitecustomize.py").write_text(_RECORDER)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "TIDEGATE_TRACED": str(Path(tg.__file__).parent),
        "TIDEGATE_TRACE": str(log),
        "TIDEGATE_DRIVER": str(os.getpid()),
    }
    exec(compile(_RECORDER, "recorder", "exec"), recorder := {})
    import threading

    threading.setprofile(recorder["record"])  # the driver's threads: batches are written in one


def _run(story: str, folder: Path) -> None:
    spark = tg.local_spark(cores=1)
    for number, seconds in enumerate(_CLICKS[story]):
        rows = [f"({second}, 'ann')" for second in seconds]
        spark.sql(
            "select timestamp'2026-01-01 12:00:00' + make_dt_interval(0, 0, 0, second) ts, user "
            f"from values {', '.join(rows)} as v(second, user)"
        ).coalesce(1).write.mode("append").json(f"{folder}/clicks")
        _in_order(folder / "clicks", number)
    clicks = spark.readStream.schema("ts timestamp, user string").option("maxFilesPerTrigger", 1)
    events = tg.events(clicks.json(f"{folder}/clicks"), time="ts").key_by("user")
    query = _program(events, story, folder)
    query.await_termination()
    print({name: count for name, count in query.metrics.items() if count and name.startswith("late")})
    spark.stop()


def _in_order(clicks: Path, number: int) -> None:
    for file in clicks.glob("part-*.json"):
        file.rename(clicks / f"{number}.json")
        os.utime(clicks / f"{number}.json", (1_000_000_000 + number,) * 2)


def _program(events: Any, story: str, folder: Path) -> Any:
    sinks = {"main": tg.sinks.json(f"{folder}/main")}
    if story == "late-click":
        windows = events.window(tg.hopping("1 minute", "10 seconds"), late=tg.late.side_output("late"))
        result, sinks["late"] = windows.agg(n=tg.count()), tg.sinks.json(f"{folder}/late")
    else:
        windows = events.window(tg.session("30 seconds"), allowed_lateness="1 hour")
        result = windows.agg(n=tg.count()).emit(tg.emit.changelog())
    return result.start(checkpoint=f"{folder}/checkpoint", trigger={"availableNow": True}, **sinks)


if __name__ == "__main__":
    main(*sys.argv[1:])
