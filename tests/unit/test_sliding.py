"""Windows around rows: the cases of the design, what is refused, and the kernel at its edges."""

import bisect
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.oracle import Oracle
from tests.support.final_rows import final_rows
from tests.support.plans import (
    ROWS,
    SCHEMA,
    SECOND,
    TIMESTAMP,
    changed_parts,
    logical_plan,
    plan_of,
    sliding,
)
from tidegate.api import emit, late
from tidegate.api import windows as tg
from tidegate.api.aggregates import count
from tidegate.api.events import KeyedEvents
from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.errors import DurationError, EmissionRefused, PlanError, TypeMismatch
from tidegate.kernels import aggregates as a
from tidegate.kernels.accumulators import StatesInOrder
from tidegate.plan.channels import COUNTERS, LATE_AT_WATERMARK, LATE_COLUMNS
from tidegate.plan.inputs import KeyBy
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.sources import Source
from tidegate.plan.time import Micros
from tidegate.testing import KernelHost, differences
from tidegate.testing.table import instant_of, micros_of

FOREVER = 1 << 40
TOTALS = (*ROWS, ("total", a.Sum("items")))


def at(time, items=None, user="ann", **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def found(rows, *names):
    """Results as tuples: the row's time and the named columns, in the order of time."""
    return sorted((micros_of(row["ts"]), *(row[name] for name in names)) for row in rows)


# -- the end --------------------------------------------------------------------------------------


def test_at_the_end_every_row_has_its_window_in_the_order_of_time():
    host = KernelHost(plan_of(sliding(10, 15)))
    assert host.batch([at(110), at(100), at(115)]).main == []
    ended = host.end().main
    assert [(micros_of(row["ts"]), row["n"]) for row in ended] == [(100, 3), (110, 3), (115, 2)]
    assert host.end().main == []


def test_what_has_left_does_not_leave_again_at_the_end():
    host = KernelHost(plan_of(sliding(10, 15), tolerance=1))
    host.batch([at(100), at(110), at(115)])
    assert host.batch([at(116, user="zoe")]).main == []  # the watermark is at 114
    assert found(host.batch([]).main, "n") == [(100, 3)]
    assert found(host.end().main, "user", "n") == [(110, "ann", 3), (115, "ann", 2), (116, "zoe", 1)]


def test_windows_of_what_has_arrived_leave_nothing_for_the_end():
    host = KernelHost(plan_of(sliding(2), TOTALS))
    got = host.batch([at(1, 1), at(2, 2), at(4, 4), at(5, 8)]).main
    assert [row["total"] for row in got] == [1, 3, 6, 12]
    assert host.end().main == []


def test_empty_batches_change_nothing():
    host = KernelHost(plan_of(sliding(10, 5)))
    assert host.batch([]).channels == {}
    host.batch([at(0)])
    assert [host.batch([]).main for _ in range(3)] == [[], [], []]
    assert found(host.end().main, "n") == [(0, 1)]


def test_content_is_kept_until_the_last_window_that_holds_it_is_out():
    host = KernelHost(plan_of(sliding(10, 15)))
    host.batch([at(0)])
    host.batch([at(10)])
    for time in (15, 24, 25):
        host.batch([at(time, user="zoe")])
    assert [row["n"] for row in host.batch([]).main if row["user"] == "ann"] == [2]


def test_ties_of_rows_out_of_order_go_by_arrival():
    """Many rows at few times: windows are put together from pieces that begin and end within ties."""
    chance = random.Random(13)
    aggregates = (*ROWS, *((kind.__name__, kind("items")) for kind in (a.First, a.Last, a.Collect)))
    plan = plan_of(sliding(2), aggregates, tolerance=100)
    host, oracle = KernelHost(plan), Oracle(plan)
    for size in (1, 40, 3, 150):
        rows = [at(chance.randrange(6), chance.randrange(1000)) for _ in range(size)]
        got = host.batch(rows)
        assert differences(plan, oracle.batch(rows, got.watermark_micros), got) == []


# -- late rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [None, 0, 7])
def test_every_row_in_is_accounted_for(lookahead):
    host = KernelHost(plan_of(sliding(5, lookahead), late=Reassign(Micros(30))), buckets=3)
    host.batch([at(50)])
    rows = [at(19), at(20), at(50), at(51), at(0) | {"ts": None}]
    result = host.batch(rows)
    assert set(result.counts) <= {*COUNTERS, LATE_AT_WATERMARK}
    assert dict(result.counts) == {
        "rows_in": 5,
        "errors": 1,
        "late_rows": 3,
        "late_rows_at_watermark": 1,
        "late_dropped": 1,
        "late_reassigned": 2,
    }


def test_a_moved_row_sees_what_lies_a_whole_lookback_before_the_watermark():
    """The range is closed, so state must reach back that far as long as rows can move to W."""
    plan = plan_of(sliding(10), late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan)
    host.batch([at(0)])
    host.batch([at(10)])
    assert found(host.batch([at(5)]).main, "n") == [(10, 3)]
    assert found(host.batch([at(6)]).main, "n") == [(10, 4)]
    assert found(host.batch([at(7)]).main, "n") == [(10, 5)]


@pytest.mark.parametrize("lookback", [0, 10])
def test_so_does_one_that_is_due_at_once(lookback):
    plan = plan_of(sliding(lookback, 0), late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan)
    host.batch([at(0), at(10)])
    before = {0: 1, 10: 2}[lookback]
    for number in range(1, 25):
        got = [row for row in host.batch([at(5, items=number)]).main if row["items"] == number]
        assert found(got, "n") == [(10, before + number)]


def test_a_moved_row_keeps_its_place_in_the_order_of_arrival():
    """Reassigning changes the event time of a row, not when it came."""
    plan = plan_of(sliding(10), (*ROWS, ("first", a.First("items"))), late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan)
    host.batch([at(20, 1, user="zoe")])
    got = host.batch([at(15, 2), at(21, 3)]).main
    assert found(got, "n", "first") == [(20, 1, 2), (21, 2, 2)]


def test_a_late_row_is_no_content_of_windows_that_wait():
    host = KernelHost(plan_of(sliding(50, 50), TOTALS, late=SideOutput("late")))
    host.batch([at(100, 1)])
    got = host.batch([at(100, 2), at(90, 4), at(101, 8)])
    assert len(got.channels["late"]) == 2
    assert found(host.end().main, "total") == [(100, 9), (101, 9)]


# -- which rows have a window ---------------------------------------------------------------------

NOTES = ["x", "it's", "X", "", None]
CONDITIONS = {
    "items > 1": lambda row: row["items"] is not None and row["items"] > 1,
    "items IS NULL": lambda row: row["items"] is None,
    "NOT (items > 1)": lambda row: row["items"] is not None and row["items"] <= 1,
    "note = 'x' AND items >= 0": lambda row: row["note"] == "x" and row["items"] is not None,
    "note = 'x' OR items = 2": lambda row: row["note"] == "x" or row["items"] == 2,
    "note IN ('x', 'X')": lambda row: row["note"] in ("x", "X"),
    "note = 'it''s'": lambda row: row["note"] == "it's",
    "\"user\" = 'ann'": lambda row: row["user"] == "ann",
    "price / 2 < items": lambda row: (
        None not in (row["price"], row["items"]) and row["price"] / 2 < row["items"]
    ),
    "TRUE": lambda _: True,
    "FALSE": lambda _: False,
}


@pytest.mark.parametrize("lookahead", [None, 4])
@pytest.mark.parametrize("when", CONDITIONS)
def test_rows_that_meet_the_condition_have_a_window(when, lookahead):
    rows = [
        at(number, items, user=user, note=note, price=number % 5 - 1.0)
        for number, (items, user, note) in enumerate(
            (items, user, note) for items in (None, 0, 2) for user in ("ann", None) for note in NOTES
        )
    ]
    plan = plan_of(sliding(FOREVER, lookahead, when), keys=())
    results = final_rows(plan, rows)
    assert [micros_of(row["ts"]) for row in results] == [
        number for number, row in enumerate(rows) if CONDITIONS[when](row)
    ]
    ahead = lookahead or 0
    expected = [min(len(rows), micros_of(row["ts"]) + 1 + ahead) for row in results]
    assert [row["n"] for row in results] == expected


def test_rows_that_never_meet_the_condition_still_go_when_they_are_over():
    host = KernelHost(plan_of(sliding(5, 5, "items > 1000")))
    for time in range(0, 400, 7):
        assert host.batch([at(time, 1)]).main == []
    assert sum(map(len, host.stored.values())) < 20


# -- columns --------------------------------------------------------------------------------------

INSTANT = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
PAYLOADS = {
    "bool": (pa.bool_(), True),
    "int8": (pa.int8(), -128),
    "int16": (pa.int16(), 2**15 - 1),
    "int32": (pa.int32(), -(2**31)),
    "int64": (pa.int64(), 2**63 - 1),
    "float32": (pa.float32(), 0.5),
    "float64": (pa.float64(), 0.1),
    "decimal": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789")),
    "small decimal": (pa.decimal128(5, 2), Decimal("-999.99")),
    "string": (pa.string(), "ünï|c\0de\n"),
    "large string": (pa.large_string(), "long"),
    "empty string": (pa.string(), ""),
    "binary": (pa.binary(), b"\x00\xff"),
    "large binary": (pa.large_binary(), b"\x80"),
    "date": (pa.date32(), date(1582, 10, 15)),
    "timestamp": (TIMESTAMP, INSTANT),
    "timestamp without zone": (pa.timestamp("us"), INSTANT.replace(tzinfo=None)),
    "duration": (pa.duration("us"), timedelta(days=-3, microseconds=1)),
    "list": (pa.list_(pa.int32()), [1, None, 3]),
    "empty list": (pa.list_(pa.string()), []),
    "list of lists": (pa.list_(pa.list_(pa.float64())), [[1.5], None, []]),
    "struct": (pa.struct([("a", pa.int8()), ("b", pa.string())]), {"a": None, "b": "x"}),
    "list of structs": (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, {"a": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)]),
    "empty map": (pa.map_(pa.string(), pa.int64()), []),
    "map of structs": (
        pa.map_(pa.int32(), pa.struct([("when", pa.timestamp("us", tz="UTC"))])),
        [(1, {"when": INSTANT})],
    ),
    "struct of a map": (
        pa.struct([("m", pa.map_(pa.string(), pa.decimal128(10, 3)))]),
        {"m": [("k", Decimal("1.250"))]},
    ),
    "list of maps": (pa.list_(pa.map_(pa.string(), pa.date32())), [[("d", date(2024, 5, 1))], []]),
}
EVERY_PAYLOAD = pytest.mark.parametrize("kind", PAYLOADS)


