"""Streams that take rows back: at each batch boundary they stand for exactly the current results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property import programs as p
from tidegate.plan.policies import Retracting
from tidegate.plan.time import Micros
from tidegate.testing import Changelog, KernelHost, Oracle
from tidegate.testing.results import BatchResult, frozen, row_differences

IMMEDIATE = {name: p.STRATEGIES[name] for name in ("on_update", "changelog")}


def current(seen, oracle):
    """The results of all windows so far: a closed one keeps its last value."""
    for row in oracle.results():
        identity = tuple(frozen(row[name]) for name in (*oracle.keys, "window_start"))
        seen[identity] = row
    return list(seen.values())


@pytest.mark.parametrize("emission", IMMEDIATE.values(), ids=IMMEDIATE)
@given(data=st.data())
def test_the_table_at_each_batch_boundary_is_the_set_of_current_results(emission, data):
    late = data.draw(st.sampled_from(list(p.POLICIES.values())))
    program = data.draw(p.programs(emission, late))
    oracle = Oracle(program.plan)
    table, seen = Changelog(oracle.keys), {}
    marks = p.watermarks(program)
    steps = (*program.steps, p.Step([]))
    for step, watermark, got in zip(steps, marks, p.run_kernel(program), strict=True):
        live = table.apply(got.main)
        oracle.batch(step.rows, watermark)
        expected = [row | {"op": None} for row in current(seen, oracle)]
        actual = [row | {"op": None} for row in live]
        assert not row_differences(program.plan, "main", expected, actual)


@given(data=st.data())
def test_a_periodic_stream_balances_and_ends_with_the_last_value_of_each_window(data):
    emission = Retracting(interval=Micros(data.draw(st.sampled_from([1, 10, 25, 500]))))
    program = data.draw(p.programs(emission, data.draw(st.sampled_from(list(p.POLICIES.values())))))
    oracle, host = Oracle(program.plan), KernelHost(program.plan, buckets=program.buckets)
    table, seen, spoken = Changelog(oracle.keys), {}, {}
    for step, watermark in zip(program.steps, p.watermarks(program), strict=False):
        host.now += step.pause
        result = host.batch(step.rows, worker=step.worker)
        oracle.batch(step.rows, watermark)
        check_turns(program, result, spoken, host.now, emission.interval)
        table.apply(result.main)
        current(seen, oracle)
    table.apply(host.end().main)
    expected = [row | {"op": None} for row in seen.values()]
    actual = [row | {"op": None} for row in table.rows]
    assert not row_differences(program.plan, "main", expected, actual)


def check_turns(program, result: BatchResult, spoken, now, interval):
    """No window that is still open speaks twice within an interval."""
    window = program.plan.input.input
    for row in result.main:
        keys = [frozen(row[name]) for name in window.input.keys]
        identity = (*keys, row["window_start"])
        closes_at = p.micros_of(row["window_end"]) + window.lateness
        still_open = result.watermark is None or result.watermark < closes_at
        if row["op"].startswith("+"):
            assert not (still_open and now < spoken.get(identity, -interval) + interval)
            spoken[identity] = now
