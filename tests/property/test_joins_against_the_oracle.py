"""Joins between windows: each batch puts out what the rules say, whatever happens between batches, and
in the end it is the answer of all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import LEFT_ROWS, RIGHT_ROWS, hopping, join_plan, plan_of, session
from tidegate.kernels import aggregates as a
from tidegate.kernels.joins import kernel as joining
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import AnyOperator, Join
from tidegate.plan.policies import Drop, OnWatermark, OnWindowClose, Reassign, SideOutput
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.state import pages as state
from tidegate.testing import BatchResult, KernelHost, text
from tidegate.testing.results import row_differences
from tidegate.testing.table import Row, instant_of, micros_of

TOLERANCE = 30
TIMES = ("ts", "at")

few = settings(max_examples=settings.default.max_examples // 2)
fewer = settings(max_examples=max(settings.default.max_examples // 4, 1))


# -- programs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One micro-batch of both sides, and the trouble it meets."""

    rows: tuple[list[Row], list[Row]]
    worker: int = 0
    packs: int = 1
    restart: bool = False
    fails_first: bool = False


@dataclass(frozen=True)
class Program:
    """A plan over two sources, and its micro-batches."""

    plan: AnyOperator
    steps: list[Step]
    buckets: int = 1

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # what hypothesis shows of a failure

    def __repr__(self) -> str:
        lines = [
            f"buckets={self.buckets}",
            *(node.label() for node in (self.plan, *p._below(self.plan))),
        ]
        for number, step in enumerate(self.steps):
            marks = f"worker={step.worker} packs={step.packs}"
            marks += " restart" * step.restart + " fails_first" * step.fails_first
            lines.append(f"-- batch {number}: {marks}")
            for side, rows, time in zip(SIDES, step.rows, TIMES, strict=True):
                shown = [row | {time: row[time] and micros_of(row[time])} for row in rows]
                lines.append(f"{side}\n{text(shown)}")
        return "\n".join(lines)


def tumbling(longest: int = 30) -> st.SearchStrategy[Any]:
    return st.builds(lambda size, offset: hopping(size, offset=offset), st.integers(1, longest), OFFSETS)


OFFSETS = st.integers(-20, 20)
SESSIONS = st.builds(session, st.integers(1, 25), st.one_of(st.none(), st.none(), st.integers(5, 70)))
GAPS = st.builds(
    lambda size, more, offset: hopping(size, size + more, offset),
    st.integers(1, 10),
    st.integers(1, 15),
    OFFSETS,
)
#: Pairs of windows that can meet. Hopping ones may leave gaps, and may hop unevenly.
KINDS = {
    "one pane": tumbling().map(lambda window: (window, window)),
    "two panes": st.tuples(tumbling(), tumbling()),
    "tumbling and hopping": st.tuples(tumbling(), p.windows(30)),
    "hopping and tumbling": st.tuples(p.windows(30), tumbling()),
    "tumbling and gaps": st.tuples(tumbling(8), GAPS),
    "sessions": st.tuples(SESSIONS, SESSIONS),
}
ANY_KIND = st.one_of(*KINDS.values())
EVERY_KIND = pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS)
HOWS = ("inner", "left", "right", "full")
EVERY_HOW = pytest.mark.parametrize("how", HOWS)
LATENESS = st.sampled_from([0, 0, 1, 7, 30, 60])
#: The keys of both sides: under one name, under two, some of each, and under each other's.
KEYS = st.sampled_from([
    (("user",), ("user",)), (("user",), ("user",)), ((), ()), (("user", "shop"), ("user", "shop")),
    (("shop",), ("shop",)), (("user",), ("note",)), (("note", "shop"), ("user", "shop")),
    (("user", "note"), ("note", "user")),
])  # fmt: skip
#: Those that windows by user and shop have as well.
KEYS_OF_WINDOWS = KEYS.filter(lambda both: not {"note"} & {*both[0], *both[1]})

#: Conditions over pairs, each for pairs that have its columns; a null is never true.
CONDITIONS = ("items > price", "note_left = note_right", "user_left <> user_right", "at >= ts",
              "note <> 'x' OR price IS NULL", '"user" = note',
              "right_window_start <= left_window_start OR price IS NULL")  # fmt: skip


