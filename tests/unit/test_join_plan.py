"""Joins between windows as plans: what is refused, what pairs look like, how far behind they lie."""

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.support.plans import (
    LEFT_ROWS,
    RIGHT_ROWS,
    SECOND,
    TIMESTAMP,
    changed_parts,
    hopping,
    join_plan,
    logical_join,
    plan_of,
    session,
    sliding,
    upstream,
)
from tidegate.api.events import Events
from tidegate.dataflow import compile
from tidegate.dataflow.explain import render_logical
from tidegate.errors import PlanError, TypeMismatch
from tidegate.kernels.registry import kernels_of
from tidegate.plan.channels import LATE_COLUMNS
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import Join
from tidegate.plan.policies import Drop, Reassign, Retracting, SideOutput
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.plan.windowed_aggregates import WindowBy

TEN = hopping(10)
WORKS = "tumbling × tumbling, tumbling × hopping (either way round) and session × session work"


def refusal(error, *windows, **options):
    """The message of the error that a join with these options raises."""
    with pytest.raises(error) as raised:
        logical_join(*(windows or (TEN, TEN)), **options)
    return str(raised.value)


def side(schema, keys, *, time="ts", window=TEN, declared=None):
    """A side over rows of any columns."""
    return WindowBy(KeyBy(Source(schema, time, Micros(0), declared=declared), keys), window)


def columns(*more):
    return pa.schema([("ts", TIMESTAMP), ("user", pa.string()), *more])


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (session(5), TEN, f"session(5 us) and tumbling(10 us): {WORKS}"),
        (TEN, session(5), f"tumbling(10 us) and session(5 us): {WORKS}"),
        (hopping(10, 5), session(5), f"hopping(10 us, 5 us) and session(5 us): {WORKS}"),
        (sliding(5), TEN, f"sliding(5 us) and tumbling(10 us): {WORKS}"),
        (sliding(5), sliding(5), f"sliding(5 us) and sliding(5 us): {WORKS}"),
        (session(5), sliding(5), f"session(5 us) and sliding(5 us): {WORKS}"),
        (
            hopping(10, 5),
            hopping(10, 2),
            f"hopping(10 us, 5 us) and hopping(10 us, 2 us): one of them must tumble; {WORKS}",
        ),
    ],
    ids=str,
)
def test_windows_of_which_no_rule_says_when_they_meet(left, right, reason):
    assert refusal(PlanError, left, right) == f"join() of {reason}"


@pytest.mark.parametrize("windows", [("idle", 5), (5, "idle"), ("idle", "idle")], ids=str)
def test_sessions_whose_rows_have_gaps_of_their_own_are_not_joined(windows):
    schema = columns(("idle", pa.duration("us")))
    sides = [side(schema, ("user",), window=session(gap)) for gap in windows]
    with pytest.raises(PlanError, match="a row with a gap of its own may reach back any length of time"):
        Join(*sides)


def test_how_is_one_of_four():
    assert refusal(PlanError, how="outer") == (
        "join(how='outer'): available: 'inner', 'left', 'right', 'full'"
    )
    assert "did you mean 'inner'?" in refusal(PlanError, how="iner")


def test_match_is_one_of_two():
    assert refusal(PlanError, match="inside") == ("join(match='inside'): available: 'overlap', 'within'")


def test_sessions_meet_in_one_way():
    assert refusal(PlanError, session(5), session(7), match="within") == (
        "join() of session(5 us) and session(7 us) with match='within': "
        "sessions meet where they touch; leave it out"
    )


@pytest.mark.parametrize(
    ("keys", "right_keys", "left", "right"),
    [
        (("user",), ("shop",), "(user: string)", "(shop: int64)"),
        (("user",), (), "(user: string)", "()"),
        ((), ("user",), "()", "(user: string)"),
        (("user", "shop"), ("shop", "user"), "(user: string, shop: int64)",
         "(shop: int64, user: string)"),
        (("user", "shop"), ("user",), "(user: string, shop: int64)", "(user: string)"),
    ],
)  # fmt: skip
def test_keys_are_paired_in_their_order(keys, right_keys, left, right):
    assert refusal(TypeMismatch, keys=keys, right_keys=right_keys) == (
        "join() pairs keys in their order, which must be of the same types: "
        f"{left} on the left, {right} on the right"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((), "0 for 1 keys; give one for each"),
        ((True, False), "2 for 1 keys; give one for each"),
        (("no",), "give True or False, for all keys or for each"),
        ((0,), "give True or False, for all keys or for each"),
        (False, "give True or False, for all keys or for each"),
    ],
    ids=str,
)
def test_whether_nulls_match_is_said_for_each_key(given, reason):
    assert refusal(PlanError, nulls_match=given) == f"join(nulls_match={given!r}): {reason}"


