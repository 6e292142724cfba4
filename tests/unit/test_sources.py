"""Sources and time: what may be united, what processing time rules out, clocks that are wrong."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.plans import ROWS, SECOND, hopping, logical_plan, plan_of
from tidegate.errors import PlanError
from tidegate.optimize import optimize
from tidegate.plan.inputs import KeyBy
from tidegate.plan.pass_through import Reorder
from tidegate.plan.policies import Reassign, SideOutput
from tidegate.plan.sources import Source, Union
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

PLAN = logical_plan(hopping(10 * SECOND))
SOURCE = PLAN.upstream
STAMPED = replace(SOURCE, declared=ProcessingTime(Micros(SECOND)))


def test_sources_of_one_kind_are_united():
    slower = replace(SOURCE, tolerance=Micros(5))
    plan = PLAN.with_upstream(Union((SOURCE, slower)))
    assert plan.sources == (SOURCE, slower)
    assert plan.schema == PLAN.schema
    # Each source reads only what is needed.
    assert [one.schema.names for one in optimize(plan).sources] == [["ts", "user"]] * 2


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (replace(SOURCE, row_schema=SOURCE.row_schema.remove(1)), "needs the same columns"),
        (
            Source(SOURCE.row_schema.append(pa.field("at", SOURCE.row_schema[0].type)), "at", Micros(0)),
            "times are 'ts' and 'at'",
        ),
        (STAMPED, "union\\(\\) of event time and processing time: they do not compare"),
    ],
    ids=["columns", "time", "clocks"],
)
def test_sources_that_do_not_fit_are_not_united(other, message):
    with pytest.raises(PlanError, match=message):
        Union((SOURCE, other))


def test_rows_stamped_as_they_come_have_no_late_channel():
    with pytest.raises(
        PlanError, match=r"side_output\('late'\): rows that are stamped .* are never late"
    ):
        Reorder(KeyBy(STAMPED, ()), SideOutput("late"))


def test_a_clock_that_goes_back_loses_no_row():
    """The stamp of a later batch lies before the watermark: the row counts where time already is."""
    host = KernelHost(optimize(PLAN.with_upstream(STAMPED)))
    host.batch([{"ts": instant_of(95 * SECOND), "user": "ann"}])
    back = host.batch([{"ts": instant_of(20 * SECOND), "user": "ann"}])
    assert back.counts["late_dropped"] == 0
    assert back.counts["late_reassigned"] == 1
    assert [row["n"] for row in host.end().main] == [2]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_every_united_source_of_processing_time_is_never_late(order):
    both = [STAMPED, replace(STAMPED, tolerance=Micros(7))]
    plan = optimize(PLAN.with_upstream(Union(tuple(both[i] for i in order))))
    assert isinstance(plan.late, Reassign)


def test_sources_say_what_they_were_told():
    cautious = replace(SOURCE, max_future=Micros(60 * SECOND), idle_after=Micros(5 * SECOND))
    assert "max_future=1 minute, idle_after=5 seconds" in cautious.label()
    assert "time=processing_time(tick=1 second)" in STAMPED.label()


def test_a_plan_over_one_source_is_as_before():
    assert plan_of(hopping(10 * SECOND), ROWS) == optimize(PLAN)
