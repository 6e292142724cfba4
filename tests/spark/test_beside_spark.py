"""Spark's streaming operations beside ours, on the same rows: what the table of docs/from-spark.md says.

`equal` registers a program whose answers are Spark's; `different` one that shows where answers differ,
and by which rule. `tests/unit/test_spark_table.py` checks that the table and these names agree.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout

import tidegate as tg
from tests.spark.conftest import NOON, Click, seconds, write_batches
from tidegate.errors import SessionError

Batches = list[list[Click]]
Row = tuple[Any, ...]
Proof = Callable[["Beside"], None]

EQUAL: dict[str, Proof] = {}
DIFFERENT: dict[str, Proof] = {}

TOLERANCE = "5 seconds"
SCHEMA = "ts timestamp, user string, price double"

#: Prices are powers of two, so that each sum says which rows it is made of. Spark checks rows by the
#: watermark of one batch earlier than we do, so the late row, ann's at 2, is late by both.
CLICKS: Batches = [
    [
        (1, "ann", 1.0), (4, "bob", 2.0), (3, None, 4.0),
        (12, "ann", 8.0), (15, "ann", 16.0), (26, "bob", 32.0),
    ],
    [(23, "ann", 64.0), (24, "bob", 128.0), (38, "ann", 256.0)],
    [(2, "ann", 512.0), (36, "ann", 1024.0), (60, "bob", 2048.0)],
]  # fmt: skip

#: No row of these is late, and both sides have users that the other has not.
LEFT: Batches = [
    [(1, "ann", 1.0), (2, "bob", 2.0), (14, "ann", 4.0)],
    [(16, "ann", 8.0), (31, "bob", 16.0)],
    [(62, "ann", 32.0)],
]
RIGHT: Batches = [
    [(3, "ann", 10.0), (12, "ann", 20.0), (17, "cid", 30.0)],
    [(18, "ann", 40.0), (33, "eve", 50.0)],
    [(61, "ann", 60.0)],
]


def equal(name: str) -> Callable[[Proof], Proof]:
    return _registered(EQUAL, name)


def different(name: str) -> Callable[[Proof], Proof]:
    return _registered(DIFFERENT, name)


def _registered(proofs: dict[str, Proof], name: str) -> Callable[[Proof], Proof]:
    def register(proof: Proof) -> Proof:
        assert name not in EQUAL | DIFFERENT
        proofs[name] = proof
        return proof

    return register


class Beside:
    """Runs programs of both over streams with the same rows."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def stream(self, batches: Batches, name: str = "clicks") -> Any:
        """A streaming DataFrame that yields one of the batches a micro-batch."""
        if not (self.folder / name).exists():
            write_batches(self.folder / name, batches)
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def timed(self, batches: Batches, name: str = "clicks") -> Any:
        """The stream as Spark's operators want it."""
        return self.stream(batches, name).withWatermark("ts", TOLERANCE)

    def events(self, batches: Batches, name: str = "clicks") -> Any:
        """The stream as ours want it."""
        return tg.events(self.stream(batches, name), time="ts", tolerance=TOLERANCE)

    def start_theirs(self, df: Any, mode: str = "append", **trigger: Any) -> Any:
        table = f"theirs_{abs(hash(self.folder))}_{len(list(self.folder.glob('theirs-*')))}"
        writer = df.writeStream.outputMode(mode).format("memory").queryName(table)
        place = self.folder / f"theirs-{table}"
        place.mkdir()
        return (
            writer.option("checkpointLocation", str(place))
            .trigger(**trigger or {"availableNow": True})
            .start()
        )

    def start_ours(self, result: Any, sink: Any, **more: Any) -> Any:
        number = len(list(self.folder.glob("ours-*")))
        options = {"trigger": {"availableNow": True}} | more
        return result.start(checkpoint=self.folder / f"ours-{number}", main=sink, **options)

    def theirs(self, df: Any, mode: str = "append") -> list[Row]:
        query = self.start_theirs(df, mode)
        query.awaitTermination()
        return self.table(query)

    def ours(self, result: Any, *columns: str) -> list[Row]:
        sink = tg.sinks.memory()
        self.start_ours(result, sink).await_termination()
        return rows_of(sink, columns)

    def both(self, df: Any, result: Any, mode: str = "append") -> tuple[list[Row], list[Row]]:
        """What both put out: of ours the columns that Spark has, and no retractions."""
        sink = tg.sinks.memory()
        theirs, ours = self.start_theirs(df, mode), self.start_ours(result, sink)
        theirs.awaitTermination()
        ours.await_termination()
        return self.table(theirs), rows_of(sink, df.columns)

    def agree(self, df: Any, result: Any, mode: str = "append", rows: int | None = None) -> None:
        theirs, ours = self.both(df, result, mode)
        assert ours == theirs
        assert len(ours) >= 3 if rows is None else len(ours) == rows

    def table(self, query: Any) -> list[Row]:
        return in_order(self.spark.table(query.name).collect())


