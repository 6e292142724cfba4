"""What a plan refuses is told in the words of the language that the program is written in."""

import pickle

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.test_pipeline_files import plan as yaml_plan
from tidegate import sql, testing
from tidegate.errors import ColumnNotFound, EmissionRefused, PipelineError, PlanError, SqlError, Term

CLICKS = testing.Stream(
    pa.schema(
        {
            "ts": pa.timestamp("us", "UTC"),
            "user": pa.string(),
            "price": pa.float64(),
            "ms": pa.int64(),
            "event_time": pa.string(),
        }
    )
)
STREAM = """
CREATE STREAM clicks (
    ts TIMESTAMP, user STRING, price DOUBLE, ms BIGINT, event_time STRING,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (connector = files, path = clicks, format = json);
"""
STREAMS = """\
streams:
  clicks:
    connector: files
    format: json
    path: clicks
    columns: {ts: timestamp, user: string, price: double, ms: bigint, event_time: string}
    eventtime: {column: ts}
"""
BY_USER = tg.events(CLICKS, time="ts", tolerance="5 s").key_by("user")
MINUTE = tg.tumbling("1 min")


def windows(rest: str = "", window: str = "{tumbling: 1 min}", aggregates: str = "{n: count}") -> str:
    return f"- key_by: [user]\n  window: {window}\n  aggregates: {aggregates}\n{rest}"


#: What each language says: Python, SQL, YAML; None where it cannot get that far.
REFUSED = {
    "sessions that merge late": (
        lambda: (
            BY_USER.window(tg.session("1 min"), allowed_lateness="5 s")
            .agg(n=tg.count())
            .emit(tg.emit.on_watermark())
        ),
        "on_watermark() with allowed_lateness=5 seconds: late rows can merge sessions that have been "
        "emitted, and plain rows cannot take them back; use tg.emit.changelog(), or "
        "tg.emit.on_window_close() for one row a session",
        "SELECT user, count(*) AS n FROM clicks GROUP BY user, SESSION(ts, INTERVAL '1' MINUTE) "
        "ALLOW LATENESS INTERVAL '5' SECOND",
        "on_watermark() with ALLOW LATENESS 5 seconds: late rows can merge sessions that have been "
        "emitted, and plain rows cannot take them back; use EMIT CHANGES, or EMIT ON WINDOW CLOSE for "
        "one row a session",
        windows("  allowed_lateness: 5 s", "{session: 1 min}"),
        "on_watermark() with 'allowed_lateness: 5 seconds': late rows can merge sessions that have been "
        "emitted, and plain rows cannot take them back; use 'emit: changelog', or "
        "'emit: on_window_close' for one row a session",
    ),
    "a window around each row, emitted otherwise": (
        lambda: (
            BY_USER.window(tg.sliding("10 s")).agg(n=tg.count()).emit(tg.emit.changelog())
        ),
        "changelog over sliding(10 seconds): each row has one result, which is final; leave emit() out",
        "SELECT user, ts, count(*) AS n FROM clicks GROUP BY user, slidingwindow('ss', 10) EMIT CHANGES",
        "changelog over sliding(10 seconds): each row has one result, which is final; leave EMIT out",
        windows("  emit: changelog", "{sliding: 10 s}"),
        "changelog over sliding(10 seconds): each row has one result, which is final; leave 'emit' out",
    ),
    "a window around each row with lateness": (
        lambda: BY_USER.window(tg.sliding("10 s"), allowed_lateness="5 s"),
        "sliding(10 seconds) with allowed_lateness=5 seconds: the window around a row is emitted once",
        "SELECT user, ts, count(*) AS n FROM clicks GROUP BY user, slidingwindow('ss', 10) "
        "ALLOW LATENESS INTERVAL '5' SECOND",
        "sliding(10 seconds) with ALLOW LATENESS 5 seconds: the window around a row is emitted once",
        windows("  allowed_lateness: 5 s", "{sliding: 10 s}"),
        "sliding(10 seconds) with 'allowed_lateness: 5 seconds': the window around a row is emitted",
    ),
    "an aggregate that cannot be merged": (
        lambda: BY_USER.window(MINUTE).agg(half=tg.median("price")),
        "use a mergeable one, such as tg.quantile('column', 0.5) for a median",
        "SELECT user, median(price) AS half FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)",
        "use a mergeable one, such as percentile(column, 0.5) for a median",
        None,
        None,
    ),
    "changes that would go on as events": (
        lambda: (
            BY_USER.window(MINUTE)
            .agg(n=tg.count())
            .emit(tg.emit.changelog())
            .events(time="window_end")
        ),
        "events(time='window_end'): results of changelog take others back, and cannot go on as events; "
        "use tg.emit.on_window_close()",
        "WITH m AS (SELECT user, count(*) AS n, window_end FROM clicks "
        "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT CHANGES) "
        "SELECT user, max(n) AS most FROM m GROUP BY user, TUMBLE(window_end, INTERVAL '1' HOUR)",
        "results of changelog take others back, and cannot go on as events; use EMIT ON WINDOW CLOSE",
        windows("  emit: changelog\n") + windows("  time: window_end"),
        "results of changelog take others back, and cannot go on as events; "
        "use 'emit: on_window_close'",
    ),
    "an aggregate with the name of a key": (
        lambda: BY_USER.window(MINUTE).agg(user=tg.count()),
        "agg() names 'user', which is a column already",
        None,
        None,
        windows(aggregates="{user: count}"),
        "'aggregates' names 'user', which is a column already",
    ),
}  # fmt: skip
OTHERS = {"sql": ("tg.", "allowed_lateness", "time_type"), "yaml": ("tg.", "EMIT", "LATENESS", "agg()")}


