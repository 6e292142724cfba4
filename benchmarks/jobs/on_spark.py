"""A job on Spark, in this process: `on_spark ENGINE WORKLOAD EVENTS RESULTS`."""

from __future__ import annotations

import sys
import tempfile
from typing import Any

from benchmarks.jobs.workload import EVENTS, TOLERANCE, WORKLOADS


def main(engine: str, workload: str, events: str, results: str) -> None:
    import tidegate as tg

    spark = tg.local_spark(cores=2, app="job")
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(dir=results) as checkpoint:
        start = {"tidegate": _tidegate, "spark": _spark}[engine]
        start(spark, WORKLOADS[workload].window, events, f"{results}/rows", checkpoint)
    spark.stop()


def _tidegate(spark: Any, window: Any, events: str, results: str, checkpoint: str) -> None:
    import tidegate as tg
    from benchmarks.data import SCHEMA
    from benchmarks.plans import tidegate_window

    rows = tg.read_folder(spark, events, schema=SCHEMA, format="parquet", max_rows=EVENTS.rows)
    timed = tg.events(rows, time="ts", tolerance=f"{TOLERANCE} s").key_by("user")
    totals = timed.window(tidegate_window(window)).agg(n=tg.count(), spend=tg.sum("price"))
    query = totals.start(
        checkpoint=checkpoint, trigger={"availableNow": True}, main=tg.sinks.parquet(results)
    )
    query.await_termination()


def _spark(spark: Any, window: Any, events: str, results: str, checkpoint: str) -> None:
    from pyspark.sql import functions as F

    from benchmarks.engines import spark_window

    reader = spark.readStream.schema("ts timestamp, user string, price double")
    rows = reader.option("maxFilesPerTrigger", EVENTS.files).parquet(events)
    timed = rows.withWatermark("ts", f"{TOLERANCE} seconds")
    grouped = timed.groupBy(spark_window(window).alias("window"), "user")
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    flat = totals.select("user", "window.start", "window.end", "n", "spend")
    writer = flat.writeStream.format("parquet").option("path", results).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
