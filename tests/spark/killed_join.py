"""A join for a test to kill: `FOLDER [finish]`. It takes one file of each side a micro-batch."""

import sys
from typing import Any

import tidegate as tg
from tests.spark.kills import Announced


def program(shown: Any, clicked: Any) -> Any:
    """What the process runs, and the test works out."""
    left = tg.events(shown, time="ts", tolerance="4 s").key_by("user")
    right = tg.events(clicked, time="at", tolerance="4 s").key_by("user")
    panes = left.window(tg.tumbling("10 s"))
    return panes.join(right.window(tg.hopping("20 s", "5 s")), how="full", where="click % 7 <> 0")


def main(folder: str, finish: str = "") -> None:
    spark = tg.local_spark(cores=1, app="killed")
    shown, clicked = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{side}")
        for side, schema in (
            ("left", "ts timestamp, user string, shown bigint"),
            ("right", "at timestamp, user string, click bigint"),
        )
    )
    query = program(shown, clicked).start(
        checkpoint=f"{folder}/ckpt",
        main=Announced(tg.sinks.parquet(f"{folder}/out")),
        trigger={"availableNow": True} if finish else None,
    )
    query.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