@pytest.mark.parametrize("name", REFUSED)
def test_python_is_told_what_to_write_in_python(name):
    build, told, *_ = REFUSED[name]
    with pytest.raises(PlanError) as raised:
        build()
    assert told in str(raised.value)


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case[2]])
def test_sql_is_told_what_to_write_in_sql(name):
    _, _, select, told, *_ = REFUSED[name]
    with pytest.raises(SqlError) as raised:
        sql.compile(STREAM + select)
    assert told in raised.value.problem
    assert [word for word in (*OTHERS["sql"], "events(") if word in raised.value.problem] == []


@pytest.mark.parametrize("name", [name for name, case in REFUSED.items() if case[4]])
def test_a_pipeline_file_is_told_what_to_write_there(name):
    *_, operators, told = REFUSED[name]
    with pytest.raises(PipelineError) as raised:
        yaml_plan(operators, streams=STREAMS)
    assert told in str(raised.value)
    assert [word for word in (*OTHERS["yaml"], "events(") if word in str(raised.value)] == []


NUMBER = "event time column 'ms' has type int64, but event-time type 'timestamp' reads timestamps; use "


def test_the_type_of_a_time_is_written_as_each_language_writes_it():
    with pytest.raises(PlanError) as python:
        tg.events(CLICKS, time="ms")
    assert str(python.value) == NUMBER + (
        'time_type="unixtimestamp_s" or "unixtimestamp_ms" or "unixtimestamp_us"'
    )
    with pytest.raises(SqlError) as in_sql:
        sql.compile(STREAM.replace("FOR ts AS ts", "FOR ms AS ms"))
    assert in_sql.value.problem == NUMBER + (
        "'eventtime.type' = 'unixtimestamp_s' or 'unixtimestamp_ms' or 'unixtimestamp_us'"
    )
    with pytest.raises(PipelineError) as in_yaml:
        yaml_plan(windows(), streams=STREAMS.replace("{column: ts}", "{column: ms}"))
    assert NUMBER + "type: unixtimestamp_s or unixtimestamp_ms or unixtimestamp_us" in str(in_yaml.value)


def test_a_column_that_the_stream_would_add_twice():
    taken = " 'event_time', which is a column already"
    with pytest.raises(PlanError, match=f"events\\(\\) adds{taken}"):
        tg.events(CLICKS, time="ms", time_type="unixtimestamp_ms")
    with pytest.raises(SqlError, match=f"the stream adds{taken}"):
        sql.compile(
            STREAM.replace("FOR ts AS ts", "FOR ms AS ms").replace(
                "format = json", "format = json, eventtime.type = unixtimestamp_ms"
            )
        )
    with pytest.raises(PipelineError, match=f"the stream adds{taken}"):
        yaml_plan(
            windows(), streams=STREAMS.replace("{column: ts}", "{column: ms, type: unixtimestamp_ms}")
        )


def test_text_of_the_user_is_never_taken_for_a_term():
    """A column may be called anything: what it is called is shown as it is."""
    odd = pa.schema([("tg.emit.changelog()", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
    with pytest.raises(ColumnNotFound) as raised:
        tg.events(testing.Stream(odd), time="tg.emit.changelog() {python}")
    assert "'tg.emit.changelog()'" in raised.value.written_in("sql")
    stream = "CREATE STREAM s (`time_type=` STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH ("
    with pytest.raises(SqlError, match="'time_type='"):
        sql.compile(f"{stream}connector = files, path = p, format = json); SELECT nothing FROM s")


def test_an_error_with_terms_survives_a_trip_to_another_process():
    error = EmissionRefused("use ", Term("a()", sql="A", yaml="'a'"))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (EmissionRefused, "use a()")
    assert [again.written_in(one) for one in ("sql", "yaml")] == ["use A", "use 'a'"]
