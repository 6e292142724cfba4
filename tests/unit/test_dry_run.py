"""Programs that are run dry, as users test theirs: batches, clock, transcripts, and what is noticed."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import ColumnNotFound, PlanError, WatermarkViolation
from tidegate.testing import (
    DryRun,
    IllegalChange,
    Stream,
    assert_rows,
    at,
    check,
    consolidate,
    rows,
    text,
)

CLICKS = Stream(
    pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string()), ("price", pa.float64())])
)
TEN = tg.tumbling("10 seconds")


def counted(**options):
    """Rows in windows of ten seconds, by user."""
    return tg.events(CLICKS, time="ts", **options).key_by("user").window(TEN).agg(n=tg.count())


# -- batches and the watermark ----------------------------------------------------------------------


def test_a_stream_that_stands_for_another_has_its_columns():
    with pytest.raises(ColumnNotFound, match="did you mean 'user'"):
        tg.events(CLICKS, time="ts").key_by("usr")


def test_batches_move_the_watermark_and_what_it_makes_due_leaves():
    run = DryRun(counted(tolerance="2 seconds"))
    assert run.watermark is None
    assert run.batch("ts | user \n 1 | ann \n 12 | ann").main == []
    assert run.watermark == at(10)
    [closed] = run.batch("").main
    assert closed == {"user": "ann", "window_start": at(0), "window_end": at(10), "n": 1}
    assert [row["window_start"] for row in run.end().main] == [at(10)]


def test_the_watermark_is_one_of_spark():
    run = DryRun(counted())
    run.batch([{"ts": at("1.2345"), "user": "ann"}])
    assert run.watermark == at("1.234")


def test_a_restart_changes_nothing():
    run = DryRun(counted())
    run.batch("ts | user \n 1 | ann")
    run.restart()
    run.batch("ts | user \n 2 | ann \n 10 | bob")
    assert [row["n"] for row in run.batch("").main] == [2]


def test_plans_run_as_spark_runs_them_optimized():
    final = tg.events(CLICKS, time="ts").window(TEN, allowed_lateness="1 hour").agg(n=tg.count())
    run = DryRun(final.emit(tg.emit.final()))
    run.batch("ts | user \n 1 | ann \n 10 | ann")
    assert [row["n"] for row in run.batch("").main] == [1]


def test_each_source_has_its_rows():
    joined = (tg.events(CLICKS, time="ts").key_by("user").window(TEN) for _ in range(2))
    run = DryRun(next(joined).join(next(joined)))
    got = run.batch("ts | user | price \n 1 | ann | 2", "ts | user | price \n 3 | ann | 4")
    assert [(row["price_left"], row["price_right"]) for row in got.main] == [(2.0, 4.0)]
    with pytest.raises(AssertionError, match="rows for 1 of 2 sources"):
        run.batch("")


def test_results_side_by_side_have_their_channels():
    clicks = tg.events(CLICKS, time="ts")
    both = tg.together(
        total=clicks.agg(n=tg.count()), users=clicks.key_by("user").agg(spend=tg.sum("price"))
    )
    got = DryRun(both).batch("ts | user | price \n 1 | ann | 2 \n 2 | bob | 3")
    assert [row["n"] for row in got.channels["total"]] == [2]
    assert_rows(got.channels["users"], [{"user": "bob", "spend": 3.0}, {"user": "ann", "spend": 2.0}])


def test_the_watermark_can_be_set():
    run = DryRun(counted(tolerance="2 seconds"))
    run.batch("ts | user \n 1 | ann")
    run.watermark = at(9.999999)
    assert run.watermark == at(9.999999)
    assert run.batch("").main == []
    run.watermark = at(10)
    got = run.batch("ts | user \n 2 | bob \n 11 | cid")
    assert ([row["user"] for row in got.main], got.watermark) == (["ann"], at(10))
    assert got.counts["late_rows"] == 1
    assert run.watermark == at(10)  # a row at 11 allows for 9
    run.batch("ts | user \n 22 | cid")
    assert run.watermark == at(20)


def test_the_watermark_can_be_set_before_any_row_and_counts_for_every_source():
    clicks = [tg.events(CLICKS, time="ts") for _ in range(2)]
    run = DryRun(clicks[0].union(clicks[1]).window(TEN).agg(n=tg.count()))
    run.batch("ts | user \n 1 | ann", "")
    assert run.watermark is None
    run.watermark = datetime(2024, 5, 1, 12, 0, 10)  # in UTC
    assert [row["n"] for row in run.batch("", "").main] == [1]
    run.restart()
    assert run.watermark == at(10)


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_the_watermark_may_be_anywhere_in_the_calendar(year):
    run = DryRun(counted())
    run.watermark = datetime(year, 6, 1, tzinfo=UTC)
    assert run.batch("").watermark == run.watermark == datetime(year, 6, 1, tzinfo=UTC)


def test_a_watermark_does_not_go_back():
    run = DryRun(counted())
    run.batch("ts | user \n 20 | ann")
    with pytest.raises(WatermarkViolation, match="went back from 2024-05-01 12:00:20"):
        run.watermark = at(19)
    run.watermark = at(20)
    assert run.watermark == at(20)


@pytest.mark.parametrize("given", [None, 10, "2024-05-01T12:00:10Z"])
def test_a_watermark_is_a_datetime(given):
    with pytest.raises(TypeError, match=r"a watermark is a datetime, such as testing.at\(60\), got"):
        DryRun(counted()).watermark = given


@pytest.mark.parametrize("given", ["SELECT 1", CLICKS, None])
def test_what_is_no_program_is_refused(given):
    with pytest.raises(PlanError, match=r"tidegate.sql.compile gives, got (str|Stream|NoneType)"):
        DryRun(given)


def test_processing_time_has_no_watermark_to_set():
    run = DryRun(tg.events(CLICKS, time=tg.processing_time()).window(TEN).agg(n=tg.count()))
    with pytest.raises(PlanError, match="processing time goes by `now`"):
        run.watermark = at(10)


def test_watermarks_are_datetimes_in_utc_wherever_they_are_shown():
    run = DryRun(counted())
    assert run.batch("ts | user \n 7 | ann").watermark is None
    shown = [run.watermark, run.batch("").watermark, run.end().watermark]
    assert shown == [at(7), at(7), datetime.max.replace(tzinfo=UTC)]
    assert all(one.tzinfo is UTC for one in shown)


def test_a_transcript_moves_the_watermark_on():
    check(
        counted(),
        """
        rows
          ts | user
          1  | ann
        rows
        advance_to 10
        watermark 10
        main
          user | window_start | window_end | n
          ann  | 0            | 10         | 1
        rows
        advance_to 2024-05-01T12:00:30Z
        watermark 2024-05-01T12:00:30Z
        """,
    )
    with pytest.raises(WatermarkViolation):
        check(counted(), "rows\nadvance_to 10\nrows\nadvance_to 9")


# -- the clock --------------------------------------------------------------------------------------


def test_processing_time_goes_by_the_clock():
    run = DryRun(tg.events(CLICKS, time=tg.processing_time()).window(TEN).agg(n=tg.count()))
    run.batch([{"user": "ann"}])
    run.now += timedelta(seconds=9)
    run.batch([{"user": "bob"}])
    run.now += timedelta(seconds=1)
    assert run.batch("").main == []
    assert run.watermark == at(10)
    assert [(row["window_end"], row["n"]) for row in run.batch("").main] == [(at(10), 2)]


def test_admission_goes_by_the_clock():
    admitted = tg.events(CLICKS, time="ts").admit(tg.sla(max_rate=1, capacity=1, max_lag="5 seconds"))
    run = DryRun(admitted)
    run.now = at(6)
    got = run.batch("ts | user \n 0 | ann \n 1 | bob")
    assert [row["user"] for row in got.main] == ["bob"]
    assert [row["reason"] for row in got.channels["rejected"]] == ["lag"]
    assert [row["user"] for row in run.batch("ts | user \n 2 | cid").main] == []
    run.now = at(7)
    assert [row["user"] for row in run.batch("ts | user \n 3 | dan").main] == ["dan"]


# -- transcripts ------------------------------------------------------------------------------------


def test_a_transcript_that_does_not_hold_shows_what_differs():
    with pytest.raises(AssertionError) as found:
        check(
            counted(),
            """
            rows
              ts | user
              1  | ann
              10 | bob
            rows
            watermark 9
            main
              user | window_start | window_end | n
              ann  | 0            | 10         | 2
            late_rows 1
            """,
        )
    assert str(found.value).splitlines() == [
        "transcript, batch 2, watermark: expected 9, got 10",
        "transcript, batch 2, main: missing",
        "user | window_start | window_end | n",
        "ann  | 0            | 10         | 2",
        "transcript, batch 2, main: not expected",
        "user | window_start | window_end | n",
        "ann  | 0            | 10         | 1",
        "transcript, batch 2, counters: expected {'late_rows': 1}, got {'late_rows': 0}",
    ]


def test_the_clock_of_a_transcript_stands_until_it_is_set():
    check(
        tg.events(CLICKS, time=tg.processing_time()).window(TEN).agg(n=tg.count()),
        """
        rows
          user
          ann
        now 5
        rows
          user
          bob
        watermark 5
        rows
        now 10
        watermark 5
        rows
        watermark 10
        main
          window_start | window_end | n
          0            | 10         | 2
        """,
    )


# -- rows and changelogs ----------------------------------------------------------------------------


def test_rows_are_compared_in_any_order_by_the_columns_that_are_expected():
    table = pa.table({"user": ["ann", "bob", "bob"], "n": [1, 2, 2]})
    assert_rows(table, "user | n \n bob | 2 \n bob | 2 \n ann | 1")
    assert_rows(table, "n \n 2 \n 1 \n 2")
    assert_rows(table.to_pylist(), "n \n 2 \n 1 \n 2", table.schema)
    assert_rows([], [])
    assert_rows([{"x": float("nan")}], [{"x": float("nan")}])


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        ("user | n \n bob | 2 \n ann | 1", "not expected\nuser | n\nbob  | 2"),
        ("n \n 2 \n 2 \n 1 \n 1", "missing\nn\n1"),
        ("n \n 2 \n 2 \n 3", "missing\nn\n3\nnot expected\nn\n1"),
        ("", "not expected\nuser | n\nann  | 1\nbob  | 2\nbob  | 2"),
    ],
)
def test_rows_that_differ_are_shown(expected, complaint):
    table = pa.table({"user": ["ann", "bob", "bob"], "n": [1, 2, 2]})
    with pytest.raises(AssertionError) as found:
        assert_rows(table, expected)
    assert str(found.value) == complaint


def test_text_without_types_is_refused():
    with pytest.raises(AssertionError, match="a schema"):
        assert_rows([{"n": 1}], "n \n 1")


def test_a_changelog_leaves_what_was_not_taken_back():
    run = DryRun(counted().emit(tg.emit.on_update()))
    changes = run.batch("ts | user \n 1 | ann \n 2 | bob").main
    changes += run.batch("ts | user \n 3 | ann").main
    assert_rows(
        consolidate(changes),
        "user | window_start | window_end | n \n ann | 0 | 10 | 2 \n bob | 0 | 10 | 1",
        run.plan.schema,
    )


@pytest.mark.parametrize("back", [{"n": 2, "op": "-U"}, {"n": 1, "m": 1, "op": "-D"}])
def test_what_is_not_out_cannot_be_taken_back(back):
    assert consolidate([{"n": 1, "op": "+I"}, {"n": 1, "op": "-D"}]) == []
    with pytest.raises(IllegalChange, match="takes back a row that is not there"):
        consolidate([{"n": 1, "op": "+I"}, back])


def test_times_may_be_written_in_full():
    schema = pa.schema([("ts", pa.timestamp("us", "UTC"))])
    written = rows(
        "ts \n 2024-05-01T12:00:07.5Z \n 2024-05-01T14:00:07.5+02:00 \n 2024-05-01T12:00:07.5", schema
    )
    assert written == [{"ts": at("7.5")}] * 3
    assert text([{"ts": at("123456.000001")}]) == "ts\n123456.000001"


DISTINCT = (
    tg.events(CLICKS, time="ts")
    .dedupe(on="user", within="10 seconds")
    .window(TEN)
    .agg(n=tg.count())
    .emit(tg.emit.on_update())
)


def test_a_transcript_knows_the_counters_of_every_operator():
    script = """
        rows
            ts | user
            1  | ann
            2  | ann
        duplicates_filtered {}
        main
            op | window_start | window_end | n
            +I | 0            | 10         | 1
    """
    check(DISTINCT, script.format(1))
    with pytest.raises(AssertionError, match="duplicates_filtered"):
        check(DISTINCT, script.format(2))


def test_a_transcript_with_an_unknown_word_says_which_there_are():
    with pytest.raises(ValueError, match=r"'duplicate_filtered' is no part .* 'duplicates_filtered'"):
        check(DISTINCT, "rows\nduplicate_filtered 1")