@st.composite
def policies(draw, names=SIDES):
    """A policy for each side; channels are the sides' own, as their columns differ."""
    choices = ([Drop(), Reassign(Micros(25)), SideOutput(f"late_{name}")] for name in names)
    return tuple(draw(st.sampled_from(choice)) for choice in choices)


@st.composite
def joins(draw, kinds=ANY_KIND, how=None, both_keys=KEYS, **options):
    left, right = draw(kinds)
    keys, right_keys = draw(both_keys)
    fixed = {
        "keys": keys,
        "right_keys": right_keys,
        "nulls_match": draw(st.one_of(st.none(), st.tuples(*[st.booleans()] * len(keys)))),
        "how": how or draw(st.sampled_from(HOWS)),
        "lateness": draw(st.tuples(LATENESS, LATENESS)),
        "late": draw(policies()),
        "tolerance": draw(st.tuples(*[st.sampled_from([0, 5, 40])] * 2)),
        "match": "overlap" if left.__class__ is not p.Hopping else draw(MATCHES),
    }
    made = join_plan(left, right, **(fixed | options))
    return made if "where" in options else replace(made, where=draw(conditions(made)))


@cache
def conditions(plan):
    """None, or one of those that ask for columns of these pairs."""
    fitting = [one for one in CONDITIONS if root_names(one) <= set(plan.schema.names)]
    return st.one_of(st.none(), st.sampled_from(fitting))


@cache
def root_names(condition):
    return set(pl.sql_expr(condition).meta.root_names())


MATCHES = st.sampled_from(["overlap", "within"])


def rows_of(number, times):
    """Rows of a side, with nulls everywhere and often equal."""
    own = (
        st.one_of(st.none(), st.integers(-2, 2)),
        st.one_of(st.none(), st.integers(-4, 4).map(lambda half: half / 2)),
    )[number]
    schema = (LEFT_ROWS, RIGHT_ROWS)[number]
    values = st.tuples(
        times.map(lambda time: None if time is None else instant_of(time)),
        st.sampled_from(["ann", "ann", "bob", None]),
        st.sampled_from([1, 1, None]),
        own,
        st.sampled_from(["x", "y", None]),
    )
    return values.map(lambda chosen: dict(zip(schema.names, chosen, strict=True)))


@cache  # made once, looked over once: see `programs.batches`
def batches(side, middle, size):
    """The rows of one side in a batch, around a time."""
    times = st.one_of(
        st.integers(middle - 60, middle + 30),
        st.integers(middle - 15, middle + 15),
        st.sampled_from([middle, None]),
    )
    return st.lists(rows_of(side, times), max_size=size)


@st.composite
def steps(draw, *, most=7, size=5, ahead=20, trouble=True):
    """Batches whose rows move ahead in time, out of order and often late; a side may be silent."""
    made = []
    for number in range(draw(st.integers(1, most))):
        sides = tuple(draw(batches(side, ahead * number, size)) for side in (0, 1))
        made.append(
            Step(
                sides,
                worker=draw(st.integers(0, 1)) if trouble else 0,
                packs=draw(st.integers(1, 3)) if trouble else 1,
                restart=trouble and draw(st.integers(0, 3)) == 0,
                fails_first=trouble and draw(st.integers(0, 5)) == 0,
            )
        )
    return made


@st.composite
def programs(draw, plans, **options):
    return Program(draw(plans), draw(steps(**options)), draw(st.integers(1, 3)))


NOTHING = Step(([], []))


def run_kernel(program, **options):
    """What the kernel puts out, batch by batch, then in an empty one, then at the end of time."""
    host = KernelHost(program.plan, buckets=program.buckets, **options)
    results = []
    for step in (*program.steps, NOTHING):
        if step.restart:
            host.restart()
        if step.fails_first:
            host.failed_batch(*step.rows, worker=step.worker)
        results.append(host.batch(*step.rows, worker=step.worker, packs=step.packs))
    results.append(host.end())
    assert not any(host.stored.values()), "nothing is stored once the watermark has passed everything"
    return results