@EVERY_PAYLOAD
@pytest.mark.parametrize("lookahead", [None, 3])
def test_rows_keep_columns_of_every_type(kind, lookahead):
    type_, value = PAYLOADS[kind]
    schema = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("payload", type_)])
    plan = plan_of(sliding(10, lookahead), schema=schema, late=SideOutput("late"))
    host = KernelHost(plan, buckets=2)
    rows = [at(0, payload=value), at(1, payload=None), at(2, payload=value, user=None)]
    results = [host.batch(rows)]
    host.restart()  # so that they are read from their pages
    late_rows = [at(-1, payload=value), at(-2, payload=None)]
    results.append(host.batch([at(100, payload=value), *late_rows]))
    host.restart()
    results.append(host.end())
    out = [row for result in results for row in result.main]
    kept = {micros_of(row["ts"]): row["payload"] for row in out}
    assert kept == {0: value, 1: None, 2: value, 100: value}
    [late_channel] = [result.channels["late"] for result in results if "late" in result.channels]
    assert {micros_of(row["ts"]): row["payload"] for row in late_channel} == {-1: value, -2: None}


@EVERY_PAYLOAD
@pytest.mark.parametrize("lookahead", [None, 0])
def test_moved_rows_keep_columns_of_every_type(kind, lookahead):
    type_, value = PAYLOADS[kind]
    schema = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("payload", type_)])
    plan = plan_of(sliding(10, lookahead), schema=schema, late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan)
    host.batch([at(5, payload=None)])
    moved = [row for row in host.batch([at(0, payload=value, user="bob")]).main if row["user"] == "bob"]
    assert [(row["ts"], row["payload"]) for row in moved] == [(instant_of(5), value)]


