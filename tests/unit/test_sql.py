"""SQL and the API give the same plan, node for node; what Spark does around it is text."""

import pyarrow as pa
import pytest

import tidegate as tg
from tests.support.plan_facts import facts
from tests.support.stub_analyzer import StubAnalyzer
from tidegate import sql
from tidegate.api.events import Events
from tidegate.dataflow import compile
from tidegate.errors import SqlError
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import declare_source
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.sql import Insert, Program, Projection, SinkTable, Stream
from tidegate.sql.compiler import program_of
from tidegate.sql.source import Text

CLICKS = pa.schema(
    [("ts", TIMESTAMP), ("user", pa.string()), ("shop", pa.int64()), ("price", pa.float64())]
)
FILES = "WITH (connector = 'files', path = 'in', format = 'json')"
DECLARED = f"""
CREATE STREAM clicks (
    ts TIMESTAMP, user STRING, shop BIGINT, price DOUBLE,
    WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) {FILES};
CREATE STREAM views (
    ts TIMESTAMP, user STRING, shop BIGINT, price DOUBLE, WATERMARK FOR ts AS ts
) {FILES};
CREATE SINK results WITH (connector = 'console');
CREATE SINK too_late WITH (connector = 'discard');
"""
CLICK_EVENTS = Events((), declare_source(CLICKS, "ts", tolerance="5 seconds"))
BY_USER = CLICK_EVENTS.key_by("user")
COUNTED = {"n": tg.count()}
EACH_MINUTE = "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)"
COUNTED_PAIR = "CASE WHEN (price) IS NOT NULL AND (shop) IS NOT NULL THEN 1 END"
DISTINCT_PAIR = (
    "concat(length(CAST(user AS STRING)), ':', CAST(user AS STRING), ':', "
    "length(CAST(shop AS STRING)), ':', CAST(shop AS STRING))"
)


def query(text: str, **types: pa.DataType) -> Insert:
    """The one query of a text over the declared streams; Spark tells no other types than these."""
    program = program_of(Text(DECLARED + text), analyzer=StubAnalyzer(types))
    [only] = (*program.inserts, *program.selects)
    return only


def computed(insert: Insert) -> tuple[tuple[str, str], ...]:
    """The columns that rows have beside those of the stream, and what they are."""
    [read] = insert.inputs
    [step] = read.steps
    known = len(read.stream.schema)
    assert step.columns[:known] == tuple((name, f"`{name}`") for name in read.stream.schema.names)
    return step.columns[known:]


def shown(insert: Insert) -> tuple[tuple[str, str], ...]:
    """The columns of the one step behind the plan."""
    [step] = insert.steps
    return step.columns


def counted(window: str, clauses: str = "") -> Insert:
    """Rows counted by user and window."""
    return query(
        f"SELECT user, window_start, window_end, count(*) AS n FROM clicks "
        f"GROUP BY user, {window} {clauses}"
    )


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("TUMBLE(ts, INTERVAL '10' SECOND)", tg.tumbling("10 s")),
        ("tumble(ts, INTERVAL 10 SECONDS)", tg.tumbling("10 s")),
        ("TUMBLE(ts, INTERVAL '1 hour 30 minutes')", tg.tumbling("90 min")),
        ("TUMBLE(ts, INTERVAL 1 HOUR 30 MINUTES)", tg.tumbling("90 min")),
        ("TUMBLE(ts, INTERVAL '01:30' HOUR TO MINUTE)", tg.tumbling("90 min")),
        ("TUMBLE(ts, INTERVAL '1' DAY, INTERVAL '-6' HOUR)", tg.tumbling("1 day", "-6 h")),
        ("TUMBLE(clicks.ts, INTERVAL '250' MILLISECOND)", tg.tumbling("250 ms")),
        ("HOP(ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)", tg.hopping("1 min", "10 s")),
        (
            "HOP(ts, INTERVAL '7' SECOND, INTERVAL '1' MINUTE, INTERVAL '3' SECOND)",
            tg.hopping("1 min", "7 s", "3 s"),
        ),
        ("SESSION(ts, INTERVAL '30' MINUTE)", tg.session("30 min")),
        ("tumblingwindow('ss', 10)", tg.tumbling("10 s")),
        ("TumblingWindow('MS', 1.5)", tg.tumbling("1500 us")),
        ("sessionwindow('mi', 30)", tg.session("30 min")),
        ("SESSIONWINDOW('hh', 2)", tg.session("2 h")),
    ],
)
def test_windows_are_those_of_the_api(written, window):
    insert = counted(written)
    assert facts(insert.plan) == facts(BY_USER.window(window).agg(**COUNTED).node)
    assert insert.inputs[0].steps == ()
    assert insert.steps == ()


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("slidingwindow('ss', 10)", tg.sliding("10 s")),
        ("slidingwindow('ss', 10, 15)", tg.sliding("10 s", "15 s")),
        ("slidingwindow('ss', 10, 0)", tg.sliding("10 s", "0 s")),
        ("SlidingWindow('dd', 1, 0)", tg.sliding("1 day", "0 s")),
    ],
)
def test_windows_around_rows_carry_the_row(written, window):
    insert = query(f"SELECT *, count(*) AS n FROM clicks GROUP BY user, {written}")
    assert facts(insert.plan) == facts(BY_USER.window(window).agg(**COUNTED).node)
    assert insert.steps == ()
    chosen = query(
        f"SELECT price, n - 1 AS others, count(*) AS n FROM views GROUP BY {written}".replace(
            "n - 1", "count(*) - 1"
        )
    )
    assert shown(chosen) == (("price", "price"), ("others", "`n` - 1"), ("n", "`n`"))


