"""Duplicates and running folds: each batch puts out what the rules say, and nothing counts twice."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import programs as p
from tests.property.cuts import TOLERANCE, cuts, finally_emitted, orderly_rows
from tests.support.plans import WITH_IDLE, dedupe_plan, plan_of, reorder_plan
from tidegate.kernels import aggregates as a
from tidegate.optimize import optimize
from tidegate.plan.policies import OnWatermark, Retracting
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.plan.windows import AllTime, Hopping
from tidegate.state import pages as state
from tidegate.testing import Changelog, KernelHost
from tidegate.testing.results import row_differences
from tidegate.testing.table import micros_of

few = settings(max_examples=settings.default.max_examples // 2)

IDS = st.sampled_from([("user",), ("shop",), ("user", "shop"), ("note", "items"), ("ts", "user")])
WITHIN = st.sampled_from([1, 10, 30, 60, 500])
RETRACTING = {name: p.STRATEGIES[name] for name in ("on_update", "changelog", "periodic")}
EVERY_RETRACTING = pytest.mark.parametrize("emission", RETRACTING.values(), ids=RETRACTING)


@st.composite
def dedupes(draw, late, tolerance=None):
    ahead = draw(st.sampled_from([0, 5, 40])) if tolerance is None else tolerance
    return dedupe_plan(draw(WITHIN), on=draw(IDS), late=late, tolerance=ahead, schema=WITH_IDLE)


@st.composite
def programs_of(draw, plans, *, most=8, packs=1):
    """What is first depends on the order of arrival: one partition has one."""
    return p.Program(draw(plans), draw(p.steps(most=most, size=12, packs=packs)), draw(BUCKETS))


BUCKETS = st.integers(1, 4)

# -- duplicates -----------------------------------------------------------------------------------


@p.EVERY_POLICY
@given(data=st.data())
def test_each_batch_lets_pass_what_the_rules_say(late, data):
    p.agrees(data.draw(programs_of(dedupes(late))))


@pytest.mark.parametrize("rule", ["drop_duplicates", "drop_duplicates_within_watermark"])
@p.EVERY_POLICY
@few
@given(data=st.data())
def test_rules_of_spark_let_pass_what_the_rules_say(late, rule, data):
    ids = ("ts", "user") if rule == "drop_duplicates" else data.draw(IDS)
    ahead = data.draw(st.sampled_from([0, 5, 40]))
    plan = dedupe_plan(0, on=ids, late=late, tolerance=ahead, schema=WITH_IDLE, rule=rule)
    p.agrees(data.draw(programs_of(st.just(plan))))


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_few_pages_for_many_batches(late, data):
    program = data.draw(programs_of(dedupes(late), most=20))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_MAX_RANGES", 2)
        patch.setattr(state, "_FAN_IN", 2)
        p.agrees(program)


@p.EVERY_POLICY
@few
@given(data=st.data())
def test_no_id_passes_twice_while_it_is_known_and_every_row_is_accounted_for(late, data):
    """Also where rows come from several partitions, of which nobody knows the order."""
    assert_each_id_once(data.draw(programs_of(dedupes(late), packs=3)))


def test_a_row_that_is_moved_onto_the_time_of_another_keeps_its_own_id():
    """The row of batch 1 is moved to 1, where a row of its user has passed: its id still says 0."""
    plan = dedupe_plan(1, on=("ts", "user"), late=p.POLICIES["reassign"], tolerance=0, schema=WITH_IDLE)
    batches = [[0, None, 1], [0]]
    steps = [p.Step([p.row(ts=time, user="ann") for time in times]) for times in batches]
    program = p.Program(plan, steps)
    p.agrees(program)
    assert_each_id_once(program)
    [*_, moved, _] = p.run_kernel(program)
    assert [micros_of(row["ts"]) for row in moved.main] == [1]


def assert_each_id_once(program):
    """A row's id is what it was when the row arrived, so rows are numbered to be known again."""
    program, came = numbered(program)
    within, known = program.plan.within, {}
    for step, got in zip((*program.steps, p.Step([])), p.run_kernel(program), strict=True):
        for row in got.main:
            own = tuple(came[row["price"]][name] for name in program.plan.keyed.keys)
            reached = got.watermark_micros
            forgotten = reached is not None and known.get(own, -1 << 60) + within <= reached
            assert own not in known or forgotten
            known[own] = micros_of(row["ts"])
        counts = got.counts
        lost = counts["errors"] + counts["duplicates_filtered"]
        lost += counts["late_rows"] - counts["late_reassigned"]
        assert len(step.rows) == counts["rows_in"] == len(got.main) + lost


