"""Rows in order: each batch releases the rows the rules say, in that order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import WITH_IDLE, reorder_plan
from tidegate.plan.policies import Drop, Reassign
from tidegate.plan.time import Micros
from tidegate.state import pages as state
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of, micros_of

few = settings(max_examples=settings.default.max_examples // 2)


def agrees_in_order(program):
    """Does the kernel release, batch by batch, what the oracle does, and in that order?"""
    expected, actual = p.run_oracle(program, p.watermarks(program)), p.run_kernel(program)
    p.assert_same(program, expected, actual)
    for wanted, got in zip(expected, actual, strict=True):
        p.assert_in_order(program, wanted.main, got.main)


@p.EVERY_POLICY
@given(data=st.data())
def test_each_batch_releases_what_the_rules_say(late, data):
    agrees_in_order(data.draw(p.reorderings(late)))


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_the_same_rows_are_released_when_they_come_in_several_partitions(late, data):
    p.agrees(data.draw(p.reorderings(late, packs=3)))


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_few_pages_for_many_batches(late, data):
    program = data.draw(p.reorderings(late, most=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MAX_RANGES", 2)
        patch.setattr(state, "_FAN_IN", 2)
        agrees_in_order(program)


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_the_stream_as_a_whole_is_in_order_and_complete(late, data):
    """Also where late rows are moved: they go behind all that was before the watermark."""
    program = data.draw(p.reorderings(late, packs=3))
    host = KernelHost(program.plan, buckets=program.buckets)
    results = [host.batch(step.rows, packs=step.packs) for step in program.steps]
    results.append(host.end())
    released = [row for result in results for row in result.main]
    for rows in p.by_key(program.plan, released).values():
        times = [row["ts"] for row in rows]
        assert times == sorted(times)
    counts = sum((result.counts for result in results), start=results[0].counts.__class__())
    apart = counts["errors"] + counts["late_rows"] - counts["late_reassigned"]
    assert len(released) == counts["rows_in"] - apart
    assert not any(host.stored.values())


@given(data=st.data())
def test_all_rows_at_once_come_out_sorted(data):
    program = data.draw(p.reorderings(Reassign(Micros(5))))
    rows = [row for step in program.steps for row in step.rows]
    host, oracle = KernelHost(program.plan, buckets=program.buckets), Oracle(program.plan)
    first, last = host.batch(rows), host.end()
    p.assert_same(program, [oracle.batch(rows, None), oracle.end()], [first, last])
    in_order = sorted((row for row in rows if row["ts"] is not None), key=lambda row: row["ts"])
    p.assert_in_order(program, in_order, last.main)
    assert not first.main
    assert first.counts["late_rows"] == 0


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(late, data):
    program = data.draw(p.reorderings(late))
    host, oracle = KernelHost(program.plan, as_spark=True), Oracle(program.plan)
    for step in program.steps:
        rows = [
            row | {"ts": row["ts"] and instant_of(1_000_000 + 77 * micros_of(row["ts"]))}
            for row in step.rows
        ]
        result = host.batch(rows)
        expected = oracle.batch(rows, result.watermark_micros)
        p.assert_same(program, [expected], [result])
        p.assert_in_order(program, expected.main, result.main)


@given(data=st.data())
def test_many_small_batches_far_behind_their_watermark(data):
    """Ties over many pages, which pile up and are merged, go by arrival."""
    rows = p.rows(st.integers(0, 12))
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 9]), min_size=12, max_size=24))
    steps = [
        p.Step([data.draw(rows) for _ in range(size)], restart=number % 5 == 4)
        for number, size in enumerate(sizes)
    ]
    last = p.Step([data.draw(p.rows(st.just(data.draw(st.integers(60, 72)))))])
    plan = reorder_plan(late=Drop(), tolerance=60, schema=WITH_IDLE)
    agrees_in_order(p.Program(plan, [*steps, last, p.Step([])]))