@pytest.mark.parametrize(
    ("table", "window"),
    [
        ("TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)", tg.tumbling("10 s")),
        (
            "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '2' SECOND)",
            tg.tumbling("10 s", "2 s"),
        ),
        (
            "HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
            tg.hopping("10 s", "5 s"),
        ),
        (
            "SESSION(TABLE clicks PARTITION BY user, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
            tg.session("10 s"),
        ),
        (
            "SESSION(TABLE clicks PARTITION BY (user), DESCRIPTOR(ts), INTERVAL '10' SECOND)",
            tg.session("10 s"),
        ),
    ],
)
def test_windows_as_tables_mean_the_same(table, window):
    insert = query(
        f"SELECT c.user, window_start, c.window_end, count(*) AS n FROM TABLE({table}) AS c "
        "GROUP BY c.user, window_start, window_end"
    )
    assert facts(insert.plan) == facts(BY_USER.window(window).agg(**COUNTED).node)
    assert insert.steps == ()


def test_sessions_can_have_a_gap_of_their_own():
    program = sql.compile(
        "CREATE STREAM visits (ts TIMESTAMP, idle INTERVAL DAY TO SECOND, WATERMARK FOR ts AS ts) "
        f"{FILES}; SELECT count(*) AS n FROM visits GROUP BY SESSION(ts, idle)"
    )
    assert program.selects[0].plan.windowed.window == tg.session(gap_column="idle")
    renamed = "WITH v AS (SELECT ts, idle AS pause FROM visits) SELECT count(*) AS n FROM v "
    [insert] = sql.compile(
        renamed + "GROUP BY SESSION(ts, pause)", streams=program.streams.values()
    ).selects
    assert insert.plan.windowed.window == tg.session(gap_column="pause")


# -- emission and late rows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clause", "emission"),
    [
        ("", tg.emit.on_watermark()),
        ("EMIT ON WATERMARK", tg.emit.on_watermark()),
        ("EMIT ON WINDOW CLOSE", tg.emit.on_window_close()),
        ("EMIT ON UPDATE", tg.emit.on_update()),
        ("EMIT CHANGES", tg.emit.changelog()),
        ("emit final", tg.emit.final()),
        ("EMIT EVERY INTERVAL '5' SECOND", tg.emit.periodic("5 s")),
    ],
)
def test_emission(clause, emission):
    plan = BY_USER.window(tg.tumbling("1 min")).agg(**COUNTED).emit(emission).node
    assert facts(counted("TUMBLE(ts, INTERVAL '1' MINUTE)", clause).plan) == facts(plan)


