"""Whatever a query can say about windows, emission and late rows compiles to the node that means it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.plan_facts import facts
from tests.unit.test_sql import BY_USER, COUNTED, counted
from tidegate.errors import PlanError, SqlError
from tidegate.plan.policies import Drop, OnWatermark, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate
from tidegate.plan.windows import Hopping, Session

UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1000,
    "SECOND": 10**6,
    "MINUTE": 60 * 10**6,
    "HOUR": 3600 * 10**6,
}


@st.composite
def intervals(draw, least=1):
    """Text and length of an interval."""
    unit, number = draw(st.sampled_from(list(UNITS))), draw(st.integers(least, 500))
    return f"INTERVAL '{number}' {unit}", Micros(number * UNITS[unit])


@st.composite
def windows(draw):
    kind = draw(st.sampled_from(["TUMBLE", "HOP", "SESSION"]))
    (first, a), (second, b), (third, c) = draw(intervals()), draw(intervals()), draw(intervals(-500))
    if kind == "SESSION":
        return f"SESSION(ts, {first})", Session(a)
    if kind == "HOP":
        return f"HOP(ts, {first}, {second}, {third})", Hopping(b, a, c)
    return f"TUMBLE(ts, {first}, {third})", Hopping(a, a, c)


@st.composite
def emissions(draw):
    every, length = draw(intervals())
    return draw(
        st.sampled_from(
            [
                ("EMIT ON WATERMARK", OnWatermark()),
                ("EMIT ON WINDOW CLOSE", OnWindowClose()),
                ("EMIT ON UPDATE", Retracting()),
                ("EMIT CHANGES", Retracting("+I", "-D", "+I")),
                ("EMIT FINAL", OnWindowClose(final=True)),
                (f"EMIT EVERY {every}", Retracting(interval=length)),
            ]
        )
    )


@st.composite
def late_policies(draw):
    within, length = draw(intervals())
    return draw(
        st.sampled_from(
            [
                ("", Drop()),
                ("LATE DATA TO too_late", SideOutput("too_late")),
                (f"REASSIGN LATE WITHIN {within}", Reassign(length)),
            ]
        )
    )


@settings(max_examples=100)
@given(windows(), emissions(), late_policies(), intervals(0), st.permutations([0, 1, 2]))
def test_every_combination_means_what_the_nodes_mean(window, emission, late, lateness, order):
    clauses = [emission[0], late[0], f"ALLOW LATENESS {lateness[0]}"]
    written = " ".join(clauses[place] for place in order)
    refused = None
    try:
        windowed = WindowBy(BY_USER.node, window[1], lateness[1], late[1])
        expected = WindowedAggregate(Aggregation(windowed, tuple(COUNTED.items())), emission[1])
    except PlanError as error:
        refused = error
    if refused is None:
        assert facts(counted(window[0], written).plan) == facts(expected)
        return
    with pytest.raises(SqlError) as found:
        counted(window[0], written)
    assert type(found.value.__cause__) is type(refused)  # the plan's own reason, with a place
