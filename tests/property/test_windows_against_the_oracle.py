"""Every window, strategy, lateness and late policy: each batch puts out what the rules say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import plan_of
from tidegate.plan.policies import Drop, Reassign, SideOutput
from tidegate.plan.time import Micros
from tidegate.plan.windows import Hopping
from tidegate.state import pages as state
from tidegate.testing import KernelHost

few = settings(max_examples=settings.default.max_examples // 2)


@pytest.mark.parametrize("late", p.POLICIES.values(), ids=p.POLICIES)
@p.EVERY_STRATEGY
@p.EVERY_KIND
@given(data=st.data())
def test_each_batch_puts_out_what_the_rules_say(window, emission, late, data):
    p.agrees(data.draw(p.programs(emission, late, window=window)))


@p.EVERY_STRATEGY
@p.EVERY_KIND
@given(data=st.data())
def test_nothing_is_said_of_windows_whose_results_did_not_change(window, emission, data):
    p.agrees(data.draw(p.programs(emission, Drop(), p.STEADY, window=window, counted=False)))


@p.EVERY_STRATEGY
@p.EVERY_KIND
@given(data=st.data())
def test_first_and_last_go_by_event_time_and_then_by_arrival(window, emission, data):
    late = data.draw(st.sampled_from([Drop(), SideOutput("late")]))
    p.agrees(data.draw(p.programs(emission, late, p.BY_ARRIVAL, window=window)))


@p.EVERY_STRATEGY
@p.EVERY_KIND
@few
@given(data=st.data())
def test_reordering_rows_inside_a_batch_changes_nothing(window, emission, data):
    program = data.draw(p.programs(emission, data.draw(p.ANY_POLICY), window=window))
    mixed = [replace(step, rows=data.draw(st.permutations(step.rows))) for step in program.steps]
    reordered = replace(program, steps=mixed)
    p.assert_same(program, p.run_kernel(program), p.run_kernel(reordered))


@p.EVERY_STRATEGY
@p.EVERY_KIND
@few
@given(data=st.data())
def test_all_rows_at_once_give_the_final_answer(window, emission, data):
    """What a batch query does: one step without a watermark, then the end of time."""
    program = data.draw(p.programs(emission, Reassign(Micros(5)), window=window))
    rows = [row for step in program.steps for row in step.rows]
    host, oracle = KernelHost(program.plan, buckets=program.buckets), Oracle(program.plan)
    got, expected = [host.batch(rows), host.end()], [oracle.batch(rows, None), oracle.end()]
    p.assert_same(program, expected, got)
    assert got[0].counts["late_rows"] == 0


@p.EVERY_STRATEGY
@p.EVERY_KIND
@few
@given(data=st.data())
def test_nothing_is_stored_once_the_watermark_has_passed_everything(window, emission, data):
    program = data.draw(p.programs(emission, Drop(), window=window))
    host = KernelHost(program.plan, buckets=program.buckets)
    for step in program.steps:
        host.batch(step.rows, worker=step.worker)
    host.end()
    assert not any(host.stored.values())


# -- slices -----------------------------------------------------------------------------------


@p.EVERY_STRATEGY
@settings(max_examples=settings.default.max_examples // 3)
@given(data=st.data())
def test_long_streams_that_never_close_compact_without_changing_anything(emission, data):
    """Many small batches into the same few windows: pages pile up and are merged."""
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 9, 12]), min_size=12, max_size=24))
    near, far = st.integers(0, 12), st.integers(0, 300)
    rows, users = p.rows(st.one_of(near, near, near, far)), st.sampled_from("abcdefghijklmnop")
    steps = [
        p.Step([data.draw(rows) | {"user": data.draw(users)} for _ in range(size)], pause=9)
        for size in sizes
    ]
    window = data.draw(st.sampled_from([(10, 10), (10, 3), (6, 2)]))
    plan = plan_of(
        Hopping(*map(Micros, window)), data.draw(p.aggregates()), emission=emission, tolerance=400
    )
    p.agrees(p.Program(plan, steps))


@p.EVERY_STRATEGY
@given(data=st.data())
def test_pages_that_hold_closed_and_open_windows_change_nothing(emission, data):
    """Two pages a batch, however long a time it spans: much is over when the rest falls due."""
    program = data.draw(p.programs(emission, Drop()))
    expected = p.run_oracle(program, p.watermarks(program))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MAX_RANGES", 2)
        p.assert_same(program, expected, p.run_kernel(program))


@p.EVERY_STRATEGY
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(emission, data):
    program = data.draw(p.programs(emission, data.draw(p.ANY_POLICY)))
    window = program.plan.input.input
    coarse = Hopping(*(Micros(777 * part) for part in (window.window.size, window.window.slide)))
    plan = replace(program.plan, input=replace(program.plan.input, input=replace(window, window=coarse)))
    host, oracle = KernelHost(plan, as_spark=True), Oracle(plan)
    for step in program.steps:
        late = timedelta(microseconds=123)
        rows = [row | {"ts": row["ts"] and row["ts"].replace(second=1) + late * 9} for row in step.rows]
        host.now += step.pause
        result = host.batch(rows)
        assert result.watermark_micros is None or result.watermark_micros % 1000 == 0
        expected = oracle.batch(rows, result.watermark_micros, host.now)
        p.assert_same(program, [expected], [result])
