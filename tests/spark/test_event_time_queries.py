"""Event time end to end on Spark: rows in order, windows around rows, chains, clocks."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from tests.spark.conftest import NOON, run, seconds, write_batches
from tests.spark.files import write_files
from tests.spark.test_windows import FLUSH, disordered
from tests.support.time_limits import HANG
from tidegate.errors import PlanError

Stream = Callable[..., Any]


def clicks(stream: Any, **options: Any) -> Any:
    return tg.events(stream, time="ts", **options)


def triples(sink: Any, *names: str) -> list[tuple[Any, ...]]:
    """Rows as tuples: instants as seconds from noon."""
    rows = [[row[name] for name in names] for row in sink.rows()]
    return [tuple(seconds(v) if isinstance(v, datetime) else v for v in row) for row in rows]


def clicks_of(spark: Any, folder: Path) -> Any:
    """All there is, as a batch."""
    return spark.read.schema("ts timestamp, user string, price double").parquet(str(folder))


def seconds_of(instant: datetime) -> float:
    """Spark collects instants without their zone, which is UTC here."""
    return seconds(instant.replace(tzinfo=UTC))


def wait_until(query: Any, reached: Callable[[], bool], longest: float = HANG) -> None:
    """Let a query run until then."""
    deadline = time.monotonic() + longest
    while not reached():
        assert query.is_active, query.spark.exception()
        assert time.monotonic() < deadline, f"nothing happens: {query.metrics}"
        time.sleep(0.05)


# -- windows around rows --------------------------------------------------------------------------


@pytest.mark.versions("sliding windows")
def test_lookback_leaves_with_the_row(click_stream: Stream, tmp_path: Path) -> None:
    stream = click_stream([[(100, "u", 1.0), (105, "u", 2.0)], [(103, "u", 4.0), (104, "v", 8.0)]])
    around = clicks(stream, tolerance="10 s").key_by("user").window(tg.sliding("10 s"))
    main = tg.sinks.memory()
    run(around.agg(n=tg.count(), spend=tg.sum("price")), tmp_path / "checkpoint", main=main)
    expected = [(100, "u", 1, 1.0), (105, "u", 2, 3.0), (103, "u", 2, 5.0), (104, "v", 1, 8.0)]
    assert triples(main, "ts", "user", "n", "spend") == expected


def test_lookahead_waits_and_survives_restarts(spark: Any, tmp_path: Path) -> None:
    """A run in pieces, and with a sink that fails once, gives what the batch answer is."""
    batches = disordered(400, 80) + FLUSH
    main, failed = tg.sinks.memory(), []

    def fails_once(rows: Any, batch_id: int) -> None:
        if batch_id >= 3 and not failed:
            failed.append(batch_id)
            raise RuntimeError("the sink fails")
        main(rows, batch_id)

    def around(df: Any) -> Any:
        window = tg.sliding("7 s", "5 s", when="price > 1")
        keyed = clicks(df, tolerance="4 s").key_by("user").window(window)
        return keyed.agg(n=tg.count(), most=tg.max("price"), last=tg.last("price"))

    for end in (2, 4, len(batches)):
        done = len(list((tmp_path / "in").glob("*.parquet")))
        write_batches(tmp_path / "in", batches[done:end], start=done)
        reader = spark.readStream.schema("ts timestamp, user string, price double")
        stream = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        try:
            run(around(stream), tmp_path / "checkpoint", main=fails_once)
        except StreamingQueryException:
            run(around(stream), tmp_path / "checkpoint", main=fails_once)
    assert failed
    names = ["ts", "user", "price", "n", "most"]
    answer = around(clicks_of(spark, tmp_path / "in")).to_df().filter("user != 'flush'")
    expected = [(seconds_of(row.ts), *row[1:]) for row in answer.select(names).collect()]
    found = [row for row in triples(main, *names) if row[1] != "flush"]
    assert len(found) > 100
    assert sorted(found) == sorted(expected)


def test_reorder_releases_rows_in_order_and_hands_on_late_ones(
    click_stream: Stream, tmp_path: Path
) -> None:
    stream = click_stream(
        [[(3, "a", 1.0), (1, "b", 1.0), (2, "c", 1.0)], [(2.5, "d", 1.0), (1.5, "e", 1.0)]]
    )
    main, late = tg.sinks.memory(), tg.sinks.memory()
    ordered = clicks(stream, tolerance="1 s").reorder(late=tg.late.side_output("late"))
    query = run(ordered, tmp_path / "checkpoint", main=main, late=late)
    assert triples(main, "ts", "user") == [(1, "b"), (2, "c")]
    assert [(row["user"], row["late_by"]) for row in late.rows()] == [("e", timedelta(seconds=0.5))]
    metrics = query.metrics
    assert metrics["buffer_size"] == 2
    assert metrics["max_timestamp_seen"] == NOON + 3_000_000
    assert metrics["watermark_emitted_count"] == 1
    assert metrics["late_dropped_count"] == 0
    assert query.watermarks == {"1 reorder": datetime.fromtimestamp(NOON / 1e6 + 2, UTC)}


# -- several operators in one query ----------------------------------------------------------------

CHAINS: dict[str, Callable[[Any], Any]] = {
    "window over window": lambda events: (
        events.key_by("user")
        .window(tg.tumbling("5 s"), allowed_lateness="3 s", late=tg.late.side_output("late"))
        .agg(n=tg.count())
        .emit(tg.emit.on_window_close())
        .events(time="window_end")
        .window(tg.hopping("20 s", "10 s"))
        .agg(windows=tg.count(), n=tg.sum("n"))
    ),
    "session over window": lambda events: (
        events.key_by("user")
        .window(tg.tumbling("2 s"))
        .agg(n=tg.count())
        .events(time="window_start")
        .key_by("user")
        .window(tg.session("3 s"))
        .agg(n=tg.sum("n"))
    ),
    "window over sliding over reorder": lambda events: (
        events.reorder()
        .events(time="ts")
        .key_by("user")
        .window(tg.sliding("6 s", "4 s"))
        .agg(n=tg.count())
        .events(time="ts")
        .key_by("user")
        .window(tg.tumbling("10 s"))
        .agg(n=tg.sum("n"), most=tg.max("n"))
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_gives_the_batch_answer(
    spark: Any, click_stream: Stream, tmp_path: Path, name: str
) -> None:
    stream = click_stream(disordered(400, 200) + FLUSH)
    result = CHAINS[name](clicks(stream, tolerance="5 s"))
    main = tg.sinks.memory()
    others = {channel: tg.sinks.memory() for channel in result.channels if channel == "late"}
    query = run(result, tmp_path / "checkpoint", main=main, **others)
    assert query.metrics["late_rows"] == 0
    whole = spark.read.schema("ts timestamp, user string, price double").parquet(
        str(tmp_path / "clicks")
    )
    answer = CHAINS[name](clicks(whole)).to_df()
    last = max(row["window_end"] for row in main.rows())
    expected = [row for row in answer.collect() if row.window_end.replace(tzinfo=UTC) <= last]
    shown = sorted(repr([str(v)[:19] for v in row]) for row in expected)
    assert sorted(repr([str(v)[:19] for v in row.values()]) for row in main.rows()) == shown
    assert len(shown) > 5


def test_explain_shows_what_each_operator_holds_back(click_stream: Stream) -> None:
    text = CHAINS["window over window"](clicks(click_stream([]))).plan_text()
    assert "Events[time=window_end, watermark_delay=3 seconds]" in text
    assert "SlicePreAggregate[global] behind the sources by 3 seconds" in text


# -- several sources -------------------------------------------------------------------------------


def counts(*sources: Any) -> Any:
    first, *others = sources
    return first.union(*others).key_by("user").window(tg.tumbling("10 s")).agg(n=tg.count())


def test_the_slowest_source_decides(click_stream: Stream, tmp_path: Path) -> None:
    fast = clicks(click_stream([[(1, "a", 1.0)], [(60, "a", 1.0)]], "fast"))
    slow = clicks(click_stream([[(2, "a", 1.0)], [(15, "b", 1.0)]], "slow"))
    main = tg.sinks.memory()
    query = run(counts(fast, slow), tmp_path / "checkpoint", main=main)
    assert triples(main, "user", "window_end", "n") == [("a", 10, 2)]
    assert [seconds(at) for at in query.watermarks.values() if at] == [15]


@pytest.mark.versions("idle sources")
def test_an_idle_source_does_not_hold_back_and_may_wake(spark: Any, tmp_path: Path) -> None:
    def source(name: str, **options: Any) -> Any:
        (tmp_path / name).mkdir(exist_ok=True)
        reader = spark.readStream.schema("ts timestamp, user string, price double")
        return clicks(reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / name)), **options)

    write_batches(tmp_path / "busy", [[(1, "a", 1.0)], [(60, "a", 1.0)]])
    write_batches(tmp_path / "quiet", [[(2, "a", 1.0)]])
    main = tg.sinks.memory()
    result = counts(source("busy"), source("quiet", idle_after="1 second"))
    query = result.start(checkpoint=tmp_path / "checkpoint", main=main)
    try:
        wait_until(query, lambda: len(main.rows()) == 1)
        assert triples(main, "user", "window_end", "n") == [("a", 10, 2)]
        write_batches(tmp_path / "quiet", [[(3, "late", 1.0), (65, "b", 1.0)]], start=1)
        write_batches(tmp_path / "busy", [[(90, "a", 1.0)]], start=2)
        wait_until(query, lambda: query.metrics["late_rows"] == 1)
        wait_until(query, lambda: len(main.rows()) == 3)
    finally:
        query.stop()
    assert sorted(triples(main, "user", "window_end", "n")[1:]) == [("a", 70, 1), ("b", 70, 1)]


def test_without_idle_after_a_silent_source_holds_everything_back(
    click_stream: Stream, tmp_path: Path
) -> None:
    busy = clicks(click_stream([[(1, "a", 1.0)], [(60, "a", 1.0)], [(90, "a", 1.0)]], "busy"))
    quiet = clicks(click_stream([], "quiet"))
    main = tg.sinks.memory()
    (tmp_path / "quiet").mkdir(exist_ok=True)
    run(counts(busy, quiet), tmp_path / "checkpoint", main=main)
    assert main.rows() == []


def test_idle_after_needs_a_running_query(click_stream: Stream) -> None:
    one = clicks(click_stream([[(1, "a", 1.0)]]), idle_after="1 minute")
    with pytest.raises(PlanError, match=r"use start\(\) instead of to_df\(\)"):
        counts(one, one).to_df()


# -- processing time -------------------------------------------------------------------------------


def test_processing_time_closes_windows_and_lookahead_without_data(
    click_stream: Stream, tmp_path: Path
) -> None:
    stream = click_stream([[(None, "a", 1.0), (5, "b", 2.0)]])
    stamped = tg.events(stream, time=tg.processing_time(tick="200 ms"))
    main = tg.sinks.memory()
    around = stamped.window(tg.sliding("1 s", "1 s")).agg(n=tg.count())
    begun = datetime.now(UTC)
    query = around.start(checkpoint=tmp_path / "checkpoint", main=main)
    try:
        wait_until(query, lambda: len(main.rows()) == 2)
    finally:
        query.stop()
    [first, second] = main.rows()
    assert first["n"] == second["n"] == 2
    assert first["event_time"] == second["event_time"] >= begun - timedelta(seconds=1)
    assert datetime.now(UTC) - first["event_time"] >= timedelta(seconds=1)


@pytest.mark.versions("processing time")
def test_processing_time_ends_and_goes_on_with_the_next_run(
    spark: Any, click_stream: Stream, tmp_path: Path
) -> None:
    stream = click_stream([[(1, "a", 1.0)], [(2, "a", 1.0)], [(3, "b", 1.0)]])
    result = tg.events(stream, time=tg.processing_time()).key_by("user").window(tg.tumbling("1 ms"))
    main = tg.sinks.memory()
    for _ in range(2):  # the second run closes what the last batch of the first left open
        query = run(result.agg(n=tg.count()), tmp_path / "checkpoint", main=main)
        time.sleep(0.01)
    assert sorted((row["user"], row["n"]) for row in main.rows()) == [("a", 1), ("a", 1), ("b", 1)]
    assert query.metrics["errors"] == 0


# -- bad input --------------------------------------------------------------------------------------


@pytest.mark.versions("invalid rows")
def test_times_that_cannot_be_are_errors_and_stop_nothing(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    texts = [
        ["2024-05-01T12:00:01Z", "soon", None],
        ["9999-12-31T00:00:00Z", "1600-01-01T00:00:00Z", "2024-05-01T12:00:02Z"],
        ["2024-05-01T12:00:30Z"],
    ]
    write_files(folder, (pa.table({"at": lines, "user": ["a"] * len(lines)}) for lines in texts))
    stream = spark.readStream.schema("at string, user string").option("maxFilesPerTrigger", 1)
    events = tg.events(stream.parquet(str(folder)), time="at", time_type="iso8601", max_future="1 day")
    main, errors = tg.sinks.memory(), tg.sinks.memory()
    result = events.key_by("user").window(tg.tumbling("10 s")).agg(n=tg.count())
    query = run(result, tmp_path / "checkpoint", main=main, errors=errors)
    assert [row["reason"] for row in errors.rows()] == [
        "event time 'at' cannot be read as iso8601",
        "event time 'at' is null",
        "event time is more than 1 day ahead of the clock",
    ]
    assert triples(main, "window_end", "n") == [(10, 2)]
    assert query.metrics["late_rows"] == 1  # the row of 1600
    assert query.metrics["errors"] == 3


def test_a_far_future_is_refused_even_if_nobody_asked(click_stream: Stream, tmp_path: Path) -> None:
    years = 366 * 86_400
    stream = click_stream([[(1, "a", 1.0), (7_900 * years, "a", 1.0)], [(2, "a", 1.0), (20, "a", 1.0)]])
    main, errors = tg.sinks.memory(), tg.sinks.memory()
    result = clicks(stream).window(tg.tumbling("10 s")).agg(n=tg.count())
    run(result, tmp_path / "checkpoint", main=main, errors=errors)
    assert [row["reason"] for row in errors.rows()] == [
        "event time is more than 36500 days ahead of the clock"
    ]
    assert triples(main, "window_end", "n") == [(10, 2)]


@pytest.mark.filterwarnings("ignore::tidegate.errors.TidegateWarning")  # no two rows share a time
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_the_zone_of_the_session_shows_neither_in_steps_nor_in_state(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    """A query is started in one zone and goes on in another; instants are keys, values and in state."""
    schema = f"ts {kind}, user string, seen {kind}"
    tz = None if kind == "timestamp_ntz" else "UTC"
    columns = pa.schema(
        [("ts", pa.timestamp("us", tz)), ("user", pa.string()), ("seen", pa.timestamp("us", tz))]
    )

    def write(number: int, *seconds: int) -> None:
        times = [NOON + second * 1_000_000 for second in seconds]
        table = pa.table([times, ["ann"] * len(times), times[:1] * len(times)], schema=columns)
        write_files(tmp_path / "clicks", [table], start=number)

    def go_on(zone: str) -> None:
        spark.conf.set("spark.sql.session.timeZone", zone)
        clicks = spark.readStream.schema(schema).parquet(str(tmp_path / "clicks"))
        marked = tg.events(clicks, time="ts").map(lambda rows: rows.with_columns(twice=pl.col("seen")))
        spans = marked.key_by("seen").agg(n=tg.count(), last=tg.max("ts"), twice=tg.min("twice"))
        rows = marked.reorder()
        both = tg.together(spans=spans, rows=rows)
        run(
            both,
            tmp_path / "checkpoint",
            spans=tg.sinks.parquet(tmp_path / "spans"),
            rows=tg.sinks.parquet(tmp_path / "rows"),
        )

    try:
        write(0, 1, 2, 3)
        go_on("Europe/Berlin")
        write(1, 1, 4, 5, 5)
        go_on("Asia/Kolkata")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    spans = spark.read.parquet(str(tmp_path / "spans")).filter("op in ('+I', '+U')")
    newest = max(spans.collect(), key=lambda row: row["n"])
    assert (newest["n"], seconds_of(newest["last"]), seconds_of(newest["twice"])) == (7, 5, 1)
    left = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(seconds_of(row["ts"]) for row in left) == [1, 2, 3, 4, 5, 5]  # 1 came late again
