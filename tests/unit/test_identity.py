"""What checkpoints know a program by: its parts by registered names, compared one by one."""

import json
from dataclasses import asdict, replace

import pyarrow as pa
import pytest

import tidegate as tg
from tests.golden import assert_golden
from tests.support.plans import (
    LEFT_ROWS,
    ROWS,
    SCHEMA,
    SECOND,
    changed_parts,
    dedupe_plan,
    hopping,
    join_plan,
    logical_plan,
    reorder_plan,
    session,
    sliding,
)
from tests.support.steps import mapped, shedding
from tidegate.dataflow import compile
from tidegate.dataflow.identity import (
    Difference,
    Identity,
    differences,
    fingerprint,
    identity_of,
    window_of,
)
from tidegate.errors import StateError
from tidegate.kernels import aggregates as a
from tidegate.plan.identity import read_back
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import Together
from tidegate.plan.pass_through import Admit
from tidegate.plan.policies import Drop, OnWatermark, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.sla import declare_sla
from tidegate.plan.sources import Derived, Source, Union, declare_source
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.plan.windows import AllTime

MINUTE = 60 * SECOND
CLICKS = Source(SCHEMA, "ts", Micros(5 * SECOND), idle_after=Micros(MINUTE))


class Range(tg.Aggregate):
    """An aggregate of the program's own, with arguments of all kinds."""

    def __init__(self, column, **arguments):
        super().__init__(column)
        self.arguments = arguments

    def parameters(self):
        return self.arguments

    def output_type(self, column_type):
        return pa.int64()

    def partial(self, value, time):
        return {"most": value.max()}

    def merge(self, state):
        return {"most": state["most"].max()}

    def finish(self, state):
        return state["most"]