def test_a_column_that_arrow_cannot_hold_is_refused():
    schema = SCHEMA.append(pa.field("odd", pa.null()))
    with pytest.raises(TypeMismatch) as raised:
        logical_plan(sliding(10), schema=schema)
    assert str(raised.value).startswith(
        "a window around each row keeps it: column 'odd' has a type that Arrow cannot hold"
    )


# Whatever the kernel calls its own columns, a user may have called theirs the same.
INNER_NAMES = [
    "key",
    "time",
    "rows",
    "trigger",
    "place",
    "window_start",
    "op",
    "n.count",
    "a b",
    "é",
    '"',
]


@pytest.mark.parametrize("lookahead", [None, 0])
@pytest.mark.parametrize("name", INNER_NAMES)
def test_columns_and_results_may_have_any_name(name, lookahead):
    schema = pa.schema([("ts", TIMESTAMP), (name, pa.int64()), ("other", pa.int64())])
    rows = [{"ts": instant_of(5), name: value, "other": value} for value in (77, 78, 77)]
    as_key = plan_of(sliding(10, lookahead), (("x", a.Sum("other")),), keys=(name,), schema=schema)
    results = {(row[name], row["other"], row["x"]) for row in final_rows(as_key, rows)}
    assert results >= {(77, 77, 154), (78, 78, 78)}
    as_content = plan_of(sliding(10, lookahead), (("x", a.Sum(name)),), keys=(), schema=schema)
    assert max(row["x"] for row in final_rows(as_content, rows)) == 232
    free = pa.schema([("ts", TIMESTAMP), ("other", pa.int64())])
    as_result = plan_of(sliding(10, lookahead), ((name, a.Sum("other")),), keys=(), schema=free)
    assert max(row[name] for row in final_rows(as_result, rows)) == 232


