"""The same question to each engine: count and sum(price) by user and window.

Around each row, where Spark has no operator of its own, it is max(price) as well.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.cases import Case, Session, Sliding
from benchmarks.per_key import session_per_key, sliding_per_key, tumbling_per_key

#: In seconds; more than the disorder of the data, so that no row is late.
TOLERANCE = 5


def windows(case: Case, events: DataFrame) -> DataFrame:
    """The results of a case: user, window_start, window_end, n, spend.

    Around rows: ts, user, price, n, spend, most.
    """
    return _ENGINES[case.engine](case, events)


def _spark(case: Case, events: DataFrame) -> DataFrame:
    timed = _timed(events)
    grouped = timed.groupBy(_spark_window(case).alias("window"), "user")
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    edges = [F.col(f"window.{edge}").alias(f"window_{edge}") for edge in ("start", "end")]
    return totals.select("user", *edges, "n", "spend")


def _spark_window(case: Case) -> Column:
    if isinstance(case.window, Session):
        return F.session_window("ts", f"{case.window.gap} seconds")
    return F.window("ts", f"{case.window.size} seconds", f"{case.window.slide} seconds")


def _timed(events: DataFrame) -> DataFrame:
    return events.withWatermark("ts", f"{TOLERANCE} seconds")


def _tidegate(case: Case, events: DataFrame) -> DataFrame:
    keyed = tg.events(events, time="ts", tolerance=f"{TOLERANCE} s").key_by("user")
    aggregates = {"n": tg.count(), "spend": tg.sum("price")}
    if isinstance(case.window, Sliding):
        aggregates["most"] = tg.max("price")
    totals = keyed.window(_window(case)).agg(**aggregates)
    rows = totals.emit(getattr(tg.emit, case.emission)()).to_df()
    if case.emission != "changelog":
        return rows
    # What is taken back counts against what was put out, so that the sums are those of the answer.
    sign = F.when(F.col("op").startswith("-"), -1).otherwise(1)
    return rows.withColumns({name: F.col(name) * sign for name in ("n", "spend")})


def _window(case: Case) -> Any:
    if isinstance(case.window, Session):
        return tg.session(f"{case.window.gap} s")
    if isinstance(case.window, Sliding):
        ahead = case.window.lookahead
        return tg.sliding(f"{case.window.lookback} s", None if ahead is None else f"{ahead} s")
    size, slide = case.window.size, case.window.slide
    return tg.tumbling(f"{size} s") if size == slide else tg.hopping(f"{size} s", f"{slide} s")


def _per_key(case: Case, events: DataFrame) -> DataFrame:
    timed = _timed(events)
    if isinstance(case.window, Session):
        return session_per_key(timed, case.window.gap)
    if isinstance(case.window, Sliding):
        return sliding_per_key(timed, case.window.lookback, case.window.lookahead, TOLERANCE)
    return tumbling_per_key(timed, case.window.size)


_ENGINES = {"spark": _spark, "tidegate": _tidegate, "per-key": _per_key}
