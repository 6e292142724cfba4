"""The kernel of tumbling and hopping windows, at its edges."""

import pyarrow as pa
import pytest

from tests.support.final_rows import final_rows
from tests.support.plans import ROWS, SECOND, TIMESTAMP, hopping, plan_of
from tidegate.columnar import ipc
from tidegate.kernels import aggregates as a
from tidegate.kernels.contract import Clock
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.messages import Kind
from tidegate.kernels.windows.kernel import SliceKernel
from tidegate.plan.channels import COUNTERS
from tidegate.plan.policies import OnWatermark, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros
from tidegate.state.pages import BucketState, MemoryPages
from tidegate.testing import Changelog, KernelHost
from tidegate.testing.table import instant_of, to_arrow

UPDATE = Retracting()
STRATEGIES = [OnWatermark(), OnWindowClose(), UPDATE, Retracting(interval=Micros(50))]
FOREVER = 1 << 40


def at(time, **values):
    return {"ts": instant_of(time), "user": "ann", **values}


# -- names users may choose -----------------------------------------------------------------------

# Whatever the kernel calls its own columns, a user may have called theirs the same.
INNER_NAMES = [
    "key",
    "slice",
    "window",
    "time",
    "rows",
    "emitted",
    "n",
    "__slice",
    "__window",
    "__rows",
    "__at",
]


def named_schema(name):
    return pa.schema([("ts", TIMESTAMP), (name, pa.int64()), ("other", pa.int64())])


@pytest.mark.parametrize("emission", [OnWatermark(), Retracting(interval=Micros(50))], ids=str)
@pytest.mark.parametrize("name", INNER_NAMES)
def test_a_key_column_may_have_any_name(name, emission):
    plan = plan_of(
        hopping(10, 3),
        (("x", a.Sum("other")),),
        keys=(name,),
        schema=named_schema(name),
        emission=emission,
    )
    rows = [{"ts": instant_of(5), name: 77, "other": 1}, {"ts": instant_of(5), name: 78, "other": 2}]
    assert {(row[name], row["x"]) for row in final_rows(plan, rows)} == {(77, 1), (78, 2)}


@pytest.mark.parametrize("name", INNER_NAMES)
def test_an_aggregated_column_may_have_any_name(name):
    plan = plan_of(hopping(10), (("x", a.Sum(name)),), keys=("other",), schema=named_schema(name))
    rows = [{"ts": instant_of(5), name: 77, "other": 1}, {"ts": instant_of(5), name: 3, "other": 1}]
    assert [row["x"] for row in final_rows(plan, rows)] == [80]


@pytest.mark.parametrize("emission", [OnWatermark(), Retracting(interval=Micros(50))], ids=str)
@pytest.mark.parametrize("name", INNER_NAMES)
def test_a_result_may_have_any_name(name, emission):
    plan = plan_of(hopping(10, 3), ((name, a.Count(None)),), emission=emission)
    assert {row[name] for row in final_rows(plan, [at(5), at(5)])} == {2}


@pytest.mark.parametrize("policy", [SideOutput("late"), Reassign(Micros(FOREVER))], ids=str)
@pytest.mark.parametrize("name", INNER_NAMES)
def test_late_rows_keep_columns_of_any_name(name, policy):
    plan = plan_of(
        hopping(10), (("x", a.Sum(name)),), keys=("other",), schema=named_schema(name), late=policy
    )
    host = KernelHost(plan)
    host.batch([{"ts": instant_of(100), name: 1, "other": 1}])
    late = host.batch([{"ts": instant_of(5), name: 77, "other": 1}]).channels.get("late")
    if isinstance(policy, SideOutput):
        assert [row[name] for row in late] == [77]
    else:
        assert [row["x"] for row in host.end().main] == [78]


# -- emission -------------------------------------------------------------------------------------


def test_a_late_row_that_changes_nothing_is_no_correction():
    plan = plan_of(hopping(10), (("most", a.Max("items")),), lateness=100)
    host = KernelHost(plan)
    host.batch([at(5, items=9), at(15, items=9)])
    assert [row["most"] for row in host.batch([]).main] == [9]
    assert host.batch([at(6, items=1)]).main == []
    assert [row["most"] for row in host.batch([at(6, items=10)]).main] == [10]


@pytest.mark.parametrize("window", [hopping(2), hopping(2, 1)], ids=str)
def test_a_late_row_may_be_the_first_of_its_window_while_others_of_that_time_are_out(window):
    plan = plan_of(window, (*ROWS, ("first", a.First("items"))), lateness=1)
    host = KernelHost(plan)
    host.batch([at(0, items=1), at(1, items=1)])
    host.batch([at(2)])
    assert "ann" in {row["user"] for row in host.batch([]).main}
    late = host.batch([at(1, user="bob", items=7)]).main
    assert [(row["user"], row["n"], row["first"]) for row in late] == [("bob", 1, 7)]


