"""The clock inside queries: ticks, heartbeats, runs that end, and replays."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.spark import needs
from tests.spark.conftest import NOON, write_batches
from tests.support.time_limits import HANG
from tidegate.errors import PlanError
from tidegate.spark.sources.clock import clock

TICK = (-1, None)
AVAILABLE = {"availableNow": True}


class Batches:
    """A sink that keeps each batch; `fail_at` makes it fail once, before Spark commits the batch."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.rows: list[list[tuple[Any, ...]]] = []
        self.fail_at = fail_at
        self.after: Callable[[], None] = lambda: None

    def __call__(self, rows: Any, batch_id: int) -> None:
        self.rows.append(sorted(map(tuple, rows.collect()), key=repr))
        if batch_id == self.fail_at:
            raise RuntimeError("the sink fails")
        self.after()


def start(df: Any, checkpoint: Path, sink: Batches, **trigger: Any) -> Any:
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run(df: Any, checkpoint: Path, sink: Batches) -> None:
    assert start(df, checkpoint, sink, **AVAILABLE).awaitTermination(HANG), "the run does not end"


def run_until(query: Any, reached: Callable[[], bool]) -> None:
    """Let the query run until then, and stop it."""
    deadline = time.monotonic() + HANG
    try:
        while not reached():
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, "nothing happens"
            time.sleep(0.02)
    finally:
        query.stop()


def micros(rows: Any) -> Any:
    return rows.select("source", F.unix_micros("level"))


def watermarks(query: Any) -> list[str]:
    """The watermark of each batch that there was, in order."""
    found = {p.batchId: p.eventTime["watermark"] for p in query.recentProgress if p.eventTime}
    return [found[batch] for batch in sorted(found)]


def clicks(spark: Any, folder: Path) -> Any:
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


# -- ticks --------------------------------------------------------------------------------------


def test_ticks_make_batches_without_data(spark: Any, tmp_path: Path) -> None:
    sink = Batches()
    run_until(
        start(clock(spark, tick="50000"), tmp_path / "checkpoint", sink), lambda: len(sink.rows) > 2
    )
    assert set(map(tuple, sink.rows)) == {(TICK,)}


def test_a_run_over_what_is_there_has_one_tick_and_ends(spark: Any, tmp_path: Path) -> None:
    sink = Batches()
    for runs in (1, 2):
        run(clock(spark, tick="1000"), tmp_path / "checkpoint", sink)
        assert sink.rows == [[TICK]] * runs


