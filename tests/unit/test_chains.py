"""Operators that feed each other: what each holds back, what is refused, and that nothing is lost."""

import json
import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.plans import (
    ROWS,
    SCHEMA,
    SECOND,
    TIMESTAMP,
    WITH_IDLE,
    changed_parts,
    hopping,
    logical_plan,
    plan_of,
    reorder_plan,
    session,
    sliding,
    upstream,
)
from tidegate.api import emit, late
from tidegate.api import windows as tg
from tidegate.api.aggregates import count
from tidegate.api.aggregates import sum as total
from tidegate.api.events import Events
from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.dataflow.identity import differences, identity_of
from tidegate.errors import ColumnNotFound, PlanError
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.testing import Changelog, KernelHost
from tidegate.testing.table import instant_of, micros_of

SUMS = (("windows", a.Count(None)), ("rows", a.Sum("n")))
FOREVER = 1 << 40


def at(time, items=None, user="ann", **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def bounds(row):
    return micros_of(row["window_start"]), micros_of(row["window_end"])


def found(rows, *names):
    return sorted((*bounds(row), *(row[name] for name in names)) for row in rows)


def everything_stored(host):
    """The pages of all operators."""
    return [name for pages in host.stored.values() for name in pages]


# -- what is held back ----------------------------------------------------------------------------

HOLD_BACK = {
    "a window's end": (logical_plan(hopping(10)), "window_end", 0),
    "its start": (logical_plan(hopping(10)), "window_start", 10),
    "lateness": (logical_plan(hopping(10, 3), lateness=7), "window_end", 7),
    "lateness and start": (logical_plan(hopping(10, 3), lateness=7), "window_start", 17),
    "no lateness for final": (
        logical_plan(hopping(10), lateness=7, emission=OnWindowClose(final=True)),
        "window_end",
        0,
    ),
    "a session's end": (logical_plan(session(10)), "window_end", 0),
    "a late session's end": (
        logical_plan(session(10), lateness=7, emission=OnWindowClose()),
        "window_end",
        7,
    ),
    "the start of a session that is cut": (logical_plan(session(10, 60)), "window_start", 60),
    "what has arrived": (logical_plan(sliding(10)), "ts", 0),
    "a lookahead": (logical_plan(sliding(10, 15)), "ts", 15),
    "rows in order": (reorder_plan(), "ts", 0),
    "rows at the watermark": (reorder_plan(late=Reassign(Micros(5))), "ts", 1),
    "windows at the watermark": (logical_plan(sliding(10), late=Reassign(Micros(5))), "ts", 1),
}


@pytest.mark.parametrize("case", HOLD_BACK)
def test_an_operator_holds_back_what_it_may_still_put_out(case):
    plan, time, expected = HOLD_BACK[case]
    assert Derived(plan, time).watermark_delay == expected
    reader = plan_of(session(5), keys=(), feed=Derived(plan, time))
    assert compile(reader).vertices[-1].delay == expected


HOPS = st.builds(hopping, st.integers(1, 12), st.integers(1, 12), st.integers(-5, 5))


@given(HOPS, HOPS, st.integers(0, 7))
def test_by_start_windows_wait_for_the_last_that_begins_before_their_end(read, reader, lateness):
    """Long enough for all results that count, and not longer."""
    above = logical_plan(read, lateness=lateness, emission=OnWindowClose())
    plan = logical_plan(reader, keys=(), feed=Derived(above, "window_start"))
    delay = compile(plan).vertices[-1].delay
    waits = []
    for number in range(200):
        end = number * reader.slide + reader.offset + reader.size
        before = (end - 1 - read.offset) // read.slide  # the last window that begins before the end
        closes = before * read.slide + read.offset + read.size + lateness
        waits.append(closes - end)
    assert delay == max(lateness, *waits)


def test_windows_on_one_grid_are_read_by_their_start_without_a_delay():
    minutes = logical_plan(hopping(60), lateness=30, emission=OnWindowClose())
    hours = logical_plan(hopping(3600), keys=(), feed=Derived(minutes, "window_start"))
    assert compile(hours).vertices[-1].delay == 30


def test_hold_backs_add_up_along_a_chain():
    first = plan_of(sliding(1, 15))
    second = plan_of(hopping(10), lateness=7, feed=Derived(first, "ts"))
    third = plan_of(hopping(60), (("n", a.Sum("n")),), feed=Derived(second, "window_start"))
    last = reorder_plan(feed=Derived(third, "window_end"))
    assert [(vertex.name, vertex.delay) for vertex in compile(last).vertices] == [
        ("1 sliding(1 us, 15 us)", 0),
        ("2 tumbling(10 us)", 15),
        ("3 tumbling(60 us)", 22),
        ("4 reorder", 22),
    ]
    assert upstream(last) == [[(0,)], [0], [1], [2]]


def test_the_operators_and_sources_of_a_chain():
    first = plan_of(hopping(10))
    second = plan_of(hopping(20), feed=Derived(first, "window_end"))
    assert [vertex.operator for vertex in compile(second).vertices] == [first, second]
    assert compile(second).sources == compile(first).sources == (first.upstream,)


# -- what happens ---------------------------------------------------------------------------------


def test_one_batch_may_pass_through_all_operators():
    first = plan_of(hopping(10))
    second = plan_of(hopping(20), SUMS, feed=Derived(first, "window_start"))
    third = plan_of(hopping(40), (("rows", a.Sum("rows")),), feed=Derived(second, "window_start"))
    host = KernelHost(third, buckets=3)
    host.batch([at(time) for time in (1, 12, 25, 38)])
    assert found(host.end().main, "rows") == [(0, 40, 4)]
    assert everything_stored(host) == []


def test_empty_batches_let_the_watermark_through():
    first = plan_of(hopping(10), keys=())
    host = KernelHost(plan_of(hopping(20), SUMS, keys=(), feed=Derived(first, "window_start")))
    host.batch([at(5), at(29)])
    # W = 29: the window that ends at 20 has all that begins before it.
    assert found(host.batch([]).main, "windows", "rows") == [(0, 20, 1, 1)]


def test_an_operator_without_input_is_woken_by_the_watermark():
    """What was taken in long ago falls due when only other keys get rows."""
    first = plan_of(hopping(10))
    host = KernelHost(plan_of(hopping(100), SUMS, feed=Derived(first, "window_end")), buckets=4)
    host.batch([at(5, user=f"u{number}") for number in range(20)])
    host.batch([at(50, user="zoe")])
    host.batch([at(100, user="zoe")])
    assert len(host.batch([]).main) == 21


def test_corrections_are_rows_of_their_own():
    first = plan_of(hopping(10), lateness=20)
    host = KernelHost(plan_of(hopping(100), SUMS, feed=Derived(first, "window_start")))
    host.batch([at(5), at(15)])
    host.batch([])
    host.batch([at(6)])
    host.batch([at(200)])
    assert found(host.end().main, "windows", "rows") == [(0, 100, 3, 4), (200, 300, 1, 1)]


def test_rows_in_a_gap_of_the_second_operator_are_counted():
    first = plan_of(hopping(10))
    gaps = hopping(10, 20, offset=5)  # windows begin at 5, 25, 45 …
    host = KernelHost(plan_of(gaps, SUMS, feed=Derived(first, "window_end")))
    host.batch([at(1), at(12), at(50, user="zoe")])
    got = host.batch([])
    assert (got.counts["unassigned"], got.counts["rows_in"]) == (1, 0)
    assert found(got.main, "rows") == [(5, 15, 1)]


def test_the_keys_may_change_from_one_operator_to_the_next():
    first = plan_of(hopping(10), keys=("user", "shop"))
    second = plan_of(hopping(10), SUMS, keys=("shop",), feed=Derived(first, "window_start"))
    host = KernelHost(second, buckets=3)
    host.batch([at(1, user=user, shop=shop) for user in ("ann", "bob", None) for shop in (1, 2, None)])
    assert found(host.end().main, "windows") == [(0, 10, 3)] * 3


def test_a_moved_row_is_in_time_for_the_operator_behind():
    """The watermark stands still, and the row lies at it: not behind it for the second one either."""
    first = plan_of(sliding(0), late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan_of(sliding(0, 0), (("rows", a.Sum("n")),), feed=Derived(first, "ts")))
    host.batch([at(10, user="zoe")])
    host.batch([])
    host.batch([at(5)])
    host.batch([at(6)])
    got = [*host.batch([at(30, user="zoe")]).main, *host.end().main]
    assert sorted((micros_of(row["ts"]), row["user"], row["rows"]) for row in got) == [
        (10, "ann", 3),
        (10, "ann", 3),
        (10, "zoe", 1),
        (30, "zoe", 1),
    ]


def test_late_rows_and_errors_of_the_first_operator_pass_the_second():
    first = plan_of(hopping(10), late=SideOutput("late"))
    host = KernelHost(plan_of(hopping(10), SUMS, feed=Derived(first, "window_end")))
    host.batch([at(50)])
    got = host.batch([at(5, 7), at(0) | {"ts": None}])
    assert [row["items"] for row in got.channels["late"]] == [7]
    assert [row["reason"] for row in got.channels["errors"]] == ["event time 'ts' is null"]
    assert dict(got.counts) == {"rows_in": 2, "errors": 1, "late_rows": 1}


def test_gaps_of_rows_in_order_are_checked_where_they_count():
    first = reorder_plan(schema=WITH_IDLE)
    host = KernelHost(plan_of(session("idle"), keys=("user",), feed=Derived(first, "ts")))
    gap = timedelta(microseconds=5)
    host.batch([at(1, idle=gap), at(3, idle=gap), at(4, idle=None), at(7, idle=-gap, user="bob")])
    got = host.end()
    assert found(got.main, "user", "n") == [(1, 8, "ann", 2)]
    assert got.counts["errors"] == 2
    reasons = {json.loads(row["row"])["user"]: row["reason"] for row in got.channels["errors"]}
    assert reasons == {"ann": "gap 'idle' is null", "bob": "gap 'idle' is not positive"}


def test_retractions_come_before_insertions():
    """Taking in and closing are two steps of one batch, and a reader sees one batch."""
    periodic = Retracting(interval=Micros(FOREVER))
    first = plan_of(sliding(0))
    second = plan_of(hopping(10), keys=("user",), emission=periodic, feed=Derived(first, "ts"))
    host, table = KernelHost(second), Changelog(["user"])
    table.apply(host.batch([at(1)]).main)
    assert table.apply(host.batch([at(2)]).main) != []  # the second row has to wait for its turn
    table.apply(host.batch([at(15)]).main)
    batch = host.batch([at(25)]).main  # the first window closes, and a new one is there
    assert [row["op"][0] for row in batch] == ["-", "+", "+"]
    table.apply(batch)


def test_rows_in_order_feed_windows_of_what_has_arrived():
    host = KernelHost(plan_of(sliding(5), keys=(), feed=Derived(reorder_plan(tolerance=10), "ts")))
    assert host.batch([at(9), at(3), at(7), at(1)]).main == []
    ended = host.end().main
    assert [(micros_of(row["ts"]), row["n"]) for row in ended] == [(1, 1), (3, 2), (7, 2), (9, 2)]


@pytest.mark.parametrize("keys", [(), ("user",)], ids=str)
def test_rows_in_order_stay_in_order_however_many_messages_they_are(keys, monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 500)
    times = list(range(100))
    random.Random(9).shuffle(times)
    host = KernelHost(plan_of(sliding(5), keys=keys, feed=Derived(reorder_plan(), "ts")))
    host.batch([at(time, note="x" * 40) for time in times])
    counts = {micros_of(row["ts"]): row["n"] for row in host.end().main}
    assert counts == {time: min(time, 5) + 1 for time in range(100)}


def test_rows_in_order_stay_in_order_when_late_ones_are_moved_behind_them():
    first = reorder_plan(late=Reassign(Micros(FOREVER)))
    host = KernelHost(plan_of(sliding(5), feed=Derived(first, "ts")))
    host.batch([at(time) for time in (1, 4, 2, 3, 5)])
    got = host.batch([at(0), at(1)]).main
    counts = [(micros_of(row["ts"]), row["n"]) for row in got]
    assert counts == [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (5, 6), (5, 7)]


@pytest.mark.parametrize(
    ("kind", "values"), [(pa.int64(), [1, 2, 3, 4]), (pa.string(), ["+", "-", None, "-x"])], ids=str
)
def test_a_column_of_rows_that_is_called_op_takes_nothing_back(kind, values):
    schema = pa.schema([("ts", TIMESTAMP), ("op", kind)])
    first = reorder_plan(schema=schema)
    for plan in (
        reorder_plan(feed=Derived(first, "ts")),
        plan_of(sliding(10, 0), keys=(), feed=Derived(first, "ts")),
    ):
        host = KernelHost(plan)
        host.batch([{"ts": instant_of(time), "op": value} for time, value in enumerate(values)])
        assert [row["op"] for row in host.end().main] == values


def test_nothing_is_left_in_any_operator_when_all_is_over():
    first = plan_of(sliding(20, 10), tolerance=5)
    second = plan_of(hopping(20, 5), (("n", a.Sum("n")),), feed=Derived(first, "ts"))
    third = plan_of(session(30), SUMS, emission=Retracting(), feed=Derived(second, "window_end"))
    host = KernelHost(third, buckets=2)
    sizes = []
    for time in range(0, 280, 7):
        host.batch([at(time, user=f"u{time % 3}")])
        sizes.append(len(everything_stored(host)))
    assert max(sizes[20:]) <= 1.5 * max(sizes[:20])
    host.end()
    assert everything_stored(host) == []


def test_restarts_failures_and_other_workers_change_nothing():
    first = plan_of(hopping(10, 5), tolerance=12)
    plan = plan_of(session(12), SUMS, emission=Retracting(), feed=Derived(first, "window_end"))
    fresh, resident, failing = (KernelHost(plan, buckets=2) for _ in range(3))
    for step in range(12):
        rows = [at(step * 8 + 5 * i, user=f"u{(step * i) % 3}") for i in range(-3, 3)]
        fresh.restart()
        failing.failed_batch([*rows, at(step * 8 + 100)])
        batches = (fresh.batch(rows), resident.batch(rows), failing.batch(rows, worker=step % 3))
        one, two, three = (found(batch.main, "user", "op", "windows", "rows") for batch in batches)
        assert one == two == three


# -- what the user writes -------------------------------------------------------------------------


def minutes(window=None, **options):
    window = window or tg.tumbling("1 minute")
    return Events((), Source(SCHEMA, "ts", Micros(0))).key_by("user").window(window, **options)


def test_results_go_on_as_events():
    hourly = (
        minutes()
        .agg(n=count())
        .events(time="window_end")
        .key_by("user")
        .window(tg.tumbling("1 hour"))
        .agg(rows=total("n"))
    )
    assert hourly.node.schema.names == ["user", "window_start", "window_end", "rows"]
    assert [str(stage.windowed.window) for stage in compile(hourly.node).operators] == [
        "tumbling(1 minute)",
        "tumbling(1 hour)",
    ]


@pytest.mark.parametrize("strategy", [emit.on_update(), emit.changelog(), emit.periodic("1 s")], ids=str)
def test_results_that_take_others_back_cannot_go_on(strategy):
    with pytest.raises(PlanError) as raised:
        minutes().agg(n=count()).emit(strategy).events(time="window_end")
    assert str(raised.value) == (
        f"events(time='window_end'): results of {strategy} take others back, "
        "and cannot go on as events; use tg.emit.on_window_close()"
    )


@pytest.mark.parametrize("time", ["nonsense", "ts", "user", "n"])
def test_windows_go_on_by_their_end_or_start(time):
    with pytest.raises(PlanError) as raised:
        minutes().agg(n=count()).events(time=time)
    assert str(raised.value).startswith(f"events(time={time!r}): results go on by 'window_end'")
    assert "'window_start'" in str(raised.value)


def test_sessions_of_any_length_go_on_by_their_end_only():
    sessions = minutes(tg.session("1 minute")).agg(n=count())
    assert sessions.events(time="window_end").node.watermark_delay == 0
    with pytest.raises(PlanError) as raised:
        sessions.events(time="window_start")
    message = "events(time='window_start'): results go on by 'window_end'"
    assert str(raised.value) == f"{message} (a session of any length has only its end)"
    cut = minutes(tg.session("1 minute", max_length="1 hour")).agg(n=count())
    assert cut.events(time="window_start").node.watermark_delay == 3600 * SECOND


@pytest.mark.parametrize("time", ["nonsense", "window_end", "n"])
def test_rows_go_on_by_their_event_time(time):
    for rows in (minutes(tg.sliding("1 s")).agg(n=count()), Events((), SOURCE).reorder()):
        with pytest.raises(PlanError, match=rf"events\(time='{time}'\): results go on by 'ts'$"):
            rows.events(time=time)
        assert rows.events(time="ts").node.schema == rows.node.schema


SOURCE = Source(SCHEMA, "ts", Micros(0))


@pytest.mark.parametrize("policy", [late.reassign("1 s"), late.side_output("late")], ids=str)
def test_results_of_another_operator_are_never_late(policy):
    events = minutes().agg(n=count()).events(time="window_end")
    message = f"late={policy}: results of another operator are never late; give the policy to the first"
    for refused in (
        lambda: events.window(tg.tumbling("1 hour"), late=policy),
        lambda: events.window(tg.sliding("1 hour"), late=policy),
        lambda: events.reorder(late=policy),
    ):
        with pytest.raises(PlanError) as raised:
            refused()
        assert str(raised.value) == message


def test_columns_are_those_of_the_results():
    events = minutes().agg(n=count()).events(time="window_end")
    with pytest.raises(ColumnNotFound, match="no column 'price'"):
        events.window(tg.tumbling("1 hour")).agg(spend=total("price"))
    with pytest.raises(ColumnNotFound, match="no column 'shop'"):
        events.key_by("shop")


def test_results_that_would_have_two_columns_of_one_name_are_refused():
    events = minutes().agg(n=count()).events(time="window_end").key_by("window_start")
    with pytest.raises(PlanError, match="results carry 'window_start', which is a column already"):
        events.window(tg.tumbling("1 hour")).agg(rows=count())


def test_results_of_operators_cannot_be_united():
    events = minutes().agg(n=count()).events(time="window_end")
    with pytest.raises(PlanError, match=r"union\(\) takes events of sources"):
        Events((), SOURCE).union(events)


def test_each_operator_is_part_of_the_identity():
    def chain(size, other):
        first = logical_plan(hopping(size))
        return identity_of(
            compile(logical_plan(hopping(other), feed=Derived(first, "window_end"))), 4, 1
        )

    def changed(one, other):
        return [(change.operator, change.part) for change in differences(one, other)]

    window = ("inputs", "rows", "window")
    assert changed(chain(10, 60), chain(10, 61)) == [("aggregate 2", window)]
    assert changed(chain(10, 60), chain(11, 60)) == [("aggregate", window)]


def test_the_time_by_which_results_go_on_is_part_of_the_identity():
    """What the second operator has stored would mean something else."""
    first = logical_plan(hopping(10))
    one, two = (
        logical_plan(hopping(60), ROWS, feed=Derived(first, time))
        for time in ("window_end", "window_start")
    )
    assert changed_parts(one, two) == ["time"]
