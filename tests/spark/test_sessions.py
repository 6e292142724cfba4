"""Sessions through real streaming queries; and Spark's own `session_window` as a second witness."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tidegate as tg
from tests.oracle import Oracle
from tests.spark.conftest import NOON, run, seconds, write_batches
from tests.spark.files import file_stream, write_files
from tests.support.plans import TIMESTAMP, plan_of, session
from tidegate.kernels import aggregates as a
from tidegate.testing import Changelog
from tidegate.testing.table import Row, instant_of

# -- stop and resume ------------------------------------------------------------------------------

CLICKS = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("price", pa.float64())])


def visits(rows: int, per_batch: int) -> list[list[tuple[float, str, float]]]:
    """Clicks of users who come and go, up to 24 seconds out of order: later batches bridge gaps."""
    clicks = [(i / 2 - i * 7919 % 13 * 2, f"user-{i * 31 % 17}", float(i % 10)) for i in range(rows)]
    return [clicks[i : i + per_batch] for i in range(0, rows, per_batch)]


def sessions_of(batches: list[Any]) -> list[Row]:
    """The sessions of all clicks, as the rules say."""
    plan = plan_of(session(8_500_000), (("n", a.Count(None)), ("spend", a.Sum("price"))), schema=CLICKS)
    oracle = Oracle(plan)
    clicks = [
        {"ts": instant_of(NOON + round(t * 1e6)), "user": user, "price": price}
        for batch in batches
        for t, user, price in batch
    ]
    oracle.batch(clicks, None)
    return oracle.results()


def assert_sessions(found: list[Row], expected: list[Row]) -> None:
    assert len(expected) > 100
    columns = ("user", "window_start", "window_end", "n", "spend")
    one, other = (
        sorted(tuple(row[name] for name in columns) for row in rows) for rows in (found, expected)
    )
    assert one == other


def visiting(stream: Any) -> Any:
    keyed = tg.events(stream, time="ts", tolerance="25 s").key_by("user")
    return keyed.window(tg.session("8500 ms")).agg(n=tg.count(), spend=tg.sum("price"))


FLUSH = [[(10_000.0, "flush", 0.0)]]


@pytest.mark.versions("sessions")
@pytest.mark.parametrize("emission", [tg.emit.on_watermark(), tg.emit.on_update()], ids=str)
def test_a_stop_in_the_middle_changes_nothing(spark: Any, tmp_path: Path, emission: Any) -> None:
    batches = visits(900, 150) + FLUSH
    main = tg.sinks.memory()
    for end in (3, 7):
        done = len(list((tmp_path / "in").glob("*.parquet")))
        write_batches(tmp_path / "in", batches[done:end], start=done)
        stream = file_stream(spark, tmp_path / "in", CLICKS)
        run(visiting(stream).emit(emission), tmp_path / "checkpoint", main=main)
    by_batch = [main.batches[batch].to_pylist() for batch in sorted(main.batches)]
    if emission == tg.emit.on_watermark():
        rows = [row for batch in by_batch for row in batch]
    else:
        table = Changelog(["user"])
        for batch in by_batch:
            table.apply(batch)
        rows = table.rows
        assert {row["op"] for batch in by_batch for row in batch} == {"+I", "-U", "+U", "-D"}
    assert_sessions([row for row in rows if row["user"] != "flush"], sessions_of(batches[:-1]))


# -- batch frames ---------------------------------------------------------------------------------


def test_batch_frames_give_the_final_answer(spark: Any) -> None:
    batches = visits(900, 900)
    df = spark.createDataFrame(batches[0], "t double, user string, price double").selectExpr(
        f"timestamp_micros({NOON} + cast(t * 1000000 as bigint)) ts", "user", "price"
    )
    rows = [row.asDict() for row in visiting(df).to_df().collect()]
    found = [row | {name: utc(row[name]) for name in ("window_start", "window_end")} for row in rows]
    assert_sessions(found, sessions_of(batches))


def utc(time: datetime) -> datetime:
    return instant_of(NOON + round(seconds(time) * 1e6))


def test_gaps_from_a_column_of_seconds(spark: Any) -> None:
    df = spark.sql(
        f"select timestamp_micros({NOON} + t * 1000000) ts, secs from values "
        "(0L, 30.0), (2L, 1.5), (30L, 0.5), (31L, 4.0), (60L, null), (61L, 0.0) as v(t, secs)"
    ).withColumn("idle", F.make_dt_interval(secs="secs"))
    sessions = tg.events(df, time="ts").window(tg.session(gap_column="idle", max_length="1 minute"))
    found = sessions.agg(n=tg.count()).to_df().orderBy("window_start").collect()
    assert [(seconds(r["window_start"]), seconds(r["window_end"]), r["n"]) for r in found] == [
        (0, 30.5, 3),
        (31, 35, 1),
    ]


@pytest.mark.parametrize(
    "gap", ["'soon'", "5", "make_interval(0, 0, 0, 0, 0, 0, 5)", "interval '3' month"]
)
def test_a_gap_column_of_another_type_is_refused(spark: Any, gap: str) -> None:
    df = spark.sql(f"select timestamp'2024-05-01' ts, {gap} idle")
    with pytest.raises(tg.errors.TypeMismatch, match=r"F\.make_dt_interval\(secs='idle'\)"):
        tg.events(df, time="ts").window(tg.session(gap_column="idle"))


def test_lateness_needs_a_strategy_that_can_take_back(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    keyed = tg.events(click_stream([[]]), time="ts").key_by("user")
    result = keyed.window(tg.session("10 s"), allowed_lateness="5 s").agg(n=tg.count())
    with pytest.raises(tg.errors.EmissionRefused, match=r"tg\.emit\.changelog\(\)"):
        result.start(checkpoint=tmp_path / "checkpoint", main=tg.sinks.memory())
    assert not (tmp_path / "checkpoint").exists()
    assert result.emit(tg.emit.changelog()).to_df().schema.names[-1] == "op"


# -- Spark's own sessions -------------------------------------------------------------------------

GAP, ROWS, KEYS, FILES = 10, 100_000, 1_000, 4
EVENTS = pa.schema([("ts", TIMESTAMP), ("key", pa.int64()), ("value", pa.int64())])


def generated(seed: int = 3) -> list[pa.Table]:
    """Rows at whole seconds, up to twenty of them early; a last row closes everything."""
    dice = np.random.default_rng(seed)
    time = np.sort(dice.integers(0, 500, ROWS)) + dice.integers(0, 20, ROWS)
    columns = [NOON + time * 1_000_000, dice.integers(0, KEYS, ROWS), dice.integers(0, 100, ROWS)]
    whole = events_table(*columns)
    size = ROWS // FILES
    end = events_table(*(np.array([value]) for value in (NOON + 10_000 * 1_000_000, -1, 0)))
    return [*(whole.slice(number * size, size) for number in range(FILES)), end]


def events_table(time: np.ndarray, key: np.ndarray, value: np.ndarray) -> pa.Table:
    return pa.table([pa.array(time).cast(TIMESTAMP), pa.array(key), pa.array(value)], schema=EVENTS)


def sparks_sessions(events: Any) -> Any:
    window = F.session_window("ts", f"{GAP} seconds")
    grouped = events.withWatermark("ts", "30 seconds").groupBy("key", window)
    return grouped.agg(F.count("*").alias("n"), F.sum("value").alias("total")).select(
        "key", "session_window.start", "session_window.end", "n", "total"
    )


def our_sessions(events: Any) -> Any:
    keyed = tg.events(events, time="ts", tolerance="30 seconds").key_by("key")
    result = keyed.window(tg.session(f"{GAP} seconds")).agg(n=tg.count(), total=tg.sum("value"))
    names = {"window_start": "start", "window_end": "end"}
    return result.to_df().withColumnsRenamed(names)


def collected(df: Any, folder: Path) -> pl.DataFrame:
    """Everything a streaming frame puts out in append mode."""
    writer = df.writeStream.trigger(availableNow=True).option("checkpointLocation", str(folder / "ckpt"))
    writer.format("parquet").option("path", str(folder / "out")).start().awaitTermination()
    files = pl.read_parquet(str(folder / "out" / "*.parquet"))
    return files.filter(pl.col("key") >= 0).sort("key", "start")


def test_sparks_own_session_window_finds_the_same_sessions(spark: Any, tmp_path: Path) -> None:
    tables = generated()
    rows = pl.from_arrow(pa.concat_tables(tables)).sort("key", "ts")
    apart = rows.select(pl.col("ts").diff().over("key").dt.total_seconds()).to_series()
    assert (apart == GAP).sum() > 1_000, "touching must matter"
    write_files(tmp_path / "in", tables)
    ours = collected(our_sessions(file_stream(spark, tmp_path / "in", EVENTS)), tmp_path / "ours")
    theirs = collected(sparks_sessions(file_stream(spark, tmp_path / "in", EVENTS)), tmp_path / "theirs")
    assert len(ours) > 5_000
    assert ours["n"].sum() == ROWS
    assert ours.equals(theirs.select(ours.columns))
