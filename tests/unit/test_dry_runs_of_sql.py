"""Queries of SQL and of pipeline files, run dry without Spark. Those with expressions: tests/spark."""

import pytest

from tests.unit.test_pipeline_files import FILE
from tidegate import sql
from tidegate.errors import PlanError, WatermarkViolation
from tidegate.testing import DryRun, at, check, load

FILES = "WITH (connector = files, path = p, format = json)"
STREAMS = f"""
CREATE STREAM clicks (
    ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) {FILES};
CREATE STREAM views (ts TIMESTAMP, user STRING, page STRING, WATERMARK FOR ts AS ts) {FILES};
CREATE STREAM numbers (ms BIGINT, user STRING) WITH (
    connector = files, path = p, format = json, eventtime.column = ms, eventtime.type = unixtimestamp_ms
);
CREATE SINK totals WITH (connector = 'console');
CREATE SINK pages WITH (connector = 'console');
CREATE SINK too_late WITH (connector = 'console');
"""
TEN = "TUMBLE(ts, INTERVAL '10' SECOND)"
COUNTS = f"SELECT user AS who, window_end AS until, count(*) AS n FROM clicks GROUP BY user, {TEN}"


def compiled(query: str) -> sql.Program:
    return sql.compile(STREAMS + query)


def test_a_program_of_one_query_is_run_with_the_columns_that_it_selects():
    run = DryRun(compiled(COUNTS))
    assert run.batch("ts | user | price \n 1 | ann | 2 \n 12 | bob | 3").main == []
    assert run.watermark == at(10)
    assert run.batch("").main == [{"who": "ann", "until": at(10), "n": 1}]
    assert run.channels["main"].names == ["who", "until", "n"]
    assert run.end().main == [{"who": "bob", "until": at(20), "n": 1}]


def test_a_transcript_of_sql():
    check(
        compiled(f"INSERT INTO totals {COUNTS}"),
        """
        rows
          ts | user
          1  | ann
          12 | bob
        watermark none
        rows
          ts | user
          3  | eve
        watermark 10
        main
          who | until | n
          ann | 10    | 1
        late_rows 1
        """,
    )


def test_late_rows_of_sql_have_their_channel():
    run = DryRun(compiled(f"INSERT INTO totals {COUNTS} LATE DATA TO too_late"))
    run.watermark = at(10)
    [late] = run.batch("ts | user \n 3 | eve").channels["too_late"]
    assert (late["user"], late["watermark"]) == ("eve", at(10))


def test_a_transcript_of_sql_that_does_not_hold_shows_the_columns_of_the_query():
    with pytest.raises(AssertionError) as found:
        check(
            compiled(COUNTS),
            "rows\n  ts | user\n  1 | ann\nrows\nadvance_to 10\nmain\n  who | until | n\n  ann | 10 | 2",
        )
    assert str(found.value).splitlines() == [
        "transcript, batch 2, main: missing",
        "who | until | n",
        "ann | 10    | 2",
        "transcript, batch 2, main: not expected",
        "who | until | n",
        "ann | 10    | 1",
    ]


def test_of_several_queries_one_is_given():
    program = compiled(
        f"INSERT INTO totals {COUNTS}; "
        f"INSERT INTO pages SELECT page, count(*) AS n FROM views GROUP BY page, {TEN};"
    )
    with pytest.raises(PlanError, match=r"a dry run takes one query, the program has 2: .*inserts"):
        DryRun(program)
    run = DryRun(program.inserts[1])
    run.batch("ts | page \n 1 | home \n 10 | home")
    assert run.batch("").main == [{"page": "home", "n": 1}]
    with pytest.raises(PlanError, match="the program has 0"):
        DryRun(compiled(""))


def test_streams_are_given_by_name_or_in_their_order():
    program = sql.compile(
        STREAMS
        + """
        SELECT c.user AS who, c.price AS price, v.page AS page
        FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS c
        JOIN TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS v ON c.user = v.user
        """
    )
    for given, named in (
        (("ts | user | price \n 1 | ann | 2", "ts | user | page \n 3 | ann | home"), {}),
        (
            (),
            {
                "views": "ts | user | page \n 3 | ann | home",
                "clicks": "ts | user | price \n 1 | ann | 2",
            },
        ),
    ):
        got = DryRun(program).batch(*given, **named)
        assert got.main == [{"who": "ann", "price": 2.0, "page": "home"}]
    run = DryRun(program)
    assert run.batch(clicks="ts | user | price \n 1 | ann | 2").main == []
    assert len(run.batch(views="ts | user | page \n 3 | ann | home").main) == 1
    with pytest.raises(AssertionError, match="no stream orders; there are clicks, views"):
        run.batch(orders="")
    with pytest.raises(AssertionError, match="rows for 1 of 2 sources"):
        run.batch("")
    with pytest.raises(AssertionError, match="in their order, or by the names"):
        run.batch("", views="")


