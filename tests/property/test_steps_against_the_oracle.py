"""Steps before operators of every kind: as if plain Python had done the same to each row by itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import pyarrow.compute as pc
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tests.oracle import Operator, Oracle
from tests.property import programs as p
from tests.property import test_joins_against_the_oracle as joined
from tests.property.test_chains_against_the_oracle import CHAINS
from tests.property.test_folds_against_the_oracle import AFTER, BY_ARRIVAL, dedupes, folds
from tests.support.python_stage_host import PythonStageHost
from tests.support.steps import FUSIONS, filtered, mapped, with_steps
from tidegate.optimize import optimize
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.sources import Derived, Upstream
from tidegate.testing import BatchResult, differences
from tidegate.testing.table import Row


@dataclass(frozen=True)
class Twin:
    """A step over columns, and what it does to a row: another row, or none where it is left out."""

    needs: tuple[str, ...]
    step: Callable[[Upstream], Upstream]
    row: Callable[[Row], Row | None]


def _map(column: str, polars: Any, plain: Callable[[Any], Any]) -> Twin:
    return Twin(
        (column,),
        lambda feed: mapped(feed, lambda rows: rows.with_columns(polars.alias(column))),
        lambda row: row | {column: plain(row[column])},
    )


def _arrow_map(column: str, arrow: Callable[[Any], Any], plain: Callable[[Any], Any]) -> Twin:
    def function(rows: Any) -> Any:
        place = rows.schema.get_field_index(column)
        return rows.set_column(place, rows.schema.field(place), arrow(rows[column]))

    return Twin(
        (column,),
        lambda feed: mapped(feed, function, "arrow"),
        lambda row: row | {column: plain(row[column])},
    )


def _filter(column: str, function: Any, frames: Any, plain: Callable[[Any], bool]) -> Twin:
    return Twin(
        (column,),
        lambda feed: filtered(feed, lambda rows: function(rows[column]), frames),
        lambda row: row if row[column] is not None and plain(row[column]) else None,
    )


def _unless_null(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


#: They change keys, gaps and values alike, and their filters meet nulls.
TWINS = [
    _map("items", pl.col("items") * 2, _unless_null(lambda items: items * 2)),
    _map("user", pl.col("user").fill_null("bob"), lambda user: "bob" if user is None else user),
    _map("price", -pl.col("price"), _unless_null(lambda price: -price)),
    _map("idle", pl.col("idle") * 2, _unless_null(lambda idle: idle * 2)),
    _map("n", pl.col("n") + 1, lambda n: n + 1),
    _arrow_map("shop", lambda shop: pc.subtract(3, shop), _unless_null(lambda shop: 3 - shop)),
    _arrow_map("note", pc.utf8_upper, _unless_null(str.upper)),
    _filter("items", lambda items: items > -3, "polars", lambda items: items > -3),
    _filter("user", lambda user: user != "", "polars", lambda user: user != ""),
    _filter("shop", lambda shop: pc.equal(shop, 1), "arrow", lambda shop: shop == 1),
    _filter("n", lambda n: n > 1, "polars", lambda n: n > 1),
    _filter("price", lambda price: pc.less(price, 6.0), "arrow", lambda price: price < 6),
]


@st.composite
def stepped(draw: st.DrawFn, plan: AnyOperator) -> tuple[AnyOperator, list[list[Twin]]]:
    """A plan with steps before each operator, and those steps, in the order that feeds are met."""
    taken: list[list[Twin]] = []

    def through(feed: Upstream) -> Upstream:
        pool = [twin for twin in TWINS if set(twin.needs) <= set(feed.schema.names)]
        taken.append(draw(st.lists(st.sampled_from(pool), max_size=4)) if pool else [])
        for twin in taken[-1]:
            feed = twin.step(feed)
        return feed

    fusion = FUSIONS[draw(st.sampled_from(list(FUSIONS)))]
    return optimize(with_steps(plan, through), fusion), taken


class Reference:
    """The oracle of the plan without steps, given rows to which the same was done one by one."""

    def __init__(
        self, plan: AnyOperator, taken: Sequence[Sequence[Twin]], bucket_of: Any = lambda _: None
    ):
        self.oracle = Oracle(plan, bucket_of=bucket_of)
        self.filtered = 0
        self._taken = iter(taken)
        self.of_sources: list[list[Twin]] = []
        self._place(self.oracle.last)

    def _place(self, operator: Operator) -> None:
        """In the order in which `with_steps` meets feeds: what is above comes first."""
        for number, feed in enumerate(operator.feeds):
            if isinstance(feed, Operator):
                self._place(feed)
                operator.feeds[number] = Through(feed, self, list(next(self._taken)))
            else:
                self.of_sources += [list(next(self._taken))] * feed

    def batch_of(self, rows: Sequence[Sequence[Row]], watermark: int | None, now: int) -> BatchResult:
        self.filtered = 0
        times = [source.time for source in self.oracle.plan.sources]
        given = [
            self.through(own, twins, time)
            for own, twins, time in zip(rows, self.of_sources, times, strict=True)
        ]
        result = self.oracle.batch_of(given, watermark, now)
        result.counts["rows_in"] = sum(map(len, rows))
        result.counts["filtered"] = self.filtered
        return result

    def through(self, rows: Sequence[Row], twins: Sequence[Twin], time: str | None = None) -> list[Row]:
        """Rows without an event time are not touched."""
        left = []
        for row in rows:
            made: Row | None = row
            for twin in twins if time is None or row[time] is not None else ():
                made = made and twin.row(made)
            self.filtered += made is None
            left += [] if made is None else [made]
        return left


class Through(Operator):
    """An operator with steps behind it."""

    def __init__(self, above: Operator, reference: Reference, twins: Sequence[Twin]) -> None:
        self.above, self.reference, self.twins = above, reference, twins

    def batch(self, sources: Iterator[Sequence[Row]], result: BatchResult, now: int) -> list[Row]:
        return self.reference.through(self.above.batch(sources, result, now), self.twins)


def without_texts(result: BatchResult) -> BatchResult:
    """Broken rows are told as they came, not as steps would have left them: only reasons compare."""
    for error in result.channels.get("errors", []):
        error["row"] = None
    return result


def staged(module: Any, program: Any) -> list[BatchResult]:
    """What a program does where rows take the Python stages that fusion has left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KernelHost", PythonStageHost)
        return module.run_kernel(program)


