"""Types and their habits: on the same rows tidegate answers what Spark answers."""

import math
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import functions as F

import tidegate as tg
from tests.spark.conftest import run, seconds
from tidegate.errors import PlanError, TypeMismatch

NINES = Decimal("9" * 38)
#: A timestamp for every row: what windows do is tested elsewhere.
AT = "timestamp'2024-05-01 12:00:00'"


@contextmanager
def settings(spark, **values):
    """The session with other settings for a while; underscores stand for dots."""
    names = {name.replace("_", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def rows_of(spark, schema, rows):
    """Rows of one window, behind their event time."""
    return spark.createDataFrame(rows, schema).withColumn("ts", F.expr(AT))


def windowed(df, *keys, **aggregates):
    """The aggregates over one window for each key, without its bounds."""
    events = tg.events(df, time="ts")
    keyed = events.key_by(*keys) if keys else events
    results = keyed.window(tg.tumbling("1 hour")).agg(**aggregates)
    return results.to_df().drop("window_start", "window_end")


def types(df):
    return {field.name: field.dataType.simpleString() for field in df.schema}


# -- numbers --------------------------------------------------------------------------------------

NUMBERS = "k string, i int, l bigint, d decimal(10,2), wide decimal(38,2), whole decimal(38,0)"


def numbers(spark):
    large = [Decimal(12345678), Decimal("1.5"), Decimal("-99999999.99")]
    rows = [("a", 2**31 - 1, 2**62, value, value, value.to_integral_value()) for value in large]
    return rows_of(spark, NUMBERS, [*rows, ("b", None, None, None, None, None)])


def test_sums_and_means_have_sparks_types_and_values(spark):
    df, columns = numbers(spark), ("i", "d", "wide", "whole")
    sums = {f"sum_{c}": F.sum(c) for c in columns} | {f"avg_{c}": F.avg(c) for c in columns}
    ours = {f"sum_{c}": tg.sum(c) for c in columns} | {f"avg_{c}": tg.mean(c) for c in columns}
    expected = df.groupBy("k").agg(*(one.alias(name) for name, one in sums.items()))
    got = windowed(df, "k", **ours)
    assert types(got) == types(expected)
    assert sorted(got.collect()) == sorted(expected.collect())


OVERFLOWS = pytest.mark.parametrize(
    ("schema", "value"), [("v bigint", 2**62), ("v decimal(38,0)", NINES)], ids=("bigint", "decimal")
)


@OVERFLOWS
def test_without_ansi_a_sum_that_does_not_fit_is_null(spark, schema, value):
    with settings(spark, spark_sql_ansi_enabled="false"):
        df = rows_of(spark, schema, [(value,), (value,), (value,)])
        [row] = windowed(df, s=tg.sum("v")).collect()
        if "decimal" in schema:  # of integers Spark would give a wrong number
            assert df.agg(F.sum("v")).first() == (None,)
        assert row == (None,)


@OVERFLOWS
def test_with_ansi_a_batch_fails_on_a_sum_that_does_not_fit(spark, schema, value):
    df = rows_of(spark, schema, [(value,), (value,), (value,)])
    with pytest.raises(Exception, match=r"OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"):
        df.agg(F.sum("v")).collect()
    with pytest.raises(Exception, match=r"sum\(v\) overflows, so 's' is null, in the result \{"):
        windowed(df, s=tg.sum("v")).collect()


# -- collations -----------------------------------------------------------------------------------

COLLATED = "k string, name string collate UTF8_LCASE, tags array<string collate UNICODE_CI>"


def test_a_collated_column_is_carried_with_its_collation(spark):
    df = rows_of(spark, COLLATED, [("a", "Ann", ["X"]), (None, None, None)])
    firsts = {"first": tg.first("name"), "all": tg.collect("name"), "tags": tg.last("tags")}
    results = windowed(df, "k", **firsts)
    assert types(results) == {
        "k": "string",
        "first": "string collate UTF8_LCASE",
        "all": "array<string collate UTF8_LCASE>",
        "tags": "array<string collate UNICODE_CI>",
    }
    assert results.where("first = 'ANN'").collect() == [("a", "Ann", ["Ann"], ["X"])]
    passed = tg.events(df, time="ts").reorder().to_df()
    assert types(passed) == types(df)
    assert passed.where("name = 'ANN'").count() == 1


def test_where_a_collated_column_is_compared_the_plan_is_refused(spark):
    events = tg.events(rows_of(spark, COLLATED, []), time="ts")
    hours = tg.tumbling("1 hour")
    for refused in (
        lambda: events.key_by("name"),
        lambda: events.dedupe(on=["name"], within="1 hour"),
        lambda: events.window(hours).agg(least=tg.min("name")),
        lambda: events.window(tg.sliding("1 hour", when="name = 'ann'")).agg(n=tg.count()),
        lambda: events.map(lambda rows: rows).key_by("name"),
    ):
        with pytest.raises(TypeMismatch, match=r"'name' has the collation UTF8_LCASE"):
            refused()
    plain = events.window(hours).agg(n=tg.count("name"))
    assert plain.to_df().schema["n"].dataType.simpleString() == "bigint"


# -- floats that are no numbers -------------------------------------------------------------------


def test_nan_and_zeros_are_what_they_are_in_spark(spark):
    values = [math.nan, 1.0, -0.0, 0.0, None, -math.inf, math.nan]
    df = rows_of(spark, "k double, v double, f float", [(k, v, v) for k in values for v in values])
    few = rows_of(spark, "k double, v double, f float", [(9.0, math.nan, math.nan), (8.0, None, None)])
    df = df.union(few)
    columns = ("v", "f")
    theirs = [one(c).alias(name + c) for c in columns for name, one in (
        ("min_", F.min), ("max_", F.max), ("distinct_", F.count_distinct)
    )]  # fmt: skip
    ours = {name + c: one(c) for c in columns for name, one in (
        ("min_", tg.min), ("max_", tg.max), ("distinct_", tg.count_distinct)
    )}  # fmt: skip
    expected = df.groupBy("k").agg(*theirs, F.count("*").alias("n"))
    assert as_text(windowed(df, "k", **ours, n=tg.count())) == as_text(expected)
    first = tg.events(df, time="ts").dedupe(on=["k", "f"], within="1 hour").to_df()
    assert first.count() == df.dropDuplicates(["k", "f"]).count()


def as_text(df):
    """Rows as text, in order: NaN equals NaN there."""
    return sorted(str(row) for row in df.collect())


# -- rows of the channel errors -------------------------------------------------------------------


def test_rows_of_errors_are_whole_and_read_back(spark, tmp_path):
    last = datetime(3024, 5, 1, 23, 59, 59, 999_999)
    schema = "ts timestamp, at timestamp_ntz, price decimal(10,2)"
    row = (last.replace(tzinfo=UTC), last, Decimal("1.50"))
    spark.createDataFrame([row], schema).write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    errors = tg.sinks.memory()
    counts = tg.events(stream, time="ts").window(tg.tumbling("1 hour")).agg(n=tg.count())
    run(counts, tmp_path / "checkpoint", main=tg.sinks.discard(), errors=errors)
    [error] = errors.rows()
    assert '"ts":"3024-05-01T23:59:59.999999Z","at":"3024-05-01T23:59:59.999999"' in error["row"]
    texts = spark.createDataFrame([(error["row"],)], "row string")
    back = texts.select(F.from_json("row", schema).alias("row")).select("row.*").first()
    assert (back.at, back.price) == (last, row[2])
    assert back.ts.replace(tzinfo=UTC) == row[0]


# -- JSON files -----------------------------------------------------------------------------------


def test_times_in_json_files_read_back_to_the_microsecond(spark, tmp_path):
    schema = "ts timestamp, at timestamp_ntz"
    times = [datetime(2024, 5, 1, 12, 0, second, 999_999 - second) for second in range(3)]
    rows = spark.createDataFrame([(one.replace(tzinfo=UTC), one) for one in times], schema)
    rows.write.parquet(str(tmp_path / "rows"))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "rows"))
    firsts = tg.events(stream, time="ts").key_by("at").agg(first=tg.first("ts"))
    run(firsts, tmp_path / "checkpoint", main=tg.sinks.json(tmp_path / "out"))
    back = spark.read.schema("at timestamp_ntz, first timestamp").json(str(tmp_path / "out"))
    expected = rows.selectExpr("at", "ts AS first")
    assert sorted(back.collect()) == sorted(expected.collect())
    texts = spark.read.text(str(tmp_path / "out"))
    parsed = texts.select(F.from_json("value", back.schema).alias("row")).select("row.*")
    assert sorted(parsed.collect()) == sorted(expected.collect())
    assert '"first":"2024-05-01T12:00:00.999999Z"' in sorted(texts.collect())[0].value