@pytest.mark.parametrize(
    ("clauses", "options"),
    [
        ("ALLOW LATENESS INTERVAL '1' MINUTE", {"allowed_lateness": "1 min"}),
        ("LATE DATA TO too_late", {"late": tg.late.side_output("too_late")}),
        ("REASSIGN LATE WITHIN INTERVAL '1' HOUR", {"late": tg.late.reassign("1 h")}),
        (
            "LATE DATA TO TOO_LATE ALLOW LATENESS INTERVAL '0' SECOND",
            {"late": tg.late.side_output("too_late")},
        ),
    ],
)
def test_late_rows(clauses, options):
    insert = counted("TUMBLE(ts, INTERVAL '1' MINUTE)", clauses)
    assert facts(insert.plan) == facts(
        BY_USER.window(tg.tumbling("1 min"), **options).agg(**COUNTED).node
    )
    assert list(insert.sinks) == (["too_late"] if "DATA" in clauses else [])


@pytest.mark.parametrize("name", ["late rows", "checkpoint", "zu spät", "2.partials"])
def test_late_rows_go_to_a_sink_of_any_name(name):
    insert = query(
        f"CREATE SINK `{name}` WITH (connector = 'discard');"
        "INSERT INTO results SELECT user, window_end, count(*) AS n FROM clicks "
        f"GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) LATE DATA TO `{name}`"
    )
    assert list(compile(insert.plan).channels) == ["main", "errors", name]
    assert insert.sinks[name].connector == "discard"


def test_an_insert_has_a_sink_for_each_channel():
    insert = query(
        "INSERT INTO results SELECT user, count(*) AS n FROM clicks "
        "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) LATE DATA TO too_late"
    )
    assert insert.sinks == {
        "main": SinkTable("results", "console"),
        "too_late": SinkTable("too_late", "discard"),
    }


def test_words_that_mean_something_can_be_names():
    insert = query("SELECT price AS by, user AS some, shop AS `from` FROM clicks WHERE price IN (1)")
    [step] = insert.inputs[0].steps
    assert step.columns == (("by", "price"), ("some", "user"), ("from", "shop"))
    again = query("WITH s AS (SELECT price AS in, ts FROM clicks) SELECT s.in FROM s WHERE s.in > 1")
    assert again.inputs[0].steps[-1].columns == (("in", "s.in"),)


def test_words_of_clauses_can_be_columns():
    stream = f"CREATE STREAM s (late STRING, emit BIGINT, allow DOUBLE, errors INT) {FILES};"
    insert = sql.compile(stream + "SELECT late, emit AS match, errors FROM s WHERE allow > 1").selects[0]
    assert insert.inputs[0].steps == (
        Projection("s", "allow > 1", (("late", "late"), ("match", "emit"), ("errors", "errors"))),
    )


def test_rows_that_only_pass_have_a_sink_for_broken_ones():
    insert = query("INSERT INTO results SELECT user FROM clicks WHERE price > 1 ERRORS TO too_late")
    assert insert.plan is None
    assert {channel: sink.name for channel, sink in insert.sinks.items()} == {
        "main": "results",
        "errors": "too_late",
    }


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT user, count(*) AS n FROM clicks {EACH_MINUTE} ERRORS TO Too_Late",
        "SELECT ts, user FROM clicks ORDER BY ts ERRORS TO too_late",
        "SELECT count(*) AS n FROM (SELECT ts FROM clicks UNION ALL SELECT ts FROM views) "
        "GROUP BY tumblingwindow('ss', 1) ERRORS TO too_late EMIT CHANGES",
        "SELECT a.user, b.price FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS a "
        "JOIN TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS b ON a.user = b.user "
        "ERRORS TO too_late",
        "WITH rows AS (SELECT ts, user FROM clicks ERRORS TO too_late) "
        f"SELECT user, count(*) AS n FROM rows {EACH_MINUTE}",
        "WITH m AS (SELECT count(*) AS n FROM clicks GROUP BY tumblingwindow('mi', 1) "
        "ERRORS TO too_late) "
        "SELECT max(n) AS most FROM m GROUP BY tumblingwindow('hh', 1)",
    ],
)
def test_broken_rows_have_a_sink_in_every_query(text):
    insert = query(f"INSERT INTO results {text}")
    assert {channel: sink.name for channel, sink in insert.sinks.items()} == {
        "main": "results",
        "errors": "too_late",
    }
    assert "errors" in compile(insert.plan).channels