def test_the_event_time_may_be_aggregated_and_be_a_key():
    plan = plan_of(sliding(10, 0), (("first", a.Min("ts")), *ROWS), keys=("ts",))
    results = final_rows(plan, [at(5), at(5), at(7)])
    assert found(results, "n") == [(5, 2), (5, 2), (7, 1)]
    assert [row["first"] for row in results] == [row["ts"] for row in results]


# -- nulls in what is aggregated ------------------------------------------------------------------


def test_nulls_here_and_there_are_ignored():
    """Some stretches of a batch have nulls and some have none, whichever way they are put together."""
    aggregates = (
        *TOTALS,
        ("most", a.Max("items")),
        ("least", a.Min("items")),
        ("mean", a.Mean("items")),
        ("values", a.Collect("items")),
        ("first", a.First("items")),
    )
    times = [5, 3, 4, 1, 2, 9, 8, 7, 6, 0]
    rows = [at(time, None if time % 3 else time) for time in times]
    plan = plan_of(sliding(4), aggregates, tolerance=100)
    host, oracle = KernelHost(plan), Oracle(plan)
    for part in (rows[:1], rows[1:6], rows[6:]):
        got = host.batch(part)
        assert differences(plan, oracle.batch(part, got.watermark_micros), got) == []


# -- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [None, 0, 20])
def test_state_shrinks_as_the_watermark_passes(lookahead):
    host = KernelHost(plan_of(sliding(30, lookahead)), buckets=2)
    for time in range(0, 280, 7):
        host.batch([at(time, user=f"u{time % 4}")])
        assert sum(map(len, host.stored.values())) < 60
    host.end()
    assert not any(host.stored.values())


