"""Event times on Spark: read as their type says, never raising, with a reason where they are not."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.spark.conftest import NOON
from tidegate.plan.event_time import EVENT_TIME_TYPES, At, EventTime, EventTimeTypes
from tidegate.spark.sources.event_time import event_time

ZONES = ["UTC", "America/New_York", "Asia/Kolkata"]


@pytest.fixture(params=ZONES)
def zone(spark: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def plain(column: str, kind: str = "timestamp") -> EventTime:
    return EventTime(((None, At(column, kind)),))


def read(df: Any, spec: EventTime, registry: EventTimeTypes = EVENT_TIME_TYPES) -> list[Any]:
    """The micros of each row, or the reason why there are none."""
    instant, reason = event_time(df, spec, registry)
    rows = df.select(instant.alias("t"), reason.alias("r"))
    assert [kind for _, kind in rows.dtypes] == ["timestamp", "string"]
    found = rows.select(F.unix_micros("t"), "r").collect()
    assert all((time is None) != (reason is None) for time, reason in found)
    return [reason if time is None else time for time, reason in found]


def values(spark: Any, kind: str, given: list[Any]) -> Any:
    """A column `ts`, each value made by Spark from its text."""
    texts = spark.createDataFrame(
        [(i, None if v is None else str(v)) for i, v in enumerate(given)], "i int, v string"
    )
    return texts.coalesce(1).sortWithinPartitions("i").select(F.col("v").cast(kind).alias("ts"))


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text)
    since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def unreadable(kind: str) -> str:
    return f"event time 'ts' cannot be read as {kind}"


NULL = "event time 'ts' is null"


# -- timestamps ---------------------------------------------------------------------------------


def test_timestamps_are_taken_as_they_are(spark: Any, zone: str) -> None:
    df = values(spark, "timestamp", ["2024-05-01T12:00:00.000001Z", None])
    assert read(df, plain("ts")) == [NOON + 1, NULL]


def test_a_timestamp_without_a_zone_is_utc(spark: Any, zone: str) -> None:
    # In New York clocks show 01:30 twice on that November night, and 02:30 never in March.
    times = ["2024-05-01 12:00:00.000001", "2024-11-03 05:30:00", "2024-11-03 06:30:00"]
    times += ["2024-03-10 07:30:00", "1883-11-18 17:00:00.5", "0001-01-01 00:00:00"]
    df = values(spark, "timestamp_ntz", [*times, None])
    assert read(df, plain("ts")) == [*map(micros, times), NULL]


def test_the_ends_of_time_do_not_raise(spark: Any, zone: str) -> None:
    df = spark.createDataFrame([(-(1 << 63),), ((1 << 63) - 1,)], "v long")
    assert read(df.withColumnRenamed("v", "ts"), plain("ts", "unixtimestamp_us")) == [
        -(1 << 63),
        (1 << 63) - 1,
    ]


# -- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_whole_numbers_of_any_width(spark: Any, kind: str, unit: str, factor: int) -> None:
    df = values(spark, kind, [0, 100, -100, None])
    assert read(df, plain("ts", f"unixtimestamp_{unit}")) == [0, 100 * factor, -100 * factor, NULL]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000)])
def test_what_does_not_fit_64_bits_is_unreadable(spark: Any, unit: str, factor: int) -> None:
    most = ((1 << 63) - 1) // factor
    broken = unreadable(f"unixtimestamp_{unit}")
    df = values(spark, "bigint", [most, most + 1, -most, -most - 1, (1 << 63) - 1, -(1 << 63)])
    assert read(df, plain("ts", f"unixtimestamp_{unit}")) == [
        most * factor,
        broken,
        -most * factor,
        broken,
        broken,
        broken,
    ]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("double", "1714564800.123457", NOON + 123_457),
        ("double", "-0.000001", -1),
        ("double", "1e-9", 0),
        ("float", "0.5", 500_000),
        ("decimal(20,6)", "1714564800.123457", NOON + 123_457),
        ("decimal(38,20)", "1714564800.1234565", NOON + 123_457),
        ("decimal(38,0)", "-7", -7_000_000),
        ("double", "NaN", None),
        ("double", "Infinity", None),
        ("double", "-Infinity", None),
        ("double", "1e300", None),
        ("float", "3e38", None),
        ("decimal(38,0)", "9" * 38, None),
        ("decimal(38,4)", "-" + "9" * 34, None),
    ],
)
def test_fractions_of_seconds(spark: Any, kind: str, given: str, expected: int | None) -> None:
    for name in ("unixtimestamp_s", "unixtimestamp"):
        [found] = read(values(spark, kind, [given]), plain("ts", name))
        assert found == (unreadable(name) if expected is None else expected)


def test_unixtimestamp_is_in_seconds(spark: Any) -> None:
    after_2038, most = 1 << 31, ((1 << 63) - 1) // 1_000_000
    df = values(spark, "bigint", [0, after_2038, -after_2038 - 1, 253_402_300_800, most, most + 1, None])
    assert read(df, plain("ts", "unixtimestamp")) == [
        0,
        after_2038 * 1_000_000,
        (-after_2038 - 1) * 1_000_000,
        253_402_300_800 * 1_000_000,
        most * 1_000_000,
        unreadable("unixtimestamp"),
        NULL,
    ]


# -- text ---------------------------------------------------------------------------------------

ISO = [
    "2024-05-01T12:00:00Z",
    "2024-05-01 12:00:00",
    "2024-05-01T12:00",
    "2024-05-01 12:00Z",
    "2024-05-01",
    "2024-05-01T12:00:00.5",
    "2024-05-01T12:00:00.123456+05:30",
    "2024-05-01T12:00:00-0530",
    "2024-05-01 12:00:00.000001-05",
    "2024-03-10T02:30:00",  # never shown by clocks in New York
    "1969-12-31T23:59:59.999999Z",
    "2024-02-29",
]
NOT_ISO = [
    "",
    "noon",
    "2024",
    "2024-05",
    "2024-5-1",
    "T12:00:00Z",
    "12:00:00",
    "2024-02-30",
    "2023-02-29T00:00:00Z",
    "2024-05-01T25:00:00Z",
    "2024-05-01T12:60:00Z",
    "2024-05-01T12:00:00.1234567Z",
    "2024-05-01T12:00:00 Europe/Berlin",
    "2024-05-01T12:00:00+25:00",
    "2024-05-01Z",
    " 2024-05-01T12:00:00Z",
    "2024-05-01T12:00:00Z\n",
    "2024-05-01T12:00:00ZZ",
    "12024-05-01T12:00:00Z",
    "1714564800",
    "２０２４-05-01",
]


def test_iso_8601(spark: Any, zone: str) -> None:
    df = values(spark, "string", [*ISO, None])
    assert read(df, plain("ts", "iso8601")) == [*map(micros, ISO), NULL]


def test_what_is_not_iso_8601_is_unreadable(spark: Any, zone: str) -> None:
    found = read(values(spark, "string", NOT_ISO), plain("ts", "iso8601"))
    assert dict(zip(NOT_ISO, found, strict=True)) == dict.fromkeys(NOT_ISO, unreadable("iso8601"))


def test_without_ansi_mode_it_is_the_same(spark: Any) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        test_what_does_not_fit_64_bits_is_unreadable(spark, "ms", 1_000)
        test_what_is_not_iso_8601_is_unreadable(spark, "UTC")
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


# -- messages -----------------------------------------------------------------------------------

MESSAGES = EventTime((("order", At("ts", "unixtimestamp_ms")), ("payment", At("when", "iso8601"))))


def test_the_first_message_that_is_there_decides(spark: Any) -> None:
    order, payment = "order struct<ts: long>", "payment struct<when: string>"
    rows = [
        ((7,), ("2024-05-01",)),
        (None, ("2024-05-01T12:00:00Z",)),
        ((None,), ("2024-05-01",)),  # it does not fall through to the next message
        ((1 << 62,), ("2024-05-01",)),
        (None, ("noon",)),
        (None, (None,)),
        (None, None),
    ]
    df = spark.createDataFrame(rows, f"{order}, {payment}").coalesce(1)
    assert read(df, MESSAGES) == [
        7_000,
        NOON,
        "event time 'order.ts' is null",
        "event time 'order.ts' cannot be read as unixtimestamp_ms",
        "event time 'payment.when' cannot be read as iso8601",
        "event time 'payment.when' is null",
        "no message with an event time",
    ]


def test_a_plain_column_is_always_there(spark: Any) -> None:
    spec = EventTime((("order", At("ts", "unixtimestamp_ms")), (None, At("ms", "unixtimestamp_ms"))))
    df = spark.createDataFrame([((7,), 1), (None, 2), (None, None)], "order struct<ts: long>, ms long")
    assert read(df.coalesce(1), spec) == [7_000, 2_000, "event time 'ms' is null"]


def test_odd_names(spark: Any) -> None:
    df = spark.sql(
        "select 5L as `a.b``c`, named_struct('x.`y', 6L) as `m.n`, 7 as a, named_struct('n', 8) as m"
    )
    assert read(df, plain("a.b`c", "unixtimestamp_us")) == [5]
    assert read(df, EventTime((("m.n", At("x.`y", "unixtimestamp_us")),))) == [6]


# -- users' parsers -----------------------------------------------------------------------------


def registry(parse: Any) -> EventTimeTypes:
    types = EventTimeTypes()
    types.register("day", parse)
    return types


def raising() -> Any:
    """A parser that raises on what it cannot read; made here so that it travels by value."""
    return lambda given: pc.strptime(given, "%d.%m.%Y", "s")


DAY = plain("ts", "day")


def test_a_users_parser(spark: Any, zone: str) -> None:
    texts = ["01.05.2024", None, "?", "02.01.1970"]
    expected = [micros("2024-05-01"), NULL, unreadable("day"), micros("1970-01-02")]
    assert read(values(spark, "string", texts), DAY, registry(raising())) == expected


def test_a_users_parser_inside_a_message(spark: Any) -> None:
    df = spark.createDataFrame([(("02.01.1970",),), ((None,),), (None,)], "m struct<d: string>")
    spec = EventTime((("m", At("d", "day")),))
    assert read(df.coalesce(1), spec, registry(raising())) == [
        micros("1970-01-02"),
        "event time 'm.d' is null",
        "no message with an event time",
    ]


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda given: given, "must give an Arrow array of timestamps, gave string"),
        (lambda _: pa.nulls(0), "must give a time for each value: gave 0 for 1"),
    ],
    ids=["type", "length"],
)
def test_a_parser_that_breaks_its_contract_stops_the_query(spark: Any, parse: Any, message: str) -> None:
    with pytest.raises(PySparkException, match=message):
        read(values(spark, "string", ["x"]), DAY, registry(parse))


def test_the_parser_runs_once(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    df = values(spark, "string", ["01.05.2024"])
    instant, reason = event_time(df, DAY, registry(raising()))
    df.select(instant.alias("t"), reason.alias("r")).explain()
    assert capsys.readouterr().out.count("ArrowEvalPython ") == 1


# -- streams ------------------------------------------------------------------------------------


def test_on_a_stream(spark: Any, tmp_path: Path) -> None:
    texts = ["2024-05-01T12:00:00Z", "02.01.1970", "?", None]
    pq.write_table(pa.table({"ts": texts}), tmp_path / "rows.parquet")
    stream = spark.readStream.schema("ts string").parquet(str(tmp_path))
    found: dict[str, list[Any]] = {}

    def write(rows: Any, batch_id: int) -> None:
        for kind in ("iso8601", "day"):
            found[kind] = [row[kind] for row in rows.collect()]

    columns = []
    for kind in ("iso8601", "day"):
        instant, reason = event_time(stream, plain("ts", kind), registry(raising()))
        columns.append(F.coalesce(F.unix_micros(instant).cast("string"), reason).alias(kind))
    query = (
        stream.select(*columns)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert found == {
        "iso8601": [str(NOON), unreadable("iso8601"), unreadable("iso8601"), NULL],
        "day": [unreadable("day"), str(micros("1970-01-02")), unreadable("day"), NULL],
    }


def test_an_instant_carries_a_watermark(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ts": ["2024-05-01T12:00:00Z"]}), tmp_path / "rows.parquet")
    stream = spark.readStream.schema("ts string").parquet(str(tmp_path))
    instant, _ = event_time(stream, plain("ts", "iso8601"), EVENT_TIME_TYPES)
    query = (
        stream.select(instant.alias("event_time"))
        .withWatermark("event_time", "0 seconds")
        .groupBy("event_time")
        .count()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert query.lastProgress.eventTime["watermark"] == "2024-05-01T12:00:00.000Z"