def numbered(program):
    """The program with a number in each row's price, which is no part of any id; and rows by number."""
    steps, came = [], {}
    for step in program.steps:
        rows = [row | {"price": float(len(came) + place)} for place, row in enumerate(step.rows)]
        came |= {row["price"]: row for row in rows}
        steps.append(replace(step, rows=rows))
    return replace(program, steps=steps), came


@given(data=st.data())
def test_in_the_end_each_id_has_passed_once_wherever_the_cuts_are(data):
    """Ids that are remembered for ever: the first row of each, in the order they came."""
    plan = dedupe_plan(1 << 40, on=data.draw(IDS), tolerance=TOLERANCE, schema=WITH_IDLE)
    rows = data.draw(orderly_rows())
    first = {tuple(row[name] for name in plan.keyed.keys): row for row in reversed(rows)}
    cut = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", list(first.values()), cut)


# -- what follows ---------------------------------------------------------------------------------


@st.composite
def windows_over(draw, feed, window):
    chosen = draw(window)
    around = not isinstance(chosen, Hopping)
    emission = OnWatermark() if around else draw(st.sampled_from(list(p.STRATEGIES.values())))
    return plan_of(
        chosen,
        draw(p.aggregates()),
        keys=draw(p.ANY_KEY),
        emission=emission,
        late=draw(p.ANY_POLICY),
        lateness=0 if around else draw(st.sampled_from([0, 7, 30])),
        feed=feed,
    )


AFTER = {
    "windows": lambda feed: windows_over(feed, p.windows()),
    "sessions": lambda feed: windows_over(feed, p.sessions().filter(lambda one: one.gap != "idle")),
    "windows around rows": lambda feed: windows_over(feed, st.one_of(p.ARRIVED, p.COMPLETE)),
    "rows in order": lambda feed: st.builds(
        lambda keys, late: reorder_plan(keys=keys, late=late, feed=feed), p.ANY_KEY, p.ANY_POLICY
    ),
    "other duplicates": lambda feed: st.builds(
        lambda on, within, late: dedupe_plan(within, on=on, late=late, feed=feed),
        IDS,
        WITHIN,
        p.ANY_POLICY,
    ),
    "folds": lambda feed: folds(feed=feed),
}


#: These go by the order of arrival, which buckets side by side do not keep.
BY_ARRIVAL = ("windows around rows", "other duplicates")


@pytest.mark.parametrize("after", AFTER)
@given(data=st.data())
def test_what_follows_judges_rows_as_if_they_came_from_the_source(after, data):
    first = data.draw(dedupes(data.draw(p.ANY_POLICY)))
    if first.late == p.POLICIES["side_output"]:
        first = replace(first, late=replace(first.late, channel="too_old"))
    plan = data.draw(AFTER[after](Derived(first, "ts")))
    program = data.draw(programs_of(st.just(plan)))
    p.agrees(replace(program, buckets=1) if after in BY_ARRIVAL else program)


@few
@given(data=st.data())
def test_without_duplicates_it_is_as_if_nothing_stood_between(data):
    """A row's id is the row, and all of them differ: the same results and counters in each batch."""
    steps, number = [], 0
    for step in data.draw(p.steps(size=12, packs=1)):
        numbered = [row | {"items": number + place} for place, row in enumerate(step.rows)]
        number += len(numbered)
        steps.append(replace(step, rows=numbered))
    source = Source(WITH_IDLE, "ts", Micros(data.draw(st.sampled_from([0, 5, 40]))))
    plain = data.draw(windows_over(source, p.windows()))
    distinct = Derived(dedupe_plan(1 << 40, on=("items",), feed=source), "ts")
    buckets = data.draw(BUCKETS)
    expected, actual = (
        p.unnumbered(p.run_kernel(p.Program(optimize(plain.with_upstream(feed)), steps, buckets)))
        for feed in (source, distinct)
    )
    p.assert_same(p.Program(plain, steps), expected, actual)