# -- structs, arrays, maps, intervals, binary -----------------------------------------------------

NESTED = (
    "s struct<a: int, b: array<double>>, l array<string>, i interval day to second, b binary, "
    "m map<string, int>"
)


def nested(spark):
    values = [
        ((1, [0.0, math.nan]), ["x"], timedelta(seconds=1), b"\x01", {"a": 1}),
        ((1, [-0.0, math.nan]), ["x"], timedelta(seconds=1), b"\x01", {"a": 1}),
        ((1, None), ["x", None], timedelta(seconds=-2), b"\xff", {}),
        ((None, []), [], timedelta(days=3), b"", None),
        (None, None, None, None, {"b": 2}),
    ]
    return rows_of(spark, NESTED, values)


def test_nested_values_are_keys_and_are_compared_as_in_spark(spark):
    df, columns = nested(spark), ("s", "l", "i", "b")
    keys = windowed(df, *columns, n=tg.count())
    assert types(keys) == types(df.groupBy(*columns).agg(F.count("*").alias("n")))
    assert sorted(row.n for row in keys.collect()) == [1, 1, 1, 2]
    theirs = {"min": F.min, "max": F.max, "distinct": F.count_distinct, "first": F.first}
    ours = {"min": tg.min, "max": tg.max, "distinct": tg.count_distinct, "first": tg.first}
    expected = df.agg(*(one(c).alias(f"{name}_{c}") for name, one in theirs.items() for c in columns))
    got = windowed(df, **{f"{name}_{c}": one(c) for name, one in ours.items() for c in columns})
    assert types(got) == types(expected)
    # Of equal zeros either may be the first.
    assert str(as_text(got)).replace("-0.0", "0.0") == str(as_text(expected)).replace("-0.0", "0.0")
    [lists] = windowed(df, **{c: tg.collect(c) for c in (*columns, "m")}).collect()
    assert sorted(map(str, lists.m)) == sorted(map(str, [{"a": 1}, {"a": 1}, {}, {"b": 2}]))
    assert [len(values) for values in lists] == [4, 4, 4, 4, 4]
    first = tg.events(df, time="ts").dedupe(on=list(columns), within="1 hour").to_df()
    assert first.count() == df.dropDuplicates(list(columns)).count()
    with pytest.raises(TypeMismatch, match="key column 'm' has type map<string, int32>"):
        tg.events(df, time="ts").key_by("m")


