"""What ordinary rows do not show: times that are keys, zeros with a sign, names that are patterns."""

from collections import Counter
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate.errors import DurationError, PlanError
from tidegate.optimize import optimize
from tidegate.plan.windows import Sliding
from tidegate.testing import DryRun, KernelHost, Stream, assert_rows, at, consolidate

TS = pa.timestamp("us", "UTC")
CLICKS = Stream(pa.schema([("ts", TS), ("user", pa.string()), ("v", pa.float64())]))
NO_ZONE = Stream(pa.schema([("ts", pa.timestamp("us")), ("k", pa.int32())]))
TEN = tg.tumbling("10 s")


def click(seconds, user="ann", v=0.0):
    return {"ts": at(seconds), "user": user, "v": v}


def test_ids_stay_what_they_are_when_rows_are_moved_in_time():
    """The event time is part of the id here, and a late row passes at the watermark."""
    late = tg.late.reassign("1 hour")
    run = DryRun(tg.events(CLICKS, time="ts").dedupe(on=["user", "ts"], within="10 s", late=late))
    run.batch([click(100, "bob")])
    assert len(run.batch([click(5)]).main) == 1
    assert run.batch([click(5)]).main == [], "the same message again"
    assert len(run.batch([click(100)]).main) == 1, "another message, at the time the first was moved to"


def test_keys_that_are_times_cannot_be_moved():
    by_time, moves = tg.events(CLICKS, time="ts").key_by("ts"), tg.late.reassign("1 hour")
    message = r"late=reassign\(1 hour\) moves late rows in time, and 'ts' is a key here"
    with pytest.raises(PlanError, match=message):
        by_time.window(TEN, late=moves)
    with pytest.raises(PlanError, match=message):
        by_time.reorder(late=moves)
    by_time.window(TEN, late=tg.late.side_output("late")).agg(n=tg.count())


def test_rows_without_a_zone_are_moved_without_one():
    late = tg.late.reassign("1 h")
    windows = tg.events(NO_ZONE, time="ts").window(TEN, late=late)
    run = DryRun(windows.agg(first=tg.min("ts"), last=tg.max("ts"), n=tg.count()))
    run.batch("ts | k\n100 | 1")
    run.batch("ts | k\n5 | 1")
    run.batch("ts | k\n101 | 1\n6 | 1")
    [window] = run.end().main
    assert (window["n"], window["first"], window["last"]) == (4, naive(100), naive(101))


def naive(seconds):
    return at(seconds).replace(tzinfo=None)


def test_times_without_a_zone_have_windows_without_one():
    run = DryRun(tg.events(NO_ZONE, time="ts").window(TEN).agg(n=tg.count()))
    run.batch([{"ts": datetime(2024, 5, 1, 12), "k": 1}])
    [window] = run.end().main
    assert window["window_start"] == datetime(2024, 5, 1, 12)


@pytest.mark.parametrize("length", [None, "60 s"])
@pytest.mark.parametrize("gap", [2**63 - 1, 2**62, 2**55])
def test_a_gap_beyond_all_time_loses_no_row(gap, length):
    stream = Stream(pa.schema([("ts", TS), ("g", pa.duration("us"))]))
    session = tg.session(gap_column="g", max_length=length)
    run = DryRun(tg.events(stream, time="ts").window(session).agg(n=tg.count()))
    second, longest = timedelta(seconds=1), timedelta(microseconds=gap)
    for seconds, own in ((0, longest), (1, second), (500, second)):
        assert run.batch([{"ts": at(seconds), "g": own}]).main == []
    out = [*run.batch("").main, *run.end().main]
    assert sorted(row["n"] for row in out) == ([1, 2] if length else [3])


@pytest.mark.parametrize(
    "condition",
    [
        "v > QUANTILE_CONT(v, 0.5)",
        "v > QUANTILE_DISC(v, 0.5)",
        "COVAR(v, v) > 0",
        "CORR(v, v) > 0",
        "UNNEST(l) > 1",
        "ROW_NUMBER() > 1",
        "v > MEDIAN(v)",
    ],
)
def test_a_condition_is_about_one_row(condition):
    stream = Stream(pa.schema([("ts", TS), ("v", pa.float64()), ("l", pa.list_(pa.int64()))]))
    with pytest.raises(PlanError, match="looks at several rows"):
        tg.events(stream, time="ts").window(tg.sliding("1 s", when=condition))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_what_is_taken_back_is_what_is_out_also_with_the_sign_of_zero(kind):
    stream = Stream(pa.schema([("ts", TS), ("v", kind)]))
    run = DryRun(tg.events(stream, time="ts").agg(v=tg.last("v")))
    out = [
        row for n, v in enumerate((-0.0, 0.0, 5.0)) for row in run.batch([{"ts": at(n), "v": v}]).main
    ]
    told = [(row["op"], str(row["v"])) for row in out]
    assert told == [("+I", "-0.0"), ("-U", "-0.0"), ("+U", "0.0"), ("-U", "0.0"), ("+U", "5.0")]
    assert consolidate(out) == [{"v": 5.0}]


