"""Sessions: the cases of the design document, what is refused, and the kernel at its edges."""

from datetime import timedelta

import pyarrow as pa
import pytest

from tests.support.final_rows import final_rows
from tests.support.plans import (
    ROWS,
    SCHEMA,
    SECOND,
    TIMESTAMP,
    WITH_IDLE,
    changed_parts,
    logical_plan,
    plan_of,
    session,
)
from tidegate.api import emit
from tidegate.api import windows as tg
from tidegate.api.aggregates import count
from tidegate.api.events import WindowedEvents
from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.errors import (
    ColumnNotFound,
    DurationError,
    EmissionRefused,
    NotMergeable,
    PlanError,
    TypeMismatch,
)
from tidegate.kernels import aggregates as a
from tidegate.kernels.contract import Clock
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.messages import Kind
from tidegate.kernels.registry import kernels_of
from tidegate.plan.channels import COUNTERS
from tidegate.plan.policies import OnWatermark, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros
from tidegate.state.pages import BucketState, MemoryPages
from tidegate.testing import Changelog, KernelHost
from tidegate.testing.table import instant_of, micros_of, to_arrow

UPDATE, CHANGELOG = Retracting(), Retracting(before="-D", after="+I")
PERIODIC = Retracting(interval=Micros(50))
STRATEGIES = [OnWatermark(), OnWindowClose(), UPDATE, CHANGELOG, PERIODIC]
EVERY_STRATEGY = pytest.mark.parametrize("emission", STRATEGIES, ids=str)
FOREVER = 1 << 40
TOTALS = (
    *ROWS,
    ("total", a.Sum("items")),
    ("least", a.Min("items")),
    ("most", a.Max("items")),
    ("all", a.Collect("items")),
)


