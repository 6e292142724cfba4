"""Joins between windows through real streaming queries; and Spark's own join as a second witness."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import tidegate as tg
from tests.oracle import Oracle
from tests.spark.conftest import NOON, run
from tests.spark.files import file_stream, write_files
from tests.spark.test_event_time_queries import wait_until
from tests.support.plans import TIMESTAMP
from tidegate.spark.checkpoint.inspection import states_of
from tidegate.testing.results import row_differences
from tidegate.testing.table import Row

LEFT = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("shown", pa.int64())])
RIGHT = pa.schema([("at", TIMESTAMP), ("user", pa.string()), ("click", pa.int64())])
PAID = pa.schema([("at", TIMESTAMP), ("payer", pa.string()), ("click", pa.int64())])

#: Seconds from noon, a user, a number.
Event = tuple[float, str, int]
FLUSH: list[list[Event]] = [[(10_000.0, "flush", 0)]]


def coming_and_going(rows: int, per_batch: int, seed: int) -> list[list[Event]]:
    """Rows of many users, up to three seconds early; a user is now busy and now silent."""
    events = [
        (i / 4 - i * 7919 % 13 / 4, f"user-{i * (31 + seed) % (11 + i // 40 % 3)}", i + seed)
        for i in range(rows)
    ]
    return [events[i : i + per_batch] for i in range(0, rows, per_batch)]


@dataclass(frozen=True)
class Sides:
    """Two folders of files; a micro-batch takes one of each."""

    spark: Any
    folder: Path

    def write(self, left: Iterable[list[Event]], right: Iterable[list[Event]]) -> None:
        for name, schema, batches in (("left", LEFT, left), ("right", RIGHT, right)):
            done = len(list((self.folder / name).glob("*.parquet")))
            write_files(self.folder / name, (table_of(rows, schema) for rows in batches), start=done)

    def streams(self) -> tuple[Any, Any]:
        left, right = (
            file_stream(self.spark, self.folder / name, schema)
            for name, schema in (("left", LEFT), ("right", RIGHT))
        )
        return left, right

    def frames(self) -> tuple[Any, Any]:
        """All there is, as batches."""
        left, right = (self.spark.read.parquet(str(self.folder / name)) for name in ("left", "right"))
        return left, right

    def rows(self) -> list[list[Row]]:
        return [pq.read_table(self.folder / name).to_pylist() for name in ("left", "right")]


def table_of(rows: list[Event], schema: pa.Schema) -> pa.Table:
    times = [NOON + round(at * 1_000_000) for at, _, _ in rows]
    columns = [times, [user for _, user, _ in rows], [number for _, _, number in rows]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.fixture
def sides(spark: Any, tmp_path: Path) -> Sides:
    return Sides(spark, tmp_path)


# -- the programs ---------------------------------------------------------------------------------


def keyed(left: Any, right: Any) -> tuple[Any, Any]:
    return (
        tg.events(left, time="ts", tolerance="4 s").key_by("user"),
        tg.events(right, time="at", tolerance="4 s").key_by("user"),
    )


def panes(left: Any, right: Any) -> Any:
    one, other = keyed(left, right)
    hopping = other.window(tg.hopping("6 s", "2 s"))
    return one.window(tg.tumbling("5 s")).join(hopping, how="full", where="(shown + click) % 3 = 0")


def sessions(left: Any, right: Any) -> Any:
    one, other = keyed(left, right)
    return one.window(tg.session("2 s")).join(other.window(tg.session("1 s")), how="left")


def chain(left: Any, right: Any) -> Any:
    """Two windowed aggregates side by side, and what came of it as events of a window."""
    one, other = (
        side.window(tg.tumbling("5 s"))
        .agg(**{name: tg.count()})
        .events(time="window_start")
        .key_by("user")
        .window(tg.tumbling("5 s"))
        for side, name in zip(keyed(left, right), ("views", "clicks"), strict=True)
    )
    both = one.join(other, how="left").events(time="left_window_end").key_by("user")
    totals = {name: tg.sum(name) for name in ("views", "clicks")}
    return both.window(tg.tumbling("10 s")).agg(windows=tg.count(), met=tg.count("clicks"), **totals)


Program = Callable[[Any, Any], Any]
PROGRAMS = {program.__name__: program for program in (panes, sessions, chain)}


def without_flush(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["user"] != "flush"]


def by_the_rules(program: Program, sides: Sides) -> list[Row]:
    """What the oracle says of all rows there are: nothing is late, and everything closes."""
    oracle = Oracle(program(*sides.frames()).node)
    return [*oracle.batch_of(sides.rows(), None).main, *oracle.end().main]


def complaints(program: Program, sides: Sides, expected: list[Row], found: list[Row]) -> list[str]:
    plan = program(*sides.frames()).node
    return row_differences(plan, "main", without_flush(expected), without_flush(found))


# -- streams, batches and the rules ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param("panes", marks=pytest.mark.versions("joins")), "sessions", "chain"]
)
def test_a_stop_and_other_partitions_change_nothing_and_batches_say_the_same(
    spark: Any, sides: Sides, name: str
) -> None:
    program, main = PROGRAMS[name], tg.sinks.memory()
    left, right = coming_and_going(300, 150, seed=0), coming_and_going(300, 150, seed=1)
    sides.write(left[:1], right[:1])
    run(program(*sides.streams()), sides.folder / "checkpoint", main=main)
    early = len(main.rows())
    sides.write(left[1:] + FLUSH, right[1:] + FLUSH)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        query = run(program(*sides.streams()), sides.folder / "checkpoint", main=main)
        answer = program(*sides.frames()).to_df().toArrow().to_pylist()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
    expected = by_the_rules(program, sides)
    assert len(expected) > 50
    assert 0 < early < len(expected)
    assert query.metrics["late_rows"] == 0
    assert complaints(program, sides, expected, main.rows()) == []
    assert complaints(program, sides, expected, answer) == []


def test_columns_that_are_never_null_are_so_beside_a_row_that_is_alone(spark: Any) -> None:
    """Spark knows of such columns, as `lit` makes them, and takes no nulls in their place."""
    views, clicks = (
        tg.events(spark.sql(f"select timestamp_micros({NOON}) ts, {user} user, 'x' note"), time="ts")
        .key_by("user")
        .window(tg.tumbling("10 s"))
        for user in ("'ann'", "cast(null as string)")
    )
    rows = views.join(clicks, how="full").to_df().orderBy("user").collect()
    notes = [(row.user, row.note_left, row.note_right) for row in rows]
    assert notes == [(None, None, "x"), ("ann", "x", None)]


# -- what is left in the state ---------------------------------------------------------------------


def stored_bytes(spark: Any, checkpoint: Path, **options: Any) -> int:
    """How much a query keeps; with `batchId`, how much it kept after that batch."""
    reader = spark.read.format("statestore").options(path=str(checkpoint), stateVarName="pages")
    pages = reader.options(**options).load()
    return int(pages.agg(F.sum(F.length("user_map_value.page"))).head()[0] or 0)


def test_state_returns_to_nearly_nothing_after_sessions_are_over(spark: Any, sides: Sides) -> None:
    batches = [[(i % 500 / 50, f"user-{i}", i) for i in range(5_000)]]
    sides.write(batches + FLUSH, batches + FLUSH)
    query = run(sessions(*sides.streams()), sides.folder / "checkpoint", main=tg.sinks.discard())
    assert query.metrics["joined_pairs"] == 5_000
    held = stored_bytes(spark, sides.folder / "checkpoint", batchId=0)
    left_over = stored_bytes(spark, sides.folder / "checkpoint")
    assert held > 100_000
    assert left_over < 10_000, "of a row on each side"


# -- a side that is silent -------------------------------------------------------------------------


def test_a_silent_side_does_not_hold_the_other_back_for_ever(sides: Sides) -> None:
    sides.write([[(1, "ann", 1), (2, "bob", 2)], [(60, "zoe", 3)]], [[(3, "ann", 4)]])
    left, right = sides.streams()
    shown = tg.events(left, time="ts").key_by("user").window(tg.tumbling("10 s"))
    clicked = tg.events(right, time="at", idle_after="1 second").key_by("user")
    main = tg.sinks.memory()
    joined = shown.join(clicked.window(tg.tumbling("10 s")), how="left")
    query = joined.start(checkpoint=sides.folder / "checkpoint", main=main)
    try:
        wait_until(query, lambda: len(main.rows()) == 2)
        # What the silent side brings then is late; what is not counts as always.
        sides.write([], [[(4, "bob", 5), (61, "zoe", 6)]])
        wait_until(query, lambda: len(main.rows()) == 3)
    finally:
        query.stop()
    assert numbers(main.rows()) == [(1, 4), (2, None), (3, 6)]
    assert query.metrics["late_rows"] == 1


def numbers(rows: list[Row]) -> list[tuple[Any, Any]]:
    """Pairs by their numbers."""
    return sorted(((row["shown"], row["click"]) for row in without_flush(rows)), key=repr)


# -- draining --------------------------------------------------------------------------------------


def test_draining_lets_unmatched_rows_go_and_nothing_comes_twice(sides: Sides) -> None:
    main = tg.sinks.memory()
    sides.write([[(1, "ann", 1), (2, "bob", 2), (3, "cid", 3), (3, "cid", 3)]], [[(4, "ann", 4)]])
    one, other = (side.window(tg.tumbling("10 s")) for side in keyed(*sides.streams()))
    query = run(one.join(other, how="left"), sides.folder / "checkpoint", main=main)
    assert numbers(main.rows()) == [(1, 4)]
    query.stop(drain=True)
    assert numbers(main.rows()) == [(1, 4), (2, None), (3, None), (3, None)]


def test_draining_finds_the_state_of_each_operator_where_several_feed_one(sides: Sides) -> None:
    main = tg.sinks.memory()
    sides.write(coming_and_going(150, 150, seed=0), coming_and_going(150, 150, seed=1))
    query = run(chain(*sides.streams()), sides.folder / "checkpoint", main=main)
    early = len(main.rows())
    query.stop(drain=True)
    expected = by_the_rules(chain, sides)
    assert 0 < early < len(expected)
    assert complaints(chain, sides, expected, main.rows()) == []
    first, second, join, last = states_of(sides.spark, str(sides.folder / "checkpoint"))
    assert first.identity["aggregates"][0]["name"] == "views"
    assert second.identity["aggregates"][0]["name"] == "clicks"
    assert (join.identity["operator"], join.identity["how"]) == ("join", "left")
    assert min(first.open, second.open, join.open, last.open) > 0


# -- batches that come again -----------------------------------------------------------------------


class FailsOnce:
    """Files, written whole; then the batch fails, before Spark knows that it was done."""

    def __init__(self, folder: Path, at: int) -> None:
        self.sink, self.at = tg.sinks.parquet(folder), at

    def prepare(self, target: Any) -> Any:
        write = self.sink.prepare(target)

        def fail(rows: Any, batch_id: int) -> None:
            write(rows, batch_id)
            if batch_id == self.at:
                raise RuntimeError("the lights went out")

        return fail


def outer(left: Any, right: Any) -> Any:
    one, other = keyed(left, right)
    hopping = other.window(tg.hopping("20 s", "5 s"))
    return one.window(tg.tumbling("10 s")).join(hopping, how="full", where="click % 7 <> 0")


def test_a_batch_that_comes_again_loses_and_doubles_nothing(sides: Sides) -> None:
    left, right = coming_and_going(240, 60, seed=0), coming_and_going(240, 60, seed=1)
    sides.write(left + FLUSH, right + FLUSH)
    out, checkpoint = sides.folder / "out", sides.folder / "checkpoint"
    with pytest.raises(Exception, match="the lights went out"):
        run(outer(*sides.streams()), checkpoint, main=FailsOnce(out, at=1))
    run(outer(*sides.streams()), checkpoint, main=tg.sinks.parquet(out))
    found = sides.spark.read.parquet(str(out)).toArrow().to_pylist()
    expected = by_the_rules(outer, sides)
    assert Counter(row["shown"] is None or row["click"] is None for row in expected)[True] > 5
    assert complaints(outer, sides, expected, found) == []


# -- Spark's own join ------------------------------------------------------------------------------

PER_SIDE, KEYS, PANE = 50_000, 2_000, "10 seconds"
NUMBERED = pa.schema([("ts", TIMESTAMP), ("key", pa.int64()), ("id", pa.int64())])


def generated(seed: int) -> list[pa.Table]:
    """Rows up to twenty seconds early, one in two hundred of one key; and a last one."""
    dice = np.random.default_rng(seed)
    time = np.sort(dice.integers(0, 500_000, PER_SIDE)) + dice.integers(0, 20_000, PER_SIDE)
    key = np.where(dice.random(PER_SIDE) < 0.005, 0, dice.integers(0, KEYS, PER_SIDE))
    whole = numbered(time, key, np.arange(PER_SIDE))
    half = PER_SIDE // 2
    return [whole[:half], whole[half:], numbered(*map(np.array, ([10_000_000], [-1], [-1])))]


def numbered(millis: np.ndarray, key: np.ndarray, number: np.ndarray) -> pa.Table:
    ts = pa.array(NOON + millis * 1000).cast(TIMESTAMP)
    return pa.table([ts, pa.array(key), pa.array(number)], schema=NUMBERED)


def sparks_pairs(left: Any, right: Any) -> Any:
    one, other = (
        events.withWatermark("ts", "30 seconds").select(
            "key", F.window("ts", PANE).alias("pane"), F.col("id").alias(name)
        )
        for events, name in ((left, "id_left"), (right, "id_right"))
    )
    return one.join(other, ["key", "pane"]).select("key", "pane.start", "id_left", "id_right")


def our_pairs(left: Any, right: Any) -> Any:
    one, other = (
        tg.events(events, time="ts", tolerance="30 seconds").key_by("key").window(tg.tumbling(PANE))
        for events in (left, right)
    )
    pairs = one.join(other).to_df().withColumnRenamed("left_window_start", "start")
    return pairs.select("key", "start", "id_left", "id_right")


def collected(df: Any, folder: Path) -> pl.DataFrame:
    """Everything a streaming frame puts out in append mode, in one order."""
    writer = df.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "ckpt"))
    writer.format("parquet").option("path", str(folder / "out")).start().awaitTermination()
    pairs = pl.read_parquet(str(folder / "out" / "*.parquet"))
    return pairs.filter(pl.col("key") >= 0).sort("id_left", "id_right")


def test_sparks_own_join_finds_the_same_pairs_and_ours_keeps_nothing(spark: Any, tmp_path: Path) -> None:
    for number, name in enumerate(("left", "right")):
        write_files(tmp_path / name, generated(seed=number))

    def streams() -> list[Any]:
        return [file_stream(spark, tmp_path / name, NUMBERED) for name in ("left", "right")]

    ours = collected(our_pairs(*streams()), tmp_path / "ours")
    theirs = collected(sparks_pairs(*streams()), tmp_path / "theirs")
    assert len(ours) > PER_SIDE // 2
    assert ours.equals(theirs)
    held = stored_bytes(spark, tmp_path / "ours" / "ckpt", batchId=1)
    left_over = stored_bytes(spark, tmp_path / "ours" / "ckpt")
    assert held > 100_000
    assert left_over < 10_000, "of a row on each side"


def test_outer_joins_of_keys_that_are_null_are_sparks_own(spark: Any, tmp_path: Path) -> None:
    """Keys of two names, on a stream that is drained: `=` and `<=>`."""
    users = (["ann", "bob", None, "ann", None], ["ann", "cid", None, None])
    for name, schema, values in zip(("left", "right"), (LEFT, PAID), users, strict=True):
        rows = [(float(at), user, at) for at, user in enumerate(values)]
        write_files(tmp_path / name, [table_of(rows, schema)])

    def sides_of(read: Callable[[Path, pa.Schema], Any]) -> tuple[Any, Any]:
        return read(tmp_path / "left", LEFT), read(tmp_path / "right", PAID)

    batch = sides_of(lambda folder, _: spark.read.parquet(str(folder)))
    for nulls_match, equal in ((False, "="), (True, "<=>")):
        one, other = (
            tg.events(events, time=time).key_by(key).window(tg.tumbling("10 s"))
            for events, time, key in zip(
                sides_of(lambda *given: file_stream(spark, *given)),
                ("ts", "at"),
                ("user", "payer"),
                strict=True,
            )
        )
        main = tg.sinks.memory()
        joined = one.join(other, how="full", nulls_match=nulls_match)
        run(joined, tmp_path / f"checkpoint-{nulls_match}", main=main).stop(drain=True)
        both = batch[0].join(batch[1], F.expr(f"user {equal} payer"), "full")
        expected = Counter(both.select("user", "payer", "shown", "click").collect())
        assert Counter((r["user"], r["payer"], r["shown"], r["click"]) for r in main.rows()) == expected


def test_buckets_without_rows_have_nothing_to_close(spark: Any) -> None:
    """Of a batch the first bucket always has a count; of sessions it may have none."""
    rows = spark.sql("select timestamp'2024-05-01 12:00:01Z' ts, 'ann' user, 1.5D price")
    left, right = (
        tg.events(df, time="ts").key_by("user").window(tg.session("5 s")) for df in (rows, rows.limit(9))
    )
    assert left.join(right, how="full").to_df(buckets=7).count() == 1
    nobody = tg.events(rows.limit(0), time="ts").key_by("user").window(tg.session("5 s"))
    assert nobody.join(right).to_df(buckets=7).count() == 0