def agrees(data: Any, program: p.Program) -> None:
    program = replace(program, plan=with_steps(program.plan, lambda feed: feed))  # with all columns
    plan, taken = data.draw(stepped(program.plan))
    note(repr(replace(program, plan=plan)))
    reference = Reference(program.plan, taken, p.bucket_of(program))
    actual = staged(p, replace(program, plan=plan))
    now = 0
    steps = zip((*program.steps, p.Step([])), p.watermarks(program), actual, strict=True)
    for number, (step, watermark, got) in enumerate(steps):
        now += step.pause
        expected = reference.batch_of([step.rows], watermark, now)
        found = differences(program.plan, without_texts(expected), without_texts(got))
        assert not found, "\n".join([f"batch {number}:", *found])


WINDOWS = {
    "windows": p.KINDS["hopping"],
    "sessions": p.KINDS["session"],
    "windows of what has arrived": p.ARRIVED,
    "windows around rows": p.COMPLETE,
}


@p.EVERY_POLICY
@pytest.mark.parametrize("window", WINDOWS)
@given(data=st.data())
def test_before_windows(window, late, data):
    around = window.startswith("windows ")
    emission = p.STRATEGIES["on_watermark" if around else data.draw(st.sampled_from(list(p.STRATEGIES)))]
    options = {"packs": 1} if around else {}
    agrees(data, data.draw(p.programs(emission, late, window=WINDOWS[window], **options)))


@p.EVERY_POLICY
@given(data=st.data())
def test_before_rows_are_put_in_order(late, data):
    agrees(data, data.draw(p.reorderings(late)))


@p.EVERY_POLICY
@given(data=st.data())
def test_before_duplicates(late, data):
    program = p.Program(data.draw(dedupes(late)), data.draw(p.steps(size=12, packs=1)))
    agrees(data, replace(program, buckets=data.draw(st.integers(1, 3))))


@given(data=st.data())
def test_before_folds(data):
    program = p.Program(data.draw(folds()), data.draw(p.steps(size=12, packs=1)))
    agrees(data, replace(program, buckets=data.draw(st.integers(1, 3))))


@pytest.mark.parametrize("plans", CHAINS.values(), ids=CHAINS)
@given(data=st.data())
def test_between_operators(plans, data):
    plan = data.draw(plans(data.draw(p.ANY_POLICY)))
    agrees(data, p.Program(plan, data.draw(p.steps(packs=1)), data.draw(st.integers(1, 3))))


@pytest.mark.parametrize("after", AFTER)
@given(data=st.data())
def test_between_duplicates_and_what_follows(after, data):
    first = data.draw(dedupes(data.draw(p.ANY_POLICY)))
    if first.late == p.POLICIES["side_output"]:
        first = replace(first, late=replace(first.late, channel="too_old"))
    plan = data.draw(AFTER[after](Derived(first, "ts")))
    buckets = 1 if after in BY_ARRIVAL else data.draw(st.integers(1, 3))
    agrees(data, p.Program(plan, data.draw(p.steps(size=12, packs=1)), buckets))


@joined.EVERY_KIND
@given(data=st.data())
def test_on_both_sides_of_joins(kinds, data):
    program = data.draw(joined.programs(joined.joins(kinds)))
    plan, taken = data.draw(stepped(program.plan))
    note(repr(replace(program, plan=plan)))
    reference = Reference(program.plan, taken)
    actual = staged(joined, replace(program, plan=plan))[:-1]
    steps = zip((*program.steps, joined.NOTHING), joined.watermarks(program), actual, strict=True)
    for number, (step, watermark, got) in enumerate(steps):
        expected = reference.batch_of(step.rows, watermark, 0)
        found = differences(program.plan, without_texts(expected), without_texts(got))
        assert not found, "\n".join([f"batch {number}:", *found])