def test_files_beside_the_clock_are_still_cut_into_batches(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", [[(i, "ann", 1.0)] for i in range(3)])
    rows = clicks(spark, tmp_path / "clicks").select(
        F.lit(7).alias("source"), F.col("ts").alias("level")
    )
    sink = Batches()
    run(micros(rows.union(clock(spark, tick="1000"))), tmp_path / "checkpoint", sink)
    assert sink.rows == [[TICK, (7, NOON)], [(7, NOON + 1_000_000)], [(7, NOON + 2_000_000)]]


# -- heartbeats ---------------------------------------------------------------------------------


class Pace:
    """Source 0 is active, source 1 has been silent for ever."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.file = folder / "progress.json"
        self.clock = clock(
            spark, progress=str(self.file), idle='{"1": 1000000}', tolerances="[0, 5000000]"
        )

    def reach(self, watermark: int) -> None:
        now = time.time_ns() // 1_000
        staged = self.file.with_suffix(".new")
        staged.write_text(
            json.dumps(
                {
                    "0": {"watermark": watermark, "seen_at": now},
                    "1": {"watermark": None, "seen_at": now - 60_000_000},
                }
            )
        )
        staged.rename(self.file)


@pytest.fixture
def pace(spark: Any, tmp_path: Path) -> Pace:
    return Pace(spark, tmp_path)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_heartbeats_follow_the_progress(spark: Any, pace: Pace, tmp_path: Path, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        sink = Batches()
        query = start(micros(pace.clock), tmp_path / "checkpoint", sink)
        time.sleep(0.2)
        pace.reach(NOON)
        sink.after = lambda: pace.reach(NOON + 1_000_000)
        run_until(query, lambda: len(sink.rows) > 1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert sink.rows == [[(1, NOON + 5_000_000)], [(1, NOON + 6_000_000)]]


@needs.admission_control
def test_a_run_over_what_is_there_follows_the_data(pace: Pace, tmp_path: Path) -> None:
    sink = Batches()
    pace.reach(NOON)
    sink.after = lambda: pace.reach(NOON + 1)
    run(micros(pace.clock), tmp_path / "checkpoint", sink)
    run(micros(pace.clock), tmp_path / "checkpoint", sink)
    assert sink.rows == [[(1, NOON + 5_000_000)], [(1, NOON + 5_000_001)]]


def test_a_replay_repeats_the_rows(pace: Pace, tmp_path: Path) -> None:
    """Whatever the progress says by then: what was tried once is tried again, then time goes on."""
    sink = Batches()
    for fails in (0, 1):
        sink.fail_at = fails
        pace.reach(NOON + fails)
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            run(micros(pace.clock), tmp_path / "checkpoint", sink)
    sink.fail_at = None
    pace.reach(NOON + 2)
    run(micros(pace.clock), tmp_path / "checkpoint", sink)
    first, second, third = ([(1, NOON + reached + 5_000_000)] for reached in range(3))
    assert sink.rows == [first, first, second, second, third]


@needs.admission_control
def test_a_heartbeat_lets_the_watermark_go_on(spark: Any, pace: Pace, tmp_path: Path) -> None:
    """Two sources, one of them without a row ever: Spark takes the lower watermark."""
    write_batches(tmp_path / "busy", [[(0, "ann", 1.0)]])
    write_batches(tmp_path / "silent", [[(-100, "ann", 1.0)]])
    busy = clicks(spark, tmp_path / "busy").select("ts").withWatermark("ts", "0 seconds")
    beats = pace.clock.filter("source = 1").select(F.col("level").alias("ts"))
    silent = clicks(spark, tmp_path / "silent").select("ts").union(beats)
    rows = busy.union(silent.withWatermark("ts", "5 seconds")).select(F.unix_micros("ts"))
    sink = Batches()
    sink.after = lambda: pace.reach(NOON)
    query = start(rows, tmp_path / "checkpoint", sink, **AVAILABLE)
    assert query.awaitTermination(HANG)
    assert sink.rows == [[(NOON - 100_000_000,), (NOON,)], [(NOON + 5_000_000,)]]
    # One more run shows the watermark that the last batch left behind.
    write_batches(tmp_path / "busy", [[(1, "ann", 1.0)]], start=1)
    query = start(rows, tmp_path / "checkpoint", sink, **AVAILABLE)
    assert query.awaitTermination(HANG)
    assert watermarks(query)[0] == "2024-05-01T12:00:00.000Z"


# -- processing time ----------------------------------------------------------------------------


def stamped(df: Any) -> Any:
    return df.withColumn("event_time", F.current_timestamp()).withWatermark("event_time", "0 seconds")


def test_rows_carry_their_batchs_time_and_a_replay_repeats_it(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", [[(i, f"u{n}", 1.0) for n in range(50)] for i in range(3)])
    rows = stamped(clicks(spark, tmp_path / "clicks").select("user").repartition(3))
    sink = Batches(fail_at=1)
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run(rows, tmp_path / "checkpoint", sink)
    time.sleep(0.1)
    sink.fail_at = None
    run(rows, tmp_path / "checkpoint", sink)
    stamps = [{row[1] for row in batch} for batch in sink.rows]
    assert [len(batch) for batch in stamps] == [1, 1, 1, 1]
    assert stamps[1] == stamps[2]
    assert [len(batch) for batch in sink.rows] == [50] * 4
    [first], [second], _, [third] = stamps
    assert first < second < third


def test_the_watermark_of_stamped_rows_goes_on_by_ticks_alone(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", [[(0, "ann", 1.0)]])
    ticks = clock(spark, tick="50000").select(F.lit(None).cast("string").alias("user"))
    rows = stamped(clicks(spark, tmp_path / "clicks").select("user").union(ticks))
    sink, started = Batches(), datetime.now(UTC).isoformat()
    query = start(rows, tmp_path / "checkpoint", sink)
    run_until(query, lambda: len(watermarks(query)) > 4)
    marks = watermarks(query)
    assert [user for batch in sink.rows[1:] for user, _ in batch if user] == []
    assert marks[1:] == sorted(set(marks[1:]))
    assert marks[-1] > started


# -- options ------------------------------------------------------------------------------------


def test_wrong_options_are_refused_at_once(spark: Any) -> None:
    with pytest.raises(PlanError, match="a tick must be greater than zero, got -5"):
        clock(spark, tick="-5")