# -- aggregates ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "aggregate"),
    [
        ("count(*)", tg.count()),
        ("count(1)", tg.count()),
        ("count(price)", tg.count("price")),
        ("sum(price)", tg.sum("price")),
        ("min(user)", tg.min("user")),
        ("max(ts)", tg.max("ts")),
        ("avg(price)", tg.mean("price")),
        ("mean(price)", tg.mean("price")),
        ("variance(price)", tg.var("price")),
        ("var_samp(price)", tg.var("price")),
        ("var_pop(price)", tg.var("price", population=True)),
        ("stddev(price)", tg.stddev("price")),
        ("std(price)", tg.stddev("price")),
        ("stddev_samp(price)", tg.stddev("price")),
        ("stddev_pop(price)", tg.stddev("price", population=True)),
        ("first(price)", tg.first("price")),
        ("first_value(price)", tg.first("price")),
        ("first(price) IGNORE NULLS", tg.first("price")),
        ("last(price)", tg.last("price")),
        ("last_value(price)", tg.last("price")),
        ("count(DISTINCT shop)", tg.count_distinct("shop")),
        ("collect_list(price)", tg.collect("price")),
        ("array_agg(price)", tg.collect("price")),
        ("approx_count_distinct(shop)", tg.approx_count_distinct("shop")),
        ("percentile(price, 0.5)", tg.quantile("price", 0.5)),
        ("approx_percentile(price, 0.99)", tg.quantile("price", 0.99)),
        ("percentile_approx(price, 0.99)", tg.quantile("price", 0.99)),
    ],
)
def test_aggregates_are_those_of_the_api(written, aggregate):
    insert = query(
        f"SELECT user, window_start, window_end, {written} AS it FROM clicks "
        "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)"
    )
    assert facts(insert.plan) == facts(BY_USER.window(tg.tumbling("1 min")).agg(it=aggregate).node)


@pytest.mark.parametrize(
    ("written", "text", "aggregate"),
    [
        ("sum(price * 2)", "price * 2", tg.sum("it_input")),
        ("sum(price\t*2 /* twice */)", "price\t*2", tg.sum("it_input")),
        ("max(CAST(user AS DECIMAL(9, 2)))", "CAST(user AS DECIMAL(9, 2))", tg.max("it_input")),
        ("count_if(price > 1)", "CASE WHEN price > 1 THEN 1 END", tg.count("it_input")),
        ("count(price, shop)", COUNTED_PAIR, tg.count("it_input")),
        ("count(DISTINCT user, shop)", DISTINCT_PAIR, tg.count_distinct("it_input")),
        (
            "sum(shop) FILTER (WHERE price > 1)",
            "CASE WHEN price > 1 THEN shop END",
            tg.sum("it_input"),
        ),
    ],
)
def test_what_is_computed_for_an_aggregate_is_a_column_before_it(written, text, aggregate):
    insert = query(
        f"SELECT window_start, window_end, {written} AS it FROM clicks "
        "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        it_input=pa.float64(),
    )
    assert computed(insert) == (("it_input", text),)
    [(_, found)] = insert.plan.input.aggregates
    assert facts(found) == facts(aggregate)
    assert insert.steps == ()


def test_results_without_a_name_get_one():
    insert = query(
        "SELECT user, count(*), sum(price), max(price + 1) FROM clicks "
        "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)",
        max_input=pa.float64(),
    )
    assert [name for name, _ in shown(insert)] == ["user", "count", "sum_price", "max"]


# -- what Spark does around the plan ---------------------------------------------------------------


def test_conditions_and_expressions_are_left_to_spark():
    text = """
        SELECT lower(user) AS who, window_end AS till, sum(price) / count(*) AS each, count(*) AS n
        FROM clicks
        WHERE price > 1 AND user IS NOT NULL
        GROUP BY lower(user), HOP(ts, INTERVAL '10' SECOND, INTERVAL '1' MINUTE)
        HAVING n > 1 AND max(price) < 100
    """
    insert = query(text, who=pa.string())
    [read] = insert.inputs
    [step] = read.steps
    assert step.where == "price > 1 AND user IS NOT NULL"
    assert computed(insert) == (("who", "lower(user)"),)
    assert insert.plan.keyed.keys == ("who",)
    assert [name for name, _ in insert.plan.input.aggregates] == ["n", "sum_price", "max_price"]
    assert insert.steps[0].where == "n > 1 AND `max_price` < 100"
    assert shown(insert) == (
        ("who", "`who`"),
        ("till", "window_end"),
        ("each", "`sum_price` / `n`"),
        ("n", "`n`"),
    )


