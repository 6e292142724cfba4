"""What only sessions have to show; the rules that hold for all windows are in the file on windows."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import WITH_IDLE, plan_of, session
from tidegate.testing import KernelHost
from tidegate.testing.table import Row, instant_of, micros_of


@p.EVERY_STRATEGY
@settings(max_examples=settings.default.max_examples // 4)
@given(data=st.data())
def test_long_streams_that_never_close_compact_without_changing_anything(emission, data):
    """Many small batches, far apart at first and bridged bit by bit: pages pile up and are merged."""
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 1, 2, 9]), min_size=12, max_size=20))
    rows, users = p.rows(st.integers(0, 250)), st.sampled_from("abcd")
    steps = [
        p.Step([data.draw(rows) | {"user": data.draw(users)} for _ in range(size)], pause=9)
        for size in sizes
    ]
    window = data.draw(st.sampled_from([session(9), session("idle"), session(15, 60)]))
    plan = plan_of(window, data.draw(p.aggregates()), emission=emission, tolerance=400, schema=WITH_IDLE)
    p.agrees(p.Program(plan, steps))


@p.EVERY_STRATEGY
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(emission, data):
    program = data.draw(p.programs(emission, data.draw(p.ANY_POLICY), window=p.KINDS["session"]))
    window = program.plan.input.input
    coarse = replace(window, window=stretched(window.window))
    plan = replace(program.plan, input=replace(program.plan.input, input=coarse))
    host, oracle = KernelHost(plan, as_spark=True), Oracle(plan)
    for step in program.steps:
        host.now += step.pause
        rows = [stretched_row(row) for row in step.rows]
        result = host.batch(rows)
        assert result.watermark_micros is None or result.watermark_micros % 1000 == 0
        p.assert_same(program, [oracle.batch(rows, result.watermark_micros, host.now)], [result])


def stretched(window):
    gap = window.gap if window.gap == "idle" else 777 * window.gap
    return replace(window, gap=gap, max_length=window.max_length and 777 * window.max_length)


def stretched_row(row: Row) -> Row:
    time = row["ts"] and instant_of(1_000_000 + 777 * micros_of(row["ts"]))
    return row | {"ts": time, "idle": row["idle"] and 777 * row["idle"]}


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
