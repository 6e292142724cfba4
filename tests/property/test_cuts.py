"""Cutting the same rows into other micro-batches never changes what is finally emitted."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import WITH_IDLE, plan_of
from tests.property import programs as p
from tidegate.plan.nodes import Emit
from tidegate.plan.policies import Retracting
from tidegate.testing import BatchResult, KernelHost, Oracle, replay
from tidegate.testing.results import row_differences
from tidegate.testing.table import Row, instant_of

TOLERANCE = 30


#: How far rows may run ahead. A session that ends at W has closed before a row at W itself comes,
#: which would have touched it in one batch with it: there rows must stay behind that.
AHEAD = {"hopping": TOLERANCE, "session": TOLERANCE - 1}


@st.composite
def orderly_rows(draw, most_ahead: int) -> list[Row]:
    """Rows out of order by no more than the tolerance: none can be late, wherever the cuts are."""
    steady = sorted(draw(st.lists(st.integers(-100, 300), max_size=25)))
    ahead = [draw(st.integers(0, most_ahead)) for _ in steady]
    rows = [draw(p.rows(st.just(0))) for _ in steady]
    return [
        row | {"ts": instant_of(time + more)}
        for row, time, more in zip(rows, steady, ahead, strict=True)
    ]


@dataclass
class Cut:
    """Where micro-batches begin and end, how many buckets there are, whether workers forget."""

    edges: list[int]
    buckets: int
    forgets: bool


def cuts(length: int) -> st.SearchStrategy[Cut]:
    edges = st.lists(st.integers(0, length), max_size=8).map(sorted)
    return st.builds(Cut, edges, st.integers(1, 3), st.booleans())


def finally_emitted(plan: Emit, rows: list[Row], cut: Cut) -> list[Row]:
    host = KernelHost(plan, buckets=cut.buckets)
    results: list[BatchResult] = []
    for start, end in zip([0, *cut.edges], [*cut.edges, len(rows)], strict=True):
        host.now += 7
        results.append(host.batch(rows[start:end]))
        if cut.forgets:
            host.restart()
    results.append(host.end())
    assert sum(result.counts["late_rows"] for result in results) == 0
    return settled(plan, [result.main for result in results])


def settled(plan: Emit, batches: list[list[Row]]) -> list[Row]:
    """What a reader has in the end: a retracting stream is applied, a plain one read."""
    if isinstance(plan.emission, Retracting):
        keys = plan.input.input.input.keys
        return [row | {"op": None} for row in replay(batches, keys)[-1]]
    return [row for batch in batches for row in batch]


@pytest.mark.parametrize("kind", p.KINDS)
@pytest.mark.parametrize("emission", p.STRATEGIES.values(), ids=p.STRATEGIES)
@given(data=st.data())
def test_cuts_do_not_change_what_is_finally_emitted(emission, kind, data):
    plan = plan_of(
        data.draw(p.KINDS[kind]),
        data.draw(p.aggregates([*p.AGGREGATES, *p.BY_ARRIVAL])),
        keys=data.draw(st.sampled_from([(), ("user",), ("user", "shop")])),
        emission=emission,
        tolerance=TOLERANCE,
        schema=WITH_IDLE,
    )
    rows = data.draw(orderly_rows(AHEAD[kind]))
    one = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    other = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", one, other)
    oracle = Oracle(plan)
    batches = [oracle.batch(rows, None).main, oracle.end().main]
    assert not row_differences(plan, "main", settled(plan, batches), one)