def test_event_time_and_processing_time_do_not_meet():
    clock = ProcessingTime(Micros(SECOND))
    with pytest.raises(PlanError) as raised:
        Join(side(columns(), ("user",)), side(columns(), ("user",), declared=clock))
    assert str(raised.value) == "join() of event time and processing time: they do not compare"


@pytest.mark.parametrize("given", ["prize > 1", "price >", "item > 0", "shop > 1", "note = 'x'"])
def test_a_condition_is_about_the_columns_of_pairs(given):
    message = refusal(PlanError, where=given)
    names = ", ".join(logical_join(TEN, TEN).schema.names)
    assert message.startswith(f"where={given!r} is no condition over {names}: ")


def test_a_condition_may_ask_for_columns_as_they_are_named_in_pairs():
    given = "shop_left = shop_right AND items < price AND left_window_start <= at"
    assert logical_join(TEN, TEN, where=given).where == given


def test_a_condition_is_true_or_false():
    assert refusal(TypeMismatch, where="price + items") == (
        "where='price + items' is Float64; a condition is true or false"
    )


def test_a_condition_is_about_one_pair():
    assert refusal(PlanError, where="price > AVG(price)") == (
        "where='price > AVG(price)' looks at several rows; a condition is about one"
    )


def test_the_late_rows_of_two_sides_need_two_channels_where_their_columns_differ():
    late = (SideOutput("late"), SideOutput("late"))
    refused = "^rows of other columns go to the channel 'late' already: name another$"
    with pytest.raises(PlanError, match=refused):
        compile(logical_join(TEN, TEN, late=late))
    clicks, orders = (
        Events((), Source(schema, time, Micros(5))).key_by("user").window(TEN, late=late[0])
        for schema, time in ((LEFT_ROWS, "ts"), (RIGHT_ROWS, "at"))
    )
    with pytest.raises(PlanError, match=refused):
        clicks.join(orders)  # before any start
    sides = [replace(side(columns(), ("user",)), late=SideOutput("late")) for _ in range(2)]
    assert compile(Join(*sides)).channels["late"].names == [
        "ts",
        "user",
        *(field.name for field in LATE_COLUMNS),
    ]


def test_results_of_another_operator_are_never_late():
    clicks = Derived(plan_of(TEN, feed=Source(LEFT_ROWS, "ts", Micros(0))), "window_end")
    assert refusal(PlanError, feeds=(clicks, None), late=(SideOutput("late"), Drop())) == (
        "late=side_output('late'): results of another operator are never late; "
        "give the policy to the first"
    )


def test_pairs_keep_all_columns_so_all_must_be_readable():
    with pytest.raises(TypeMismatch) as raised:
        Join(side(columns(("odd", pa.null())), ("user",)), side(columns(), ("user",)))
    assert str(raised.value) == (
        "join() keeps all columns: column 'odd' has a type that Arrow cannot hold; drop or cast it"
    )


def test_the_windows_of_an_earlier_join_get_a_suffix():
    """So the pairs of a join can be joined again."""
    again = Join(side(columns(("left_window_end", TIMESTAMP)), ("user",)), side(columns(), ("user",)))
    assert again.pair.names["left"]["left_window_end"] == "left_window_end_left"
    assert len({*again.schema.names}) == len(again.schema.names)


@pytest.mark.parametrize("extra", ["ts_left", "ts_right"])
def test_a_suffix_never_makes_two_columns_of_one_name(extra):
    with pytest.raises(PlanError, match=extra):
        Join(side(columns((extra, pa.int64())), ("user",)), side(columns(), ("user",)))


# -- what pairs look like -------------------------------------------------------------------------

BOUNDS = ["left_window_start", "left_window_end", "right_window_start", "right_window_end"]


