"""The same question to each engine: count and sum(price) by user and window."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.cases import Case
from benchmarks.per_key import tumbling_per_key

#: More than the disorder of the data, so that no row is late.
TOLERANCE = "5 seconds"


def windows(case: Case, events: DataFrame) -> DataFrame:
    """The results of a case: user, window_start, window_end, n, spend."""
    return _ENGINES[case.engine](case, events)


def _spark(case: Case, events: DataFrame) -> DataFrame:
    size, slide = f"{case.window.size} seconds", f"{case.window.slide} seconds"
    timed = events.withWatermark("ts", TOLERANCE)
    grouped = timed.groupBy(F.window("ts", size, slide), "user")
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    edges = [F.col(f"window.{edge}").alias(f"window_{edge}") for edge in ("start", "end")]
    return totals.select("user", *edges, "n", "spend")


def _tidegate(case: Case, events: DataFrame) -> DataFrame:
    size, slide = case.window.size, case.window.slide
    window = tg.tumbling(f"{size} s") if size == slide else tg.hopping(f"{size} s", f"{slide} s")
    windowed = tg.events(events, time="ts", tolerance=TOLERANCE).key_by("user").window(window)
    emission = {"on_watermark": tg.emit.on_watermark, "changelog": tg.emit.changelog}[case.emission]
    return windowed.agg(n=tg.count(), spend=tg.sum("price")).emit(emission()).to_df()


def _per_key(case: Case, events: DataFrame) -> DataFrame:
    return tumbling_per_key(events.withWatermark("ts", TOLERANCE), case.window.size)


_ENGINES = {"spark": _spark, "tidegate": _tidegate, "per-key": _per_key}
