"""Hopping windows into files, for processes that tests kill."""

from typing import Any

import tidegate as tg
from tests.spark.kills import Announced


def hopping(clicks: Any) -> Any:
    keyed = tg.events(clicks, time="ts", tolerance="4 s").key_by("user")
    return keyed.window(tg.hopping("20 s", "10 s")).agg(n=tg.count(), spend=tg.sum("price"))


def run_windows(spark: Any, folder: str, *, finish: bool) -> None:
    """Until the process is killed, or until there is nothing left to do."""
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    clicks = reader.option("maxFilesPerTrigger", 50 if finish else 1).parquet(f"{folder}/clicks")
    query = hopping(clicks).start(
        checkpoint=f"{folder}/ckpt",
        main=Announced(tg.sinks.parquet(f"{folder}/out")),
        trigger={"availableNow": True} if finish else None,
    )
    query.await_termination()