def rich():
    """A program with an operator, a window, a strategy and a policy of nearly every kind."""
    limits = declare_sla("gold", max_lag="1 hour", arrival="ts")
    admitted = Admit(KeyBy(Union((CLICKS, replace(CLICKS, number=1))), ("shop",)), limits)
    feed = mapped(shedding(Derived(admitted, "ts")), lambda rows: rows.clone())
    distinct = dedupe_plan(MINUTE, on=("user", "items"), feed=feed, late=SideOutput("late"))
    rows = Derived(distinct, "ts")
    minutes = logical_plan(
        hopping(MINUTE, MINUTE // 2, 3),
        (("n", a.Count(None)), ("median", a.Quantile("price", 0.5)), ("most", Range("items", limit=7))),
        feed=rows, lateness=9, emission=OnWindowClose(),
    )  # fmt: skip
    daily = logical_plan(AllTime(), ROWS, feed=Derived(minutes, "window_end"), emission=Retracting())
    visits = logical_plan(
        session(MINUTE, max_length=10 * MINUTE), feed=rows, emission=Retracting("+I", "-D", "+I")
    )
    around = logical_plan(sliding(MINUTE, 5, "items > 1"), feed=rows, late=Reassign(Micros(4)))
    in_order = reorder_plan(feed=rows)
    return Together((("daily", daily), ("visits", visits), ("around", around), ("in_order", in_order)))


def identity(plan, buckets=4, state_format=1):
    return identity_of(compile(plan), buckets, state_format)


def as_text(plan):
    return json.dumps(asdict(identity(plan)), indent=2)


def test_a_rich_program_is_known_by_what_it_was_known_by():
    """Whoever changes this file makes checkpoints of such programs unreadable: the changelog says so."""
    assert_golden("identity", as_text(rich()))


def test_a_join_is_known_by_what_it_was_known_by():
    plan = join_plan(hopping(10), hopping(20, 10), how="left", where="price > 1", lateness=(1, 2))
    assert_golden("identity_join", as_text(plan))


def test_where_classes_lie_is_no_part_of_it(monkeypatch):
    before = as_text(rich())
    assert "tidegate" not in before
    assert __name__ not in before
    for kind in _classes(rich()):
        ours = kind.__module__.startswith("tidegate.")
        monkeypatch.setattr(kind, "__module__", "tidegate.elsewhere" if ours else "program.elsewhere")
    assert as_text(rich()) == before


def _classes(plan):
    """The classes of all nodes and values of a plan."""
    found, left = set(), [plan]
    while left:
        one = left.pop()
        left += one if isinstance(one, tuple) else vars(one).values() if hasattr(one, "__dict__") else ()
        if type(one).__module__.partition(".")[0] in ("tidegate", "tests"):
            found.add(type(one))
    assert len(found) > 25
    return found


def test_it_comes_back_from_json_as_it_was():
    now = identity(rich())
    stored = Identity(**json.loads(json.dumps(asdict(now))))
    assert differences(stored, now) == []
    assert stored == now
    names = list(now.operators)
    assert [fingerprint(stored.own(name)) for name in names] == [
        fingerprint(now.own(name)) for name in names
    ]


@pytest.mark.parametrize(
    "value",
    [
        hopping(10), hopping(10, 5, 1), session(5), session("idle", max_length=9), sliding(3),
        sliding(3, 4, "items > 1"), AllTime(), OnWatermark(), OnWindowClose(), OnWindowClose(final=True),
        Retracting(), Retracting("+I", "-D", "+I", Micros(3)), Drop(), Reassign(Micros(5)),
        SideOutput("late"), ProcessingTime(Micros(7)),
    ],
    ids=str,
)  # fmt: skip
def test_values_are_read_back_from_what_is_written_down(value):
    assert read_back(json.loads(json.dumps(value.identity()))) == value


@pytest.mark.parametrize("window", [{"kind": "lunar", "phase": 3}, {"kind": "all_time", "since": 3}])
def test_a_value_that_a_later_version_wrote_is_told_as_it_is(window):
    now = identity(logical_plan(hopping(10)))
    own = json.loads(json.dumps(now.operators["aggregate"]))
    own["inputs"]["rows"]["window"] = window
    [change] = differences(replace(now, operators={"aggregate": own}), now)
    assert str(change) == (f"aggregate, window: stored {json.dumps(window)!r}, now 'tumbling(10 us)'")
    with pytest.raises(StateError, match="this version of tidegate knows no window"):
        window_of(own)


# -- names of operators ------------------------------------------------------------------------------


def test_operators_go_by_their_kinds_from_the_sources_on():
    first = logical_plan(hopping(10), feed=Derived(dedupe_plan(5), "ts"))
    second = logical_plan(hopping(60), feed=Derived(first, "window_end"))
    assert [vertex.id for vertex in compile(second).vertices] == ["dedupe", "aggregate", "aggregate 2"]


def test_results_side_by_side_may_be_renamed():
    distinct = dedupe_plan(5, feed=CLICKS)
    windows = logical_plan(hopping(10), feed=Derived(distinct, "ts"))
    one, other = (identity(Together(((name, windows), ("ids", distinct)))) for name in ("a", "dedupe"))
    assert list(one.operators) == list(other.operators) == ["dedupe", "aggregate"]
    assert differences(one, other) == [
        Difference("aggregate", ("settings", "channel"), "a", "dedupe"),
    ]


def test_operators_of_other_kinds_may_come_between():
    rows = Derived(dedupe_plan(5), "ts")
    one, other = (logical_plan(hopping(10), feed=feed) for feed in (None, rows))
    assert [compile(plan).vertices[-1].id for plan in (one, other)] == ["aggregate", "aggregate"]


# -- comparisons -------------------------------------------------------------------------------------

THREE = (("n", a.Count(None)), ("total", a.Sum("items")), ("most", a.Max("items")))


def counted(aggregates=THREE, **options):
    return logical_plan(hopping(10), aggregates, **options)


def test_an_aggregate_that_is_added_is_the_only_difference():
    [change] = differences(identity(counted(THREE[:2])), identity(counted()))
    assert (change.operator, change.part, change.before) == ("aggregate", ("aggregates", "most"), None)
    assert change.after["aggregate"] == "max"
    assert str(change) == (
        "aggregate, 'most' among the aggregates: stored 'nothing', now 'max(items): int64'"
    )


def test_an_aggregate_in_the_middle_is_matched_by_its_name():
    assert changed_parts(counted(THREE[::2]), counted()) == ["'total' among the aggregates"]


def test_aggregates_in_another_order_are_told():
    [change] = differences(identity(counted()), identity(counted(THREE[::-1])))
    assert str(change) == "aggregate, aggregates: stored 'n, total, most', now 'most, total, n'"
    assert change.binds


def test_a_lateness_that_changes_is_told_in_words():
    [change] = differences(identity(counted(lateness=5)), identity(counted(lateness=7)))
    assert change == Difference("aggregate", ("inputs", "rows", "allowed_lateness"), 5, 7)
    assert str(change) == "aggregate, allowed lateness: stored '5 us', now '7 us'"


def test_what_may_change_is_told_apart():
    changes = differences(
        identity(counted(late=Drop(), tolerance=3)), identity(counted(late=SideOutput("late")))
    )
    assert [(change.part[-1], change.binds) for change in changes] == [
        ("late", False),
        ("sources", False),
    ]
    assert "late: stored 'drop', now \"side_output('late')\"" in str(changes[0])


def test_operators_that_come_and_go_are_told():
    chain = logical_plan(hopping(10), feed=Derived(dedupe_plan(5), "ts"))
    changes = differences(identity(logical_plan(hopping(10))), identity(chain))
    assert {str(change) for change in changes if change.binds} == {
        "aggregate, reads: stored 'sources', now 'dedupe'",
        "aggregate, time: stored 'nothing', now 'ts'",
        "dedupe, kind: stored 'nothing', now 'dedupe'",
    }


def test_buckets_and_the_format_of_state_are_about_the_whole_query():
    plan = counted()
    found = differences(identity(plan, 4, 1), identity(plan, 8, 2))
    assert [str(change) for change in found] == [
        "buckets: stored '4', now '8'",
        "state format: stored '1', now '2'",
    ]


def test_each_input_of_a_join_is_compared_by_itself():
    one, other = (join_plan(hopping(10), hopping(size)) for size in (10, 20))
    [change] = differences(identity(one), identity(other))
    assert change.part == ("inputs", "right", "window")
    assert str(change) == ("join, window on the right: stored 'tumbling(10 us)', now 'tumbling(20 us)'")


def test_twins_differ_by_their_names():
    same = [logical_plan(hopping(10), feed=CLICKS, late=late) for late in (Drop(), SideOutput("late"))]
    now = identity(Together((("one", same[0]), ("other", same[1]))))
    assert fingerprint(now.own("aggregate")) != fingerprint(now.own("aggregate 2"))


# -- what programs bring -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (7, 7), (0.5, 0.5), ("x", "x"), (True, True), (None, None), ((1, 2), [1, 2]),
        (float("nan"), "nan"), ({"a": (1,)}, {"a": [1]}), (pa.int32(), "int32"),
    ],
)  # fmt: skip
def test_arguments_of_any_kind_come_back_from_json(given, stored):
    own = Range("items", limit=given).identity()
    assert own["arguments"] == {"limit": stored}
    assert json.loads(json.dumps(own)) == own


def test_an_event_time_says_how_it_is_read():
    schema = pa.schema([("ms", pa.int64()), ("user", pa.string())])
    source = declare_source(schema, "ms", "unixtimestamp_ms")
    assert source.settings()["declared"] == {
        "kind": "event_time",
        "parts": [{"message": None, "column": "ms", "type": "unixtimestamp_ms"}],
    }


def test_steps_are_written_down_and_bind_nobody():
    plain = logical_plan(hopping(10), feed=Source(LEFT_ROWS, "ts", Micros(0)))
    stepped = plain.with_upstream(shedding(mapped(plain.upstream, lambda rows: rows)))
    [change] = differences(identity(plain), identity(stepped))
    assert change.part == ("settings", "inputs", "rows", "steps")
    assert not change.binds
    assert [step["kind"] for step in change.after] == ["map", "shed"]
