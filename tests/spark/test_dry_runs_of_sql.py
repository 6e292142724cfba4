"""Queries of SQL with conditions and expressions, run dry: Spark evaluates these, and nothing else."""

from typing import Any

import pytest

from tests.unit.test_dry_runs_of_sql import COUNTS, STREAMS, TEN
from tidegate import sql
from tidegate.testing import DryRun, at, check

PRICES = "ts | user | price \n 1 | ann | 2 \n 2 | bob | 0.5 \n 3 | ann | 4 \n null | eve | 9"


def compiled(spark: Any, query: str) -> sql.Program:
    return sql.compile(STREAMS + query, spark=spark)


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(spark: Any, request: Any) -> Any:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def test_conditions_and_expressions_before_and_behind_the_windows(spark: Any, zone: str) -> None:
    query = f"""
        SELECT upper(user) AS who, window_end AS until, sum(price * 2) AS twice
        FROM clicks WHERE price > 1 OR price IS NULL
        GROUP BY user, {TEN} HAVING sum(price * 2) > 4
    """
    run = DryRun(compiled(spark, query), spark=spark)
    assert run.channels["main"].names == ["who", "until", "twice"]
    got = run.batch(PRICES)
    assert [row["reason"] for row in got.channels["errors"]] == ["event time 'ts' is null"]
    run.batch("ts | user | price \n 4 | cid | 1.5 \n 12 | ann | 3")
    assert run.batch("").main == [{"who": "ANN", "until": at(10), "twice": 12.0}]
    assert run.end().main == [{"who": "ANN", "until": at(20), "twice": 6.0}]


def test_a_batch_that_having_leaves_nothing_of_has_no_rows(spark: Any) -> None:
    run = DryRun(compiled(spark, f"{COUNTS} HAVING count(*) > 1"), spark=spark)
    run.batch("ts | user \n 1 | ann")
    run.watermark = at(10)
    got = run.batch("")
    assert (got.main, got.channels) == ([], {})


def test_a_transcript_with_expressions(spark: Any, zone: str) -> None:
    check(
        compiled(spark, f"SELECT user || '!' AS who, max(ts) AS new FROM clicks GROUP BY user, {TEN}"),
        """
        rows
          ts | user
          1  | ann
          3  | ann
        rows
        advance_to 10
        main
          who  | new
          ann! | 3
        """,
        spark=spark,
    )


def test_a_union_with_values_of_its_own(spark: Any) -> None:
    both = f"""
        WITH everything AS (
            SELECT ts, user, price FROM clicks UNION ALL SELECT ts, user, 0.5D FROM views
        )
        SELECT user, sum(price) AS total FROM everything GROUP BY user, {TEN}
    """
    run = DryRun(compiled(spark, both), spark=spark)
    run.batch(clicks="ts | user | price \n 1 | ann | 2", views="ts | user | page \n 2 | ann | home")
    run.watermark = at(10)
    assert run.batch("", "").main == [{"user": "ann", "total": 2.5}]


def test_a_time_that_spark_reads_passes_conditions(spark: Any) -> None:
    ten = TEN.replace("ts", "event_time")
    query = f"SELECT user, count(*) AS n FROM numbers WHERE ms > 5 GROUP BY user, {ten}"
    run = DryRun(compiled(spark, query), spark=spark)
    run.batch("event_time | ms | user \n 1 | 5 | ann \n 2 | 6 | ann \n 10 | 7 | ann")
    assert run.batch("").main == [{"user": "ann", "n": 1}]


def test_rows_that_only_pass(spark: Any) -> None:
    query = "SELECT user, price * 2 AS twice, year(ts) AS year FROM clicks WHERE price > 1"
    run = DryRun(compiled(spark, query), spark=spark)
    got = run.batch("ts | user | price \n 1 | ann | 2 \n 2 | bob | 1")
    assert got.main == [{"user": "ann", "twice": 4.0, "year": 2024}]
    assert got.counts == {"rows_in": 2}


def test_the_dry_run_says_what_spark_says_of_the_same_rows(spark: Any) -> None:
    """The same query over a DataFrame, as a batch."""
    query = f"""
        SELECT user, window_start AS since, count(*) + 1 AS more FROM clicks WHERE user LIKE '%n'
        GROUP BY user, {TEN}
    """
    rows = "ts | user | price \n 1 | ann | 2 \n 12 | ann | 3 \n 13 | bob | 3 \n 14 | ben | 3"
    run = DryRun(compiled(spark, query), spark=spark)
    answered = [*run.batch(rows).main, *run.end().main]
    times = ", ".join(f"(timestamp'2024-05-01 12:00:{s:02}Z', '{u}')" for s, u in SEEN)
    expected = spark.sql(f"""
        SELECT user, window.start AS since, count(*) + 1 AS more FROM VALUES {times} AS t(ts, user)
        WHERE user LIKE '%n' GROUP BY user, window(ts, '10 seconds')
    """).toArrow()
    told = {(row["user"], row["since"], row["more"]) for row in answered}
    assert told == {(row["user"], row["since"], row["more"]) for row in expected.to_pylist()}
    assert len(answered) == 3


SEEN = [(1, "ann"), (12, "ann"), (13, "bob"), (14, "ben")]
