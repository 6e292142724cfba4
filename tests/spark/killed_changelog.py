"""Queries that keep a table each, for a test to kill: `FOLDER DSN [finish]`."""

import sys
from collections.abc import Callable
from typing import Any

import tidegate as tg
from tests.spark.kills import Announced

#: Windows by the names of their tables.
WINDOWS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: tg.tumbling("10 seconds"),
    "session": lambda: tg.session("10 seconds"),
}


def program(clicks: Any, window: str) -> Any:
    """What the process runs, and the test works out."""
    keyed = tg.events(clicks, time="ts", tolerance="12 s").key_by("user")
    totals = keyed.window(WINDOWS[window]()).agg(n=tg.count(), spend=tg.sum("price"))
    return totals.emit(tg.emit.changelog())


def main(folder: str, dsn: str, finish: str = "") -> None:
    spark = tg.local_spark(cores=2, app="changelogs")

    def start(window: str) -> Any:
        # What is left at the end is taken in a few batches; until then every file is one.
        reader = spark.readStream.schema("ts timestamp, user string, price double")
        clicks = reader.option("maxFilesPerTrigger", 50 if finish else 1).parquet(f"{folder}/clicks")
        return program(clicks, window).start(
            checkpoint=f"{folder}/ckpt-{window}",
            main=Announced(tg.sinks.postgres(dsn, window), name=window),
            trigger={"availableNow": True} if finish else None,
        )

    queries = [start(window) for window in WINDOWS]
    if not finish:
        spark.streams.awaitAnyTermination()  # never, unless one fails
    for query in queries:
        query.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