def test_pairs_have_keys_windows_and_both_rows_with_suffixes_where_names_collide():
    assert logical_join(TEN, TEN).schema.names == [
        "user", *BOUNDS,
        "ts", "shop_left", "items", "note_left",
        "at", "shop_right", "price", "note_right",
    ]  # fmt: skip
    assert logical_join(TEN, TEN, keys=("user", "shop")).schema.names == [
        "user", "shop", *BOUNDS, "ts", "items", "note_left", "at", "price", "note_right",
    ]  # fmt: skip
    assert logical_join(TEN, TEN, keys=()).schema.names == [
        *BOUNDS,
        "ts", "user_left", "shop_left", "items", "note_left",
        "at", "user_right", "shop_right", "price", "note_right",
    ]  # fmt: skip


def test_keys_of_two_names_are_two_columns():
    """Keys keep their names; other columns that have the same get a suffix."""
    assert logical_join(TEN, TEN, keys=("user",), right_keys=("note",)).schema.names == [
        "user", "note", *BOUNDS,
        "ts", "shop_left", "items", "note_left",
        "at", "user_right", "shop_right", "price",
    ]  # fmt: skip


def test_keys_of_one_name_are_one_column_beside_those_of_two():
    join = logical_join(TEN, TEN, keys=("user", "shop"), right_keys=("note", "shop"))
    assert join.schema.names == [
        "user", "shop", "note", *BOUNDS, "ts", "items", "note_left", "at", "user_right", "price",
    ]  # fmt: skip
    assert join.pair.names["right"] == {
        "at": "at", "user": "user_right", "shop": "shop", "price": "price", "note": "note",
    }  # fmt: skip


def test_keys_that_have_each_others_names_get_a_suffix():
    join = logical_join(TEN, TEN, keys=("user", "note"), right_keys=("note", "user"))
    assert join.schema.names[:5] == ["user_left", "note_left", "note_right", "user_right", BOUNDS[0]]


def test_a_key_that_is_called_like_a_window_gets_a_suffix_unless_both_sides_share_it():
    schema = columns(("left_window_end", pa.string()))
    one, other = side(columns(), ("user",)), side(schema, ("left_window_end",))
    assert Join(one, other).schema.names[:3] == ["user", "left_window_end_right", BOUNDS[0]]
    with pytest.raises(PlanError, match="join\\(\\) makes pairs with 'left_window_end'"):
        Join(other, other)


def test_every_column_may_be_null_since_its_side_may_be_missing():
    rows = pa.schema([field.with_nullable(False) for field in columns(("n", pa.int64()))])
    other = rows.set(1, pa.field("name", pa.string(), nullable=False))
    join = Join(side(rows, ("user",)), side(other, ("name",)), "full")
    assert [field.name for field in join.schema if not field.nullable] == []


def test_columns_of_pairs_keep_their_types():
    schema = logical_join(TEN, TEN).schema
    assert {name: str(schema.field(name).type) for name in ("user", "items", "price", "ts", "at")} == {
        "user": "string",
        "items": "int64",
        "price": "double",
        "ts": "timestamp[us, tz=UTC]",
        "at": "timestamp[us, tz=UTC]",
    }
    assert {str(schema.field(name).type) for name in BOUNDS} == {"timestamp[us, tz=UTC]"}


def test_the_optimizer_cuts_no_column_of_a_pair():
    assert join_plan(TEN, TEN).schema == logical_join(TEN, TEN).schema


def test_channels_and_their_columns():
    plan = logical_join(TEN, TEN, late=(SideOutput("early"), SideOutput("tardy")))
    assert {name: schema.names for name, schema in compile(plan).channels.items()} == {
        "main": plan.schema.names,
        "errors": ["reason", "row"],
        "early": [*LEFT_ROWS.names, *(field.name for field in LATE_COLUMNS)],
        "tardy": [*RIGHT_ROWS.names, *(field.name for field in LATE_COLUMNS)],
    }


# -- how far behind pairs lie ---------------------------------------------------------------------


def behind(*windows, **options):
    """What each column holds back by which pairs can go on."""
    return dict(logical_join(*windows, **options).times)


def test_pairs_of_one_pane_lie_behind_by_its_lateness():
    assert behind(TEN, TEN) == {
        "ts": 10, "left_window_start": 10, "left_window_end": 0,
        "at": 10, "right_window_start": 10, "right_window_end": 0,
    }  # fmt: skip


def test_pairs_of_other_windows_lie_behind_by_those_that_rows_wait_for():
    """The last window of the other side that a row can meet begins just before its own one's end."""
    times = behind(TEN, hopping(30, 5), lateness=(2, 4))
    assert times["left_window_end"] == 30 + 4
    assert times["ts"] == 10 + 30 + 4
    assert times["at"] == times["right_window_end"] == 30 + 10 + 2


