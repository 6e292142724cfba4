"""The same rows cut into micro-batches in one way or another, none of them late."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.property import programs as p
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import Retracting
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.testing import BatchResult, KernelHost, replay
from tidegate.testing.table import Row, instant_of

TOLERANCE = 30
ROWS = p.rows(st.just(0))


@st.composite
def orderly_rows(draw: st.DrawFn, most_ahead: int = TOLERANCE - 1) -> list[Row]:
    """Rows out of order by less than the tolerance: none can be late, wherever the cuts are."""
    steady = sorted(draw(st.lists(st.integers(-100, 300), max_size=25)))
    ahead = [draw(st.integers(0, most_ahead)) for _ in steady]
    rows = [draw(ROWS) for _ in steady]
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


AT_ONCE = Cut([], 1, False)


def finally_emitted(plan: AnyOperator, rows: list[Row], cut: Cut = AT_ONCE) -> list[Row]:
    """What a reader has in the end."""
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


def settled(plan: AnyOperator, batches: list[list[Row]]) -> list[Row]:
    """A retracting stream is applied, a plain one read."""
    if isinstance(plan, WindowedAggregate) and isinstance(plan.emission, Retracting):
        return [row | {"op": None} for row in replay(batches, plan.keyed.keys)[-1]]
    return [row for batch in batches for row in batch]
