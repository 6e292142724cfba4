"""Streams that take rows back: at each batch boundary they stand for exactly the current results."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tidegate.plan.policies import OnWindowClose, Retracting
from tidegate.plan.time import Micros
from tidegate.testing import Changelog, KernelHost
from tidegate.testing.results import BatchResult, frozen, row_differences

IMMEDIATE = {name: p.STRATEGIES[name] for name in ("on_update", "changelog")}


class Truth:
    """The results of all windows so far: those that closed, and those of open ones as they stand."""

    def __init__(self, program: p.Program) -> None:
        self.oracle = Oracle(replace(program.plan, emission=OnWindowClose()))
        self.closed = []

    def batch(self, rows, watermark):
        self.closed += self.oracle.batch(rows, watermark).main
        return [*self.closed, *self.oracle.results()]


def assert_same_table(program, expected, actual):
    tables = ([row | {"op": None} for row in table] for table in (expected, actual))
    assert not row_differences(program.plan, "main", *tables)


@p.EVERY_KIND
@pytest.mark.parametrize("emission", IMMEDIATE.values(), ids=IMMEDIATE)
@given(data=st.data())
def test_the_table_at_each_batch_boundary_is_the_set_of_current_results(emission, window, data):
    program = data.draw(p.programs(emission, data.draw(p.ANY_POLICY), window=window))
    truth, table = Truth(program), Changelog(program.plan.input.input.input.keys)
    steps = (*program.steps, p.Step([]))
    for step, watermark, got in zip(steps, p.watermarks(program), p.run_kernel(program), strict=True):
        assert_same_table(program, truth.batch(step.rows, watermark), table.apply(got.main))


@p.EVERY_KIND
@given(data=st.data())
def test_a_periodic_stream_balances_and_ends_with_the_last_value_of_each_window(window, data):
    emission = Retracting(interval=Micros(data.draw(st.sampled_from([1, 10, 25, 500]))))
    program = data.draw(p.programs(emission, data.draw(p.ANY_POLICY), window=window))
    host = KernelHost(program.plan, buckets=program.buckets)
    truth, turns = Truth(program), Turns(program)
    table = Changelog(turns.keys)
    for step, watermark in zip(program.steps, p.watermarks(program), strict=False):
        host.now += step.pause
        result = host.batch(step.rows, worker=step.worker)
        turns.check(result, host.now)
        table.apply(result.main)
        truth.batch(step.rows, watermark)
    table.apply(host.end().main)
    assert_same_table(program, truth.batch([], 1 << 61), table.rows)


class Turns:
    """No row is taken back within an interval of going out, unless its window closes."""

    def __init__(self, program: p.Program) -> None:
        window = program.plan.input.input
        self.keys, self.lateness = window.input.keys, window.lateness
        self.interval = program.plan.emission.interval
        self.went_out = {}

    def check(self, result: BatchResult, now: int) -> None:
        put_out = [row for row in result.main if row["op"].startswith("+")]
        for row in result.main:
            if row["op"].startswith("-"):
                since = self.went_out.pop(self.identity(row))
                followers = [new for new in put_out if self.goes_on_in(row, new)]
                assert now >= since + self.interval or any(self.closes(new, result) for new in followers)
        for row in put_out:
            self.went_out[self.identity(row)] = now

    def identity(self, row):
        return tuple(frozen(row[name]) for name in (*self.keys, "window_start", "window_end"))

    def goes_on_in(self, row, new):
        of_one_key = all(frozen(row[name]) == frozen(new[name]) for name in self.keys)
        return of_one_key and new["window_start"] <= row["window_start"] < new["window_end"]

    def closes(self, row, result):
        closed = p.micros_of(row["window_end"]) + self.lateness
        return result.watermark_micros is not None and closed <= result.watermark_micros
