"""Sessions of every kind, strategy, lateness and late policy: each batch puts out what the rules say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import WITH_IDLE, plan_of, session
from tests.property import programs as p
from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.plan.time import Micros
from tidegate.testing import KernelHost, Oracle
from tidegate.testing.table import Row, instant_of, micros_of

EVERY_STRATEGY = pytest.mark.parametrize("emission", p.STRATEGIES.values(), ids=p.STRATEGIES)
SESSIONS = p.sessions()
POLICIES = st.sampled_from(list(p.POLICIES.values()))

few = settings(max_examples=settings.default.max_examples // 2)


def agrees(program: p.Program) -> None:
    """Does the kernel do, batch by batch, what the oracle says?"""
    p.assert_same(program, p.run_oracle(program, p.watermarks(program)), p.run_kernel(program))


@pytest.mark.parametrize("late", p.POLICIES.values(), ids=p.POLICIES)
@EVERY_STRATEGY
@given(data=st.data())
def test_each_batch_puts_out_what_the_rules_say(emission, late, data):
    agrees(data.draw(p.programs(emission, late, window=SESSIONS)))


@EVERY_STRATEGY
@given(data=st.data())
def test_nothing_is_said_of_sessions_whose_results_did_not_change(emission, data):
    agrees(data.draw(p.programs(emission, Drop(), p.STEADY, window=SESSIONS, counted=False)))


@EVERY_STRATEGY
@given(data=st.data())
def test_first_and_last_go_by_event_time_and_then_by_arrival(emission, data):
    late = data.draw(st.sampled_from([Drop(), SideOutput("late")]))
    agrees(data.draw(p.programs(emission, late, p.BY_ARRIVAL, window=SESSIONS)))


@EVERY_STRATEGY
@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_long_streams_that_never_close_compact_without_changing_anything(emission, data):
    """Many small batches, far apart at first and bridged bit by bit: pages pile up and are merged."""
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 9]), min_size=12, max_size=20))
    times, users = st.integers(0, 250), st.sampled_from("abcd")
    steps = [
        p.Step([data.draw(p.rows(times)) | {"user": data.draw(users)} for _ in range(size)], pause=9)
        for size in sizes
    ]
    window = data.draw(st.sampled_from([session(9), session("idle"), session(15, 60)]))
    plan = plan_of(window, data.draw(p.aggregates()), emission=emission, tolerance=400, schema=WITH_IDLE)
    agrees(p.Program(plan, steps))


@EVERY_STRATEGY
@few
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(emission, data):
    program = data.draw(p.programs(emission, data.draw(POLICIES), window=SESSIONS))
    window = program.plan.input.input
    coarse = replace(window, window=stretched(window.window))
    plan = replace(program.plan, input=replace(program.plan.input, input=coarse))
    host, oracle = KernelHost(plan, as_spark=True), Oracle(plan)
    for step in program.steps:
        host.now += step.pause
        rows = [stretched_row(row) for row in step.rows]
        result = host.batch(rows)
        assert result.watermark is None or result.watermark % 1000 == 0
        p.assert_same(program, [oracle.batch(rows, result.watermark, host.now)], [result])


def stretched(window):
    gap = window.gap if window.gap == "idle" else 777 * window.gap
    return replace(window, gap=gap, max_length=window.max_length and 777 * window.max_length)


def stretched_row(row: Row) -> Row:
    time = row["ts"] and instant_of(1_000_000 + 777 * micros_of(row["ts"]))
    return row | {"ts": time, "idle": row["idle"] and 777 * row["idle"]}


@EVERY_STRATEGY
@few
@given(data=st.data())
def test_reordering_rows_inside_a_batch_changes_nothing(emission, data):
    program = data.draw(p.programs(emission, data.draw(POLICIES), window=SESSIONS))
    mixed = [replace(step, rows=data.draw(st.permutations(step.rows))) for step in program.steps]
    reordered = replace(program, steps=mixed)
    p.assert_same(program, p.run_kernel(program), p.run_kernel(reordered))


@EVERY_STRATEGY
@few
@given(data=st.data())
def test_all_rows_at_once_give_the_final_answer(emission, data):
    """What a batch query does: one step without a watermark, then the end of time."""
    program = data.draw(p.programs(emission, Reassign(Micros(5)), window=SESSIONS))
    rows = [row for step in program.steps for row in step.rows]
    host, oracle = KernelHost(program.plan, buckets=program.buckets), Oracle(program.plan)
    got, expected = [host.batch(rows), host.end()], [oracle.batch(rows, None), oracle.end()]
    p.assert_same(program, expected, got)
    assert got[0].counts["late_rows"] == 0


@EVERY_STRATEGY
@few
@given(data=st.data())
def test_nothing_is_stored_once_the_watermark_has_passed_everything(emission, data):
    program = data.draw(p.programs(emission, Drop(), window=SESSIONS))
    host = KernelHost(program.plan, buckets=program.buckets)
    for step in program.steps:
        host.batch(step.rows, worker=step.worker)
    host.end()
    assert not any(host.stored.values())


# -- the oracle itself, against the shortest statement of the rule --------------------------------


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 30)), min_size=1, max_size=30))
def test_the_oracle_joins_what_reaches_each_other_transitively(rows):
    """Rows are joined as long as any two of different sessions reach each other."""
    groups = [{(time, gap)} for time, gap in rows]
    while pair := next(((a, b) for a in groups for b in groups if a is not b and reaches(a, b)), None):
        groups = [g for g in groups if g is not pair[0] and g is not pair[1]] + [pair[0] | pair[1]]
    oracle = Oracle(plan_of(session("idle"), keys=(), schema=WITH_IDLE))
    oracle.batch([{"ts": instant_of(t), "idle": timedelta(microseconds=gap)} for t, gap in rows], None)
    found = [(micros_of(r["window_start"]), micros_of(r["window_end"])) for r in oracle.results()]
    assert sorted(found) == sorted((min(t for t, _ in g), max(t + gap for t, gap in g)) for g in groups)


def reaches(some, others) -> bool:
    return any(t1 <= t2 <= t1 + gap1 for t1, gap1 in some for t2, _ in others)