@pytest.fixture
def beside(spark: Any, tmp_path: Path) -> Iterator[Beside]:
    with setting(spark, "spark.sql.shuffle.partitions", "1"):
        yield Beside(spark, tmp_path)
        for query in spark.streams.active:
            query.stop()


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def in_order(rows: Any) -> list[Row]:
    return sorted((tuple(map(plain, row)) for row in rows), key=repr)


def plain(value: Any) -> Any:
    """A value as both can be compared: times in seconds from noon, and lists as sets."""
    if isinstance(value, datetime):
        return seconds(value)
    if isinstance(value, float):
        return round(value, 9)
    return sorted(value) if isinstance(value, list) else value


def rows_of(sink: Any, columns: Any) -> list[Row]:
    """The rows that a sink got, without those that take others back."""
    kept = [row for row in sink.rows() if not row.get("op", "+").startswith("-")]
    return in_order([row[name] for name in columns] for row in kept)


def consolidated(sink: Any, columns: Any) -> list[Row]:
    """What is left of a changelog."""
    left: Counter[Row] = Counter()
    for row in sink.rows():
        left[tuple(plain(row[name]) for name in columns)] += -1 if row["op"].startswith("-") else 1
    return in_order(left.elements())


def bounds(window: str = "window") -> list[Any]:
    """Spark's struct of a window as our two columns."""
    return [F.col(f"{window}.{edge}").alias(f"window_{edge}") for edge in ("start", "end")]


SPEND = {"n": tg.count(), "spend": tg.sum("price")}


def theirs_by(window: Any, rows: Any) -> Any:
    totals = rows.groupBy("user", window).agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    name = next(field for field in totals.columns if field.endswith("window"))
    return totals.select("user", *bounds(name), "n", "spend")


def ours_by(window: Any, events: Any) -> Any:
    return events.key_by("user").window(window).agg(**SPEND)


# -- windows --------------------------------------------------------------------------------------


@equal("tumbling")
def tumbling(beside: Beside) -> None:
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    beside.agree(theirs, ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS)), rows=7)


@equal("tumbling with an offset")
def tumbling_with_an_offset(beside: Beside) -> None:
    window = F.window("ts", "10 seconds", "10 seconds", "3 seconds")
    ours = ours_by(tg.tumbling("10 seconds", "3 seconds"), beside.events(CLICKS))
    beside.agree(theirs_by(window, beside.timed(CLICKS)), ours)


@equal("hopping")
def hopping(beside: Beside) -> None:
    window = F.window("ts", "20 seconds", "10 seconds")
    ours = ours_by(tg.hopping("20 seconds", "10 seconds"), beside.events(CLICKS))
    beside.agree(theirs_by(window, beside.timed(CLICKS)), ours)


@equal("session")
def session(beside: Beside) -> None:
    theirs = theirs_by(F.session_window("ts", "5 seconds"), beside.timed(CLICKS))
    beside.agree(theirs, ours_by(tg.session("5 seconds"), beside.events(CLICKS)), rows=7)


@equal("session with a gap per row")
def session_with_a_gap_per_row(beside: Beside) -> None:
    gap = F.when(F.col("user") == "ann", "5 seconds").otherwise("9 seconds")
    theirs = theirs_by(F.session_window("ts", gap), beside.timed(CLICKS))
    idle = F.expr("if(user = 'ann', interval '5' second, interval '9' second)")
    stream = beside.stream(CLICKS).withColumn("idle", idle)
    events = tg.events(stream, time="ts", tolerance=TOLERANCE)
    beside.agree(theirs, ours_by(tg.session(gap_column="idle"), events), rows=7)