@pytest.mark.parametrize("name", ["", "*", "^x$", "__tidegate_window"])
def test_names_that_cannot_be_told_from_others_are_refused(name):
    odd = Stream(pa.schema([("ts", TS), (name, pa.int64())]))
    with pytest.raises(PlanError, match="column"):
        tg.events(odd, time="ts")
    with pytest.raises(PlanError, match="column"):
        tg.events(CLICKS, time="ts").window(TEN).agg(**{name: tg.count()})


def test_two_columns_of_one_name_are_refused():
    twins = Stream(pa.schema([("ts", TS), ("v", pa.int64()), ("v", pa.int64())]))
    with pytest.raises(PlanError, match="several columns are called 'v'; rename or drop some"):
        tg.events(twins, time="ts")


def test_an_offset_of_centuries_is_refused():
    with pytest.raises(DurationError, match=r"tumbling\(offset\) is longer than a hundred years"):
        tg.tumbling("1 h", offset="99999999999999 d")


def test_structs_can_be_compared():
    assert_rows([{"s": {"x": 1, "y": [1.0]}}], [{"s": {"x": 1, "y": [1.0]}}])
    with pytest.raises(AssertionError):
        assert_rows([{"s": {"x": 1}}], [{"s": {"x": 2}}])


def test_rows_can_be_kept_by_the_time_they_come_at():
    """Such rows are moved where the clock goes back, which nobody has asked for: it is not refused."""
    stamped = tg.events(Stream(pa.schema([("user", pa.string())])), time=tg.processing_time())
    run = DryRun(stamped.key_by("event_time").window(TEN).agg(n=tg.count()))
    run.batch([{"user": "ann"}])
    assert [row["n"] for row in run.end().main] == [1]


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize(
    "window", [TEN, tg.session("5 s"), tg.sliding("10 s"), tg.sliding("10 s", "5 s")], ids=str
)
def test_a_key_is_the_time_a_row_came_at_also_where_the_clock_goes_back(window, buckets):
    """Each key stays a key of its own, whichever bucket it lies in."""
    stamped = tg.events(Stream(pa.schema([("user", pa.string())])), time=tg.processing_time())
    plan = optimize(stamped.key_by("event_time").window(window).agg(n=tg.count()).node)
    host, results = KernelHost(plan, buckets=buckets), []
    for seconds in ([0, 1, 2, 3, 4, 25], [1, 2, 2, 4, 25], [5, 6, 7], [40]):
        results += host.batch([{"event_time": at(second), "user": "ann"} for second in seconds]).main
    results += [*host.batch([]).main, *host.end().main]
    if isinstance(window, Sliding):
        # Rows show the time they were moved to. Only two pairs share a key: those of 2 and of 25.
        moved = [row["n"] for row in results if row["event_time"] == at(25)]
        pair = [1, 2] if window.lookahead is None else [2, 2]
        assert sorted(moved) == sorted([1, *pair, 1, *pair, 1, 1, 1])
        return
    by_key = Counter((row["event_time"], row["window_start"]) for row in results)
    assert set(by_key.values()) == {1}
    moved_to = {row["event_time"]: row["n"] for row in results if row["window_start"] > at(10)}
    expected = {1: 1, 2: 2, 4: 1, 5: 1, 6: 1, 7: 1, 25: 2, 40: 1}
    assert moved_to == {at(second): count for second, count in expected.items()}


@pytest.mark.parametrize("buckets", [1, 4])
def test_rows_of_processing_time_in_order_show_the_time_they_were_moved_to(buckets):
    stamped = tg.events(Stream(pa.schema([("user", pa.string())])), time=tg.processing_time())
    host = KernelHost(optimize(stamped.key_by("event_time").reorder().node), buckets=buckets)
    host.batch([{"event_time": at(25), "user": "ann"}])
    moved = host.batch([{"event_time": at(second), "user": "bob"} for second in (1, 2)]).main
    assert [row["event_time"] for row in moved if row["user"] == "bob"] == [at(25), at(25)]


def test_ids_are_the_time_a_row_came_at_also_where_the_clock_goes_back():
    stamped = tg.events(Stream(pa.schema([("user", pa.string())])), time=tg.processing_time())
    host = KernelHost(optimize(stamped.dedupe(on=["event_time"], within="1 s").node), buckets=4)
    passed = []
    for seconds in ([25], [1, 2, 1], [2, 25, 3]):
        got = host.batch([{"event_time": at(second), "user": str(second)} for second in seconds])
        passed.append([row["user"] for row in got.main])
    assert [sorted(users) for users in passed] == [["25"], ["1", "2"], ["3"]]
