"""Rows that are packed where they are read: on or off, everything that comes out is the same."""

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import tidegate as tg
from tests.spark import needs
from tests.spark.conftest import write_batches

SCHEMA = "ts timestamp, user string, price double"
APART = tg.fusion(read=False)


def clicks(seed: int, batches: int = 4, rows: int = 300) -> list[list[tuple[Any, Any, Any]]]:
    """Out of order, some late, some without a time or a user, one from the year 9999."""
    chance = random.Random(seed)
    made = [
        [
            (number * 100 + chance.randrange(-150, 100), chance.choice(["ann", "bob", None]), 1.5)
            for _ in range(rows)
        ]
        for number in range(batches)
    ]
    made[0][5] = (None, "eve", None)
    made[-1][7] = (251_000_000_000, "far", 2.0)
    return made


def folder(spark: Any, path: Path, **options: Any) -> Any:
    return tg.read_folder(spark, path, schema=SCHEMA, format="parquet", **options)


class Outcome:
    """All that queries from one checkpoint put out."""

    def __init__(self, checkpoint: Path, *channels: str) -> None:
        self.checkpoint = checkpoint
        self.sinks = {name: tg.sinks.memory() for name in channels or ("main", "errors", "late")}
        self.counts: dict[str, float] = {}

    def run(self, result: Any, **options: Any) -> "Outcome":
        query = result.start(
            checkpoint=self.checkpoint, trigger={"availableNow": True}, **self.sinks, **options
        )
        query.await_termination()
        for name, count in query.metrics.items():
            self.counts[name] = self.counts.get(name, 0) + count
        return self

    def rows(self) -> dict[str, list[str]]:
        return {name: sorted(map(str, sink.rows())) for name, sink in self.sinks.items()}


def hopping(rows: Any) -> Any:
    events = tg.events(rows, time="ts", tolerance="30 s").filter(lambda frame: frame["price"] > 1)
    windows = events.key_by("user").window(
        tg.hopping("60 s", "20 s"), late=tg.late.side_output("late"), allowed_lateness="10 s"
    )
    return windows.agg(n=tg.count(), spend=tg.sum("price")).emit(tg.emit.changelog())


@needs.admission_control
def test_what_comes_out_is_the_same(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", clicks(1))
    reading = {"max_rows": 300}
    wanted = Outcome(tmp_path / "apart").run(
        hopping(folder(spark, tmp_path / "in", **reading)), fusion=APART
    )
    got = Outcome(tmp_path / "packed").run(hopping(folder(spark, tmp_path / "in", **reading)))
    assert got.rows() == wanted.rows()
    assert got.counts == wanted.counts
    assert got.counts["rows_in"] == 1200
    assert got.counts["errors"] == 2
    assert got.counts["late_rows"] > 20


@needs.admission_control
def test_a_query_goes_on_with_the_other_way_of_reading(spark: Any, tmp_path: Path) -> None:
    parts = Outcome(tmp_path / "parts")
    for number, batch in enumerate(clicks(2, batches=3)):
        write_batches(tmp_path / "in", [batch], start=number)
        reading = folder(spark, tmp_path / "in", max_rows=300)
        parts.run(hopping(reading), fusion=APART if number % 2 else None)
    whole = Outcome(tmp_path / "whole").run(
        hopping(folder(spark, tmp_path / "in", max_rows=300)), fusion=APART
    )
    assert parts.rows() == whole.rows()


@pytest.mark.versions("read_folder")
def test_several_folders_side_by_side_and_united(spark: Any, tmp_path: Path) -> None:
    for seed, name in ((3, "one"), (4, "two")):
        write_batches(tmp_path / name, clicks(seed, batches=2))

    def results() -> Any:
        one, two = (
            tg.events(folder(spark, tmp_path / name), time="ts", tolerance="5 minutes")
            for name in ("one", "two")
        )
        sessions = one.union(two).key_by("user").window(tg.session("3 s"))
        totals = one.key_by("user").agg(n=tg.count())
        return tg.together(visits=sessions.agg(n=tg.count(), most=tg.max("price")), totals=totals)

    channels = ("visits", "totals", "errors")
    wanted = Outcome(tmp_path / "apart", *channels).run(results(), fusion=APART)
    got = Outcome(tmp_path / "packed", *channels).run(results())
    assert got.rows() == wanted.rows()
    assert got.counts == wanted.counts


def test_only_rows_as_they_were_read_are_packed_there(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", clicks(5, batches=1))

    def plan(rows: Any, **options: Any) -> str:
        return tg.events(rows, time="ts", **options).key_by("user").agg(n=tg.count()).plan_text()

    rows = folder(spark, tmp_path / "in")
    assert "Fused[read, FoldPreAggregate" in plan(rows)
    assert "read" not in plan(rows.filter("price > 1"))
    assert "read" not in plan(rows.withColumn("price", F.lit(0.0)))
    assert "read" not in plan(rows, max_future="1 day")
    text = tg.events(rows, time="ts").key_by("user").agg(n=tg.count()).plan_text(APART)
    assert "read" not in text


TYPES = """
    cast(1 as tinyint) b, 3L l, cast(0.1 as float) f, cast(1e-5 as double) d,
    cast(1.50 as decimal(10,2)) m, 'häß"\\n/' s, true t, cast('ab' as binary) raw,
    date'2024-05-01' day, map('k', 1) lookup, timestamp'2024-05-01 12:00:00.123456' at,
    timestamp_ntz'2024-05-01 12:00:00.5' local, array(1, null, 2) many,
    named_struct('x', 1, 'y', cast(null as int)) inner, cast(null as int) nothing,
    cast('NaN' as double) nan, cast(12345678.9 as double) big
"""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_broken_rows_are_shown_as_spark_shows_them(spark: Any, tmp_path: Path, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        rows = spark.sql(f"select cast(null as timestamp) ts, {TYPES}")
        rows.coalesce(1).write.option("compression", "none").parquet(str(tmp_path / "in"))
        stream = tg.read_folder(spark, tmp_path / "in", schema=rows.schema, format="parquet")
        counted = tg.events(stream, time="ts").agg(n=tg.count())
        errors = []
        for fusion in (APART, None):
            sink = tg.sinks.memory()
            counted.start(
                checkpoint=tmp_path / str(fusion),
                trigger={"availableNow": True},
                fusion=fusion,
                main=tg.sinks.discard(),
                errors=sink,
            ).await_termination()
            errors.append(sink.rows())
        assert len(errors[0]) == 1
        assert errors[0] == errors[1]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@needs.admission_control
def test_a_batch_has_no_more_rows_than_it_may(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", clicks(6))
    result = tg.events(folder(spark, tmp_path / "in", max_rows=500), time="ts").agg(n=tg.count())
    query = result.start(
        checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True}, main=tg.sinks.discard()
    )
    query.await_termination()
    rows = [batch.observedMetrics["tidegate"]["rows_in"] for batch in query.spark.recentProgress]
    assert [number for number in rows if number] == [500, 500, 200]