@equal("windows over windows")
def windows_over_windows(beside: Beside) -> None:
    inner = F.window("ts", "10 seconds").alias("inner_window")
    minutes = beside.timed(CLICKS).groupBy("user", inner).agg(F.sum("price").alias("spend"))
    outer = minutes.groupBy(F.window(F.window_time("inner_window"), "20 seconds"))
    theirs = outer.agg(F.count("*").alias("n"), F.sum("spend").alias("spend"))
    windows = beside.events(CLICKS).key_by("user").window(tg.tumbling("10 seconds"))
    again = windows.agg(spend=tg.sum("price")).events(time="window_start")
    ours = again.window(tg.tumbling("20 seconds")).agg(n=tg.count(), spend=tg.sum("spend"))
    beside.agree(theirs.select(*bounds(), "n", "spend"), ours, rows=2)


# -- aggregates -----------------------------------------------------------------------------------


@equal("aggregates")
def aggregates(beside: Beside) -> None:
    theirs = {
        "n": F.count("*"), "users": F.count("user"), "s": F.sum("price"), "mean": F.avg("price"),
        "least": F.min("price"), "most": F.max("price"), "var": F.var_samp("price"),
        "stddev": F.stddev_pop("price"), "distinct": F.approx_count_distinct("user"),
        "all": F.collect_list("price"), "first": F.min_by("price", "ts"),
        "last": F.max_by("price", "ts"), "cheapest": F.min_by("user", "price"),
    }  # fmt: skip
    ours = {
        "n": tg.count(), "users": tg.count("user"), "s": tg.sum("price"), "mean": tg.mean("price"),
        "least": tg.min("price"), "most": tg.max("price"), "var": tg.var("price"),
        "stddev": tg.stddev("price", population=True), "distinct": tg.approx_count_distinct("user"),
        "all": tg.collect("price"), "first": tg.first("price"), "last": tg.last("price"),
        "cheapest": tg.min("by_price"),
    }  # fmt: skip
    grouped = beside.timed(CLICKS).groupBy(F.window("ts", "20 seconds"))
    answers = grouped.agg(*(one.alias(name) for name, one in theirs.items()))
    by_price = F.struct("price", "user").alias("by_price")
    rows = beside.stream(CLICKS).select("*", by_price)
    windows = tg.events(rows, time="ts", tolerance=TOLERANCE).window(tg.tumbling("20 seconds"))
    sink = tg.sinks.memory()
    beside.start_ours(windows.agg(**ours), sink).await_termination()
    found = [row | {"cheapest": row["cheapest"]["user"]} for row in sink.rows()]
    expected = beside.theirs(answers.select(*bounds(), *theirs))
    assert (
        in_order([row[name] for name in ("window_start", "window_end", *theirs)] for row in found)
        == expected
    )
    assert len(found) == 2


@different("first and last")
def first_and_last(beside: Beside) -> None:
    """Spark's are by arrival, ours by event time."""
    late_first: Batches = [[(5, "ann", 1.0), (2, "ann", 2.0), (3, "ann", 4.0)], [(60, "bob", 8.0)]]
    grouped = beside.timed(late_first).groupBy("user", F.window("ts", "10 seconds"))
    theirs = grouped.agg(F.first("price").alias("first"), F.last("price").alias("last"))
    windows = beside.events(late_first).key_by("user").window(tg.tumbling("10 seconds"))
    found = beside.both(
        theirs.select("first", "last"), windows.agg(first=tg.first("price"), last=tg.last("price"))
    )
    assert found == ([(1.0, 4.0)], [(2.0, 1.0)])


@different("count distinct")
def count_distinct(beside: Beside) -> None:
    """Spark has none on streams; ours is what Spark answers on a batch."""
    users, window = F.count_distinct("user").alias("users"), F.window("ts", "20 seconds")
    with pytest.raises(Exception, match=r"DISTINCT_AGG|[Dd]istinct aggregations"):
        beside.start_theirs(beside.timed(CLICKS).groupBy(window).agg(users))
    batch = beside.spark.read.parquet(str(beside.folder / "clicks")).where("price < 500")
    expected = (
        batch.groupBy(window)
        .agg(users)
        .select(*bounds(), "users")
        .where("window_start < timestamp'2024-05-01 12:00:40'")
    )
    ours = beside.events(CLICKS).window(tg.tumbling("20 seconds")).agg(users=tg.count_distinct("user"))
    assert beside.ours(ours, *expected.columns) == in_order(expected.collect())


