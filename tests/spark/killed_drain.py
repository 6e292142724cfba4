"""Two results of one query, drained, for a test to kill in the middle of it: `FOLDER CHANNEL WHEN`.

The process says what it does (`Announced`), and halts when the channel's sink says so of the drain.
"""

import sys
from typing import Any

import tidegate as tg
from tests.spark.kills import Announced

#: Its number: two micro-batches with rows come before it, and one in which the watermark moves.
DRAIN = 3


def spend_and_visits(clicks: Any) -> Any:
    keyed = tg.events(clicks, time="ts").key_by("user")
    return tg.together(
        spend=keyed.window(tg.tumbling("10 s")).agg(spend=tg.sum("price")),
        visits=keyed.window(tg.session("5 s")).agg(clicks=tg.count()),
    )


def stream_of(spark: Any, folder: str) -> Any:
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    return reader.option("maxFilesPerTrigger", 1).parquet(f"{folder}/clicks")


def main(folder: str, channel: str, when: str) -> None:
    sinks = {name: tg.sinks.parquet(f"{folder}/{name}") for name in ("spend", "visits")}
    sinks[channel] = Announced(sinks[channel], f"{when} {DRAIN}")
    query = spend_and_visits(stream_of(tg.local_spark(cores=2, app="killed"), folder)).start(
        checkpoint=f"{folder}/checkpoint", trigger={"availableNow": True}, sinks=sinks
    )
    query.await_termination()
    query.stop(drain=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