def at(time, items=None, user="ann", **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def bounds(row):
    return micros_of(row["window_start"]), micros_of(row["window_end"])


def found(rows, *names):
    """Results as tuples: start, end, and the named columns; in the order of time."""
    return sorted((*bounds(row), *(row[name] for name in names)) for row in rows)


def ops(rows):
    """A changelog's rows as tuples, in their order but for that within retractions and insertions."""
    order = sorted(rows, key=lambda row: (row["op"][0] != "-", bounds(row)))
    return [(row["op"], *bounds(row), row["n"]) for row in order]


def open_host(window, aggregates=ROWS, **options):
    """A host in which nothing closes before its end."""
    return KernelHost(plan_of(window, aggregates, tolerance=FOREVER, **options))


def run_in_pieces(host, *times):
    """One row a batch, with new workers for each."""
    results = []
    for number, time in enumerate(times):
        results.append(host.batch([at(time, items=10 ** min(number, 9))]))
        host.restart()
    return results


# -- the document's cases, with the numbers that hold ---------------------------------------------


def test_a_session_across_micro_batches():
    host = open_host(session(1000))
    run_in_pieces(host, 100, 500)
    assert found(host.end().main, "n") == [(100, 1500, 2)]


def test_nothing_is_emitted_because_a_batch_ended():
    host = open_host(session(1000))
    assert [result.main for result in run_in_pieces(host, 100, 500, 9000)] == [[], [], []]


def test_a_later_row_merges_two_sessions():
    host = open_host(session(2500), TOTALS)
    run_in_pieces(host, 0, 5000, 2500)
    assert found(host.end().main, "n", "total") == [(0, 7500, 3, 111)]


def test_two_sessions_that_do_not_touch_stay_apart():
    host = open_host(session(2499))
    run_in_pieces(host, 0, 5000, 2501)
    assert found(host.end().main, "n") == [(0, 2499, 1), (2501, 7499, 2)]


def test_three_sessions_merge_one_after_the_other():
    host = open_host(session(5000), TOTALS, emission=UPDATE)
    three = run_in_pieces(host, 0, 10_000, 20_000)
    assert [ops(result.main) for result in three] == [
        [("+I", 0, 5000, 1)],
        [("+I", 10_000, 15_000, 1)],
        [("+I", 20_000, 25_000, 1)],
    ]
    [first, second] = run_in_pieces(host, 5000, 15_000)
    assert ops(first.main) == [
        ("-U", 0, 5000, 1),
        ("-D", 10_000, 15_000, 1),
        ("+U", 0, 15_000, 3),
    ]
    assert ops(second.main) == [
        ("-U", 0, 15_000, 3),
        ("-D", 20_000, 25_000, 1),
        ("+U", 0, 25_000, 5),
    ]


def test_three_sessions_merge_at_once():
    host = open_host(session("idle"), TOTALS, emission=UPDATE, schema=WITH_IDLE)
    short, long = timedelta(microseconds=5), timedelta(microseconds=40)
    host.batch([at(time, idle=short) for time in (0, 10, 20)])
    assert ops(host.batch([at(3, idle=long)]).main) == [
        ("-U", 0, 5, 1),
        ("-D", 10, 15, 1),
        ("-D", 20, 25, 1),
        ("+U", 0, 43, 4),
    ]


def test_a_merge_takes_back_two_rows_and_puts_out_one():
    host, table = open_host(session(2500), emission=CHANGELOG), Changelog(["user"])
    [one, other, merge] = run_in_pieces(host, 0, 5000, 2500)
    assert ops(one.main) == [("+I", 0, 2500, 1)]
    assert ops(other.main) == [("+I", 5000, 7500, 1)]
    assert ops(merge.main) == [("-D", 0, 2500, 1), ("-D", 5000, 7500, 1), ("+I", 0, 7500, 3)]
    for result in (one, other, merge):
        table.apply(result.main)
    assert found(table.rows, "n") == [(0, 7500, 3)]


def test_every_accumulator_merges():
    aggregates = (
        *TOTALS,
        ("mean", a.Mean("items")),
        ("spread", a.Stddev("items", population=True)),
        ("first", a.First("items")),
        ("last", a.Last("items")),
        ("kinds", a.CountDistinct("items")),
        ("about", a.ApproxCountDistinct("items")),
        ("middle", a.Quantile("items", 0.5)),
    )
    host = open_host(session(10), aggregates)
    for time, items in ((0, 4), (20, 2), (40, 4), (30, 2), (10, 8)):
        host.batch([at(time, items=items)])
        host.restart()
    [row] = host.end().main
    assert (*bounds(row), row["n"], row["total"]) == (0, 50, 5, 20)
    assert (row["least"], row["most"], row["all"]) == (2, 8, [4, 8, 2, 2, 4])
    assert (row["mean"], row["spread"]) == (4, pytest.approx(4.8**0.5))
    assert (row["first"], row["last"], row["kinds"], row["about"]) == (4, 4, 3, 3)
    assert row["middle"] == pytest.approx(4, rel=0.01)


@pytest.mark.parametrize(("time", "sessions"), [(10, [(0, 20, 2)]), (11, [(0, 10, 1), (11, 21, 1)])])
def test_touching_at_exactly_the_gap_joins(time, sessions):
    for rows in ([0, time], [time, 0]):
        together = open_host(session(10))
        together.batch([at(t) for t in rows])
        assert found(together.end().main, "n") == sessions
        apart = open_host(session(10))
        run_in_pieces(apart, *rows)
        assert found(apart.end().main, "n") == sessions


def test_ties_go_by_arrival_also_when_sessions_merge():
    aggregates = (("first", a.First("items")), ("last", a.Last("items")))
    host = open_host(session(10), aggregates)
    host.batch([at(5, items=1), at(25, items=2)])
    host.batch([at(5, items=3), at(25, items=4)])
    host.batch([at(15, items=5)])
    host.batch([at(5, items=6), at(25, items=7)])
    assert found(host.end().main, "first", "last") == [(5, 35, 1, 7)]


# -- lateness -------------------------------------------------------------------------------------


def test_a_closed_session_is_not_taken_back_by_one_that_overlaps_it():
    host, table = KernelHost(plan_of(session(10), emission=CHANGELOG)), Changelog(["user"])
    table.apply(host.batch([at(3), at(13, user="zoe")]).main)
    table.apply(host.batch([at(1), at(5), at(14)]).main)
    table.apply(host.batch([at(2), at(16)]).main)
    assert found([row for row in table.rows if row["user"] == "ann"], "n") == [(1, 26, 5), (3, 13, 1)]


def test_a_new_session_may_begin_where_a_closed_one_began():
    host, table = KernelHost(plan_of(session(10), emission=UPDATE)), Changelog(["user"])
    table.apply(host.batch([at(0), at(10, user="zoe")]).main)
    table.apply(host.batch([at(0), at(8), at(12)]).main)
    table.apply(host.batch([at(0), at(18)]).main)
    assert found([row for row in table.rows if row["user"] == "ann"], "n") == [(0, 10, 1), (0, 28, 5)]


def test_late_rows_of_one_key_say_nothing_about_another():
    host = KernelHost(plan_of(session(10), late=SideOutput("late")), buckets=3)
    users = [f"u{i}" for i in range(20)]
    host.batch([at(100, user=user) for user in users])
    got = host.batch([at(50 if user in users[:7] else 95, user=user) for user in users])
    assert sorted(row["user"] for row in got.channels["late"]) == sorted(users[:7])


def test_every_row_in_is_accounted_for():
    plan = plan_of(session("idle"), late=Reassign(Micros(30)), schema=WITH_IDLE)
    host = KernelHost(plan, buckets=3)
    gap = timedelta(microseconds=4)
    host.batch([at(50, idle=gap)])
    rows = [
        at(0, idle=gap) | {"ts": None},
        at(50, idle=None),
        at(50, idle=-gap),
        at(45, idle=gap),
        at(19, idle=gap),
        at(20, idle=gap),
        at(46, idle=gap),
    ]
    counts = host.batch(rows).counts
    assert set(counts) <= set(COUNTERS)
    # 45 and 46 reach the live session; of the late ones 20 is moved, and 19 is too old.
    assert dict(counts) == {
        "rows_in": 7,
        "errors": 3,
        "late_rows": 2,
        "late_dropped": 1,
        "late_reassigned": 1,
    }


@pytest.mark.parametrize("policy", [SideOutput("late"), Reassign(Micros(FOREVER))], ids=str)
def test_rows_travel_only_where_the_late_policy_needs_them(policy):
    def bytes_of(late):
        plan = plan_of(session(SECOND), late=late)
        schema = plan.input.input.schema.append(pa.field(INVALID_ROW, pa.string()))
        table = to_arrow([at(i % 1000) for i in range(5000)], schema)
        packed = kernels_of(compile(plan))[0].input.pack(table, [0])
        return sum(len(message.blob or b"") for message in packed)

    assert bytes_of(policy) > 10 * bytes_of(plan_of(session(1)).input.input.late)


# -- attempts and restarts ------------------------------------------------------------------------


@EVERY_STRATEGY
def test_a_failed_attempt_leaves_no_trace(emission):
    host, undisturbed = (KernelHost(plan_of(session(10), emission=emission)) for _ in range(2))
    batches = [[at(0), at(20)], [at(10)], [at(31), at(35, user="bob")], [at(90)], []]
    for number, rows in enumerate(batches):
        host.now = undisturbed.now = 40 * number
        host.failed_batch([at(5), at(12), at(28), at(30, user="bob")])
        expected = undisturbed.batch(rows)
        assert found(host.batch(rows).main, "user", "n") == found(expected.main, "user", "n")


@EVERY_STRATEGY
def test_memory_and_restarts_change_nothing_over_many_batches(emission):
    plan = plan_of(session(7), emission=emission, tolerance=12)
    fresh, resident = KernelHost(plan), KernelHost(plan)
    for step in range(25):
        rows = [at(step * 8 + 5 * i, user=f"u{(step * i) % 5}") for i in range(-3, 3)]
        fresh.restart()
        fresh.now = resident.now = step * 20
        columns = ["user", "n", *(["op"] if isinstance(emission, Retracting) else [])]
        one, other = (found(host.batch(rows).main, *columns) for host in (fresh, resident))
        assert one == other


def test_what_is_out_keeps_its_key_after_a_restart():
    """A worker that comes when the first key is gone numbers the others otherwise."""
    host, table = KernelHost(plan_of(session(10), emission=PERIODIC)), Changelog(["user"])
    for rows in ([at(0, user="ann")], [at(9, user="bob")], [at(12, user="bob")], [at(21, user="zoe")]):
        table.apply(host.batch(rows).main)
    host.now = 100
    host.restart()
    got = host.batch([at(13, user="bob")]).main
    assert [(row["user"], row["op"]) for row in got] == [("bob", "-U"), ("bob", "+U")]
    table.apply(got)


def test_retractions_stay_right_when_pages_of_many_sizes_are_merged():
    host, table = open_host(session(10), emission=UPDATE), Changelog(["user"])
    for number in range(30):
        others = [at(5, user=f"u{i}") for i in range(10)] if number % 9 == 1 else []
        far = [at(20 * step) for step in range(1, 30)] if number == 1 else []
        table.apply(host.batch([at(5), *others, *far]).main)
    assert found([row for row in table.rows if row["user"] == "ann"], "n")[0] == (5, 15, 30)


@EVERY_STRATEGY
def test_nothing_is_left_when_all_sessions_have_closed(emission):
    host = KernelHost(plan_of(session(10), emission=emission), buckets=2)
    for time in range(0, 1000, 7):
        host.batch([at(time, user=f"u{time % 4}")])
    assert sum(map(len, host.stored.values())) < 60
    host.end()
    assert not any(host.stored.values())


def test_a_bucket_is_woken_when_its_first_session_ends_and_not_before():
    plan = plan_of(session(10), emission=OnWindowClose(), lateness=3)
    kernel, state = kernels_of(compile(plan))[0], BucketState(MemoryPages(), "plan")
    schema = plan.input.input.schema.append(pa.field(INVALID_ROW, pa.string()))
    packed = kernel.input.pack(to_arrow([at(5), at(30)], schema), [0])
    inputs = [message for message in packed if message.kind == Kind.INPUT]
    assert kernel.step(state, inputs, Clock(None, 0)).due == 18
    assert kernel.step(state, [], Clock(18, 0)).due == 43
    assert kernel.step(state, [], Clock(43, 0)).due is None


# -- time -----------------------------------------------------------------------------------------


@EVERY_STRATEGY
def test_a_bucket_asks_to_be_woken_at_a_time_a_timer_can_hold(emission):
    """Before 1970 Spark knows no watermark; the host checks what the kernel asks for."""
    host = KernelHost(plan_of(session(10), emission=emission), as_spark=True)
    results = [host.batch([at(-50)]) for _ in range(3)]
    assert [result.watermark_micros for result in results] == [None] * 3
    last = [row["n"] for result in (*results, host.end()) for row in result.main][-1]
    assert last == 3


@EVERY_STRATEGY
def test_keys_times_span_may_exceed_64_bits(emission):
    """Many keys, a tiny gap and one row far in the future, such as the year 9999."""
    times = (0, 80_000_000_000_000_000, 250_000_000_000_000_000)
    plan = plan_of(session(1), keys=("shop",), emission=emission)
    rows = [{"ts": instant_of(time), "shop": shop} for shop in range(200) for time in times]
    expected = {(shop, time, time + 1, 1) for shop in range(200) for time in times}
    results = final_rows(plan, rows)
    assert {(row["shop"], *bounds(row), row["n"]) for row in results} == expected
    assert len(results) == len(expected)


def test_sessions_before_1970():
    host = KernelHost(plan_of(session(10, max_length=25)))
    host.batch([at(-45), at(-35), at(-26), at(-25), at(30)])
    assert found(host.batch([]).main, "n") == [(-45, -25, 3), (-25, -15, 1)]


def test_a_maximum_length_shorter_than_the_gap():
    rows = [at(time) for time in (0, 4, 5, 9, 14)]
    results = final_rows(plan_of(session(100, max_length=5)), rows)
    assert found(results, "n") == [(0, 5, 2), (5, 10, 2), (10 + 4, 15, 1)]


def test_no_session_is_longer_than_its_maximum_length():
    rows = [at(time) for time in range(0, 1000, 3)]
    results = final_rows(plan_of(session(10, max_length=60)), rows, batches=4)
    assert max(end - start for start, end in map(bounds, results)) <= 60
    assert sum(row["n"] for row in results) == len(rows)


# -- names users may choose -----------------------------------------------------------------------

INNER_NAMES = ["key", "start", "end", "number", "gone", "emitted", "pending", "at", "rows", "time", "n"]


def named_schema(name):
    gap = pa.field("idle", pa.duration("us"))
    return pa.schema([("ts", TIMESTAMP), (name, pa.int64()), ("other", pa.int64()), gap])


@pytest.mark.parametrize("emission", [OnWatermark(), UPDATE, PERIODIC], ids=str)
@pytest.mark.parametrize("name", INNER_NAMES)
def test_columns_and_results_may_have_any_name(name, emission):
    options = {"schema": named_schema(name), "emission": emission}
    rows = [{"ts": instant_of(5), name: key, "other": key} for key in (77, 78, 77)]
    as_key = plan_of(session(10), (("x", a.Sum("other")),), keys=(name,), **options)
    assert {(row[name], row["x"]) for row in final_rows(as_key, rows)} == {(77, 154), (78, 78)}
    as_result = plan_of(session(10), ((name, a.Sum(name)),), keys=("other",), **options)
    assert {(row["other"], row[name]) for row in final_rows(as_result, rows)} == {(77, 154), (78, 78)}


@pytest.mark.parametrize("name", INNER_NAMES)
def test_a_gap_column_may_have_any_name(name):
    schema = pa.schema([("ts", TIMESTAMP), (name, pa.duration("us")), ("user", pa.string())])
    plan = plan_of(session(name), (("x", a.Count(None)),), schema=schema)
    rows = [at(time) | {name: timedelta(microseconds=gap)} for time, gap in ((0, 7), (7, 2))]
    assert found(final_rows(plan, rows), "x") == [(0, 9, 2)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_gap_column_may_have_any_unit(unit):
    schema = SCHEMA.append(pa.field("idle", pa.duration(unit)))
    rows = [at(0, idle=timedelta(seconds=2)), at(2 * SECOND, idle=timedelta(seconds=1))]
    results = final_rows(plan_of(session("idle"), schema=schema), rows)
    assert found(results, "n") == [(0, 3 * SECOND, 2)]


def test_large_results_leave_in_several_messages(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 2000)
    rows = [at(time, user=f"user-{i}") for i in range(500) for time in (5, 50)]
    results = final_rows(plan_of(session(10)), rows)
    assert len({(row["user"], *bounds(row)) for row in results}) == len(results) == 1000


# -- what the user writes -------------------------------------------------------------------------


def test_sessions_are_shown_as_they_are_written():
    assert str(tg.session("10 minutes")) == "session(10 minutes)"
    assert str(tg.session("10 minutes", max_length="1 day")) == "session(10 minutes, max_length=1 day)"
    assert str(tg.session(gap_column="idle")) == "session(gap_column='idle')"
    # A column that is called as a duration is written is still another thing.
    assert str(tg.session(gap_column="1 s")) != str(tg.session("1 s"))


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        ("0 s", "session(gap) must be greater than zero, got '0 s'"),
        ("-5 s", "session(gap) must be greater than zero, got '-5 s'"),
        (timedelta(0), "session(gap) must be greater than zero, got datetime.timedelta(0)"),
        ("soon", "session(gap): cannot read 'soon' as a duration"),
        ("", "session(gap): an empty text is not a duration"),
        (5, "session(gap) must be a timedelta or text such as '10 seconds', got 5"),
        ("200 years", "session(gap): cannot read '200 years' as a duration"),
    ],
)
def test_a_gap_is_a_positive_duration(gap, message):
    with pytest.raises(DurationError) as raised:
        tg.session(gap)
    assert str(raised.value).startswith(message)
    with pytest.raises(DurationError, match=r"session\(max_length\)"):
        tg.session("1 s", max_length=gap)