@different("quantiles")
def quantiles(beside: Beside) -> None:
    """Spark takes one of the values; ours is at most 1 % off it."""
    median = F.percentile_approx("price", 0.5).alias("median")
    theirs = beside.timed(CLICKS).groupBy(F.window("ts", "20 seconds")).agg(median).select("median")
    windows = beside.events(CLICKS).window(tg.tumbling("20 seconds"))
    expected, found = beside.both(theirs, windows.agg(median=tg.quantile("price", 0.5)))
    assert len(found) == 2
    for (one,), (other,) in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=0.01)


# -- output modes ---------------------------------------------------------------------------------


@equal("update mode")
def update_mode(beside: Beside) -> None:
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS)).emit(tg.emit.on_update())
    beside.agree(theirs, ours, "update", rows=10)


@equal("update mode without windows")
def update_mode_without_windows(beside: Beside) -> None:
    totals = [F.count("*").alias("n"), F.sum("price").alias("spend")]
    ours = beside.events(CLICKS).key_by("user").agg(**SPEND).emit(tg.emit.on_update())
    beside.agree(beside.stream(CLICKS).groupBy("user").agg(*totals), ours, "update", rows=7)


@equal("complete mode")
def complete_mode(beside: Beside) -> None:
    theirs = (
        beside.stream(CLICKS).groupBy("user").agg(F.count("*").alias("n"), F.sum("price").alias("spend"))
    )
    sink = tg.sinks.memory()
    changes = beside.events(CLICKS).key_by("user").agg(**SPEND).emit(tg.emit.changelog())
    beside.start_ours(changes, sink).await_termination()
    assert consolidated(sink, theirs.columns) == beside.theirs(theirs, "complete")


@different("complete mode with windows")
def complete_mode_with_windows(beside: Beside) -> None:
    """Spark keeps every window for ever, so that no row is late; here late rows stay late."""
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    sink = tg.sinks.memory()
    changes = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS)).emit(tg.emit.changelog())
    query = beside.start_ours(changes, sink)
    query.await_termination()
    expected, found = beside.theirs(theirs, "complete"), consolidated(sink, theirs.columns)
    assert set(expected) - set(found) == {("ann", 0, 10, 2, 513.0)}
    assert set(found) - set(expected) == {("ann", 0, 10, 1, 1.0)}
    assert query.metrics["late_rows"] == 1


@different("updates that change nothing")
def updates_that_change_nothing(beside: Beside) -> None:
    """Spark repeats the result of each window that has new rows; ours emits changes."""
    falling: Batches = [[(1, "ann", 4.0)], [(2, "ann", 1.0)]]
    grouped = beside.timed(falling).groupBy("user", F.window("ts", "10 seconds"))
    windows = beside.events(falling).key_by("user").window(tg.tumbling("10 seconds"))
    ours = windows.agg(most=tg.max("price")).emit(tg.emit.on_update())
    found = beside.both(grouped.agg(F.max("price").alias("most")).select("user", "most"), ours, "update")
    assert found == ([("ann", 4.0), ("ann", 4.0)], [("ann", 4.0)])


@different("updates of sessions")
def updates_of_sessions(beside: Beside) -> None:
    """Spark refuses them; what is left of ours is what Spark emits in the end."""
    theirs = theirs_by(F.session_window("ts", "5 seconds"), beside.timed(CLICKS))
    with pytest.raises(
        Exception, match=r"(?i)session window.*update|update.*session window|UNSUPPORTED_OPERATION"
    ):
        beside.start_theirs(theirs, "update")
    sink = tg.sinks.memory()
    changes = ours_by(tg.session("5 seconds"), beside.events(CLICKS)).emit(tg.emit.changelog())
    beside.start_ours(changes, sink).await_termination()
    still_open = ("bob", 60, 65, 1, 2048.0)
    assert consolidated(sink, theirs.columns) == in_order([*beside.theirs(theirs), still_open])


# -- duplicates -----------------------------------------------------------------------------------

#: Both have to remember ann's id of 296 in the second batch; nobody does so in the last.
REPEATED: Batches = [
    [(300, "ann", 1.0), (300, "ann", 2.0), (299, "bob", 4.0)],
    [(600, "cid", 8.0), (296, "ann", 16.0)],
    [(601, "dan", 32.0)],
    [(200, "eve", 64.0), (200, "cid", 128.0), (599, "ann", 256.0), (600, "cid", 512.0)],
]


@equal("dropDuplicates")
def drop_duplicates(beside: Beside) -> None:
    theirs = beside.timed(REPEATED).dropDuplicates(["user", "ts"])
    beside.agree(
        theirs, beside.events(REPEATED).dedupe(on=["user", "ts"], rule="drop_duplicates"), rows=6
    )


