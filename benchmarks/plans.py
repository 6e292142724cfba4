"""The plan of a case: what a kernel runs without Spark."""

from __future__ import annotations

import tidegate as tg
from benchmarks.cases import Admission, Case, Distinct, Join, Session, Sliding, Window
from benchmarks.data import SCHEMA
from tidegate.plan import joins
from tidegate.plan import windows as plan_windows
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.pass_through import Admit, Dedupe
from tidegate.plan.policies import Emission
from tidegate.plan.sla import declare_sla
from tidegate.plan.sources import Source
from tidegate.plan.time import micros
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate

#: In seconds; more than the disorder of the data, so that no row is late.
TOLERANCE = 5


def plan_of(case: Case) -> AnyOperator:
    """What a case asks, as a plan."""
    if isinstance(case.window, Distinct | Admission):
        return row_plan(case)
    if isinstance(case.window, Join):
        sides = (case.window.left, case.window.right)
        return joins.Join(*(_windowed(window, number) for number, window in enumerate(sides)))
    emission: Emission = getattr(tg.emit, case.emission)()
    return WindowedAggregate(Aggregation(_windowed(case.window), _aggregates(case)), emission)


def row_plan(case: Case) -> Dedupe | Admit:
    """The plan of a case whose results are rows that are left."""
    if isinstance(case.window, Distinct):
        delay = micros(f"{case.window.delay} s", "delay")
        return Dedupe(KeyBy(Source(SCHEMA, "ts", delay, packs=True), ("user",)), within=delay)
    assert isinstance(case.window, Admission)
    limits = declare_sla(
        max_rate=case.window.max_rate, capacity=case.window.capacity, max_lag="5 s", arrival="ts"
    )
    return Admit(_by_user(), limits)


def _by_user(number: int = 0) -> KeyBy:
    tolerance = micros(f"{TOLERANCE} s", "tolerance")
    return KeyBy(Source(SCHEMA, "ts", tolerance, number=number, packs=True), ("user",))


def _windowed(window: Window | Session | Sliding, number: int = 0) -> WindowBy:
    return WindowBy(_by_user(number), tidegate_window(window))


def _aggregates(case: Case) -> tuple[tuple[str, Aggregate], ...]:
    most = (("most", tg.max("price")),) if isinstance(case.window, Sliding) else ()
    return (("n", tg.count()), ("spend", tg.sum("price")), *most)


def tidegate_window(window: Window | Session | Sliding) -> plan_windows.Window:
    if isinstance(window, Session):
        return tg.session(f"{window.gap} s")
    if isinstance(window, Sliding):
        ahead = window.lookahead
        return tg.sliding(f"{window.lookback} s", None if ahead is None else f"{ahead} s")
    size, slide = window.size, window.slide
    return tg.tumbling(f"{size} s") if size == slide else tg.hopping(f"{size} s", f"{slide} s")
