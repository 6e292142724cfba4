"""Programs that run on a cluster: one for each operator at least, and one for each kind of sink."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from tests.spark.conftest import NOON
from tidegate.plan.schema import TIMESTAMP
from tidegate.testing.table import Row, instant_of

EVENTS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("user", pa.string()),
        ("seq", pa.int64()),
        ("price", pa.float64()),
        ("priority", pa.string()),
    ]
)
MILLIS, BATCHES, ROWS = 1_000, 2, 60


def batches(source: int = 0) -> list[list[Row]]:
    """Rows that move on by 15 seconds a batch: out of order, late, sent twice, some without a time."""
    dice = random.Random(source)
    return [[_event(dice, 15_000 * batch) for _ in range(ROWS)] for batch in range(BATCHES)]


def _event(dice: random.Random, since: int) -> Row:
    at = NOON + MILLIS * dice.randint(since - 12_000, since + 15_000)
    return {
        "ts": None if dice.random() < 0.03 else instant_of(at),
        "user": dice.choice(["ann", "bob", "cid", None]),
        "seq": dice.randint(0, 30),
        "price": dice.randint(0, 20) / 2,
        "priority": dice.choice(["low", "medium", "high", "critical"]),
    }


# -- programs -------------------------------------------------------------------------------------


def events(stream: Any) -> Any:
    return tg.events(stream, time="ts", tolerance="5 s")


def windowed(stream: Any, window: Any, **options: Any) -> Any:
    return events(stream).key_by("user").window(window, **options)


def totals(rows: Any) -> Any:
    return rows.agg(n=tg.count(), spend=tg.sum("price"), highest=tg.max("price"))


def tumbling(stream: Any) -> Any:
    late = tg.late.side_output("late")
    windows = windowed(stream, tg.tumbling("10 s"), allowed_lateness="5 s", late=late)
    return totals(windows).emit(tg.emit.changelog())


def hopping(stream: Any) -> Any:
    return totals(windowed(stream, tg.hopping("20 s", "10 s")))


def changes(rows: Any) -> Any:
    windows = rows.key_by("user").window(tg.hopping("20 s", "10 s"))
    return totals(windows).emit(tg.emit.changelog())


def session(stream: Any) -> Any:
    return totals(windowed(stream, tg.session("2 s"))).emit(tg.emit.on_window_close())


def lookback(stream: Any) -> Any:
    return totals(windowed(stream, tg.sliding("10 s")))


def lookahead(stream: Any) -> Any:
    return totals(windowed(stream, tg.sliding("5 s", "5 s")))


def reorder(stream: Any) -> Any:
    return events(stream).key_by("user").reorder()


def distinct(stream: Any) -> Any:
    too_old = tg.late.side_output("too_old")
    return events(stream).dedupe(on=["user", "seq"], within="20 s", late=too_old)


def admitted(stream: Any) -> Any:
    limits = tg.sla("bronze", max_rate=1, capacity=8, max_lag="1 hour", arrival="ts")
    return events(stream).admit(limits, stream="user")


def fold(stream: Any) -> Any:
    return totals(events(stream).key_by("user")).emit(tg.emit.on_update())


def tumbling_join(left: Any, right: Any) -> Any:
    return windowed(left, tg.tumbling("5 s")).join(windowed(right, tg.tumbling("5 s")), how="full")


def hopping_join(left: Any, right: Any) -> Any:
    return windowed(left, tg.tumbling("5 s")).join(windowed(right, tg.hopping("6 s", "3 s")))


def session_join(left: Any, right: Any) -> Any:
    return windowed(left, tg.session("2 s")).join(windowed(right, tg.session("2 s")))


def side_by_side(stream: Any) -> Any:
    rows = distinct(stream)
    visits = rows.key_by("user").window(tg.session("2 s")).agg(n=tg.count())
    return tg.together(visits=visits, spend=totals(rows.key_by("user")))


def shed(stream: Any) -> Any:
    return events(stream).shed(priority="priority").key_by("user").agg(n=tg.count())


def stepped(stream: Any) -> Any:
    """With a function of a module that executors do not have: it is shipped to them."""
    from own_steps import in_cents  # type: ignore[import-not-found]

    return events(stream).map(in_cents).key_by("user").agg(cents=tg.sum("cents"))


@dataclass(frozen=True)
class Case:
    """A program, how many sources it reads, and what its results are written to."""

    build: Callable[..., Any]
    sink: str = "parquet"
    sources: int = 1


CASES: Mapping[str, Case] = {
    "tumbling": Case(tumbling, "parquet"),
    "hopping": Case(hopping, "json"),
    "session": Case(session, "postgres"),
    "lookback": Case(lookback, "function"),
    "lookahead": Case(lookahead),
    "reorder": Case(reorder),
    "dedupe": Case(distinct),
    "admit": Case(admitted),
    "fold": Case(fold, "duckdb"),
    "tumbling join": Case(tumbling_join, sources=2),
    "hopping join": Case(hopping_join, sources=2),
    "session join": Case(session_join, sources=2),
    "together": Case(side_by_side),
    "shed": Case(shed),
    "steps": Case(stepped),
}

#: What is shipped as a module of the user's own.
OWN_STEPS = '''\
import os
import time
from pathlib import Path

import polars as pl
from pyspark import TaskContext


def in_cents(rows):
    return rows.with_columns(cents=(pl.col("price") * 100).cast(pl.Int64))


def held(folder):
    """A step that changes nothing. A task that finds `hold-<batch>` waits until it is killed."""

    def step(rows):
        task = TaskContext.get()
        if task is None:
            return rows  # on the driver, which tries steps on no rows
        batch = task.getLocalProperty("streaming.sql.batchId")
        try:
            Path(folder, f"hold-{batch}").rename(Path(folder, f"held-{os.getpid()}"))
        except FileNotFoundError:
            return rows
        while True:
            time.sleep(1)

    return step
'''


# -- sinks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AsFiles:
    """A function of the user's own, which is called on the driver: a file for each batch."""

    folder: str

    def __call__(self, rows: Any, batch_id: int) -> None:
        Path(self.folder).mkdir(exist_ok=True)
        pq.write_table(rows.toArrow(), Path(self.folder, f"{batch_id:05d}.parquet"))


def sink(kind: str, folder: str, channel: str, dsn: str) -> Any:
    place = f"{folder}/{channel}"
    match kind:
        case "json":
            return tg.sinks.json(place)
        case "duckdb":
            return tg.sinks.duckdb(f"{folder}/results.duckdb", channel)
        case "postgres":
            return tg.sinks.postgres(dsn, channel)
        case "function":
            return AsFiles(place)
        case _:
            return tg.sinks.parquet(place)


def sinks(result: Any, kind: str, folder: str, dsn: str) -> dict[str, Any]:
    """What a case is written to: rows that are set apart go to files, late ones as JSON."""
    apart = {"errors": "parquet", "late": "json", "too_old": "json", "rejected": "json", "shed": "json"}
    return {channel: sink(apart.get(channel, kind), folder, channel, dsn) for channel in result.channels}