@equal("dropDuplicatesWithinWatermark")
def drop_duplicates_within_watermark(beside: Beside) -> None:
    """The late row of cid, whose id is known, is late in both and not a duplicate."""
    theirs = beside.timed(REPEATED).dropDuplicatesWithinWatermark(["user"])
    once = beside.events(REPEATED).dedupe(on=["user"], rule="drop_duplicates_within_watermark")
    sink = tg.sinks.memory()
    their_query, our_query = beside.start_theirs(theirs), beside.start_ours(once, sink)
    their_query.awaitTermination()
    our_query.await_termination()
    assert rows_of(sink, theirs.columns) == beside.table(their_query)
    assert dropped_as_late(their_query) == our_query.metrics["late_rows"] == 2
    assert our_query.metrics["duplicates_filtered"] == 3


@equal("dropDuplicates without a watermark")
def drop_duplicates_without_a_watermark(beside: Beside) -> None:
    once = beside.events(REPEATED).dedupe(on=["user"], within="36500 days")
    beside.agree(beside.stream(REPEATED).dropDuplicates(["user"]), once, rows=5)


@different("when an id is forgotten")
def when_an_id_is_forgotten(beside: Beside) -> None:
    """The watermark passed ann's id before the second batch: Spark looks it up before it forgets it."""
    again: Batches = [[(1, "ann", 1.0), (26, "bob", 2.0)], [(23, "ann", 4.0)]]
    once = beside.events(again).dedupe(on=["user"], rule="drop_duplicates_within_watermark")
    expected, found = beside.both(beside.timed(again).dropDuplicatesWithinWatermark(["user"]), once)
    assert set(found) - set(expected) == {(23, "ann", 4.0)}
    assert set(expected) <= set(found)


def dropped_as_late(query: Any) -> int:
    states = [state for progress in query.recentProgress for state in progress.stateOperators]
    return sum(state.numRowsDroppedByWatermark for state in states)


# -- late and invalid rows ------------------------------------------------------------------------


@equal("late rows")
def late_rows(beside: Beside) -> None:
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS))
    their_query, our_query = beside.start_theirs(theirs), beside.start_ours(ours, tg.sinks.discard())
    their_query.awaitTermination()
    our_query.await_termination()
    assert dropped_as_late(their_query) == our_query.metrics["late_rows"] == 1


@different("how many rows were late")
def how_many_rows_were_late(beside: Beside) -> None:
    """Spark counts them after it has added up those of one window; ours counts rows."""
    batches = [*CLICKS[:2], [(2, "ann", 512.0), (3, "ann", 1024.0), (60, "bob", 2048.0)]]
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(batches))
    query = beside.start_theirs(theirs)
    query.awaitTermination()
    assert dropped_as_late(query) == 1
    ours = beside.start_ours(
        ours_by(tg.tumbling("10 seconds"), beside.events(batches)), tg.sinks.discard()
    )
    ours.await_termination()
    assert ours.metrics["late_rows"] == 2


@different("when the watermark takes effect")
def when_the_watermark_takes_effect(beside: Beside) -> None:
    """The second batch closes the window from 0 to 10. Spark still takes its row in; ours is late."""
    batches: Batches = [[(1, "ann", 1.0), (26, "bob", 2.0)], [(2, "ann", 4.0)], [(60, "bob", 8.0)]]
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(batches))
    expected, found = beside.both(theirs, ours_by(tg.tumbling("10 seconds"), beside.events(batches)))
    assert set(expected) - set(found) == {("ann", 0, 10, 2, 5.0)}
    assert set(found) - set(expected) == {("ann", 0, 10, 1, 1.0)}


@different("late rows of live sessions")
def late_rows_of_live_sessions(beside: Beside) -> None:
    """The row at 15 touches a session that is open: Spark drops it before it looks."""
    batches: Batches = [
        [(20, "ann", 1.0), (28, "ann", 2.0), (36, "ann", 4.0)],
        [(36, "bob", 8.0)],
        [(15, "ann", 16.0), (80, "bob", 32.0)],
    ]
    theirs = theirs_by(F.session_window("ts", "10 seconds"), beside.timed(batches))
    expected, found = beside.both(theirs, ours_by(tg.session("10 seconds"), beside.events(batches)))
    assert set(expected) - set(found) == {("ann", 20, 46, 3, 7.0)}
    assert set(found) - set(expected) == {("ann", 15, 46, 4, 23.0)}