# -- event times ----------------------------------------------------------------------------------


def test_dates_are_event_times_at_midnight_of_the_session(spark):
    with settings(spark, spark_sql_session_timeZone="America/New_York"):
        df = spark.sql("SELECT date'2024-05-01' AS day UNION ALL SELECT date'2024-05-02'")
        windows = tg.events(df, time="day").window(tg.tumbling("6 hours")).agg(n=tg.count()).to_df()
        expected = df.groupBy(F.window("day", "6 hours")).agg(F.count("*").alias("n"))
        assert sorted(windows.select("window_start", "window_end", "n").collect()) == sorted(
            expected.select("window.start", "window.end", "n").collect()
        )


def test_times_without_a_zone_give_bounds_without_one(spark):
    with settings(spark, spark_sql_session_timeZone="America/New_York"):
        df = spark.sql("SELECT timestamp_ntz'2024-03-10 02:30:00' AS at")  # an hour that clocks skip
        windows = tg.events(df, time="at").window(tg.tumbling("1 hour")).agg(n=tg.count())
        expected = df.groupBy(F.window("at", "1 hour")).agg(F.count("*").alias("n"))
        expected = expected.select("window.start", "window.end", "n")
        got = windows.to_df()
        assert [one.dataType for one in got.schema] == [one.dataType for one in expected.schema]
        assert got.collect() == expected.collect()
        days = windows.events(time="window_end").window(tg.tumbling("1 day")).agg(n=tg.sum("n"))
        assert types(days.to_df())["window_start"] == "timestamp_ntz"


