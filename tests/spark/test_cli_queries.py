"""Jobs of files as queries, in one session: rows without windows, and what SELECT does to results."""

import json

import duckdb
import pytest

from tests.support.time_limits import HANG
from tidegate.connectors import location
from tidegate.errors import CheckpointDrained, CheckpointMismatch, PipelineError, StateError
from tidegate.pipeline.load import load
from tidegate.pipeline.start import start
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.query import Query

STREAM = """\
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
"""
ROWS = [
    {"ts": "2026-01-01T12:00:01Z", "user": "ann", "price": 1.5},
    {"ts": "2026-01-01T12:00:02Z", "user": "bob", "price": 4.0},
    {"ts": "2026-01-01T12:00:03Z", "user": "ann", "price": 2.5},
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clicks").mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "clicks" / "1.json").write_text(lines)
    return tmp_path


def run_sql(spark, folder, text):
    file = folder / "p.sql"
    file.write_text(STREAM + text)
    [job] = load(file)
    query = start(spark, job, once=True)
    query.await_termination()
    return query


SINK = "CREATE SINK out WITH (connector = 'files', path = 'out', format = 'json');\n"
WINDOWED = """INSERT INTO out SELECT user, window_start, window_end, count(*) AS n
FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)"""
WINDOWS = SINK.replace("out", "windows") + WINDOWED.replace("INTO out", "INTO windows")


def test_rows_pass_without_a_window(spark, folder):
    copied = SINK + "INSERT INTO out SELECT user, price * 2 AS twice FROM clicks WHERE price > 2"
    query = run_sql(spark, folder, copied)
    assert {name: count for name, count in query.metrics.items() if count} == {
        "rows_in": 2,
        "rows_out": 2,
    }
    lines = [line for file in (folder / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(map(json.loads, lines), key=repr) == [
        {"user": "ann", "twice": 5.0},
        {"user": "bob", "twice": 8.0},
    ]
    assert run_sql(spark, folder, copied).metrics["rows_in"] == 0, "the next start goes on"
    with pytest.raises(CheckpointMismatch, match="belongs to another program"):
        run_sql(spark, folder, SINK + WINDOWED)


PASSING = SINK + "INSERT INTO out SELECT user, price FROM clicks"


def test_programs_that_pass_rows_have_the_same_handle(spark, folder):
    """Each method and property answers; what there is nothing of is empty, or refused by name."""
    query = run_sql(spark, folder, PASSING)
    assert type(query) is Query
    assert not query.is_active
    assert query.watermarks == {}
    assert query.rows_out_in(0) == 3
    assert query.rows_out_in(7) is None
    assert (query.metrics["state_rows"], query.metrics["late_rows"]) == (0, 0)
    assert repr(query).endswith(": ended, batch 0, no watermark yet>")
    with pytest.raises(StateError, match="holds no running fold"):
        query.snapshot()
    assert query.await_termination(1)
    windowed = run_sql(spark, folder, WINDOWS)
    assert query.metrics.keys() <= windowed.metrics.keys()


def test_programs_that_pass_rows_can_be_drained(spark, folder):
    query = run_sql(spark, folder, PASSING)
    query.stop(drain=True)
    assert query.metrics["rows_out"] == 3
    with pytest.raises(CheckpointDrained, match="with batch 1: it is finished"):
        run_sql(spark, folder, PASSING)


def test_of_two_starts_that_pass_rows_the_last_owns_the_checkpoint(spark, folder):
    file = folder / "p.sql"
    file.write_text(STREAM + PASSING)
    [job] = load(file)
    query = start(spark, job)
    query.process_all_available()
    Ownership.next(location(job.checkpoint)).take()
    (folder / "clicks" / "2.json").write_text('{"ts": "2026-01-01T12:00:09Z", "user": "cid"}\n')
    with pytest.raises(Exception, match="has another owner"):
        query.await_termination(HANG)
    assert query.metrics["rows_out"] == 3


TABLE = "CREATE SINK out WITH (connector = 'duckdb', path = 'out.duckdb', table = 'spend');\n"


def test_a_table_has_what_having_and_select_leave(spark, folder):
    run_sql(
        spark,
        folder,
        TABLE
        + """
        INSERT INTO out
        SELECT user AS who, window_start, window_end AS until, sum(price) / count(*) AS each
        FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)
        HAVING count(*) > 1
        EMIT CHANGES
        """,
    )
    with duckdb.connect(str(folder / "out.duckdb")) as connection:
        found = connection.execute("SELECT who, each FROM spend").fetchall()
        columns = [row[0] for row in connection.execute("DESCRIBE spend").fetchall()]
    assert found == [("ann", 2.0)]
    assert columns == ["who", "window_start", "until", "each"]


def test_a_table_needs_what_tells_results_apart(spark, folder):
    with pytest.raises(PipelineError, match="the SELECT leaves out 'window_end'"):
        run_sql(spark, folder, TABLE + WINDOWED.replace(", window_end", ""))
