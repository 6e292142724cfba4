"""The public surface on Spark: sinks, writers, types, foreign sessions, and what is refused."""

import datetime
import decimal
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa
import pytest

import tidegate as tg
from tests.spark.conftest import NOON, run, seconds
from tests.spark.test_windows import BATCHES, tumbling
from tidegate.connectors import Target

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def spends(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(((r["user"], seconds(r["window_start"]), r["n"], r["spend"]) for r in rows), key=repr)


SPENDS = [
    ("ann", 0, 3, 7.0),
    ("ann", 10, 1, 3.0),
    ("bob", 0, 1, 5.0),
    ("bob", 20, 2, 2.0),
    (None, 10, 1, 7.0),
]


@pytest.mark.versions("Parquet sinks")
def test_files_hold_each_row_once(spark: Any, click_stream: Callable[..., Any], tmp_path: Path) -> None:
    result = tumbling(click_stream(BATCHES))
    run(
        result,
        tmp_path / "ckpt",
        main=tg.sinks.parquet(tmp_path / "out"),
        errors=tg.sinks.json(tmp_path / "bad"),
    )
    assert spends(spark.read.parquet(str(tmp_path / "out")).collect()) == SPENDS
    (line,) = "".join(f.read_text() for f in (tmp_path / "bad").glob("*.json")).splitlines()
    assert json.loads(line)["reason"] == "event time 'ts' is null"


def test_a_batch_written_again_changes_nothing(spark: Any, tmp_path: Path) -> None:
    numbers = Target("query", "main", pa.schema([("id", pa.int64())]))
    write = tg.sinks.parquet(tmp_path / "out").prepare(numbers)
    for _ in range(2):
        write(spark.range(3).repartition(2), 1)
    write(spark.range(10, 12), 2)
    assert sorted(r.id for r in spark.read.parquet(str(tmp_path / "out")).collect()) == [0, 1, 2, 10, 11]


def test_any_function_is_a_sink(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    seen: list[Any] = []
    run(
        tumbling(click_stream(BATCHES)),
        tmp_path / "ckpt",
        main=lambda df, _: seen.extend(df.collect()),
    )
    assert spends(seen) == SPENDS


def test_the_console_shows_rows(
    click_stream: Callable[..., Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tumbling(click_stream(BATCHES)), tmp_path / "ckpt", main=tg.sinks.console())
    assert "|ann |2024-05-01 12:00:00|" in capfd.readouterr().out


@pytest.mark.versions("to_df() with Spark's writers")
@pytest.mark.parametrize("writer", ["parquet", "memory"])
def test_to_df_works_with_sparks_own_writers(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path, writer: str
) -> None:
    df = tumbling(click_stream(BATCHES)).to_df()
    stream = df.writeStream.format(writer).queryName("spends").trigger(availableNow=True)
    stream = (
        stream.option("checkpointLocation", str(tmp_path / "ckpt")) if writer == "parquet" else stream
    )
    query = stream.option("path", str(tmp_path / "out")).start()
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")) if writer == "parquet" else spark.table("spends")
    assert spends(found.collect()) == SPENDS
    observed = [p["observedMetrics"]["tidegate"] for p in query.recentProgress]
    assert sum(o["rows_in"] for o in observed) == 11
    assert sum(o["late_rows"] for o in observed) == sum(o["errors"] for o in observed) == 1
    assert sum(o["rows_out"] for o in observed) == len(SPENDS)


def test_keys_of_every_type(spark: Any) -> None:
    row = {
        "flag": True, "tiny": 1, "small": 2, "int": 3, "big": 4, "float": 1.5, "double": 2.5,
        "amount": decimal.Decimal("1.10"), "text": "x", "bytes": bytearray(b"\x00\xff"),
        "day": datetime.date(2024, 5, 1), "at": datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC),
    }  # fmt: skip
    schema = (
        "flag boolean, tiny tinyint, small smallint, int int, big bigint, float float, double double, "
        "amount decimal(10,2), text string, bytes binary, day date, at timestamp"
    )
    nulls = dict.fromkeys(row)
    df = spark.createDataFrame([row, nulls, row], schema).selectExpr(
        "*", "timestamp'2024-05-01 12:00:00' ts"
    )
    counted = tg.events(df, time="ts").key_by(*row).window(tg.tumbling("1 s")).agg(n=tg.count()).to_df()
    assert counted.schema.names == [*row, "window_start", "window_end", "n"]
    assert [f.dataType for f in counted.schema][: len(row)] == [f.dataType for f in df.schema][
        : len(row)
    ]
    found = sorted(
        ((r["n"], r["text"], r["amount"], r["bytes"], r["flag"]) for r in counted.collect()), key=repr
    )
    assert found == [
        (1, None, None, None, None),
        (2, "x", decimal.Decimal("1.10"), bytearray(b"\x00\xff"), True),
    ]


def test_aggregates_over_every_type(spark: Any) -> None:
    df = spark.sql(
        "select timestamp'2024-05-01 12:00:00' + make_interval(0,0,0,0,0,0,id) ts, cast(id as int) i, "
        "cast(id as decimal(10,2)) d, cast(id as string) s, date'2024-05-01' + cast(id as int) day, "
        "id % 2 = 0 b, cast(id as float) f, if(id > 2, null, id) n from range(5)"
    )
    result = tg.events(df, time="ts").window(tg.tumbling("1 hour")).agg(
        si=tg.sum("i"), sd=tg.sum("d"), sf=tg.sum("f"), ms=tg.max("s"), md=tg.min("day"), mb=tg.max("b"),
        fs=tg.first("s"), ld=tg.last("day"), cd=tg.count_distinct("b"), cs=tg.collect("s"),
        cn=tg.count("n"), mean=tg.mean("d"), acd=tg.approx_count_distinct("day"),
        q=tg.quantile("i", 1.0), v=tg.var("i"),
        sp=tg.stddev("i", population=True),
    )  # fmt: skip
    row = result.to_df().first().asDict()
    assert (row["si"], row["sd"], row["sf"]) == (10, decimal.Decimal("10.00"), 10.0)
    assert (row["ms"], row["md"], row["mb"]) == ("4", datetime.date(2024, 5, 1), True)
    assert (row["fs"], row["ld"]) == ("0", datetime.date(2024, 5, 5))
    assert (row["cd"], row["cs"], row["cn"], row["acd"]) == (2, ["0", "1", "2", "3", "4"], 3, 5)
    assert row["mean"] == 2.0
    assert row["q"] == pytest.approx(4, rel=0.01)
    assert (row["v"], row["sp"]) == (pytest.approx(2.5), pytest.approx(2**0.5))


def test_a_users_own_aggregate(spark: Any) -> None:
    class Product(tg.Aggregate):
        columnwise: ClassVar[Any] = {}

        def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
            return pa.float64()

        def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
            return {"p": value.product()}

        def merge(self, state: Any) -> dict[str, pl.Expr]:
            return {"p": state["p"].product()}

        def finish(self, state: Any) -> pl.Expr:
            return state["p"]

    df = spark.sql(
        "select timestamp'2024-05-01' + make_interval(0,0,0,0,0,0,id) ts, double(id + 1) x from range(4)"
    )
    hopping = tg.events(df, time="ts").window(tg.hopping("2 s", "1 s")).agg(p=Product("x"))
    found = sorted((r["window_start"], r["p"]) for r in hopping.to_df().collect())
    assert [p for _, p in found] == [1, 2, 6, 12, 4]


def test_a_foreign_session_gets_the_state_store_it_needs(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rocksdb = spark.conf.get(PROVIDER)
    spark.conf.unset(PROVIDER)
    try:
        main = tg.sinks.memory()
        run(tumbling(click_stream(BATCHES)), tmp_path / "ckpt", main=main)
        assert spends(main.rows()) == SPENDS
        assert "stateful queries need it" in caplog.text
    finally:
        spark.conf.set(PROVIDER, rocksdb)


def test_a_checkpoint_of_another_plan_is_refused_before_the_start(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    stream = click_stream(BATCHES[:1])
    run(tumbling(stream), tmp_path / "ckpt", main=tg.sinks.discard())
    other = tg.events(stream, time="ts").key_by("user").window(tg.tumbling("11 s")).agg(n=tg.count())
    with pytest.raises(tg.errors.CheckpointMismatch) as caught:
        run(other, tmp_path / "ckpt", main=tg.sinks.discard())
    message = str(caught.value)
    assert "window: stored 'tumbling(10 seconds)', now 'tumbling(11 seconds)'" in message
    assert (
        "aggregate, 'spend' among the aggregates: stored 'sum(price): double', now 'nothing'" in message
    )
    assert "new checkpoint location" in message


def test_a_checkpoint_of_another_bucket_count_is_refused(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    result = tumbling(click_stream(BATCHES[:1]))
    run(result, tmp_path / "ckpt", main=tg.sinks.discard())
    with pytest.raises(tg.errors.CheckpointMismatch, match="buckets: stored '2', now '3'"):
        result.start(checkpoint=tmp_path / "ckpt", main=tg.sinks.discard(), buckets=3)


def test_tolerance_and_late_policy_may_change_between_runs(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    run(tumbling(click_stream(BATCHES[:2])), tmp_path / "ckpt", main=tg.sinks.discard())
    changed = tumbling(click_stream(BATCHES), late=tg.late.reassign("14 s"))
    query = run(changed, tmp_path / "ckpt", main=tg.sinks.discard())
    assert query.metrics["late_reassigned"] == 1, "the new policy holds for what comes next"


def test_a_checkpoint_of_a_query_that_is_not_ours_is_refused(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    stream = click_stream(BATCHES[:1])
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "ckpt"))
    writer.trigger(availableNow=True).start().awaitTermination()
    with pytest.raises(tg.errors.CheckpointMismatch, match="tidegate did not start"):
        run(tumbling(stream), tmp_path / "ckpt", main=tg.sinks.discard())


@pytest.mark.parametrize(
    ("sinks", "message"),
    [
        ({}, "channel 'main' has no sink; pass one, for instance main=tg.sinks.parquet('out')"),
        ({"main": 1}, "the sink of channel 'main' is 1"),
        ({"main": print, "lat": print}, "no channel 'lat'; did you mean 'late'?"),
        ({"main": print}, "channel 'late' has no sink; pass one, for instance late=tg.sinks.discard()"),
    ],
)
def test_channels_and_sinks_must_match(
    click_stream: Callable[..., Any], tmp_path: Path, sinks: dict[str, Any], message: str
) -> None:
    result = tumbling(click_stream(BATCHES), late=tg.late.side_output("late"))
    with pytest.raises(tg.errors.ChannelError) as caught:
        result.start(checkpoint=tmp_path / "ckpt", **sinks)
    assert message in str(caught.value)
    assert not (tmp_path / "ckpt").exists()


ODD = {"late": "late rows", "trigger": "trigger"}


def odd_channels(stream: Any) -> Any:
    """Results named as a parameter of start(), late rows under a name with a blank."""
    keyed = tg.events(stream, time="ts").key_by("user")
    late = tg.late.side_output(ODD["late"])
    windows = keyed.window(tg.tumbling("10 s"), late=late).agg(n=tg.count())
    return tg.together(**{ODD["trigger"]: windows, "class": keyed.agg(n=tg.count())})


def test_sinks_go_to_channels_of_any_name(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    program = odd_channels(click_stream([[(1, "ann", 1.0)], [(25, "ann", 1.0)], [(2, "ann", 1.0)]]))
    assert program.channels == ("trigger", "class", "errors", "late rows")
    sinks = {name: tg.sinks.memory() for name in program.channels}
    errors = sinks.pop("errors")
    query = run(program, tmp_path / "ckpt", sinks=sinks, errors=errors)
    assert [row["n"] for row in sinks["trigger"].rows()] == [1]
    assert [row["n"] for row in sinks["class"].rows() if row["op"].startswith("+")] == [1, 2, 3]
    assert [(row["user"], seconds(row["ts"])) for row in sinks["late rows"].rows()] == [("ann", 2)]
    assert query.metrics["rows_out.late rows"] == 1
    query.stop(drain=True)
    assert [row["n"] for row in sinks["trigger"].rows()] == [1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"sinks": {"main": tg.sinks.discard()}, "main": tg.sinks.discard()},
            "channel 'main' has two sinks: sinks= has one, main= another",
        ),
        (
            {"sinks": tg.sinks.discard()},
            "sinks=DiscardSink(): give a sink for each channel, such as {'main': tg.sinks.console()}",
        ),
        (
            {"sinks": {"main": tg.sinks.discard(), "mian": tg.sinks.discard()}},
            "no channel 'mian'; did you mean 'main'? available: 'main', 'errors', 'late rows'",
        ),
        (
            {"sinks": {"main": tg.sinks.discard()}},
            "channel 'late rows' has no sink; pass one, for instance "
            "sinks={'late rows': tg.sinks.discard()}",
        ),
        (
            {"sinks": {}},
            "channel 'main' has no sink; pass one, for instance main=tg.sinks.parquet('out')",
        ),
    ],
)
def test_a_channel_has_one_sink(
    click_stream: Callable[..., Any], tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    keyed = tg.events(click_stream([[(1, "ann", 1.0)]]), time="ts").key_by("user")
    late = tg.late.side_output("late rows")
    result = keyed.window(tg.tumbling("10 s"), late=late).agg(n=tg.count())
    with pytest.raises(tg.errors.ChannelError) as error:
        result.start(checkpoint=tmp_path / "ckpt", **given)
    assert str(error.value) == message
    assert not (tmp_path / "ckpt").exists()


def test_a_batch_frame_cannot_be_started(spark: Any, tmp_path: Path) -> None:
    df = spark.sql("select timestamp'2024-05-01' ts")
    result = tg.events(df, time="ts").window(tg.tumbling("1 s")).agg(n=tg.count())
    with pytest.raises(tg.errors.StartError, match=r"to_df\(\)\.write"):
        result.start(checkpoint=tmp_path / "ckpt", main=print)


def test_odd_column_names_and_types(spark: Any) -> None:
    df = spark.sql(
        "select timestamp'2024-05-01 00:00:00' `event time`, 1 `a.b`, map('k', 1) m, "
        "named_struct('x', 1) s, array(1, 2) l, 'v' `wei``rd`"
    )
    result = tg.events(df, time="event time").key_by("a.b", "wei`rd").window(tg.tumbling("1 s"))
    assert [r["n"] for r in result.agg(n=tg.count("a.b")).to_df().collect()] == [1]
    with pytest.raises(tg.errors.TypeMismatch, match="key column 'm' has type map"):
        tg.events(df, time="event time").key_by("m")


def test_null_event_times_in_a_batch_frame_are_left_out(spark: Any) -> None:
    df = spark.sql("select cast(null as timestamp) ts, 1 x union all select timestamp'2024-05-01', 2")
    result = tg.events(df, time="ts").window(tg.tumbling("1 s")).agg(s=tg.sum("x"))
    assert [r["s"] for r in result.to_df().collect()] == [2]


def test_times_without_a_zone_count_as_utc(spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        df = spark.sql("select timestamp_ntz'2024-05-01 12:00:02' ts")
        result = tg.events(df, time="ts").window(tg.tumbling("10 s")).agg(n=tg.count(), t=tg.min("ts"))
        (row,) = result.to_df().selectExpr("unix_micros(window_start) s", "t").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert row["s"] == NOON
    assert row["t"] == datetime.datetime(2024, 5, 1, 12, 0, 2)


def test_columns_may_be_called_as_ours_are(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    stream = click_stream(BATCHES).withColumnsRenamed({"user": "key", "price": "rows", "ts": "blob"})
    windowed = tg.events(stream, time="blob", tolerance="5 s").key_by("key")
    windowed = windowed.window(tg.tumbling("10 s"), late=tg.late.side_output("late"))
    main, late = tg.sinks.memory(), tg.sinks.memory()
    run(
        windowed.agg(bucket=tg.max("key"), channel=tg.sum("rows")),
        tmp_path / "ckpt",
        main=main,
        late=late,
    )
    assert sorted(((r["key"], r["bucket"], r["channel"]) for r in main.rows()), key=repr) == [
        ("ann", "ann", 3.0),
        ("ann", "ann", 7.0),
        ("bob", "bob", 2.0),
        ("bob", "bob", 5.0),
        (None, None, 7.0),
    ]
    assert [(r["key"], r["rows"]) for r in late.rows()] == [("bob", 1.0)]


def test_late_rows_keep_nested_columns(spark: Any, tmp_path: Path) -> None:
    for number, second in enumerate((0, 100, 1)):
        clicks = spark.sql(
            f"select timestamp_micros({NOON} + {second} * 1000000) ts, map('k', {second}) tags, "
            f"named_struct('a', array({second}, null)) nested, cast({second} as tinyint) tiny"
        )
        clicks.coalesce(1).write.parquet(str(tmp_path / "in" / f"{number}"))
    reader = spark.readStream.schema(clicks.schema).option("maxFilesPerTrigger", 1)
    stream = reader.option("recursiveFileLookup", True).parquet(str(tmp_path / "in"))
    late = tg.sinks.memory()
    windowed = tg.events(stream, time="ts").window(tg.tumbling("10 s"), late=tg.late.side_output("late"))
    run(windowed.agg(n=tg.count()), tmp_path / "ckpt", main=tg.sinks.discard(), late=late)
    (row,) = late.rows()
    assert (dict(row["tags"]), row["nested"], row["tiny"]) == ({"k": 1}, {"a": [1, None]}, 1)


def test_an_empty_stream_and_an_empty_frame(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    assert (
        tumbling(spark.sql("select timestamp'2024-05-01' ts, 'a' user, 1D price").limit(0))
        .to_df()
        .count()
        == 0
    )
    query = run(tumbling(click_stream([[]])), tmp_path / "ckpt", main=tg.sinks.memory())
    assert query.metrics["rows_out"] == 0