@pytest.mark.parametrize("given", [{}, {"gap": "1 s", "gap_column": "idle"}, {"gap_column": 5}], ids=str)
def test_a_session_has_either_one_gap_or_a_column(given):
    with pytest.raises(PlanError) as raised:
        tg.session(**given)
    assert str(raised.value) == (
        "session() takes either a gap, such as '10 minutes', or gap_column, the name of a column; "
        f"got gap={given.get('gap')!r}, gap_column={given.get('gap_column')!r}"
    )


def test_a_gap_column_that_is_not_there():
    with pytest.raises(ColumnNotFound) as raised:
        logical_plan(session("idl"), schema=WITH_IDLE)
    assert str(raised.value).startswith("gap: no column 'idl'; did you mean 'idle'? available: 'ts', ")


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), TIMESTAMP, pa.null()], ids=str)
def test_a_gap_column_is_a_day_time_interval(kind):
    with pytest.raises(TypeMismatch) as raised:
        logical_plan(session("idle"), schema=SCHEMA.append(pa.field("idle", kind)))
    shown = "a type that Arrow cannot hold" if kind == pa.null() else f"type {kind}"
    assert str(raised.value) == (
        f"gap column 'idle' has {shown}; it must be a day-time interval (for instance, from seconds, "
        "df.withColumn('idle', F.make_dt_interval(secs='idle')))"
    )


