"""Random programs: a plan, micro-batches of rows, and what goes wrong between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import note
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.support.plans import WITH_IDLE, plan_of, reorder_plan, sliding
from tidegate.columnar import key_index
from tidegate.kernels import aggregates as a
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Reassign,
    Retracting,
    SideOutput,
)
from tidegate.plan.time import Micros
from tidegate.plan.windows import Hopping, Session, Sliding, Window
from tidegate.testing import BatchResult, KernelHost, differences, text
from tidegate.testing.table import Row, instant_of, micros_of, to_arrow

STRATEGIES: dict[str, Emission] = {
    "on_watermark": OnWatermark(),
    "on_window_close": OnWindowClose(),
    "final": OnWindowClose(final=True),
    "on_update": Retracting(),
    "changelog": Retracting(before="-D", after="+I"),
    "periodic": Retracting(interval=Micros(20)),
}
POLICIES: dict[str, LatePolicy] = {
    "drop": Drop(),
    "reassign": Reassign(Micros(25)),
    "side_output": SideOutput("late"),
}

# Beside these a program mostly counts rows: so a row that counts in a window changes its result.
AGGREGATES: list[Aggregate] = [
    a.Count("price"),
    a.Sum("price"),
    a.Sum("items"),
    a.Min("price"),
    a.Max("items"),
    a.Min("note"),
    a.Mean("price"),
    a.Var("price"),
    a.Stddev("items", population=True),
    a.CountDistinct("note"),
    a.Collect("items"),
    a.ApproxCountDistinct("items"),
    a.Quantile("price", 0.5),
]
# Results that a row may leave as they are, to the bit.
STEADY: list[Aggregate] = [a.Max("items"), a.Min("note"), a.CountDistinct("note"), a.Sum("items")]
# These take the first or last of equal times by arrival.
BY_ARRIVAL: list[Aggregate] = [a.First("items"), a.Last("note")]


@dataclass(frozen=True)
class Step:
    """One micro-batch, and the trouble it meets."""

    rows: list[Row]
    pause: int = 1
    worker: int = 0
    packs: int = 1
    restart: bool = False
    fails_first: bool = False


@dataclass(frozen=True)
class Program:
    """A plan and its micro-batches."""

    plan: AnyOperator
    steps: list[Step]
    buckets: int = 1

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # what hypothesis shows of a failure

    def __repr__(self) -> str:
        source = self.plan.sources[0]
        lines = [f"{node.label()}" for node in (self.plan, *_below(self.plan))]
        for number, step in enumerate(self.steps):
            shown = [
                {**row, "ts": _micros(row["ts"]), "idle": _length(row["idle"])} for row in step.rows
            ]
            marks = f"pause={step.pause} worker={step.worker} packs={step.packs}"
            marks += " restart" * step.restart + " fails_first" * step.fails_first
            lines.append(f"-- batch {number}: {marks}\n{text(shown)}")
        return f"buckets={self.buckets} tolerance={source.tolerance}\n" + "\n".join(lines)


@st.composite
def windows(draw: st.DrawFn, longest: int = 40) -> Hopping:
    """Tumbling, hopping (dividing or not) and gaps, at any offset."""
    size = draw(st.integers(1, longest))
    slide = draw(st.one_of(st.just(size), st.integers(1, longest)))
    return Hopping(Micros(size), Micros(slide), Micros(draw(st.integers(-50, 50))))


@st.composite
def sessions(draw: st.DrawFn, longest: int = 40) -> Session:
    """One gap for all rows, or each row's own; of any length, or cut."""
    gap = draw(st.one_of(st.integers(1, longest).map(Micros), st.just("idle")))
    limit = draw(st.one_of(st.none(), st.none(), st.integers(1, 3 * longest).map(Micros)))
    return Session(gap, limit)


#: Conditions over rows; a null is never true.
CONDITIONS = (None, None, "items > 0", "\"user\" = 'ann' OR note IS NULL", "price < items")


@st.composite
def slidings(draw: st.DrawFn, lookahead: st.SearchStrategy[int | None]) -> Sliding:
    """Windows around all rows, or around some of them."""
    back = draw(st.one_of(st.just(0), st.integers(1, 60)))
    return sliding(back, draw(lookahead), draw(st.sampled_from(CONDITIONS)))


#: Over what has arrived, and complete.
ARRIVED = slidings(st.none())
COMPLETE = slidings(st.one_of(st.just(0), st.integers(1, 60)))