@pytest.mark.parametrize(("lateness", "most"), [((3, 0), 3), ((0, 7), 7), ((3, 7), 7)])
def test_the_longer_lateness_counts_for_either_side(lateness, most):
    times = behind(TEN, TEN, lateness=lateness)
    assert times["left_window_end"] == times["right_window_end"] == most
    assert times["ts"] == times["at"] == 10 + most


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("left", {"ts", "left_window_start", "left_window_end"}),
        ("right", {"at", "right_window_start", "right_window_end"}),
        ("full", set()),
    ],
)
def test_pairs_go_on_by_columns_that_all_of_them_have(how, names):
    assert behind(TEN, hopping(10, 5), how=how).keys() == names


def test_full_joins_do_not_go_on():
    join = logical_join(TEN, TEN, how="full")
    with pytest.raises(PlanError, match="of full joins either side may be missing"):
        Derived(join, "ts")


def test_joins_of_sessions_go_on_if_both_have_a_longest():
    for windows in (
        (session(5), session(5)),
        (session(5, 60), session(5)),
        (session(5), session(5, 60)),
    ):
        join = logical_join(*windows)
        assert join.times == {}
        with pytest.raises(PlanError, match="a join of sessions needs a max_length on both sides"):
            Derived(join, "ts")
    assert set(behind(session(5, 60), session(7, 40))) == {
        "ts", "left_window_start", "left_window_end", "at", "right_window_start", "right_window_end",
    }  # fmt: skip


def test_an_unknown_time_is_refused_with_those_there_are():
    with pytest.raises(PlanError) as raised:
        Derived(logical_join(TEN, TEN, how="left"), "at")
    message = str(raised.value)
    assert message.startswith("events(time='at'): results go on by ")
    assert all(repr(name) in message for name in ("ts", "left_window_start", "left_window_end"))


def test_where_times_collide_they_go_on_by_their_names_in_pairs():
    both = [side(columns(), ("user",)) for _ in range(2)]
    assert {"ts_left", "ts_right"} < Join(*both).times.keys()


# -- as a graph -----------------------------------------------------------------------------------


def counted(schema, time, **options):
    """Windows of one side's rows."""
    return plan_of(TEN, feed=Source(schema, time, Micros(0)), **options)


def test_the_operators_and_sources_of_a_join():
    clicks, orders = counted(LEFT_ROWS, "ts"), counted(RIGHT_ROWS, "at")
    join = join_plan(TEN, TEN, feeds=(Derived(clicks, "window_end"), Derived(orders, "window_end")))
    last = plan_of(hopping(20), keys=(), feed=Derived(join, "left_window_end"))
    assert compile(last).operators == (clicks, orders, join, last)
    assert last.sources == (clicks.upstream, orders.upstream)
    assert join_plan(TEN, TEN).sources == tuple(given.upstream for given in join_plan(TEN, TEN).inputs)


def test_the_side_that_is_further_behind_counts():
    clicks, orders = counted(LEFT_ROWS, "ts", lateness=7), counted(RIGHT_ROWS, "at")
    both = join_plan(TEN, TEN, feeds=(Derived(clicks, "window_start"), Derived(orders, "window_end")))
    assert compile(both).vertices[-1].delay == 17
    one = join_plan(TEN, TEN, feeds=(None, Derived(orders, "window_start")))
    assert compile(one).vertices[-1].delay == 10
    assert compile(join_plan(TEN, TEN)).vertices[-1].delay == 0


def test_hold_backs_add_up_through_a_join():
    clicks = counted(LEFT_ROWS, "ts")
    join = join_plan(TEN, TEN, feeds=(Derived(clicks, "window_start"), None))
    last = plan_of(hopping(20), keys=(), feed=Derived(join, "at"))
    assert compile(last).vertices[-1].delay == 10 + join.times["at"]
    one, two, three = [vertex.name for vertex in compile(last).vertices]
    assert two == "2 tumbling(10 us) × tumbling(10 us)"
    assert upstream(last) == [[(0,)], [0, (1,)], [1]]
    assert (one, three) == ("1 tumbling(10 us)", "3 tumbling(20 us)")