def test_a_stream_that_is_read_twice_is_given_once():
    both = f"""
    WITH all_rows AS (SELECT ts, user FROM clicks UNION ALL SELECT ts, user FROM clicks)
    SELECT user, count(*) AS n FROM all_rows GROUP BY user, {TEN}
    """
    run = DryRun(compiled(both))
    run.batch("ts | user | price \n 1 | ann | 2 \n 13 | ann | 1")
    assert run.batch("").main == [{"user": "ann", "n": 2}]


def test_views_and_chains():
    hours = f"""
    CREATE VIEW tens AS SELECT user, count(*) AS n, window_end AS until FROM clicks GROUP BY user, {TEN};
    SELECT max(n) AS most, window_start FROM tens GROUP BY TUMBLE(until, INTERVAL '1' HOUR)
    """
    run = DryRun(compiled(hours))
    run.batch("ts | user \n 1 | ann \n 2 | ann \n 3 | bob \n 3602 | bob \n 7300 | bob")
    assert run.batch("").main == [
        {"most": 2, "window_start": at(0)},
        {"most": 1, "window_start": at(3600)},
    ]


def test_a_changelog_of_sql_has_its_changes():
    run = DryRun(compiled(f"{COUNTS} EMIT CHANGES"))
    first = run.batch("ts | user \n 1 | ann").main
    assert first == [{"who": "ann", "until": at(10), "n": 1, "op": "+I"}]
    assert [row["op"] for row in run.batch("ts | user \n 2 | ann").main] == ["-D", "+I"]


def test_a_time_that_spark_reads_is_given_as_event_time():
    query = (
        "SELECT user, count(*) AS n FROM numbers GROUP BY user, TUMBLE(event_time, INTERVAL '10' SECOND)"
    )
    run = DryRun(compiled(query))
    run.batch("event_time | ms | user \n 1 | 5 | ann \n 10 | 6 | ann")
    assert run.batch("").main == [{"user": "ann", "n": 1}]


def test_invalid_rows_have_their_channel():
    got = DryRun(compiled(COUNTS)).batch("ts | user \n null | ann")
    assert got.channels == {"errors": [{"reason": "event time 'ts' is null", "row": '{"user":"ann"}'}]}


def test_rows_that_only_pass():
    program = compiled("SELECT price AS spent, user FROM clicks")
    run = DryRun(program)
    got = run.batch("ts | user | price \n 1 | ann | 2")
    assert (got.main, got.counts, got.watermark) == (
        [{"spent": 2.0, "user": "ann"}],
        {"rows_in": 1},
        None,
    )
    assert run.channels["main"].names == ["spent", "user"]
    assert run.end().channels == {}
    run.restart()
    with pytest.raises(PlanError, match="only pass"):
        _ = run.plan
    with pytest.raises(PlanError, match="only event time has a watermark"):
        run.watermark = at(1)
    check(program, "rows\n  ts | user | price\n  1 | ann | 2\nmain\n  spent | user\n  2 | ann")


@pytest.mark.parametrize(
    ("query", "computed"),
    [
        (f"SELECT user, count(*) AS n FROM clicks WHERE price > 1 GROUP BY user, {TEN}", "price > 1"),
        (f"SELECT upper(user) AS u, count(*) AS n FROM clicks GROUP BY user, {TEN}", "upper(user)"),
        (f"SELECT user, count(*) AS n FROM clicks GROUP BY user, {TEN} HAVING count(*) > 1", "`n` > 1"),
        ("SELECT user FROM clicks WHERE price > 1", "price > 1"),
    ],
)
def test_what_spark_evaluates_needs_a_session(query, computed):
    for refused in (lambda p: DryRun(p), lambda p: check(p, "rows")):
        with pytest.raises(PlanError) as raised:
            refused(compiled(query))
        assert str(raised.value) == (
            f"Spark evaluates {computed!r}: give the dry run a session, as in "
            "DryRun(program, spark=spark) or check(program, script, spark=spark)"
        )


def test_pipeline_files(tmp_path):
    (tmp_path / "p.yaml").write_text(FILE, "utf-8")
    [query] = load(tmp_path / "p.yaml")
    run = DryRun(query)
    run.batch("ts | user \n 1 | ann \n 15 | ann")
    assert [(row["user"], row["n"]) for row in run.batch("").main] == [("ann", 1)]
    inserts = f"INSERT INTO totals {COUNTS}; INSERT INTO pages SELECT user, page FROM views;"
    (tmp_path / "p.sql").write_text(STREAMS + inserts, "utf-8")
    totals, pages = load(str(tmp_path / "p.sql"))
    assert DryRun(pages).batch("ts | user | page \n 1 | ann | home").main == [
        {"user": "ann", "page": "home"}
    ]
    assert DryRun(totals).channels["main"].names == ["who", "until", "n"]


def test_a_watermark_of_sql_can_be_set():
    run = DryRun(compiled(COUNTS))
    run.batch("ts | user \n 1 | ann")
    run.watermark = at(10)
    assert [row["n"] for row in run.batch("").main] == [1]
    with pytest.raises(WatermarkViolation):
        run.watermark = at(9)