@pytest.mark.parametrize("lookahead", [None, 0, 20])
def test_old_rows_go_though_new_ones_of_their_key_keep_coming(lookahead):
    host = KernelHost(plan_of(sliding(30, lookahead)))
    sizes = []
    for time in range(0, 320, 5):
        host.batch([at(time)])
        sizes.append(sum(map(len, host.stored[0, 0].values())))
    assert max(sizes[32:]) <= 1.3 * max(sizes[:32])


def test_a_key_that_falls_silent_goes_when_the_watermark_passes_it():
    host = KernelHost(plan_of(sliding(30)), buckets=8)
    host.batch([at(0, user=f"u{number}") for number in range(50)])
    assert any(len(pages) > 1 for pages in host.stored.values())
    host.batch([at(1000, user="zoe")])
    host.batch([])
    held = [pages for pages in host.stored.values() if pages]
    assert len(held) == 1


@pytest.mark.parametrize("lookahead", [None, 0, 20])
def test_restarts_failures_and_other_workers_change_nothing_over_many_batches(lookahead):
    plan = plan_of(sliding(25, lookahead), TOTALS, tolerance=12)
    fresh, resident, failing = KernelHost(plan), KernelHost(plan), KernelHost(plan)
    for step in range(14):
        rows = [at(step * 8 + 5 * i, step + i, user=f"u{(step * i) % 3}") for i in range(-3, 3)]
        fresh.restart()
        failing.failed_batch([*rows, at(step * 8, 1000)])
        batches = (fresh.batch(rows), resident.batch(rows), failing.batch(rows, worker=step % 3))
        one, two, three = (found(batch.main, "user", "items", "n", "total") for batch in batches)
        assert one == two == three


def test_large_results_leave_in_several_messages(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 2000)
    rows = [at(time, user=f"user-{i}") for i in range(300) for time in (5, 9)]
    results = final_rows(plan_of(sliding(10, 0)), rows)
    assert {(row["user"], micros_of(row["ts"]), row["n"]) for row in results} == {
        (f"user-{i}", time, n) for i in range(300) for time, n in ((5, 1), (9, 2))
    }
    assert len(results) == 600


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [None, 0, 5])
def test_before_1970_and_where_spark_knows_no_watermark(lookahead):
    host = KernelHost(plan_of(sliding(10, lookahead)), as_spark=True)
    results = [host.batch([at(time)]) for time in (-50, -45, -41)]
    assert [result.watermark_micros for result in results] == [None] * 3
    rows = [row for result in (*results, host.end()) for row in result.main]
    expected = [(-50, 1), (-45, 2), (-41, 3)] if lookahead is None else None
    ahead = [(-50, 1 + (lookahead == 5)), (-45, 2 + (lookahead == 5)), (-41, 3)]
    assert found(rows, "n") == (expected or ahead)


@pytest.mark.parametrize("lookahead", [None, 0])
def test_keys_and_times_may_exceed_64_bits(lookahead):
    """Many keys and one row far in the future, such as the year 9999."""
    times = (0, 1, 80_000_000_000_000_000, 250_000_000_000_000_000)
    plan = plan_of(sliding(1, lookahead), keys=("shop",))
    rows = [{"ts": instant_of(time), "shop": shop} for shop in range(200) for time in times]
    results = final_rows(plan, rows)
    counts = dict(zip(times, (1, 2, 1, 1), strict=True))
    assert {(row["shop"], micros_of(row["ts"]), row["n"]) for row in results} == {
        (shop, time, counts[time]) for shop in range(200) for time in times
    }


