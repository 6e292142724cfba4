"""The same question to each engine: count and sum(price) by user and window.

Around each row, where Spark has no operator of its own, it is max(price) as well. Joins ask for pairs,
duplicates and admission for the rows that are left.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

import tidegate as tg
from benchmarks.cases import Admission, Case, Distinct, Join, Session, Sliding, Window
from benchmarks.per_key import session_per_key, sliding_per_key, tumbling_per_key
from benchmarks.plans import TOLERANCE, row_plan, tidegate_window
from tidegate.api.events import ForwardedEvents, Startable
from tidegate.plan.steps import Fusion
from tidegate.spark import lower


def results(case: Case, *streams: DataFrame) -> DataFrame:
    """The results of a case by Spark: user, window_start, window_end, n, spend.

    Around rows: ts, user, price, n, spend, most. Pairs: user, and window, ts and price of both sides.
    Rows that are left: ts, user, price.
    """
    if isinstance(case.window, Join):
        return _spark_join(case.window, *streams)
    [events] = streams
    if isinstance(case.window, Distinct | Admission):
        return _spark_rows(case.window, events)
    return _ENGINES[case.engine](case, events)


def program(case: Case, *streams: DataFrame) -> tuple[Startable, Fusion | None]:
    """The same as a program of tidegate, and which of its steps are fused."""
    if isinstance(case.window, Join):
        left, right = streams
        sides = _windowed(left, case.window.left), _windowed(right, case.window.right)
        return sides[0].join(sides[1]), None
    if case.steps is not None:
        return _stepped(case, *streams)
    if isinstance(case.window, Distinct | Admission):
        return ForwardedEvents(streams, row_plan(case)), None
    return paced_results(case, *streams).emit(getattr(tg.emit, case.emission)()), None


def _spark(case: Case, events: DataFrame) -> DataFrame:
    timed = _timed(events)
    grouped = timed.groupBy(spark_window(case.window).alias("window"), "user")
    totals = grouped.agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    edges = [F.col(f"window.{edge}").alias(f"window_{edge}") for edge in ("start", "end")]
    return totals.select("user", *edges, "n", "spend")


def spark_window(window: Any) -> Column:
    if isinstance(window, Session):
        return F.session_window("ts", f"{window.gap} seconds")
    return F.window("ts", f"{window.size} seconds", f"{window.slide} seconds")


def _timed(events: DataFrame) -> DataFrame:
    return events.withWatermark("ts", f"{TOLERANCE} seconds")


def paced_results(case: Case, events: DataFrame) -> Any:
    """The question of a case whose query is to be started by tidegate, which then steers its reader."""
    aggregates = {"n": tg.count(), "spend": tg.sum("price")}
    if isinstance(case.window, Sliding):
        aggregates["most"] = tg.max("price")
    return _windowed(events, case.window).agg(**aggregates)


def _stepped(case: Case, events: DataFrame) -> tuple[Startable, Fusion | None]:
    """Two maps and two filters before the windows; they leave no event out, so all can be counted."""
    unfused = tg.fusion(maps=False, filters=False, across=False, pack=False, read=False)
    timed = tg.events(events, time="ts", tolerance=f"{TOLERANCE} s")
    steps = (
        timed.map(lambda rows: rows.with_columns(cents=pl.col("price") * 100))
        .filter(lambda rows: rows["cents"] >= 0)
        .map(lambda rows: rows.with_columns(paid=pl.col("cents") / 100))
        .filter(lambda rows: rows["user"] != "")
    )
    windows = steps.key_by("user").window(tidegate_window(case.window))
    totals = windows.agg(n=tg.count(), spend=tg.sum("paid"))
    return totals, unfused if case.steps == "unfused" else None


def _windowed(events: DataFrame, window: Any) -> Any:
    timed = tg.events(events, time="ts", tolerance=f"{TOLERANCE} s")
    return timed.key_by("user").window(tidegate_window(window))


def _per_key(case: Case, events: DataFrame) -> DataFrame:
    timed = _timed(events)
    if isinstance(case.window, Session):
        return session_per_key(timed, case.window.gap)
    if isinstance(case.window, Sliding):
        return sliding_per_key(timed, case.window.lookback, case.window.lookahead, TOLERANCE)
    return tumbling_per_key(timed, case.window.size)


def _spark_join(join: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    """By user and start of the window, which is faster than by the window as Spark shows it."""
    assert isinstance(join.left, Window)
    assert join.left == join.right
    sides = [_spark_side(left, join.left, "left"), _spark_side(right, join.left, "right")]
    pairs = sides[0].join(sides[1], ["user", "start"])
    edges = {
        "start": F.col("start"),
        "end": F.col("start") + F.expr(f"interval {join.left.size} seconds"),
    }
    bounds = [
        column.alias(f"{side}_window_{edge}")
        for side in ("left", "right")
        for edge, column in edges.items()
    ]
    return pairs.select("user", *bounds, "ts_left", "price_left", "ts_right", "price_right")


def _spark_side(events: DataFrame, window: Window, side: str) -> DataFrame:
    own = [F.col(name).alias(f"{name}_{side}") for name in ("ts", "price")]
    start = spark_window(window).getField("start").alias("start")
    # A row is later than the start of its window by up to the size.
    return events.select("user", start, *own).withWatermark(
        "start", f"{TOLERANCE + window.size} seconds"
    )


def _spark_rows(distinct: Distinct | Admission, events: DataFrame) -> DataFrame:
    assert isinstance(distinct, Distinct), "Spark has no admission of its own"
    timed = events.withWatermark("ts", f"{distinct.delay} seconds")
    return timed.dropDuplicatesWithinWatermark(["user"])


def rows_of(batch: dict[str, Any]) -> int:
    """The events of a batch: Spark counts what it was handed, which may have been packed before."""
    counted = batch.get("observedMetrics", {}).get(lower.OBSERVATION) or {}
    return counted.get("rows_in") or batch["numInputRows"]


_ENGINES = {"spark": _spark, "per-key": _per_key}
