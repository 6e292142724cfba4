"""Operators that feed each other: each batch puts out what the rules say, and in the end the same as
all rows at once.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import programs as p
from tests.property.cuts import TOLERANCE, cuts, finally_emitted, orderly_rows
from tests.support.plans import WITH_IDLE, plan_of, reorder_plan
from tidegate.dataflow import compile
from tidegate.kernels import aggregates as a
from tidegate.plan.policies import OnWatermark, OnWindowClose, Retracting
from tidegate.plan.sources import Derived
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import WindowedAggregate
from tidegate.plan.windows import Hopping, Session
from tidegate.testing import Changelog
from tidegate.testing.results import row_differences

#: Exact ones: what a further operator is given must not depend on the order of addition.
FIRST = (("n", a.Count(None)), ("total", a.Sum("items")), ("most", a.Max("items")))
PLAIN = st.sampled_from([OnWatermark(), OnWindowClose(), OnWindowClose(final=True)])
ANY_EMISSION = st.sampled_from(list(p.STRATEGIES.values()))
LATENESS = st.sampled_from([0, 0, 1, 7, 30])

#: Sessions that can go on by their start: none is longer.
SHORT_SESSIONS = st.builds(Session, st.integers(1, 40).map(Micros), st.integers(10, 90).map(Micros))


@st.composite
def over(draw, feed, window, emissions=PLAIN, aggregates=None, **options):
    """Windows over rows, or over what an operator put out."""
    chosen = draw(window)
    emission = OnWatermark() if not isinstance(chosen, Hopping | Session) else draw(emissions)
    strict = not isinstance(chosen, Hopping) and isinstance(emission, OnWatermark)
    return plan_of(
        chosen,
        aggregates or draw(results_of(feed.schema.names)),
        keys=draw(st.lists(st.sampled_from(keys_in(feed)), unique=True)) if keys_in(feed) else (),
        emission=emission,
        lateness=0 if strict else draw(LATENESS),
        feed=feed,
        **options,
    )


def keys_in(feed):
    return [name for name in ("user", "shop") if name in feed.schema.names]


@st.composite
def results_of(draw, columns):
    """A count, and aggregates over some of the columns there are."""
    pool = [
        aggregate
        for aggregate in (a.Sum("n"), a.Max("total"), a.Collect("n"), a.Min("most"), *p.AGGREGATES)
        if aggregate.column in columns
    ]
    chosen = draw(st.lists(st.sampled_from(range(len(pool))), unique=True, max_size=3))
    return (("again", a.Count(None)), *((f"b{i}", pool[i]) for i in chosen))


@st.composite
def windows_first(draw, window, late):
    """Windows of a source, by which others go on."""
    chosen = draw(window)
    emission = draw(PLAIN)
    strict = not isinstance(chosen, Hopping) and isinstance(emission, OnWatermark)
    around = not isinstance(chosen, Hopping | Session)
    return plan_of(
        chosen,
        FIRST,
        keys=draw(p.ANY_KEY),
        emission=OnWatermark() if around else emission,
        lateness=0 if strict or around else draw(LATENESS),
        late=late,
        tolerance=TOLERANCE,
        schema=WITH_IDLE,
    )


def reorder_first(late):
    return p.ANY_KEY.map(
        lambda keys: reorder_plan(keys=keys, late=late, tolerance=TOLERANCE, schema=WITH_IDLE)
    )


def all_in_order(late):
    return st.just(reorder_plan(late=late, tolerance=TOLERANCE, schema=WITH_IDLE))


@st.composite
def chain(draw, first, second, time=None):
    plan = draw(first)
    by = time or draw(st.sampled_from(sorted(plan.times)))
    return draw(second(Derived(plan, by)))


HOPPING, SESSION = p.windows(), st.one_of(p.sessions().filter(lambda s: s.gap != "idle"), SHORT_SESSIONS)

#: The first operator, given its late policy, and the second, given the first one's results.
CHAINS = {
    "window over window by end": lambda late: chain(
        windows_first(HOPPING, late), lambda feed: over(feed, HOPPING, ANY_EMISSION), "window_end"
    ),
    "window over window by start": lambda late: chain(
        windows_first(HOPPING, late), lambda feed: over(feed, HOPPING, ANY_EMISSION), "window_start"
    ),
    "session over window": lambda late: chain(
        windows_first(HOPPING, late), lambda feed: over(feed, SESSION, ANY_EMISSION)
    ),
    "window over session": lambda late: chain(
        windows_first(SESSION, late), lambda feed: over(feed, HOPPING, ANY_EMISSION)
    ),
    "window over sliding": lambda late: chain(
        windows_first(st.one_of(p.ARRIVED, p.COMPLETE), late),
        lambda feed: over(feed, HOPPING, ANY_EMISSION),
    ),
    "sliding over window": lambda late: chain(
        windows_first(HOPPING, late), lambda feed: over(feed, NEIGHBOURS)
    ),
    "sliding over sliding": lambda late: chain(
        windows_first(st.one_of(p.ARRIVED, p.COMPLETE), late), lambda feed: over(feed, p.COMPLETE)
    ),
    "window over reorder": lambda late: chain(
        reorder_first(late), lambda feed: over(feed, HOPPING, ANY_EMISSION)
    ),
    "session over reorder": lambda late: chain(
        reorder_first(late), lambda feed: over(feed, SESSION, ANY_EMISSION)
    ),
    "sliding over reorder": lambda late: chain(
        all_in_order(late), lambda feed: over(feed, st.one_of(p.ARRIVED, p.COMPLETE))
    ),
    "reorder over window": lambda late: chain(
        windows_first(HOPPING, late), lambda feed: st.just(reorder_plan(feed=feed))
    ),
    "three windows": lambda late: chain(
        chain(windows_first(HOPPING, late), lambda feed: over(feed, HOPPING, PLAIN, FIRST_AGAIN)),
        lambda feed: over(feed, st.one_of(HOPPING, SESSION), ANY_EMISSION),
    ),
}

#: Around results of windows, which have no columns of their own to ask for.
NEIGHBOURS = p.COMPLETE.map(lambda window: replace(window, when=None))
FIRST_AGAIN = (("n", a.Sum("n")), ("total", a.Sum("total")), ("most", a.Max("most")))

EVERY_CHAIN = pytest.mark.parametrize("plans", CHAINS.values(), ids=CHAINS)


@EVERY_CHAIN
@given(data=st.data())
def test_each_batch_puts_out_what_the_rules_say(plans, data):
    plan = data.draw(plans(data.draw(p.ANY_POLICY)))
    first = compile(plan).operators[0]
    tolerance = data.draw(st.sampled_from([0, 5, 40]))
    plan = with_source(plan, replace(first.upstream, tolerance=Micros(tolerance)))
    # Windows of what has arrived are among them: one partition, whose rows have an order.
    program = p.Program(plan, data.draw(p.steps(packs=1)), data.draw(st.integers(1, 3)))
    expected, actual = p.run_oracle(program, p.watermarks(program)), p.run_kernel(program)
    p.assert_same(program, expected, actual)
    if isinstance(plan, WindowedAggregate) and isinstance(plan.emission, Retracting):
        table = Changelog(plan.keyed.keys)
        for got in actual:
            table.apply(got.main)


def with_source(plan, source):
    """The chain over another source."""
    if isinstance(plan.upstream, Derived):
        return plan.with_upstream(Derived(with_source(plan.upstream.input, source), plan.upstream.time))
    return plan.with_upstream(source)


@EVERY_CHAIN
@settings(max_examples=settings.default.max_examples // 2)
@given(data=st.data())
def test_in_the_end_it_is_the_answer_of_all_rows_at_once(plans, data):
    plan = data.draw(plans(data.draw(p.ANY_POLICY)))
    rows = data.draw(orderly_rows())
    cut = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", finally_emitted(plan, rows), cut)