@pytest.mark.parametrize("lookahead", [None, 0])
def test_a_lookback_of_a_hundred_years(lookahead):
    window = tg.sliding("36500 days", None if lookahead is None else "0 s")
    rows = [at(number * SECOND) for number in range(20)]
    assert [row["n"] for row in final_rows(plan_of(window), rows)] == list(range(1, 21))


# -- many rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lookahead", [None, 500])
def test_many_rows_of_one_key_in_any_order(lookahead, monkeypatch):
    times = list(range(10_000))
    random.Random(7).shuffle(times)
    window = sliding(2_000, lookahead)
    plan = plan_of(window, (*ROWS, ("last", a.Last("items"))))
    merge, merged = StatesInOrder.pieces, []

    def counted_merge(self, own, pieces):
        merged.extend(len(piece.asking) for piece in pieces)
        return merge(self, own, pieces)

    monkeypatch.setattr(StatesInOrder, "pieces", counted_merge)
    results = final_rows(plan, [at(moment, moment) for moment in times])
    assert {micros_of(row["ts"]): row["n"] for row in results} == counted(times, window)
    reach = lookahead or 0
    if lookahead is not None:
        assert all(row["last"] == min(micros_of(row["ts"]) + reach, 9_999) for row in results)
    # Near linear: windows are put together from few pieces, not from a hundred million pairs.
    assert (lookahead is None) == (sum(merged) > 0)
    assert sum(merged) < 10_000 * 20


def counted(times, window):
    """How many rows each window holds, by a sorted list."""
    if window.lookahead is not None:
        low, high = window.lookback, window.lookahead
        return {t: min(t + high, len(times) - 1) - max(t - low, 0) + 1 for t in times}
    arrived, counts = [], {}
    for moment in times:
        bisect.insort(arrived, moment)
        low, high = (
            bisect.bisect_left(arrived, moment - window.lookback),
            bisect.bisect(arrived, moment),
        )
        counts[moment] = high - low
    return counts


# -- what the user writes -------------------------------------------------------------------------


def keyed():
    return KeyedEvents((), KeyBy(Source(SCHEMA, "ts", Micros(0)), ("user",)))


def test_windows_are_shown_as_they_are_written():
    assert str(tg.sliding("10 seconds")) == "sliding(10 seconds)"
    assert str(tg.sliding("10 seconds", "0 s")) == "sliding(10 seconds, 0 seconds)"
    assert str(tg.sliding("1 min", when="items > 1")) == "sliding(1 minute, when='items > 1')"
    assert tg.sliding("0 s") == sliding(0)
    assert tg.sliding("1 s", timedelta(0)) == sliding(SECOND, 0) != tg.sliding("1 s")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("-1 s", "sliding(lookback) must be zero or more, got '-1 s'"),
        (timedelta(seconds=-1), "sliding(lookback) must be zero or more, got datetime.timedelta("),
        ("soon", "sliding(lookback): cannot read 'soon' as a duration"),
        (5, "sliding(lookback) must be a timedelta or text such as '10 seconds', got 5"),
        (None, "sliding(lookback) must be a timedelta or text such as '10 seconds', got None"),
    ],
)
def test_a_lookback_is_a_duration(given, message):
    with pytest.raises(DurationError) as raised:
        tg.sliding(given)
    assert str(raised.value).startswith(message)


def test_a_lookahead_is_a_duration():
    with pytest.raises(DurationError) as raised:
        tg.sliding("1 s", "-5 s")
    assert str(raised.value) == "sliding(lookahead) must be zero or more, got '-5 s'"


def test_lateness_is_refused():
    with pytest.raises(PlanError) as raised:
        keyed().window(tg.sliding("1 s", "5 s"), allowed_lateness="3 s")
    assert str(raised.value) == (
        "sliding(1 second, 5 seconds) with allowed_lateness=3 seconds: the window around a row is "
        "emitted once, and a row at or below the watermark is late; raise the tolerance"
    )