def test_retractions_stay_right_when_pages_of_many_sizes_are_merged():
    host, table = (
        KernelHost(plan_of(hopping(1000), emission=UPDATE, tolerance=FOREVER)),
        Changelog(["user"]),
    )
    for number in range(30):
        others = [at(5, user=f"u{i}") for i in range(10)] if number % 9 == 1 else []
        table.apply(host.batch([at(5), *others]).main)
    assert {row["n"] for row in table.rows if row["user"] == "ann"} == {30}


def test_retractions_stay_right_beside_a_batch_that_spans_a_long_time():
    host, table = (
        KernelHost(plan_of(hopping(10), emission=UPDATE, tolerance=FOREVER)),
        Changelog(["user"]),
    )
    for number in range(30):
        far = [at(10 * step) for step in range(1, 30)] if number == 1 else []
        table.apply(host.batch([at(5), *far]).main)
    assert [row["n"] for row in table.rows if row["window_start"] == instant_of(0)] == [30]


def test_the_first_of_equal_times_stays_the_first_when_pages_are_merged():
    plan = plan_of(
        hopping(10), (("first", a.First("items")), ("last", a.Last("items"))), tolerance=FOREVER
    )
    host = KernelHost(plan)
    for number in range(30):
        far = [at(10 * step) for step in range(1, 30)] if number == 1 else []
        host.batch([at(9 if number == 0 else 5, items=number), *far])
    [row] = [row for row in host.end().main if row["window_start"] == instant_of(0)]
    assert row["first"] == 1


def test_retractions_of_a_key_come_first_even_when_one_of_its_windows_closes():
    emission = Retracting(interval=Micros(1000))
    host, table = KernelHost(plan_of(hopping(10), emission=emission, tolerance=20)), Changelog(["user"])
    table.apply(host.batch([at(1), at(15)]).main)
    host.now = 10
    table.apply(host.batch([at(2), at(31)]).main)  # [0, 10) has changed and waits for its turn
    host.now = 2000
    got = host.batch([at(16)]).main  # [0, 10) closes, and it is the turn of [10, 20)
    assert sorted(row["op"] for row in got) == ["+U", "+U", "-U", "-U"]
    table.apply(got)


def test_a_window_that_closed_stays_closed_although_its_page_lives_on():
    """What waited lies in one page with the next window, which closes a batch later."""
    emission = Retracting(interval=Micros(1000))
    host, table = KernelHost(plan_of(hopping(10), emission=emission, tolerance=50)), Changelog(["user"])
    table.apply(host.batch([at(5), at(15), at(55)]).main)
    table.apply(host.batch([at(6), at(16), at(56), at(62)]).main)  # all but the last wait
    closing = host.batch([at(71)]).main  # W = 12 closes [0, 10)
    table.apply(closing)
    assert [(row["op"], row["window_start"]) for row in closing if row["op"] != "+I"] == [
        ("-U", instant_of(0)),
        ("+U", instant_of(0)),
    ]
    later = host.batch([]).main  # W = 21 closes [10, 20)
    table.apply(later)
    assert {row["window_start"] for row in later} == {instant_of(10)}


def test_each_strategy_says_nothing_without_rows():
    for emission in STRATEGIES:
        host = KernelHost(plan_of(hopping(10, 5), emission=emission))
        assert host.batch([]).channels == host.end().channels == {}


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("emission", STRATEGIES, ids=str)
def test_a_bucket_asks_to_be_woken_at_a_time_a_timer_can_hold(emission):
    """Before 1970 Spark knows no watermark; the host checks what the kernel asks for."""
    host = KernelHost(plan_of(hopping(10), emission=emission), as_spark=True)
    for _ in range(3):
        assert host.batch([at(-50)]).watermark_micros is None
    assert sum(row["n"] for row in host.end().main if row.get("op") != "-U") >= 3 or emission == UPDATE


@pytest.mark.parametrize("emission", STRATEGIES, ids=str)
@pytest.mark.parametrize("window", [hopping(1), hopping(2, 1), hopping(3, 2)], ids=str)
def test_keys_times_span_may_exceed_64_bits(window, emission):
    """Many keys, tiny windows and one row far in the future, such as the year 9999."""
    times = (0, 80_000_000_000_000_000, 250_000_000_000_000_000)
    plan = plan_of(window, keys=("shop",), emission=emission)
    rows = [{"ts": instant_of(time), "shop": shop} for shop in range(200) for time in times]
    results = final_rows(plan, rows)
    assert len({(row["shop"], row["window_start"]) for row in results}) == len(results)
    expected = {(shop, time) for shop in range(200) for time in times}
    held = [
        (row["shop"], time)
        for row in results
        for time in times
        if row["window_start"] <= instant_of(time) < row["window_end"]
    ]
    assert set(held) == expected
    assert {row["n"] for row in results} == {1}