def test_corrections_cannot_be_joined():
    with pytest.raises(PlanError, match="take others back, and cannot go on as events"):
        Derived(counted(LEFT_ROWS, "ts", emission=Retracting()), "window_end")


# -- identity and explain -------------------------------------------------------------------------

BASE = {"left": hopping(10), "right": hopping(10, 5), "lateness": (3, 4), "where": "price > 1"}


def joined(**options):
    options = BASE | options
    return logical_join(options.pop("left"), options.pop("right"), **options)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"left": hopping(20)}, ["window on the left"]),
        ({"right": hopping(10, 2)}, ["window on the right"]),
        ({"lateness": (5, 4)}, ["allowed lateness on the left"]),
        ({"lateness": (3, 5)}, ["allowed lateness on the right"]),
        ({"how": "left"}, ["how"]),
        ({"match": "within"}, ["match"]),
        ({"where": None}, ["where"]),
        ({"where": "price > 2"}, ["where"]),
        ({"keys": ("user", "shop")}, ["keys on the left", "keys on the right"]),
        ({"right_keys": ("note",)}, ["keys on the right"]),
        ({"nulls_match": (False,)}, ["keys in which null equals nothing"]),
    ],
    ids=str,
)
def test_what_state_depends_on_is_part_of_its_identity(change, parts):
    assert changed_parts(joined(), joined(**change)) == parts


def test_that_null_equals_null_can_be_said_or_left_out():
    assert changed_parts(joined(), joined(nulls_match=(True,))) == []
    assert joined().label() == joined(nulls_match=(True,)).label()


@pytest.mark.parametrize(
    "change",
    [
        {"tolerance": (9, 0)},
        {"late": (Reassign(Micros(5)), Drop())},
        {"late": (Drop(), SideOutput("late"))},
    ],
    ids=str,
)
def test_tolerance_and_late_policies_may_change_between_runs(change):
    assert changed_parts(joined(), joined(**change)) == []


def test_swapped_sides_are_another_join():
    windows = {"left": TEN, "right": TEN}
    one = joined(**windows)
    swapped = replace(one, left=one.right, right=one.left)
    assert {"rows on the left", "rows on the right"} <= set(changed_parts(one, swapped))


def test_a_join_explains_itself():
    plan = logical_join(
        TEN, hopping(10, 5), how="left", match="within", where="price > 1", lateness=(0, 3),
        late=(Drop(), SideOutput("late")), tolerance=(5, 0),
    )  # fmt: skip
    assert render_logical(plan) == (
        "Join[left, match=within, where='price > 1']\n"
        "  Window[tumbling(10 us), allowed_lateness=0 seconds, late=drop]\n"
        "    KeyBy[user]\n"
        "      Events[time=ts, tolerance=5 us, columns=(ts, user, shop, items, note)]\n"
        "  Window[hopping(10 us, 5 us), allowed_lateness=3 us, late=side_output('late')]\n"
        "    KeyBy[user]\n"
        "      Events[time=at, tolerance=0 seconds, columns=(at, user, shop, price, note)]"
    )
    assert logical_join(TEN, TEN).label() == "Join[inner, match=overlap]"


@pytest.mark.parametrize(
    ("given", "shown"), [((False, False), "False"), ((True, False), "(True, False)")], ids=str
)
def test_a_join_says_where_null_equals_nothing(given, shown):
    plan = logical_join(TEN, TEN, keys=("user", "shop"), nulls_match=given, where="price > 1")
    assert plan.label() == f"Join[inner, match=overlap, nulls_match={shown}, where='price > 1']"
    assert (
        f"match=overlap, nulls_match={shown}, where="
        in kernels_of(compile(plan))[0].physical_operators()[0]
    )


def test_the_event_time_can_be_a_key():
    """Under two names each side has its own; under one they share it."""
    rows = columns(("n", pa.int64()))
    left = side(rows, ("user", "ts"))
    right = side(rows.set(0, pa.field("at", TIMESTAMP)), ("user", "at"), time="at")
    join = Join(left, right)
    assert join.order == ("ts", "at")
    assert join.times["ts"] <= join.times["left_window_start"]
    assert Derived(join, "at").watermark_delay == join.times["at"]
    assert {"ts", "at"} & Join(left, right, "left").times.keys() == {"ts"}
    assert Join(left, left).order == ("ts", "ts")
    assert Derived(Join(left, left), "ts").watermark_delay == join.times["ts"]
