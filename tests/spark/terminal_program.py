"""A program as a newcomer writes it, with Spark's own settings for logs: `local` or `foreign` session.

A query with state runs to its end; then one whose aggregate fails.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import tidegate as tg
from tests.spark.conftest import run, write_batches


class Unlucky(tg.Aggregate):
    """It cannot be computed, which shows when there are rows."""

    def output_type(self, column_type: Any) -> Any:
        return column_type

    def partial(self, value: Any, time: Any) -> dict[str, Any]:
        raise ArithmeticError("thirteen is an unlucky number")

    def merge(self, state: Any) -> dict[str, Any]:
        return {"n": state["n"].sum()}

    def finish(self, state: Any) -> Any:
        return state["n"]


def session(kind: str) -> Any:
    if kind == "local":
        return tg.local_spark(cores=2)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
    return builder.config("spark.ui.enabled", False).getOrCreate()


def main(kind: str, folder: Path) -> None:
    write_batches(folder / "clicks", [[(1, "ann", 1.0)], [(70, "ann", 2.0)], [(200, "bob", 3.0)]])
    spark = session(kind)
    stream = spark.readStream.schema("ts timestamp, user string, price double")
    clicks = stream.option("maxFilesPerTrigger", 1).parquet(str(folder / "clicks"))
    minutes = tg.events(clicks, time="ts").key_by("user").window(tg.tumbling("1 minute"))
    out = tg.sinks.memory()
    run(minutes.agg(n=tg.count()), folder / "counts", main=out)
    print([row["n"] for row in out.rows()])
    run(minutes.agg(n=Unlucky("price")), folder / "unlucky", main=out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