def run_oracle(program):
    """What the rules say of the same batches."""
    oracle = Oracle(program.plan)
    given = zip((*program.steps, NOTHING), watermarks(program), strict=True)
    return [*(oracle.batch_of(step.rows, watermark) for step, watermark in given), oracle.end()]


def watermarks(program):
    """The watermark in force in each batch, by the rule: the lower of both, once both have spoken."""
    sources = program.plan.sources
    highest = [None for _ in sources]
    reached = [None]
    for step in program.steps:
        for number, (source, rows) in enumerate(zip(sources, step.rows, strict=True)):
            times = [micros_of(row[source.time]) for row in rows if row[source.time] is not None]
            known = [] if highest[number] is None else [highest[number]]
            highest[number] = max([*known, *(time - source.tolerance for time in times)], default=None)
        reached.append(None if None in highest else min(highest))
    return reached


def agrees(program):
    """Does the kernel do, batch by batch, what the oracle says?"""
    p.assert_same(program, run_oracle(program), run_kernel(program))


# -- batch by batch -------------------------------------------------------------------------------


@EVERY_HOW
@EVERY_KIND
@given(data=st.data())
def test_each_batch_puts_out_what_the_rules_say(kinds, how, data):
    agrees(data.draw(programs(joins(kinds, how))))


@EVERY_KIND
@few
@given(data=st.data())
def test_the_order_inside_a_batch_does_not_matter(kinds, data):
    program = data.draw(programs(joins(kinds)))
    mixed = [
        replace(step, rows=tuple(data.draw(st.permutations(rows)) for rows in step.rows))
        for step in program.steps
    ]
    p.assert_same(program, run_kernel(program), run_kernel(replace(program, steps=mixed)))


@EVERY_KIND
@few
@given(data=st.data())
def test_sides_that_are_swapped_give_the_same_pairs(kinds, data):
    """Left of one is right of the other; only the names differ (and `within` asks for one side)."""
    program = data.draw(programs(joins(kinds, match="overlap", where=None), trouble=False))
    plan = program.plan
    how = {"left": "right", "right": "left"}.get(plan.how, plan.how)
    turned = Program(
        Join(plan.right, plan.left, how, nulls_match=plan.nulls_match),
        [replace(step, rows=step.rows[::-1]) for step in program.steps],
    )
    for one, other in zip(run_kernel(program), run_kernel(turned), strict=True):
        assert not row_differences(plan, "main", one.main, [_swapped(row) for row in other.main])


def _swapped(row: Row) -> Row:
    other = {"left": "right", "right": "left"}
    named = {}
    for name, value in row.items():
        first, _, rest = name.partition("_")
        before, _, last = name.rpartition("_")
        if first in other:
            named[f"{other[first]}_{rest}"] = value
        else:
            named[f"{before}_{other[last]}" if last in other else name] = value
    return named


@EVERY_KIND
@few
@given(data=st.data())
def test_few_pages_for_a_long_time_and_few_pairs_at_a_time(kinds, data):
    program = data.draw(programs(joins(kinds)))
    expected = run_oracle(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MAX_RANGES", 2)
        patch.setattr(state, "_FAN_IN", 2)
        patch.setattr(joining, "MOST_PAIRS", 3)
        p.assert_same(program, expected, run_kernel(program))


@EVERY_KIND
@few
@given(data=st.data())
def test_long_streams(kinds, data):
    """Many small batches: pages pile up and are merged, while the watermark stands or moves."""
    ahead = data.draw(st.sampled_from([0, 4, 12]))
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 1, 2]), min_size=14, max_size=22))
    made = []
    for number, size in enumerate(sizes):
        times = st.integers(ahead * number, ahead * number + 40)
        sides = tuple([data.draw(rows_of(side, times)) for _ in range(size)] for side in (0, 1))
        made.append(Step(sides, restart=number % 7 == 5))
    agrees(Program(data.draw(joins(kinds)), made))


