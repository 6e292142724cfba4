"""Programs that cannot mean anything are refused while they are written, with the reason."""

from dataclasses import FrozenInstanceError

import pyarrow as pa
import pytest

from tests.support.plans import ROWS, SCHEMA, TIMESTAMP, changed_parts, hopping, logical_plan
from tidegate.dataflow import compile
from tidegate.errors import ColumnNotFound, PlanError, TypeMismatch
from tidegate.kernels import aggregates as a
from tidegate.plan.channels import LATE_COLUMNS
from tidegate.plan.policies import Drop, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.sources import Source
from tidegate.plan.time import Micros

COLUMNS = "'ts', 'user', 'shop', 'price', 'items', 'note'"


def refusal(error, **options):
    """The message of the error that a plan with these options raises."""
    with pytest.raises(error) as raised:
        logical_plan(hopping(10), **options)
    return str(raised.value)


def columns(*extra):
    return pa.schema([("ts", TIMESTAMP), ("user", pa.string()), *extra])


# -- columns --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "hint"),
    [("usr", "did you mean 'user'? "), ("prize", "did you mean 'price'? "), ("zzz", "")],
)
def test_an_unknown_column_comes_with_a_hint(given, hint):
    expected = f"no column {given!r}; {hint}available: {COLUMNS}"
    assert refusal(ColumnNotFound, keys=(given,)) == f"key: {expected}"
    total = (("total", a.Sum(given)),)
    assert refusal(ColumnNotFound, aggregates=total) == f"sum({given}): {expected}"


def test_an_unknown_time_column():
    with pytest.raises(ColumnNotFound) as error:
        Source(SCHEMA, "time", Micros(0))
    assert str(error.value) == f"event time: no column 'time'; available: {COLUMNS}"


def test_a_column_is_given_by_its_name():
    assert refusal(PlanError, keys=(1,)) == "key: a column is given by its name, not 1"


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.date32()], ids=str)
def test_event_time_is_a_timestamp(kind):
    with pytest.raises(TypeMismatch) as error:
        Source(pa.schema([("ts", kind)]), "ts", Micros(0))
    assert str(error.value) == (
        f"event time column 'ts' has type {kind}; it must be a timestamp "
        "(for instance df.withColumn('ts', F.to_timestamp('ts')))"
    )


MAP = pa.map_(pa.string(), pa.int64())
VARIANT = pa.struct(
    [("value", pa.binary()), pa.field("metadata", pa.binary(), metadata={"variant": "true"})]
)


@pytest.mark.parametrize("kind", [MAP, pa.list_(MAP), pa.struct([("m", MAP)]), VARIANT], ids=str)
def test_what_spark_does_not_compare_is_no_key(kind):
    assert refusal(TypeMismatch, keys=("k",), schema=columns(("k", kind))) == (
        f"key column 'k' has type {kind}; keys can be booleans, numbers, decimals, text, binary, dates, "
        "times, intervals, and structs and arrays of these. Of a map, "
        "F.array_sort(F.map_entries('k')) makes an array that can be a key"
    )


# -- names ----------------------------------------------------------------------------------------


def test_a_key_is_named_once():
    assert refusal(PlanError, keys=("user", "user")) == "key columns are named twice: user, user"


@pytest.mark.parametrize("name", ["user", "window_start", "window_end", "op"])
def test_an_aggregate_cannot_take_the_name_of_another_result_column(name):
    expected = f"agg() names {name!r}, which is a column already"
    assert refusal(PlanError, aggregates=((name, a.Count(None)),)) == expected


@pytest.mark.parametrize("name", ["window_start", "window_end", "op"])
def test_a_key_cannot_take_the_name_of_another_result_column(name):
    schema = columns((name, pa.string()))
    assert repr(name) in refusal(PlanError, keys=(name,), schema=schema, emission=Retracting())


def test_two_aggregates_cannot_share_a_name():
    expected = "agg() names an aggregate twice: n, n"
    assert refusal(PlanError, aggregates=(*ROWS, *ROWS)) == expected


def test_at_least_one_aggregate():
    assert (
        refusal(PlanError, aggregates=())
        == "agg() needs at least one aggregate, such as rows=tg.count()"
    )


