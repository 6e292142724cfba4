"""Windows around rows: each batch puts out what the rules say, whatever happens between batches."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import WITH_IDLE, plan_of, sliding
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import Drop, OnWatermark, Reassign
from tidegate.plan.time import Micros
from tidegate.state import pages as state
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of, micros_of

KINDS = {"arrived": p.ARRIVED, "complete": p.COMPLETE}
EVERY_KIND = pytest.mark.parametrize("window", KINDS.values(), ids=KINDS)
POOL = [*p.AGGREGATES, *p.BY_ARRIVAL, a.Max("ts"), a.Min("user")]

few = settings(max_examples=settings.default.max_examples // 2)
fewer = settings(max_examples=settings.default.max_examples // 4)


def programs(window, late, pool=POOL, **options):
    """Rows of several partitions have no order among each other: there is one where order counts."""
    return p.programs(OnWatermark(), late, pool, window=window, **{"packs": 1, **options})


@p.EVERY_POLICY
@EVERY_KIND
@given(data=st.data())
def test_each_batch_puts_out_what_the_rules_say(window, late, data):
    p.agrees(data.draw(programs(window, late)))


@EVERY_KIND
@few
@given(data=st.data())
def test_all_aggregates_side_by_side(window, data):
    plan = plan_of(
        data.draw(window),
        [(f"a{number}", aggregate) for number, aggregate in enumerate(POOL)],
        keys=data.draw(p.ANY_KEY),
        late=data.draw(p.ANY_POLICY),
        tolerance=data.draw(st.sampled_from([5, 90])),
        schema=WITH_IDLE,
    )
    steps = data.draw(p.steps(size=12, packs=1))
    p.agrees(p.Program(plan, steps, data.draw(st.integers(1, 3))))


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_complete_windows_over_rows_of_several_partitions(late, data):
    p.agrees(data.draw(programs(p.COMPLETE, late, p.AGGREGATES, packs=3)))


@few
@given(data=st.data())
def test_the_order_inside_a_batch_does_not_matter_to_complete_windows(data):
    program = data.draw(programs(p.COMPLETE, data.draw(p.ANY_POLICY), p.AGGREGATES, packs=3))
    mixed = [replace(step, rows=data.draw(st.permutations(step.rows))) for step in program.steps]
    p.assert_same(program, p.run_kernel(program), p.run_kernel(replace(program, steps=mixed)))


@EVERY_KIND
@few
@given(data=st.data())
def test_all_rows_at_once_give_the_final_answer(window, data):
    program = data.draw(programs(window, Reassign(Micros(5))))
    rows = [row for step in program.steps for row in step.rows]
    host, oracle = KernelHost(program.plan, buckets=program.buckets), Oracle(program.plan)
    got, expected = [host.batch(rows), host.end()], [oracle.batch(rows, None), oracle.end()]
    p.assert_same(program, expected, got)
    assert got[0].counts["late_rows"] == 0


@few
@given(data=st.data())
def test_without_a_condition_every_row_in_time_has_one_result(data):
    window = data.draw(p.COMPLETE.map(lambda window: replace(window, when=None)))
    program = data.draw(programs(st.just(window), Drop()))
    host = KernelHost(program.plan, buckets=program.buckets)
    results = [host.batch(step.rows, packs=step.packs) for step in program.steps]
    results.append(host.end())
    counts = sum((result.counts for result in results), start=results[0].counts.__class__())
    answered = sum(len(result.main) for result in results)
    assert answered == counts["rows_in"] - counts["errors"] - counts["late_rows"]


@EVERY_KIND
@few
@given(data=st.data())
def test_nothing_is_stored_once_the_watermark_has_passed_everything(window, data):
    program = data.draw(programs(window, data.draw(p.ANY_POLICY)))
    host = KernelHost(program.plan, buckets=program.buckets)
    for step in program.steps:
        host.batch(step.rows, worker=step.worker)
    host.end()
    assert not any(host.stored.values())


# -- pages ----------------------------------------------------------------------------------------


def long_streams(data, *, ahead, tolerance, window, late):
    """Many small batches: pages pile up and are merged, while the watermark stands or moves."""
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, 9]), min_size=12, max_size=22))
    steps = []
    for number, size in enumerate(sizes):
        rows = p.rows(st.integers(ahead * number, ahead * number + 60))
        steps.append(p.Step([data.draw(rows) for _ in range(size)], restart=number % 7 == 5))
    plan = plan_of(
        window, data.draw(p.aggregates(POOL)), late=late, tolerance=tolerance, schema=WITH_IDLE
    )
    return p.Program(plan, steps)


@EVERY_KIND
@few
@given(data=st.data())
def test_long_streams_in_which_nothing_leaves(window, data):
    p.agrees(
        long_streams(
            data, ahead=0, tolerance=400, window=data.draw(window), late=data.draw(p.ANY_POLICY)
        )
    )


@p.EVERY_POLICY
@EVERY_KIND
@few
@given(data=st.data())
def test_long_streams_that_move_on(window, late, data):
    tolerance = data.draw(st.sampled_from([10, 40]))
    p.agrees(long_streams(data, ahead=9, tolerance=tolerance, window=data.draw(window), late=late))


@p.EVERY_POLICY
@EVERY_KIND
@few
@given(data=st.data())
def test_few_pages_for_a_long_time(window, late, data):
    """Two pages a batch, however long a time it spans: much in them is over."""
    program = data.draw(programs(window, late))
    expected = p.run_oracle(program, p.watermarks(program))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MAX_RANGES", 2)
        patch.setattr(state, "_FAN_IN", 2)
        p.assert_same(program, expected, p.run_kernel(program))


@p.EVERY_POLICY
@EVERY_KIND
@fewer
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(window, late, data):
    program = data.draw(programs(window, late))
    narrow = program.plan.windowed.window
    ahead = narrow.lookahead and 777 * narrow.lookahead
    wide = replace(program.plan.windowed, window=sliding(777 * narrow.lookback, ahead, narrow.when))
    plan = replace(program.plan, input=replace(program.plan.input, input=wide))
    host, oracle = KernelHost(plan, as_spark=True), Oracle(plan)
    for step in program.steps:
        rows = [stretched(row) for row in step.rows]
        result = host.batch(rows)
        assert result.watermark_micros is None or result.watermark_micros % 1000 == 0
        p.assert_same(program, [oracle.batch(rows, result.watermark_micros)], [result])


def stretched(row):
    return row | {"ts": row["ts"] and instant_of(1_000_000 + 777 * micros_of(row["ts"]))}