#: Windows that have an identity of their own, for rules that hold for either kind.
KINDS: dict[str, st.SearchStrategy[Window]] = {"hopping": windows(), "session": sessions()}
EVERY_KIND = pytest.mark.parametrize("window", KINDS.values(), ids=KINDS)
EVERY_STRATEGY = pytest.mark.parametrize("emission", STRATEGIES.values(), ids=STRATEGIES)
EVERY_POLICY = pytest.mark.parametrize("late", POLICIES.values(), ids=POLICIES)
ANY_POLICY = st.sampled_from(list(POLICIES.values()))
ANY_KEY = st.sampled_from([(), ("user",), ("shop",), ("user", "shop")])


@st.composite
def aggregates(
    draw: st.DrawFn, pool: Sequence[Aggregate] = AGGREGATES, counted: bool = True
) -> tuple[tuple[str, Aggregate], ...]:
    places = st.sampled_from(range(len(pool)))
    chosen = draw(st.lists(places, unique=True, min_size=0 if counted else 1, max_size=4))
    count = (("n", a.Count(None)),) if counted else ()
    return (*count, *((f"a{i}", pool[i]) for i in chosen))


def rows(times: st.SearchStrategy[int | None]) -> st.SearchStrategy[Row]:
    """Rows with nulls everywhere; prices are sums of halves, so that adding them up is exact."""
    return st.tuples(
        times,
        st.sampled_from(["ann", "bob", "", None]),
        st.sampled_from([1, 2, None]),
        st.one_of(st.none(), st.integers(-20, 20).map(lambda half: half / 2)),
        st.one_of(st.none(), st.integers(-5, 5)),
        st.sampled_from(["x", "y", "zz", None]),
        st.sampled_from([1, 2, 5, 5, 9, 9, 14, 30, 60, 0, -3, None]),
    ).map(_row)


@cache  # Hypothesis looks a strategy over before it first draws from it, which costs more than a draw
def batches(number: int, size: int) -> st.SearchStrategy[list[Row]]:
    """The rows of a program's batch: the later the batch, the later they are."""
    times = st.one_of(st.integers(30 * number - 90, 30 * number + 40), st.none())
    return st.lists(rows(times), max_size=size)


@st.composite
def steps(
    draw: st.DrawFn, *, trouble: bool = True, most: int = 8, size: int = 6, packs: int = 3
) -> list[Step]:
    """Batches whose rows move ahead in time, out of order and often late."""
    return [
        Step(
            draw(batches(number, size)),
            pause=draw(st.integers(0, 15)),
            worker=draw(st.integers(0, 1)) if trouble else 0,
            packs=draw(st.integers(1, packs)) if trouble else 1,
            restart=trouble and draw(st.integers(0, 3)) == 0,
            fails_first=trouble and draw(st.integers(0, 5)) == 0,
        )
        for number in range(draw(st.integers(1, most)))
    ]


@st.composite
def programs(
    draw: st.DrawFn,
    emission: Emission,
    late: LatePolicy,
    pool: Sequence[Aggregate] = AGGREGATES,
    *,
    window: st.SearchStrategy[Window] = KINDS["hopping"],
    trouble: bool = True,
    counted: bool = True,
    packs: int = 3,
) -> Program:
    chosen = draw(window)
    around = isinstance(chosen, Sliding)
    # Sessions with lateness and plain rows are refused, and so is lateness around rows.
    strict = not isinstance(chosen, Hopping) and isinstance(emission, OnWatermark)
    plan = plan_of(
        chosen,
        draw(aggregates(pool, counted)),
        keys=draw(ANY_KEY),
        emission=emission,
        late=late,
        lateness=0 if strict else draw(st.sampled_from([0, 0, 1, 7, 30, 60])),
        tolerance=draw(st.sampled_from([0, 5, 40, *([90] if around else [])])),
        schema=WITH_IDLE,
    )
    made = draw(steps(trouble=trouble, size=12 if around else 6, packs=packs))
    return Program(plan, made, draw(st.integers(1, 4)) if trouble else 1)


@st.composite
def reorderings(draw: st.DrawFn, late: LatePolicy, *, most: int = 8, packs: int = 1) -> Program:
    """Rows to be put in order; those of several partitions have no order among each other."""
    plan = reorder_plan(
        keys=draw(ANY_KEY), late=late, tolerance=draw(st.sampled_from([0, 5, 40, 90])), schema=WITH_IDLE
    )
    return Program(plan, draw(steps(most=most, size=12, packs=packs)), draw(st.integers(1, 4)))