@different("rows without an event time")
def rows_without_an_event_time(beside: Beside) -> None:
    """Spark's windows leave them out; ours has them in a channel."""
    batches: Batches = [[(1, "ann", 1.0), (None, "bob", 2.0)], [(60, "bob", 4.0)]]
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(batches))
    main, errors = tg.sinks.memory(), tg.sinks.memory()
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(batches))
    beside.start_ours(ours, main, errors=errors).await_termination()
    assert rows_of(main, theirs.columns) == beside.theirs(theirs) == [("ann", 0, 10, 1, 1.0)]
    assert [row["reason"] for row in errors.rows()] == ["event time 'ts' is null"]


# -- several streams ------------------------------------------------------------------------------


def sides(beside: Beside) -> tuple[Any, Any, Any, Any]:
    """The streams of a join: Spark's of both sides, then ours.

    Spark takes one watermark a side, and has to see from it when a window is over: so it is that of the
    windows' starts, which lie behind their rows by up to ten seconds.
    """
    left = beside.stream(LEFT, "left")
    right = beside.stream(RIGHT, "right").withColumnsRenamed({"ts": "at", "price": "cost"})
    theirs, others = (
        rows.select("*", F.window(time, "10 seconds").start.alias("start")).withWatermark(
            "start", "15 seconds"
        )
        for rows, time in ((left, "ts"), (right, "at"))
    )
    ours, our_others = (
        tg.events(rows, time=time, tolerance=TOLERANCE).key_by("user").window(tg.tumbling("10 seconds"))
        for rows, time in ((left, "ts"), (right, "at"))
    )
    return theirs, others, ours, our_others


PAIR = ("user", "ts", "price", "at", "cost")


def joined(how: Any, their_how: str, rows: int) -> Proof:
    def proof(beside: Beside) -> None:
        theirs, others, ours, our_others = sides(beside)
        pairs = theirs.join(others, ["user", "start"], their_how).select(*PAIR)
        beside.agree(pairs, ours.join(our_others, how=how), rows=rows)

    return proof


equal("inner join")(joined("inner", "inner", 6))
equal("left outer join")(joined("left", "left_outer", 8))
equal("right outer join")(joined("right", "right_outer", 8))
equal("full outer join")(joined("full", "full_outer", 10))


@different("semi join")
def semi_join(beside: Beside) -> None:
    """We emit pairs: their left rows, each once, are Spark's."""
    theirs, others, ours, our_others = sides(beside)
    left = theirs.join(others, ["user", "start"], "left_semi").select("user", "ts", "price")
    expected, found = beside.both(left, ours.join(our_others))
    assert sorted(set(found), key=repr) == expected
    assert len(found) > len(expected)


@equal("union")
def union(beside: Beside) -> None:
    theirs = beside.timed(LEFT, "left").union(beside.timed(RIGHT, "right"))
    ours = beside.events(LEFT, "left").union(beside.events(RIGHT, "right"))
    counted = theirs_by(F.window("ts", "10 seconds"), theirs)
    beside.agree(counted, ours_by(tg.tumbling("10 seconds"), ours), rows=6)


@different("the watermark of the fastest stream")
def the_watermark_of_the_fastest_stream(beside: Beside) -> None:
    """Spark closes windows before the other stream has come there, if told to; ours refuses that."""
    slow: Batches = [[(1, "ann", 1.0)], [(2, "ann", 2.0)]]
    fast: Batches = [[(1, "bob", 4.0)], [(60, "bob", 8.0)]]
    theirs = beside.timed(slow, "slow").union(beside.timed(fast, "fast"))
    counted = theirs_by(F.window("ts", "10 seconds"), theirs)
    both = beside.events(slow, "slow").union(beside.events(fast, "fast"))
    ours = ours_by(tg.tumbling("10 seconds"), both)
    with setting(beside.spark, "spark.sql.streaming.multipleWatermarkPolicy", "max"):
        assert beside.theirs(counted) == [("ann", 0, 10, 2, 3.0), ("bob", 0, 10, 1, 4.0)]
        with pytest.raises(
            SessionError, match="multipleWatermarkPolicy=max: rows of the slower sources"
        ):
            beside.start_ours(ours, tg.sinks.discard())
        with pytest.raises(SessionError, match="multipleWatermarkPolicy=max"):
            ours.to_df()
    assert beside.ours(ours, "user") == []