# -- duplicates -----------------------------------------------------------------------------------


def test_rules_for_duplicates_are_sparks(spark, click_stream, tmp_path):
    """The row at 200 is late in both: the watermark passed it two batches before."""
    batches = [
        [(300, "a", 1.0), (300, "a", 2.0), (299, "b", 3.0)],
        [(600, "c", 4.0), (296, "a", 5.0)],
        [(601, "d", 6.0)],
        [(200, "e", 7.0), (595, "a", 8.0), (600, "c", 9.0)],
    ]
    stream = click_stream(batches)
    watermarked = stream.withWatermark("ts", "10 seconds")
    events = tg.events(stream, time="ts", tolerance="10 seconds")
    cases = {
        "drop_duplicates": (["user", "ts"], watermarked.dropDuplicates(["user", "ts"])),
        "drop_duplicates_within_watermark": (
            ["user"],
            watermarked.dropDuplicatesWithinWatermark(["user"]),
        ),
    }
    for rule, (columns, theirs) in cases.items():
        writer = theirs.writeStream.format("memory").queryName(rule).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "theirs" / rule)).start().awaitTermination()
        ours = tg.sinks.memory()
        run(events.dedupe(on=columns, rule=rule), tmp_path / rule, main=ours)
        found = sorted((row["user"], seconds(row["ts"])) for row in ours.rows())
        assert found == sorted((row.user, seconds(row.ts)) for row in spark.table(rule).collect())
        assert ("e", 200) not in found


# -- batches --------------------------------------------------------------------------------------


def test_a_batch_has_the_rows_that_are_far_ahead(spark):
    df = spark.sql("SELECT timestamp'9990-01-01' AS ts UNION ALL SELECT timestamp'2024-01-01'")
    for given in ({}, {"max_future": "1 minute"}):
        counts = tg.events(df, time="ts", **given).window(tg.tumbling("1 day")).agg(n=tg.count())
        assert counts.to_df().count() == 2


def test_a_batch_has_its_invalid_rows_in_a_channel(spark, click_stream):
    df = spark.sql(
        "SELECT * FROM VALUES ('2024-05-01 12:00:00', 'a'), ('soon', 'b'), (NULL, 'c') AS v(text, id)"
    )
    counts = (
        tg.events(df, time="text", time_type="iso8601").window(tg.tumbling("1 day")).agg(n=tg.count())
    )
    assert [row.n for row in counts.to_df().collect()] == [1]
    errors = counts.to_df(channel="errors")
    assert sorted(map(tuple, errors.collect())) == [
        ("event time 'text' cannot be read as iso8601", '{"text":"soon","id":"b"}'),
        ("event time 'text' is null", '{"id":"c"}'),
    ]
    with pytest.raises(PlanError, match=r"to_df\(channel='error'\): did you mean 'errors'\? available"):
        counts.to_df(channel="error")
    live = tg.events(click_stream([]), time="ts").window(tg.tumbling("1 day")).agg(n=tg.count())
    with pytest.raises(PlanError, match=r"to_df\(channel='errors'\) is for batch DataFrames"):
        live.to_df(channel="errors")


def test_a_batch_has_the_rows_that_are_rejected(spark):
    df = spark.sql(
        "SELECT timestamp'2024-05-01 12:00:00' AS ts, device FROM VALUES (1), (1), (2), (2) AS v(device)"
    )
    once = tg.events(df, time="ts").admit(tg.sla(max_rate=1, capacity=1, arrival="ts"), stream="device")
    assert sorted(row.device for row in once.to_df().collect()) == [1, 2]
    rejected = once.to_df(channel="rejected").collect()
    assert sorted((row.device, row.reason) for row in rejected) == [(1, "rate"), (2, "rate")]