@pytest.mark.parametrize(
    "strategy",
    [OnWindowClose(), OnWindowClose(final=True), Retracting(), Retracting(interval=Micros(5))],
    ids=str,
)
def test_strategies_are_refused(strategy):
    results = keyed().window(tg.sliding("1 s")).agg(n=count())
    with pytest.raises(EmissionRefused) as raised:
        results.emit(strategy)
    assert str(raised.value) == (
        f"{strategy} over sliding(1 second): each row has one result, which is final; leave emit() out"
    )
    assert results.emit(emit.on_watermark()).node == results.node


@pytest.mark.parametrize("when", ["price >", "nonsense(", "item > 1", "", "price > 1; DROP", "*"])
def test_a_condition_is_over_the_rows_columns(when):
    with pytest.raises(PlanError) as raised:
        keyed().window(tg.sliding("1 s", when=when))
    message = str(raised.value)
    assert message.startswith(f"when={when!r} is no condition over ts, user, shop, price, items, note")
    assert not isinstance(raised.value, TypeMismatch)


@pytest.mark.parametrize("when", ["items", "items + 1", "note", "1", "NULL"])
def test_a_condition_is_true_or_false(when):
    with pytest.raises(TypeMismatch) as raised:
        keyed().window(tg.sliding("1 s", when=when))
    assert str(raised.value).startswith(f"when={when!r} is ")
    assert str(raised.value).endswith("; a condition is true or false")


@pytest.mark.parametrize(
    "when",
    ["MAX(items) > 1", "COUNT(*) > 1", "items > AVG(items)", "SUM(items) OVER (PARTITION BY shop) > 1"],
)
def test_a_condition_is_about_one_row(when):
    """Otherwise it would depend on how rows are cut into batches."""
    with pytest.raises(PlanError):
        keyed().window(tg.sliding("1 s", when=when))


@pytest.mark.parametrize("name", ["Agg", "Len", "max", "count"])
def test_a_condition_may_name_columns_and_texts_as_it_likes(name):
    schema = SCHEMA.append(pa.field(name, pa.string()))
    plan = plan_of(sliding(10, when=f"\"{name}\" = '{name}'"), schema=schema)
    rows = [at(1, **{name: name}), at(2, **{name: "other"}), at(3, **{name: None})]
    assert found(final_rows(plan, rows), "n") == [(1, 1)]


@pytest.mark.parametrize("when", [5, True, lambda _: True], ids=["number", "bool", "function"])
def test_a_condition_is_text(when):
    with pytest.raises(PlanError, match=r"sliding\(when\) is a condition as text, such as 'price > 10'"):
        tg.sliding("1 s", when=when)


def test_results_may_not_be_named_as_the_rows_columns():
    with pytest.raises(PlanError, match="agg\\(\\) names 'price', which is a column already"):
        keyed().window(tg.sliding("1 s")).agg(price=count())
    bounds = keyed().window(tg.sliding("1 s")).agg(window_start=count(), op=count())
    assert bounds.node.schema.names == [*SCHEMA.names, "window_start", "op"]


def test_late_rows_have_a_channel_with_all_columns():
    windowed = keyed().window(tg.sliding("1 s"), late=late.side_output("too_late"))
    schema = compile(windowed.agg(n=count()).node).channels["too_late"]
    assert schema.names == [*SCHEMA.names, *(field.name for field in LATE_COLUMNS)]


def test_every_column_stays():
    assert plan_of(sliding(10)).windowed.schema.names == SCHEMA.names


@pytest.mark.parametrize(
    "other", [sliding(11), sliding(10, 0), sliding(10, 5), sliding(10, None, "items > 1")], ids=str
)
def test_the_window_is_part_of_the_identity(other):
    assert changed_parts(logical_plan(sliding(10)), logical_plan(other)) == ["window"]


def test_the_columns_of_rows_are_part_of_the_identity():
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    one, two = (logical_plan(sliding(1), schema=schema) for schema in (SCHEMA, wider))
    assert changed_parts(one, two) == ["rows"]