def test_changes_keep_their_op_whatever_is_selected():
    insert = counted("TUMBLE(ts, INTERVAL '1' MINUTE)", "EMIT CHANGES")
    assert insert.steps == ()
    fewer = query(
        "SELECT count(*) AS n FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE) EMIT CHANGES"
    )
    assert shown(fewer) == (("n", "`n`"), ("op", "`op`"))


@pytest.mark.parametrize("key", ["1", "who", "upper(user)"])
def test_keys_by_place_by_name_and_as_they_are(key):
    insert = query(
        f"SELECT upper(user) AS who, count(*) AS n FROM clicks GROUP BY {key}, tumblingwindow('ss', 1)",
        who=pa.string(),
    )
    assert insert.plan.keyed.keys == ("who",)
    assert computed(insert) == (("who", "upper(user)"),)


def test_a_computed_key_whose_name_is_taken_gets_another():
    insert = query(
        "SELECT upper(user) AS user, count(*) AS n FROM clicks "
        "GROUP BY upper(user), tumblingwindow('ss', 1)",
        user_2=pa.string(),
    )
    assert insert.plan.keyed.keys == ("user_2",)
    assert shown(insert) == (("user", "`user_2`"), ("n", "`n`"))


def test_names_are_found_whatever_their_case():
    insert = query(
        "SELECT USER, Count(*) AS n FROM Clicks C GROUP BY c.User, tumble(TS, INTERVAL '1' DAY)"
    )
    assert insert.plan.keyed.keys == ("user",)


def test_fields_of_structs_are_computed_columns():
    program = sql.compile(
        "CREATE STREAM orders (ts TIMESTAMP, item STRUCT<name: STRING, price: DOUBLE>, "
        f"WATERMARK FOR ts AS ts) {FILES};"
        "SELECT item.name, sum(orders.item.price) AS spent FROM orders "
        "GROUP BY item.name, tumblingwindow('ss', 1)"
    )
    [insert] = program.selects
    assert computed(insert) == (("key_1", "item.name"), ("spent_input", "orders.item.price"))
    assert shown(insert) == (("name", "`key_1`"), ("spent", "`spent`"))


def test_rows_without_a_window_pass():
    insert = query("INSERT INTO results SELECT ts, price * 2 AS twice FROM clicks WHERE shop = 1")
    assert insert.plan is None
    [read] = insert.inputs
    assert read.stream.name == "clicks"
    assert read.steps == (Projection("clicks", "shop = 1", (("ts", "ts"), ("twice", "price * 2"))),)


# -- views, chains, unions, order ------------------------------------------------------------------


def test_views_and_nested_queries_are_steps_of_their_own():
    text = """
        CREATE VIEW sales AS SELECT ts AS at, user, price * shop AS worth FROM clicks WHERE price > 0;
        WITH large AS (SELECT * FROM sales WHERE worth > 10 OR user = 'ann')
        SELECT user, sum(worth) AS total FROM (SELECT * FROM large) AS l
        WHERE l.user <> 'bob' GROUP BY user, TUMBLE(at, INTERVAL '1' MINUTE)
    """
    insert = query(text, worth=pa.float64())
    [read] = insert.inputs
    assert read.steps == (
        Projection("clicks", "price > 0", (("at", "ts"), ("user", "user"), ("worth", "price * shop"))),
        Projection("sales", "worth > 10 OR user = 'ann'"),
        Projection("l", "l.user <> 'bob'"),
    )
    assert insert.plan.sources[0].time == "at"


def test_results_go_on_as_events():
    insert = query("""
        CREATE VIEW minutes AS
        SELECT user, window_end AS till, count(*) AS n
        FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
        SELECT window_start, window_end, max(n) AS most
        FROM minutes GROUP BY TUMBLE(till, INTERVAL '1' HOUR)
    """)
    minutes = BY_USER.window(tg.tumbling("1 min")).agg(n=tg.count())
    hours = minutes.events(time="window_end").window(tg.tumbling("1 h")).agg(most=tg.max("n"))
    assert facts(insert.plan) == facts(hours.node)
    assert insert.steps == ()