def test_an_aggregate_is_an_aggregate():
    expected = "total='price' is not an aggregate; write total=tg.sum('column')"
    assert refusal(PlanError, aggregates=(("total", "price"),)) == expected


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("main", "queries have a channel of that name already"),
        ("errors", "queries have a channel of that name already"),
        ("", "take a text of printable letters"),
        ("  ", "take a text of printable letters"),
        ("late\nrows", "take a text of printable letters"),
        (None, "take a text of printable letters"),
        (7, "take a text of printable letters"),
    ],
)
def test_late_rows_need_a_channel_of_their_own(name, problem):
    expected = f"late rows cannot go to a channel named {name!r}: {problem}"
    assert refusal(PlanError, late=SideOutput(name)) == expected


@pytest.mark.parametrize(
    "name", ["checkpoint", "sinks", "late rows", "zu spät", "2.partials", "#late", "class"]
)
def test_a_channel_may_have_any_other_name(name):
    assert name in compile(logical_plan(hopping(10), late=SideOutput(name))).channels


@pytest.mark.parametrize("name", [field.name for field in LATE_COLUMNS])
def test_the_late_channel_adds_columns_that_must_be_free(name):
    schema = columns((name, pa.string()))
    expected = f"the late channel adds {name!r}, which is a column already"
    assert refusal(PlanError, late=SideOutput("late"), schema=schema) == expected
    assert compile(logical_plan(hopping(10), schema=schema)).channels.keys() == {"main", "errors"}


def test_plan_errors_are_value_errors_too():
    assert issubclass(PlanError, ValueError)
    assert issubclass(TypeMismatch, TypeError)


# -- what a valid plan says of itself -------------------------------------------------------------


def test_results_carry_keys_window_aggregates_and_op_where_rows_are_taken_back():
    plain = logical_plan(hopping(10), (*ROWS, ("total", a.Sum("price"))), keys=("shop", "user"))
    assert plain.schema.names == ["shop", "user", "window_start", "window_end", "n", "total"]
    assert [str(field.type) for field in plain.schema] == [
        "int64", "string", "timestamp[us, tz=UTC]", "timestamp[us, tz=UTC]", "int64", "double",
    ]  # fmt: skip
    retracting = logical_plan(hopping(10), emission=Retracting())
    assert retracting.schema.names == ["user", "window_start", "window_end", "n", "op"]


def test_channels_and_their_columns():
    plan = logical_plan(hopping(10), late=SideOutput("late"))
    assert {name: schema.names for name, schema in compile(plan).channels.items()} == {
        "main": plan.schema.names,
        "errors": ["reason", "row"],
        "late": [*SCHEMA.names, *(field.name for field in LATE_COLUMNS)],
    }


def test_nodes_are_frozen():
    plan = logical_plan(hopping(10))
    with pytest.raises(FrozenInstanceError):
        plan.emission = OnWindowClose()


BASE = {"window": hopping(10, 5), "lateness": 3, "keys": ("user",)}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"window": hopping(10)}, ["window"]),
        ({"window": hopping(10, 5, 1)}, ["window"]),
        ({"lateness": 4}, ["allowed lateness"]),
        ({"keys": ("user", "shop")}, ["keys"]),
        ({"keys": ()}, ["keys"]),
        (
            {"aggregates": (("m", a.Count(None)),)},
            ["'n' among the aggregates", "'m' among the aggregates"],
        ),
        ({"aggregates": (("n", a.Quantile("price", 0.5)),)}, ["'n' among the aggregates"]),
        ({"emission": OnWindowClose()}, ["emission"]),
    ],
)
def test_what_state_depends_on_is_part_of_its_identity(change, parts):
    assert changed_parts(logical_plan(**BASE), logical_plan(**(BASE | change))) == parts


@pytest.mark.parametrize(
    "change", [{"tolerance": 9}, {"late": Reassign(Micros(5))}, {"late": SideOutput("late")}]
)
def test_tolerance_and_late_policy_may_change_between_runs(change):
    assert changed_parts(logical_plan(**BASE, late=Drop()), logical_plan(**(BASE | change))) == []


def test_names_that_kernels_use_are_refused():
    schema = pa.schema([("ts", TIMESTAMP), ("__tidegate_key", pa.string())])
    with pytest.raises(
        PlanError, match="column '__tidegate_key': names that start with '__tidegate' are ours"
    ):
        Source(schema, "ts", Micros(0))