REFUSAL = (
    "on_watermark() with allowed_lateness=5 seconds: late rows can merge sessions that have been "
    "emitted, and plain rows cannot take them back; use tg.emit.changelog(), or "
    "tg.emit.on_window_close() for one row a session"
)


def test_on_watermark_with_lateness_is_refused_on_sessions():
    with pytest.raises(EmissionRefused) as raised:
        logical_plan(session(10), lateness=5 * SECOND)
    assert str(raised.value) == REFUSAL
    assert issubclass(EmissionRefused, PlanError)


@pytest.mark.parametrize(
    "emission", [OnWindowClose(), OnWindowClose(final=True), UPDATE, CHANGELOG, PERIODIC], ids=str
)
def test_other_strategies_allow_lateness_on_sessions(emission):
    lateness = plan_of(session(10), lateness=5 * SECOND, emission=emission).input.input.lateness
    assert lateness == (0 if str(emission) == "final" else 5 * SECOND)


def test_the_strategy_may_be_named_after_the_aggregates():
    """`agg()` cannot know yet that another strategy follows."""
    windowed = WindowedEvents(None, logical_plan(session(10), lateness=0).input.input)
    late = WindowedEvents(
        None, logical_plan(session(10), lateness=5 * SECOND, emission=UPDATE).input.input
    )
    assert windowed.agg(n=count()).channels == ("main", "errors")
    assert late.agg(n=count()).emit(emit.changelog()).channels == ("main", "errors")
    with pytest.raises(EmissionRefused):
        late.agg(n=count()).emit(emit.on_watermark())
    with pytest.raises(EmissionRefused):
        late.agg(n=count()).plan_text()


def test_an_aggregate_that_does_not_merge_is_refused():
    class Exact(a.Sum):
        mergeable = False

    with pytest.raises(NotMergeable, match=r"x=exact\(items\) cannot be computed from partial results"):
        logical_plan(session(10), (("x", Exact("items")),))


@pytest.mark.parametrize(
    "other",
    [session(11), session("idle"), session(10, max_length=60), session(10, max_length=61)],
    ids=str,
)
def test_the_gap_and_the_maximum_length_are_part_of_the_identity(other):
    one, two = (logical_plan(window, schema=WITH_IDLE) for window in (session(10), other))
    assert changed_parts(one, two) == ["window"]


def test_pruning_keeps_the_gap_column():
    plan = plan_of(session("idle"), (("total", a.Sum("price")),), schema=WITH_IDLE)
    assert plan.input.input.schema.names == ["ts", "user", "price", "idle"]
    assert plan_of(session(10), schema=WITH_IDLE).input.input.schema.names == ["ts", "user"]