def test_results_go_on_under_other_names():
    view = """
        CREATE VIEW minutes AS
        SELECT user AS who, shop AS user, window_end AS till, count(*) AS n
        FROM clicks GROUP BY user, shop, TUMBLE(ts, INTERVAL '1' MINUTE);
    """
    insert = query(
        view + "SELECT m.who, upper(user) AS shop, max(n) AS most FROM minutes m "
        "GROUP BY who, user, TUMBLE(till, INTERVAL '1' HOUR) HAVING who <> 'bob'"
    )
    assert insert.plan.keyed.keys == ("user", "shop")
    [step] = insert.steps
    assert step.where == "`user` <> 'bob'"
    assert step.columns == (("who", "`user`"), ("shop", "upper(`shop`)"), ("most", "`most`"))
    around = query(
        view + "SELECT *, m.who || user AS both, sum(n) AS s FROM minutes AS m "
        "GROUP BY who, slidingwindow('mi', 10)"
    )
    assert shown(around) == (
        ("who", "`user`"),
        ("user", "`shop`"),
        ("till", "`window_end`"),
        ("n", "`n`"),
        ("both", "`user` || `shop`"),
        ("s", "`s`"),
    )


def test_results_go_on_by_their_end_if_a_window_does_not_say():
    insert = query("""
        WITH minutes AS (SELECT count(*) AS n FROM clicks GROUP BY tumblingwindow('mi', 1))
        SELECT max(n) AS most FROM minutes GROUP BY tumblingwindow('hh', 1)
    """)
    assert insert.plan.upstream.time == "window_end"


def test_streams_are_united():
    insert = query("""
        SELECT user, window_start, window_end, count(*) AS n
        FROM (SELECT * FROM clicks UNION ALL SELECT * FROM views WHERE shop = 1)
        WHERE price > 1
        GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)
    """)
    views = Events((), declare_source(CLICKS, "ts"))
    united = CLICK_EVENTS.union(views).key_by("user").window(tg.tumbling("1 min")).agg(**COUNTED)
    assert facts(insert.plan) == facts(united.node)
    assert [[step.where for step in read.steps] for read in insert.inputs] == [
        ["price > 1"],
        ["shop = 1", "price > 1"],
    ]


def test_order_by_the_event_time_is_reorder():
    insert = query("SELECT * FROM clicks ORDER BY ts LATE DATA TO too_late")
    assert facts(insert.plan) == facts(CLICK_EVENTS.reorder(late=tg.late.side_output("too_late")).node)


# -- streams ---------------------------------------------------------------------------------------


def declared(columns: str, options: str) -> Stream:
    text = f"CREATE STREAM s ({columns}) WITH (connector = files, path = p, format = json{options})"
    return sql.compile(text).streams["s"]


def test_options_mean_the_same_as_a_watermark():
    by_clause = declared("ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND", "")
    by_option = declared(
        "ts TIMESTAMP", ", 'eventtime.column' = 'ts', 'eventtime.lateTolerance' = '5 seconds'"
    )
    both = declared(
        "ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        ", 'eventtime.column' = 'ts', 'eventtime.lateTolerance' = '5 s', 'eventtime.enabled' = 'true'",
    )
    assert by_clause == by_option == both
    assert by_clause.tolerance == Micros(5_000_000)


def test_the_event_time_is_found_whatever_its_case():
    assert declared("Ts TIMESTAMP, WATERMARK FOR TS AS ts - INTERVAL '1' SECOND", "").time == "Ts"
    assert declared("Ts TIMESTAMP", ", eventtime.column = 'tS'").time == "Ts"


def test_times_that_are_no_timestamps():
    stream = declared(
        "ms BIGINT, user STRING",
        ", eventtime.column = ms, eventtime.type = unixtimestamp_ms, "
        "eventtime.idleAfter = '1 min', eventtime.maxFuture = '1 h'",
    )
    assert facts(stream.source()) == facts(
        declare_source(
            pa.schema([("ms", pa.int64()), ("user", pa.string())]),
            "ms",
            "unixtimestamp_ms",
            idle_after="1 min",
            max_future="1 h",
        )
    )
    [insert] = sql.compile(
        "SELECT user, event_time, max(event_time) AS last FROM s GROUP BY user, slidingwindow('ss', 1)",
        streams=[stream],
    ).selects
    assert shown(insert) == (("user", "user"), ("event_time", "event_time"), ("last", "`last`"))
    [insert] = sql.compile(
        "SELECT count(*) AS n FROM s GROUP BY TUMBLE(event_time, INTERVAL '1' HOUR)", streams=[stream]
    ).selects
    assert insert.inputs[0].steps == ()