@EVERY_KIND
@fewer
@given(data=st.data())
def test_the_watermark_of_spark_counts_whole_milliseconds(kinds, data):
    program = data.draw(programs(joins(kinds, tolerance=(0, 0)), trouble=False))
    stretch = {"left": _stretched_side(program.plan.left), "right": _stretched_side(program.plan.right)}
    plan = replace(program.plan, **stretch)
    host, oracle = KernelHost(plan, as_spark=True), Oracle(plan)
    expected, actual = [], []
    for step in program.steps:
        rows = [
            [row | {time: row[time] and _stretched(row[time])} for row in side]
            for side, time in zip(step.rows, TIMES, strict=True)
        ]
        actual.append(host.batch(*rows))
        reached = actual[-1].watermark_micros
        assert reached is None or reached % 1000 == 0
        expected.append(oracle.batch_of(rows, reached))
    p.assert_same(program, [*expected, oracle.end()], [*actual, host.end()])


def _stretched(time):
    return instant_of(1_000_000 + 777 * micros_of(time))


def _stretched_side(side):
    window = side.window
    if isinstance(window, p.Hopping):
        wide = hopping(777 * window.size, 777 * window.slide, 777 * window.offset)
    else:
        wide = session(777 * window.gap, window.max_length and 777 * window.max_length)
    return replace(side, window=wide)


# -- in the end -----------------------------------------------------------------------------------


@EVERY_KIND
@few
@given(data=st.data())
def test_all_rows_at_once_give_the_final_answer(kinds, data):
    program = data.draw(programs(joins(kinds)))
    rows = [[row for step in program.steps for row in step.rows[side]] for side in (0, 1)]
    host, oracle = KernelHost(program.plan, buckets=program.buckets), Oracle(program.plan)
    got = [host.batch(*rows, packs=2), host.end()]
    assert got[0].counts["late_rows"] == 0
    p.assert_same(program, [oracle.batch_of(rows, None), oracle.end()], got)


@st.composite
def orderly_rows(draw, number):
    """Rows out of order by less than the tolerance: none can be late, wherever the cuts are."""
    steady = sorted(draw(st.lists(st.integers(-100, 200), max_size=14)))
    times = [time + draw(st.integers(0, TOLERANCE - 1)) for time in steady]
    rows = rows_of(number, st.just(0))
    return [draw(rows) | {TIMES[number]: instant_of(time)} for time in times]


@st.composite
def cuts(draw, length, batches):
    edges = sorted(draw(st.lists(st.integers(0, length), min_size=batches - 1, max_size=batches - 1)))
    return list(zip([0, *edges], [*edges, length], strict=True))


def emitted(host, batches):
    """All that leaves, and none of it late."""
    results = [*(host.batch(*rows) for rows in batches), host.end()]
    assert sum(result.counts["late_rows"] for result in results) == 0
    return [row for result in results for row in result.main]


@EVERY_KIND
@given(data=st.data())
def test_any_cut_gives_the_answer_of_all_rows_at_once(kinds, data):
    plan = data.draw(joins(kinds, tolerance=(TOLERANCE, TOLERANCE)))
    assert_any_cut_is_right(plan, data)


def assert_any_cut_is_right(plan, data):
    rows = [data.draw(orderly_rows(side)) for side in (0, 1)]
    batches = data.draw(st.integers(1, 7))
    places = [data.draw(cuts(len(side), batches)) for side in rows]
    cut = [
        [side[start:end] for side, (start, end) in zip(rows, edges, strict=True)]
        for edges in zip(*places, strict=True)
    ]
    host = KernelHost(plan, buckets=data.draw(st.integers(1, 3)))
    whole = emitted(KernelHost(plan), [rows])
    assert not row_differences(plan, "main", whole, emitted(host, cut))


@EVERY_KIND
@few
@given(data=st.data())
def test_rows_of_long_ago_leave_nothing_behind_while_the_stream_goes_on(kinds, data):
    """One-sided keys among them: far ahead the same is stored as if nothing had been before."""
    program = data.draw(programs(joins(kinds, late=(Drop(), Drop())), trouble=False))
    old, fresh = KernelHost(program.plan), KernelHost(program.plan)
    for step in program.steps:
        old.batch(*step.rows)
    far = [[_row(number, 10_000)] for number in (0, 1)]
    further = [[_row(number, 20_000)] for number in (0, 1)]
    for host in (old, fresh):
        host.batch(*far)
        host.batch(*further)
        host.batch([], [])
    assert sizes(old) == sizes(fresh)


