"""What `explain()` shows, as golden files: the logical plan and the physical stages."""

from typing import Any

import pyarrow as pa
import pytest

from tests.golden import assert_golden
from tests.support.plans import ROWS, SECOND, WITH_IDLE, hopping, plan_of, session
from tidegate.dataflow import compile
from tidegate.dataflow.explain import render_logical, render_physical
from tidegate.kernels import aggregates as a
from tidegate.kernels.registry import kernels_of
from tidegate.optimize import optimize
from tidegate.plan.event_time import At
from tidegate.plan.inputs import KeyBy
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import declare_source
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate

TIMES = pa.schema(
    [
        ("ms", pa.int64()),
        ("user", pa.string()),
        ("order", pa.struct([("created", TIMESTAMP)])),
        ("click", pa.struct([("ms", pa.int64())])),
    ]
)


def counted_by(time: Any, time_type: str | None = None) -> WindowedAggregate:
    source = declare_source(TIMES, time, time_type, "5 s")
    window = WindowBy(KeyBy(source, ("user",)), hopping(60 * SECOND))
    return optimize(WindowedAggregate(Aggregation(window, ROWS)))


PLANS = {
    "time_in_numbers": counted_by("ms", "unixtimestamp_ms"),
    "time_in_messages": counted_by({"order": "created", "click": At("ms", "unixtimestamp_ms")}),
    "processing_time": counted_by(ProcessingTime(Micros(SECOND))),
    "tumbling_on_watermark": plan_of(hopping(3600 * SECOND), keys=()),
    "hopping_changelog_with_side_output": plan_of(
        hopping(60 * SECOND, 10 * SECOND),
        (*ROWS, ("p99", a.Quantile("price", 0.99)), ("spread", a.Stddev("price", population=True))),
        keys=("user", "shop"),
        emission=Retracting(before="-D", after="+I"),
        late=SideOutput("late"),
        lateness=30 * SECOND,
        tolerance=5 * SECOND,
    ),
    "uneven_hops_periodic_with_reassign": plan_of(
        hopping(10 * SECOND, 4 * SECOND, 1500),
        emission=Retracting(interval=Micros(2 * SECOND)),
        late=Reassign(Micros(90 * SECOND)),
    ),
    "gaps_final": plan_of(
        hopping(4 * SECOND, 10 * SECOND), emission=OnWindowClose(final=True), lateness=SECOND
    ),
    "session_changelog": plan_of(
        session(600 * SECOND),
        (*ROWS, ("spend", a.Sum("price"))),
        emission=Retracting(before="-D", after="+I"),
        lateness=60 * SECOND,
    ),
    "session_own_gaps_cut_with_side_output": plan_of(
        session("idle", max_length=86_400 * SECOND),
        keys=(),
        late=SideOutput("late"),
        schema=WITH_IDLE,
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_explain_themselves(name):
    plan = PLANS[name]
    dataflow = compile(plan)
    physical = render_physical(
        dataflow, [kernel.physical_operators() for kernel in kernels_of(dataflow)]
    )
    assert_golden(f"explain_{name}", f"{render_logical(plan)}\n\n{physical}\n")