@equal("static tables, select and where")
def static_tables(beside: Beside) -> None:
    rates = beside.spark.createDataFrame([("ann", 2.0), ("bob", 4.0)], "user string, rate double")

    def priced(rows: Any) -> Any:
        paid = rows.join(rates, "user").where("price > 1")
        return paid.select("user", "ts", (F.col("price") * F.col("rate")).alias("price"))

    theirs = theirs_by(F.window("ts", "10 seconds"), priced(beside.timed(CLICKS)))
    events = tg.events(priced(beside.stream(CLICKS)), time="ts", tolerance=TOLERANCE)
    beside.agree(theirs, ours_by(tg.tumbling("10 seconds"), events), rows=5)


# -- state of one's own ---------------------------------------------------------------------------


@equal("a running value per key")
def running_value(beside: Beside) -> None:
    def add(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
        n, spend = state.getOption or (0, 0.0)
        for frame in frames:
            n, spend = n + len(frame), spend + float(frame["price"].sum())
        state.update((n, spend))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "spend": [spend]})

    theirs = beside.stream(CLICKS).where("user is not null").groupBy("user").applyInPandasWithState(
        add, "user string, n long, spend double", "n long, spend double", "update",
        GroupStateTimeout.NoTimeout,
    )  # fmt: skip
    known = tg.events(beside.stream(CLICKS).where("user is not null"), time="ts", tolerance=TOLERANCE)
    beside.agree(theirs, known.key_by("user").agg(**SPEND).emit(tg.emit.on_update()), "update", rows=6)


@equal("timeouts")
def timeouts(beside: Beside) -> None:
    """A visit ends when its user has been silent for five seconds of event time."""

    def visits(key: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
        done, visit = [], state.getOption
        if state.hasTimedOut:
            done, visit = [visit], None
        for at in sorted(time.timestamp() - NOON / 1e6 for frame in frames for time in frame["ts"]):
            if visit is not None and at - visit[1] > 5:
                done, visit = [*done, visit], None
            start, end, n = visit or (at, at, 0)
            visit = (min(start, at), max(end, at), n + 1)
        if visit is None:
            state.remove()
        else:
            state.update(visit)
            state.setTimeoutTimestamp(round((visit[1] + 5) * 1000 + NOON / 1000))
        yield pd.DataFrame([(key[0], n) for _, _, n in done], columns=["user", "n"])

    known = beside.timed(CLICKS).where("user is not null")
    theirs = known.groupBy("user").applyInPandasWithState(
        visits, "user string, n long", "first double, last double, n long", "append",
        GroupStateTimeout.EventTimeTimeout,
    )  # fmt: skip
    events = tg.events(beside.stream(CLICKS).where("user is not null"), time="ts", tolerance=TOLERANCE)
    ours = events.key_by("user").window(tg.session("5 seconds")).agg(n=tg.count())
    beside.agree(theirs, ours, rows=6)


class LastTen(StatefulProcessor):
    """What each user has spent in the ten seconds before each click."""

    def init(self, handle: Any) -> None:
        self.recent = handle.getListState("recent", "at double, price double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        known = [(at, price) for at, price in self.recent.get()]
        for frame in rows:
            spend = []
            for time, price in zip(frame["ts"], frame["price"], strict=True):
                at = time.timestamp()
                known.append((at, price))
                spend.append(sum(p for t, p in known if at - 10 <= t <= at))
            yield frame[["user", "price"]].assign(spend=spend)
        self.recent.put(known)

    def close(self) -> None:
        pass


@equal("windows around rows")
def windows_around_rows(beside: Beside) -> None:
    visits: Batches = [
        [(1, "ann", 1.0), (4, "ann", 2.0), (6, "bob", 4.0)],
        [(11, "ann", 8.0), (14, "bob", 16.0), (22, "ann", 32.0)],
    ]
    columns = "user string, price double, spend double"
    rows = beside.timed(visits).groupBy("user")
    theirs = rows.transformWithStateInPandas(LastTen(), columns, "Append", "EventTime")
    around = beside.events(visits).key_by("user").window(tg.sliding("10 seconds"))
    beside.agree(theirs, around.agg(spend=tg.sum("price")), rows=6)


@different("OVER RANGE")
def over_range(beside: Beside) -> None:
    """Spark refuses it on streams; ours is what Spark answers on a batch."""
    spend = (
        "SELECT user, ts, price, sum(price) OVER (PARTITION BY user ORDER BY ts "
        "RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) AS spend FROM {rows}"
    )
    ordered: Batches = [[(1, "ann", 1.0), (4, "ann", 2.0), (6, "bob", 4.0)], [(11, "ann", 8.0)]]
    stream = beside.stream(ordered)
    with pytest.raises(Exception, match=r"NON_TIME_WINDOW|[Nn]on-time-based windows"):
        beside.start_theirs(beside.spark.sql(spend, rows=stream))
    batch = beside.spark.read.parquet(str(beside.folder / "clicks"))
    expected = beside.spark.sql(spend, rows=batch)
    around = beside.events(ordered).key_by("user").window(tg.sliding("10 seconds"))
    assert beside.ours(around.agg(spend=tg.sum("price")), *expected.columns) == in_order(
        expected.collect()
    )


@different("windows with gaps between them")
def windows_with_gaps(beside: Beside) -> None:
    """Spark refuses a slide longer than the window; in ours rows of the gaps are unassigned."""
    with pytest.raises(Exception, match=r"(?i)slide"):
        theirs_by(F.window("ts", "4 seconds", "10 seconds"), beside.timed(CLICKS)).schema  # noqa: B018
    ours = ours_by(tg.hopping("4 seconds", "10 seconds"), beside.events(CLICKS))
    query = beside.start_ours(ours, tg.sinks.discard())
    query.await_termination()
    assert query.metrics["unassigned"] == 6


# -- triggers and sinks ---------------------------------------------------------------------------


@equal("triggers")
def triggers(beside: Beside) -> None:
    """`availableNow` is the trigger of all others here."""
    sink = tg.sinks.memory()
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS))
    their_query = beside.start_theirs(theirs, processingTime="0 seconds")
    our_query = beside.start_ours(ours, sink, trigger={"processingTime": "0 seconds"})
    their_query.processAllAvailable()
    our_query.process_all_available()
    assert rows_of(sink, theirs.columns) == beside.table(their_query)
    their_query.stop()
    our_query.stop()


