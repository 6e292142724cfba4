"""Cutting the same rows into other micro-batches never changes what is finally emitted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.property.cuts import TOLERANCE, cuts, finally_emitted, orderly_rows, settled
from tests.support.plans import WITH_IDLE, plan_of, reorder_plan
from tidegate.testing.results import row_differences

POOL = [*p.AGGREGATES, *p.BY_ARRIVAL]

#: How far rows may run ahead. A session that ends at W has closed before a row at W itself comes,
#: which would have touched it in one batch with it: there rows must stay behind that.
AHEAD = {"hopping": TOLERANCE, "session": TOLERANCE - 1}


def at_once(plan, rows):
    """What the rules say of all rows in one batch."""
    oracle = Oracle(plan)
    return settled(plan, [oracle.batch(rows, None).main, oracle.end().main])


@pytest.mark.parametrize("kind", p.KINDS)
@pytest.mark.parametrize("emission", p.STRATEGIES.values(), ids=p.STRATEGIES)
@given(data=st.data())
def test_cuts_do_not_change_what_is_finally_emitted(emission, kind, data):
    plan = plan_of(
        data.draw(p.KINDS[kind]),
        data.draw(p.aggregates(POOL)),
        keys=data.draw(st.sampled_from([(), ("user",), ("user", "shop")])),
        emission=emission,
        tolerance=TOLERANCE,
        schema=WITH_IDLE,
    )
    rows = data.draw(orderly_rows(AHEAD[kind]))
    one = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    other = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", one, other)
    assert not row_differences(plan, "main", at_once(plan, rows), one)


@pytest.mark.parametrize("window", [p.ARRIVED, p.COMPLETE], ids=["arrived", "complete"])
@given(data=st.data())
def test_nor_the_windows_around_rows(window, data):
    """Those over what has arrived too: the rows come in one order, however they are cut."""
    plan = plan_of(
        data.draw(window),
        data.draw(p.aggregates(POOL)),
        keys=data.draw(p.ANY_KEY),
        tolerance=TOLERANCE,
        schema=WITH_IDLE,
    )
    rows = data.draw(orderly_rows())
    one = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    other = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", one, other)
    assert not row_differences(plan, "main", at_once(plan, rows), one)


@given(data=st.data())
def test_nor_the_order_of_rows(data):
    plan = reorder_plan(keys=data.draw(p.ANY_KEY), tolerance=TOLERANCE, schema=WITH_IDLE)
    rows = data.draw(orderly_rows())
    got = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    p.assert_in_order(p.Program(plan, []), sorted(rows, key=lambda row: row["ts"]), got)