def run_kernel(program: Program) -> list[BatchResult]:
    """What the kernel puts out, batch by batch, and at last an empty batch."""
    host = KernelHost(program.plan, buckets=program.buckets)
    results = []
    for step in (*program.steps, Step([])):
        host.now += step.pause
        if step.restart:
            host.restart()
        if step.fails_first:
            host.failed_batch(step.rows, worker=step.worker)
        results.append(host.batch(step.rows, worker=step.worker, packs=step.packs))
    return results


def run_oracle(program: Program, watermarks: Sequence[int | None], **options: Any) -> list[BatchResult]:
    """What the rules say, given the watermark of each batch."""
    oracle = Oracle(program.plan, bucket_of=bucket_of(program), **options)
    results, now = [], 0
    for step, watermark in zip((*program.steps, Step([])), watermarks, strict=True):
        now += step.pause
        results.append(oracle.batch(step.rows, watermark, now))
    return results


def watermarks(program: Program) -> list[int | None]:
    """The watermark in force in each batch, by the rule."""
    tolerance = program.plan.sources[0].tolerance
    reached: list[int | None] = [None]
    for step in program.steps:
        times = [_micros(row["ts"]) - tolerance for row in step.rows if row["ts"] is not None]
        so_far = [*times, *([] if reached[-1] is None else [reached[-1]])]
        reached.append(max(so_far, default=None))
    return reached


def unnumbered(results: list[BatchResult]) -> list[BatchResult]:
    """What operators put out, wherever they stand in a plan: late rows name them without a number."""
    for row in (row for result in results for rows in result.channels.values() for row in rows):
        if "late_operator" in row:
            row["late_operator"] = row["late_operator"].partition(" ")[2]
    return results


def assert_same(program: Program, expected: list[BatchResult], actual: list[BatchResult]) -> None:
    for number, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        found = differences(program.plan, wanted, got)
        if found:
            note(f"batch {number}, watermark {wanted.watermark_micros}")
        assert not found, "\n".join([f"batch {number}:", *found])


def assert_in_order(program: Program, expected: Sequence[Row], actual: Sequence[Row]) -> None:
    """The same rows in the same order: of each key, and of all where there is none."""
    wanted, got = (by_key(program.plan, rows) for rows in (expected, actual))
    for key in wanted.keys() | got.keys():
        assert got.get(key, []) == wanted.get(key, []), f"rows of {key}"


def by_key(plan: AnyOperator, rows: Sequence[Row]) -> dict[Any, list[Row]]:
    """The rows of each key, in their order."""
    parts: dict[Any, list[Row]] = {}
    for row in rows:
        parts.setdefault(tuple(row[name] for name in plan.keyed.keys), []).append(row)
    return parts


def bucket_of(program: Program) -> Callable[[Row], int]:
    """Where a row's key lives; windows that wait for their turn are only heard when that one is."""
    keyed = program.plan.keyed
    keys = keyed.keys
    schema = pa.schema([keyed.schema.field(name) for name in keys])
    cache: dict[Any, int] = {}

    def bucket(row: Row) -> int:
        values = tuple(row.get(name) for name in keys)
        if values not in cache:
            table = to_arrow([row], schema) if keys else pa.table({"global": np.zeros(1, dtype=np.int8)})
            cache[values] = int(key_index.bucket_of(table, range(program.buckets))[0])
        return cache[values]

    return bucket


def row(**values: Any) -> Row:
    """A row of a fixed case: times are microseconds, and what is not given is null."""
    return _row(tuple(values.get(name) for name in WITH_IDLE.names))


def _row(values: tuple[Any, ...]) -> Row:
    time, *rest, idle = values
    instant = None if time is None else instant_of(time)
    gap = None if idle is None else timedelta(microseconds=idle)
    return dict(zip(WITH_IDLE.names, [instant, *rest, gap], strict=True))


def _micros(time: Any) -> Any:
    return None if time is None else micros_of(time)


def _length(gap: timedelta | None) -> int | None:
    return None if gap is None else gap // timedelta(microseconds=1)


def _below(node: Any) -> list[Any]:
    return [child for parent in node.children for child in (parent, *_below(parent))]


def agrees(program: Program) -> None:
    """Does the kernel do, batch by batch, what the oracle says?"""
    assert_same(program, run_oracle(program, watermarks(program)), run_kernel(program))