def test_unixtimestamp_is_another_name_for_seconds():
    stream = declared("s DOUBLE", ", eventtime.column = s, eventtime.type = unixtimestamp")
    expected = declare_source(pa.schema([("s", pa.float64())]), "s", "unixtimestamp")
    assert facts(stream.source()) == facts(expected)


def test_a_stream_without_a_time_can_have_one_or_do_without():
    plain = "CREATE STREAM s (user STRING) WITH (connector = files, path = p, format = json);"
    with pytest.raises(SqlError) as raised:
        sql.compile(plain + "SELECT count(*) AS n FROM s GROUP BY tumblingwindow('ss', 10)")
    assert raised.value.problem == (
        "stream 's' has no event time: declare WATERMARK FOR column AS column, or 'eventtime.column'; "
        "'eventtime.enabled' = 'false' counts rows at the time they arrive"
    )


def test_rows_can_count_at_the_time_they_come_at():
    stream = declared("user STRING", ", eventtime.enabled = 'false'")
    assert stream.time == ProcessingTime(Micros(1_000_000))
    [insert] = sql.compile(
        "SELECT count(*) AS n FROM s GROUP BY tumblingwindow('ss', 10)", streams=[stream]
    ).selects
    assert insert.plan.sources[0].processing_time


def test_types_of_columns():
    stream = declared(
        "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10, 2), "
        "i STRING, j VARCHAR(5), k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ, o ARRAY<INT>, "
        "p MAP<STRING, DOUBLE>, q STRUCT<x: INT, y: ARRAY<STRING>>, r INTERVAL DAY TO SECOND, s DECIMAL",
        "",
    )
    assert [str(kind) for kind in stream.schema.types] == [
        "bool", "int8", "int16", "int32", "int64", "float", "double", "decimal128(10, 2)",
        "string", "string", "binary", "date32[day]", "timestamp[us, tz=UTC]", "timestamp[us]",
        "list<item: int32>", "map<string, double>", "struct<x: int32, y: list<item: string>>",
        "duration[us]", "decimal128(10, 0)",
    ]  # fmt: skip


def test_streams_and_sinks_can_be_declared_elsewhere():
    stream, sink = Stream("s", CLICKS, "files", time="ts"), SinkTable("out", "console")
    program = sql.compile("INSERT INTO out SELECT * FROM s", streams=[stream], sinks=[sink])
    assert program.streams == {"s": stream}
    assert program.inserts[0].sinks == {"main": sink}


def test_nothing_is_a_program():
    assert sql.compile(" -- nothing but a comment\n ;") == Program()


def test_quotes_in_texts_and_words_as_names_reach_spark_as_they_are_meant():
    program = sql.compile(
        """
        CREATE STREAM clicks (ts TIMESTAMP, `case` STRING, `true` STRING, WATERMARK FOR ts AS ts)
        WITH (connector = 'files', path = 'it''s here', format = 'json');
        CREATE SINK out WITH (connector = 'discard');
        INSERT INTO out SELECT `case` AS k, count(*) AS n FROM clicks
        WHERE `case` = 'O''Brien' AND `true` = 'y' GROUP BY `case`, TUMBLE(ts, INTERVAL '1' MINUTE);
        """
    )
    [insert] = program.inserts
    [given] = insert.inputs
    assert given.stream.options["path"] == "it's here"
    assert given.steps == (Projection("clicks", "`case` = 'O''Brien' AND `true` = 'y'"),)
    assert shown(insert) == (("k", "`case`"), ("n", "`n`"))


