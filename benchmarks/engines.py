"""The same question to each engine: count and sum(price) by user and window."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.cases import Case, Session
from benchmarks.per_key import session_per_key, tumbling_per_key

#: More than the disorder of the data, so that no row is late.
TOLERANCE = "5 seconds"


def windows(case: Case, events: DataFrame) -> DataFrame:
    """The results of a case: user, window_start, window_end, n, spend."""
    return _ENGINES[case.engine](case, events)


def _spark(case: Case, events: DataFrame) -> DataFrame:
    timed = events.withWatermark("ts", TOLERANCE)
    grouped = timed.groupBy(_spark_window(case).alias("window"), "user")
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    edges = [F.col(f"window.{edge}").alias(f"window_{edge}") for edge in ("start", "end")]
    return totals.select("user", *edges, "n", "spend")


def _spark_window(case: Case) -> Column:
    if isinstance(case.window, Session):
        return F.session_window("ts", f"{case.window.gap} seconds")
    return F.window("ts", f"{case.window.size} seconds", f"{case.window.slide} seconds")


def _tidegate(case: Case, events: DataFrame) -> DataFrame:
    keyed = tg.events(events, time="ts", tolerance=TOLERANCE).key_by("user")
    totals = keyed.window(_window(case)).agg(n=tg.count(), spend=tg.sum("price"))
    rows = totals.emit(getattr(tg.emit, case.emission)()).to_df()
    if case.emission != "changelog":
        return rows
    # What is taken back counts against what was put out, so that the sums are those of the answer.
    sign = F.when(F.col("op").startswith("-"), -1).otherwise(1)
    return rows.withColumns({name: F.col(name) * sign for name in ("n", "spend")})


def _window(case: Case) -> Any:
    if isinstance(case.window, Session):
        return tg.session(f"{case.window.gap} s")
    size, slide = case.window.size, case.window.slide
    return tg.tumbling(f"{size} s") if size == slide else tg.hopping(f"{size} s", f"{slide} s")


def _per_key(case: Case, events: DataFrame) -> DataFrame:
    timed = events.withWatermark("ts", TOLERANCE)
    if isinstance(case.window, Session):
        return session_per_key(timed, case.window.gap)
    return tumbling_per_key(timed, case.window.size)


_ENGINES = {"spark": _spark, "tidegate": _tidegate, "per-key": _per_key}