@equal("foreachBatch")
def for_each_batch(beside: Beside) -> None:
    seen: dict[str, list[Any]] = {"theirs": [], "ours": []}

    def collect(name: str) -> Callable[[Any, int], None]:
        return lambda rows, batch_id: seen[name].extend((batch_id, *row) for row in rows.collect())

    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    place = str(beside.folder / "theirs-of-each-batch")
    writer = theirs.writeStream.foreachBatch(collect("theirs")).option("checkpointLocation", place)
    query = writer.trigger(availableNow=True).start()
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS))
    beside.start_ours(ours, collect("ours")).await_termination()
    query.awaitTermination()
    assert in_order(seen["ours"]) == in_order(seen["theirs"])
    assert len(seen["ours"]) == 7


@equal("files")
def files(beside: Beside) -> None:
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    place, out = str(beside.folder / "theirs-checkpoint"), str(beside.folder / "theirs")
    writer = theirs.writeStream.format("parquet").option("checkpointLocation", place)
    query = writer.trigger(availableNow=True).start(out)
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS))
    beside.start_ours(ours, tg.sinks.parquet(beside.folder / "ours")).await_termination()
    query.awaitTermination()
    read = beside.spark.read.parquet
    found = read(str(beside.folder / "ours")).select(*theirs.columns)
    assert in_order(found.collect()) == in_order(read(out).collect())
    assert found.count() == 7


@equal("Spark's writers")
def writers_of_spark(beside: Beside) -> None:
    theirs = theirs_by(F.window("ts", "10 seconds"), beside.timed(CLICKS))
    ours = ours_by(tg.tumbling("10 seconds"), beside.events(CLICKS)).to_df().select(*theirs.columns)
    assert beside.theirs(ours) == beside.theirs(theirs)


#: A few of them are run on the older versions for every change, the others by `make matrix`.
SMOKE = ("tumbling", "dropDuplicatesWithinWatermark", "full outer join")


def smoke_first() -> list[Any]:
    marked = [pytest.param(name, marks=pytest.mark.versions("the answers of Spark")) for name in SMOKE]
    return [*marked, *(name for name in EQUAL if name not in SMOKE)]


@pytest.mark.parametrize("name", smoke_first())
def test_answers_are_equal(beside: Beside, name: str) -> None:
    EQUAL[name](beside)


@pytest.mark.parametrize("name", DIFFERENT)
def test_answers_differ_as_the_table_says(beside: Beside, name: str) -> None:
    DIFFERENT[name](beside)
