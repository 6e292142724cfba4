"""Distinct messages, folded and in windows, each into every kind of sink, for a test to kill.

`python -m tests.spark.killed_folds FOLDER DSN [finish | "writing N" | "written N"]`: with the last two
both queries stop before or after they write batch N, until they are killed.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidegate as tg
from tests.spark.files import file_stream
from tests.spark.kills import Announced
from tidegate.plan.schema import TIMESTAMP

MESSAGES = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("producer", pa.string()),
        ("partition", pa.int32()),
        ("sequence", pa.int64()),
        ("account", pa.string()),
        ("amount", pa.int64()),
    ]
)
ID = ["producer", "partition", "sequence"]


def distinct(messages: Any) -> Any:
    events = tg.events(messages, time="ts", tolerance="5 s")
    return events.dedupe(on=ID, within="5 minutes").key_by("account")


def totals(messages: Any) -> Any:
    return distinct(messages).agg(n=tg.count(), amount=tg.sum("amount"), largest=tg.max("amount"))


def windows(messages: Any) -> Any:
    return distinct(messages).window(tg.tumbling("10 s")).agg(n=tg.count(), amount=tg.sum("amount"))


#: What the process runs, and the test works out.
PROGRAMS: dict[str, Callable[[Any], Any]] = {"totals": totals, "windows": windows}


class Everywhere:
    """Several sinks, filled one after the other: a kill may come between them."""

    def __init__(self, *sinks: Any) -> None:
        self.sinks = sinks

    def prepare(self, target: Any) -> Any:
        writes = [sink.prepare(target) for sink in self.sinks]

        def write(rows: Any, batch_id: int) -> None:
            for write_one in writes:
                write_one(rows, batch_id)

        return write


def main(folder: str, dsn: str, how: str = "") -> None:
    spark = tg.local_spark(cores=2, app="folds")
    finish = how == "finish"

    def start(name: str) -> Any:
        sinks = Everywhere(
            tg.sinks.parquet(f"{folder}/{name}"),
            tg.sinks.duckdb(f"{folder}/results.duckdb", name),
            tg.sinks.postgres(dsn, name),
        )
        # What is left at the end is taken in a few batches; until then every file is one.
        files = file_stream(spark, Path(folder, "messages"), MESSAGES, 50 if finish else 1)
        return PROGRAMS[name](files).start(
            checkpoint=f"{folder}/checkpoint-{name}",
            main=Announced(sinks, how, name),
            trigger={"availableNow": True} if finish else None,
        )

    queries = {name: start(name) for name in PROGRAMS}
    if not finish:
        spark.streams.awaitAnyTermination()  # never, unless one fails
    for query in queries.values():
        query.await_termination()
    Path(folder, "snapshot").write_bytes(queries["totals"].snapshot())


if __name__ == "__main__":
    main(*sys.argv[1:])
