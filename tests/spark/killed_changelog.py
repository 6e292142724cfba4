"""A query that keeps a table, for a test to kill: `killed_changelog.py FOLDER DSN WINDOW [finish]`.

It says on its output before and after each batch is written, and runs until it is killed; with
`finish`, until there is nothing left to do.
"""

import sys
from collections.abc import Callable
from typing import Any

import tidegate as tg

#: Windows by name, for the command line.
WINDOWS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: tg.tumbling("10 seconds"),
    "session": lambda: tg.session("10 seconds"),
}

#: For a JVM that lives for seconds: the quick compiler, the small collector, no checks of classes.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


def program(clicks: Any, window: str) -> Any:
    """What the process runs, and the test works out."""
    keyed = tg.events(clicks, time="ts", tolerance="12 s").key_by("user")
    totals = keyed.window(WINDOWS[window]()).agg(n=tg.count(), spend=tg.sum("price"))
    return totals.emit(tg.emit.changelog())


class Announced:
    """A sink that says what it does."""

    def __init__(self, sink: Any) -> None:
        self.sink = sink

    def prepare(self, target: Any) -> Any:
        write = self.sink.prepare(target)

        def announce(rows: Any, batch_id: int) -> None:
            print(f"writing {batch_id}", flush=True)
            write(rows, batch_id)
            print(f"written {batch_id}", flush=True)

        return announce


def main(folder: str, dsn: str, window: str, finish: str = "") -> None:
    spark = tg.local_spark(cores=1, app=window, **{"spark.driver.extraJavaOptions": SHORT_LIVED})
    # What is left at the end is taken in a few batches; until then every file is one.
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    clicks = reader.option("maxFilesPerTrigger", 50 if finish else 1).parquet(f"{folder}/clicks")
    query = program(clicks, window).start(
        checkpoint=f"{folder}/ckpt-{window}",
        main=Announced(tg.sinks.postgres(dsn, window)),
        trigger={"availableNow": True} if finish else None,
    )
    query.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