def _row(number: int, time: int) -> Row:
    schema = (LEFT_ROWS, RIGHT_ROWS)[number]
    name = ("zoe", "yan")[number]
    return {**dict.fromkeys(schema.names), TIMES[number]: instant_of(time), "user": name}


def sizes(host: KernelHost) -> list[int]:
    """How many pages each bucket has, its manifest among them."""
    return [len(pages) for pages in host.stored.values()]


# -- operators before and after -------------------------------------------------------------------

COUNTS = (("n", a.Count(None)),)
PLAIN = st.sampled_from([OnWatermark(), OnWindowClose()])


@st.composite
def counted(draw, number, tolerance=None):
    """Windows of one side's rows as events of the join."""
    time = TIMES[number]
    amount = Micros(draw(st.sampled_from([0, 5, 40])) if tolerance is None else tolerance)
    source = Source((LEFT_ROWS, RIGHT_ROWS)[number], time, amount)
    late = draw(policies())[number]
    if draw(st.booleans()):
        window, lateness, emission = draw(p.windows(20)), draw(LATENESS), draw(PLAIN)
    else:
        window, lateness, emission = session(draw(st.integers(1, 20)), 60), 0, OnWatermark()
    plan = plan_of(
        window,
        COUNTS,
        keys=("user", "shop"),
        lateness=lateness,
        emission=emission,
        late=late,
        feed=source,
    )
    return Derived(plan, draw(st.sampled_from(["window_end", "window_start"])))


@st.composite
def fed(draw, derived, tolerance=None):
    """A join of which some sides take what other operators put out: never late, so without policy."""
    feeds = tuple(draw(counted(side, tolerance)) if side in derived else None for side in (0, 1))
    late = tuple(
        Drop() if feed else policy for feed, policy in zip(feeds, draw(policies()), strict=True)
    )
    where = draw(st.sampled_from([None, "left_window_end <= right_window_end"]))
    options = {} if tolerance is None else {"tolerance": (tolerance, tolerance)}
    return draw(joins(both_keys=KEYS_OF_WINDOWS, feeds=feeds, late=late, where=where, **options))


@st.composite
def going_on(draw, first):
    """Windows over pairs, by any column that all of them have."""
    join = draw(first.filter(lambda join: join.times))
    return plan_of(
        draw(st.one_of(p.windows(40), SESSIONS)),
        (("pairs", a.Count(None)), ("least", a.Min("items")), ("most", a.Max("price"))),
        keys=draw(st.sampled_from([(), ("user",)])) if "user" in join.schema.names else (),
        emission=OnWindowClose(),
        feed=Derived(join, draw(st.sampled_from(sorted(join.times)))),
    )


CHAINS = {
    "results on the left": lambda tolerance=None: fed((0,), tolerance),
    "results on the right": lambda tolerance=None: fed((1,), tolerance),
    "results on both sides": lambda tolerance=None: fed((0, 1), tolerance),
    "pairs go on": lambda tolerance=None: going_on(
        joins() if tolerance is None else joins(tolerance=(tolerance, tolerance))
    ),
}
EVERY_CHAIN = pytest.mark.parametrize("plans", CHAINS.values(), ids=CHAINS)


@EVERY_CHAIN
@given(data=st.data())
def test_each_batch_of_a_chain_puts_out_what_the_rules_say(plans, data):
    agrees(data.draw(programs(plans())))


@EVERY_CHAIN
@few
@given(data=st.data())
def test_any_cut_of_a_chain_gives_the_answer_of_all_rows_at_once(plans, data):
    assert_any_cut_is_right(data.draw(plans(TOLERANCE)), data)


def test_the_oracle_notices_a_kernel_that_forgets_a_side():
    """These tests can fail: a host that never gets the right side's rows gives itself away."""
    plan = join_plan(hopping(10), hopping(10))
    rows = [[_row(number, 1) | {"user": "ann"}] for number in (0, 1)]
    expected = Oracle(plan).batch_of(rows, None)
    assert isinstance(expected, BatchResult)
    assert not row_differences(plan, "main", expected.main, KernelHost(plan).batch(*rows).main)
    assert row_differences(plan, "main", expected.main, KernelHost(plan).batch(rows[0], []).main)