def test_windows_as_tables_take_named_arguments():
    named = query(
        "SELECT c.user, window_start, window_end, count(*) AS n FROM TABLE(HOP("
        "SIZE => INTERVAL '1' MINUTE, DATA => TABLE clicks, TIMECOL => DESCRIPTOR(ts), "
        "SLIDE => INTERVAL '10' SECOND)) AS c GROUP BY c.user, window_start, window_end"
    )
    plain = query(
        "SELECT c.user, window_start, window_end, count(*) AS n FROM HOP(TABLE clicks, DESCRIPTOR(ts), "
        "INTERVAL '10' SECOND, INTERVAL '1' MINUTE) c GROUP BY c.user, window_start, window_end"
    )
    expected = BY_USER.window(tg.hopping("1 min", "10 s")).agg(**COUNTED).node
    assert facts(named.plan) == facts(plain.plan) == facts(expected)


# -- keys inside larger expressions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "item", "text"),
    [
        ("lower(user)", "concat(LOWER( user ), '!')", "concat(`key_1`, '!')"),
        ("lower(user)", "lower(user) || lower(user)", "`key_1` || `key_1`"),
        ("lower(clicks.user)", "-length(lower(user))::int", "-length(`key_1`)::int"),
        ("lower(user)", "lower(clicks.user) || '!'", "`key_1` || '!'"),
        ("price + shop", "2 * (price + shop)", "2 * (`key_1`)"),
        ("price + shop", "round(price + shop, 1)", "round(`key_1`, 1)"),
        ("(price + shop)", "CASE WHEN price + shop THEN 1 END", "CASE WHEN `key_1` THEN 1 END"),
        ("price > 1", "if(price > 1, 'dear', 'cheap')", "if(`key_1`, 'dear', 'cheap')"),
        ("user", "upper(clicks.user)", "upper(clicks.user)"),
        ("lower(user)", "concat(lower(user), 'lower(user)')", "concat(`key_1`, 'lower(user)')"),
    ],
)
def test_a_key_is_found_inside_a_larger_expression(key, item, text):
    insert = query(
        f"SELECT {item} AS it, count(*) AS n FROM clicks GROUP BY {key}, tumblingwindow('ss', 1)",
        key_1=pa.string(),
    )
    assert shown(insert)[0] == ("it", text)


@pytest.mark.parametrize(
    "item",
    [
        "2 * price + shop",
        "price + shop * 2",
        "price - shop",
        "price",
        "max(user) AS user, user || '!'",
        "max(user) AS user, transform(array(1), x -> x || user)",
    ],
)
def test_what_only_looks_like_a_key_is_none(item):
    with pytest.raises(SqlError, match="is not among the results"):
        query(
            f"SELECT {item} AS it, count(*) AS n FROM clicks "
            "GROUP BY price + shop, tumblingwindow('ss', 1)",
            key_1=pa.float64(),
        )


def test_conditions_on_results_find_what_select_calls_them():
    insert = query(
        "SELECT user AS who, sum(price) - 1 AS rest, window_end AS till, count(*) AS n FROM clicks "
        f"{EACH_MINUTE} HAVING rest > 2 * n AND who <> 'n' AND till < current_timestamp()"
    )
    assert insert.steps[0].where == (
        "(`sum_price` - 1) > 2 * n AND (user) <> 'n' AND (window_end) < current_timestamp()"
    )


def test_names_inside_types_are_no_columns():
    text = "array_append(CAST(null as Array<Int>), CAST(price AS Map<String, Struct<a: Int, b: Date>>))"
    insert = query(f"SELECT {text} AS it FROM clicks")
    assert insert.inputs[0].steps[0].columns == (("it", text),)


def test_columns_can_be_selected_before_they_are_used():
    insert = query("SELECT price * 2 AS twice, twice + 1 AS more FROM clicks")
    assert insert.inputs[0].steps[0].columns == (("twice", "price * 2"), ("more", "twice + 1"))


def test_a_union_of_what_is_left_of_another_keeps_its_conditions():
    insert = query("""
        WITH some AS (SELECT ts, price FROM (SELECT ts, price FROM clicks UNION ALL
                      SELECT ts, price FROM views) AS u WHERE price > 1)
        SELECT count(*) AS n FROM (SELECT * FROM some UNION ALL SELECT ts, price FROM clicks)
        GROUP BY tumblingwindow('ss', 1)
    """)
    assert [[step.where for step in read.steps if step.where] for read in insert.inputs] == [
        ["price > 1"],
        ["price > 1"],
        [],
    ]