# -- folds ----------------------------------------------------------------------------------------


@st.composite
def folds(draw, emission=None, feed=None, pool=p.AGGREGATES):
    return plan_of(
        AllTime(),
        draw(p.aggregates(pool)),
        keys=draw(p.ANY_KEY),
        emission=emission or draw(st.sampled_from(list(RETRACTING.values()))),
        **({"schema": WITH_IDLE, "tolerance": 5} if feed is None else {"feed": feed}),
    )


@EVERY_RETRACTING
@given(data=st.data())
def test_each_batch_puts_out_the_changes_the_rules_say(emission, data):
    p.agrees(data.draw(programs_of(folds(emission), packs=3)))


@few
@given(data=st.data())
def test_first_and_last_by_arrival(data):
    p.agrees(data.draw(programs_of(folds(pool=[*p.BY_ARRIVAL, *p.STEADY]))))


@pytest.mark.parametrize("emission", [Retracting(), p.STRATEGIES["changelog"]], ids=str)
@given(data=st.data())
def test_the_table_is_at_each_batch_boundary_a_plain_fold_over_all_rows(emission, data):
    plan = plan_of(
        AllTime(),
        (("n", a.Count(None)), ("total", a.Sum("items")), ("most", a.Max("items"))),
        keys=data.draw(p.ANY_KEY),
        emission=emission,
        schema=WITH_IDLE,
    )
    program = data.draw(programs_of(st.just(plan), packs=3))
    truth, table = defaultdict(list), Changelog(plan.keyed.keys)
    for step, got in zip(program.steps, p.run_kernel(program), strict=False):
        for row in step.rows:
            if row["ts"] is not None:
                truth[tuple(row[name] for name in plan.keyed.keys)].append(row["items"])
        found = {
            tuple(row[name] for name in plan.keyed.keys): (row["n"], row["total"], row["most"])
            for row in table.apply(got.main)
        }
        assert found == {key: plainly_folded(items) for key, items in truth.items()}


def plainly_folded(items):
    values = [item for item in items if item is not None]
    return len(items), sum(values) if values else None, max(values, default=None)


@EVERY_RETRACTING
@given(data=st.data())
def test_wherever_the_cuts_are_the_table_ends_up_the_same(emission, data):
    plan, rows = data.draw(folds(emission)), data.draw(orderly_rows())
    cut = finally_emitted(plan, rows, data.draw(cuts(len(rows))))
    assert not row_differences(plan, "main", finally_emitted(plan, rows), cut)


@given(data=st.data())
def test_whatever_is_sent_again_is_folded_once(data):
    """Messages are numbered; any of them may come again, any number of times, in any batch."""
    messages = [row | {"items": number} for number, row in enumerate(data.draw(orderly_rows()))]
    plan = plan_of(
        AllTime(),
        (("n", a.Count(None)), ("all", a.Collect("items"))),
        keys=("user",),
        emission=Retracting(),
        feed=Derived(dedupe_plan(1 << 40, on=("items",), schema=WITH_IDLE), "ts"),
    )
    host, table = KernelHost(plan, buckets=data.draw(BUCKETS)), Changelog(("user",))
    for start in range(0, len(messages), 5):
        known = messages[: start + 5]
        again = data.draw(st.lists(st.sampled_from(known), max_size=8))
        batch = data.draw(st.permutations([*messages[start : start + 5], *again]))
        if data.draw(st.booleans()):
            host.failed_batch(batch)
            host.restart()
        table.apply(host.batch(batch, packs=data.draw(st.integers(1, 3))).main)
    numbers = sorted(number for row in table.rows for number in row["all"])
    assert numbers == list(range(len(messages)))
    assert sum(row["n"] for row in table.rows) == len(messages)