def test_a_bucket_is_woken_when_its_window_is_due_and_not_before():
    plan = plan_of(hopping(10), lateness=3)
    kernel, state = SliceKernel(plan), BucketState(MemoryPages(), "plan")
    schema = plan.input.input.schema.append(pa.field(INVALID_ROW, pa.string()))
    inputs = [p for p in kernel.input.pack(to_arrow([at(5)], schema), [0]) if p.kind == Kind.INPUT]
    assert kernel.step(state, inputs, Clock(None, 0)).due == 10
    assert kernel.step(state, [], Clock(10, 0)).due == 13  # emitted; kept for corrections until then
    assert kernel.step(state, [], Clock(13, 0)).due is None


def test_windows_close_at_watermarks_before_1970():
    host = KernelHost(plan_of(hopping(10)))
    host.batch([at(-45), at(-20)])
    [row] = host.batch([]).main
    assert (row["window_start"], row["n"]) == (instant_of(-50), 1)


def test_pages_go_when_their_last_window_has_closed():
    host = KernelHost(plan_of(hopping(40, 10)))
    for time in range(0, 1000, 5):
        host.batch([at(time)])
    [pages] = host.stored.values()
    assert len(pages) < 30


# -- messages --------------------------------------------------------------------------------------


def test_large_results_leave_in_several_messages(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 2000)
    rows = [at(5, user=f"user-{i}") for i in range(500)]
    results = final_rows(plan_of(hopping(10, 5)), rows)
    assert len({(row["user"], row["window_start"]) for row in results}) == len(results) == 1000


def test_every_row_in_is_accounted_for():
    plan = plan_of(hopping(4, 10), late=Reassign(Micros(30)), tolerance=0)
    host = KernelHost(plan, buckets=3)
    host.batch([at(51)])
    rows = [at(0) | {"ts": None}, at(5), at(1), at(22), at(55), at(52)]
    counts = host.batch(rows).counts
    assert set(counts) <= set(COUNTERS)
    assert dict(counts) == {
        "rows_in": 6,
        "errors": 1,
        "unassigned": 2,  # 5 and 55
        "late_rows": 2,  # 1 and 22
        "late_dropped": 1,
        "late_reassigned": 1,
    }


@pytest.mark.parametrize("policy", [SideOutput("late"), Reassign(Micros(FOREVER))], ids=str)
def test_a_row_in_a_gap_is_not_carried_with_late_ones(policy):
    host = KernelHost(plan_of(hopping(4, 10), late=policy))
    host.batch([at(51)])
    got = host.batch([at(1), at(5)])
    assert (got.counts["late_rows"], got.counts["unassigned"]) == (1, 1)
    if isinstance(policy, SideOutput):
        assert [row["ts"] for row in got.channels["late"]] == [instant_of(1)]
    else:
        assert [row["n"] for row in host.end().main] == [2]


@pytest.mark.parametrize("policy", [SideOutput("late"), Reassign(Micros(5))], ids=str)
def test_rows_travel_only_where_the_late_policy_needs_them(policy):
    def bytes_of(late):
        plan = plan_of(hopping(SECOND), ROWS, late=late)
        schema = plan.input.input.schema.append(pa.field(INVALID_ROW, pa.string()))
        table = to_arrow([at(i % 1000) for i in range(5000)], schema)
        return sum(len(message.blob or b"") for message in SliceKernel(plan).input.pack(table, [0]))

    assert bytes_of(policy) > 10 * bytes_of(plan_of(hopping(1)).input.input.late)


def test_memory_and_restarts_change_nothing_over_many_batches():
    plans = [plan_of(hopping(30, 7), emission=emission, lateness=10) for emission in STRATEGIES]
    for plan in plans:
        fresh, resident = KernelHost(plan), KernelHost(plan)
        for step in range(15):
            rows = [at(step * 8 + i, user=f"u{(step * i) % 5}") for i in range(-6, 4)]
            fresh.restart()
            fresh.now = resident.now = step * 20
            one, other = fresh.batch(rows), resident.batch(rows)
            order = lambda row: (row["user"], row["window_start"], row.get("op", ""), row["n"])  # noqa: E731
            assert sorted(one.main, key=order) == sorted(other.main, key=order)
