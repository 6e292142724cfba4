"""Steps: what functions may do with rows, what is refused, what is counted, and how plans show them."""

import pickle
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidegate as tg
from tests.golden import assert_golden
from tests.support.plans import (
    LEFT_ROWS,
    SCHEMA,
    SECOND,
    WITH_IDLE,
    dedupe_plan,
    hopping,
    logical_join,
    logical_plan,
    reorder_plan,
    session,
    upstream,
)
from tests.support.steps import FUSIONS, filtered, mapped, shedding
from tidegate.api.events import Events
from tidegate.dataflow import compile
from tidegate.dataflow.explain import render_logical, render_physical
from tidegate.errors import ColumnNotFound, PlanError, StepError, TypeMismatch
from tidegate.kernels.messages import Message
from tidegate.kernels.registry import kernels_of
from tidegate.kernels.routes import Routes
from tidegate.kernels.shedding import Decision
from tidegate.kernels.steps import filter_step, map_step, take_steps
from tidegate.optimize import optimize
from tidegate.plan.inputs import KeyBy
from tidegate.plan.nodes import Together
from tidegate.plan.pass_through import Admit
from tidegate.plan.policies import SideOutput
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sla import declare_sla
from tidegate.plan.sources import Derived, Source, Union
from tidegate.plan.steps import Fusion, Shed
from tidegate.plan.time import Micros
from tidegate.plan.windows import AllTime
from tidegate.testing import KernelHost
from tidegate.testing.table import at, rows, to_arrow

SOURCE = Source(SCHEMA, "ts", Micros(0))
TEN = hopping(10 * SECOND)
ROWS = rows(
    """
    ts | user | items | price | note
    1  | ann  | 1     | 0.5   | x
    3  | bob  | 5     | 2     | y
    12 | ann  | null  | 3     | z
    """,
    SCHEMA,
)
TABLE = to_arrow(ROWS, SCHEMA)


#: Rows at the watermark are another test's subject.
TIES_ARE_OF_NO_INTEREST = pytest.mark.filterwarnings("ignore::tidegate.errors.TidegateWarning")


class Frame:
    """What a plan needs to know of a DataFrame."""

    isStreaming = True


def events(schema=SCHEMA, frame=None):
    return Events((frame or Frame(),), Source(schema, "ts", Micros(0)))


def twice(rows):
    return rows.with_columns(items=pl.col("items") * 2)


def twice_in_arrow(rows):
    place = rows.schema.get_field_index("items")
    return rows.set_column(place, "items", pc.multiply(rows["items"], 2))


def several(rows):
    return rows["items"] > 1


def several_in_arrow(rows):
    return pc.greater(rows["items"], 1)


def taken(*steps, table=TABLE, decision=None):
    """The rows after steps, and the messages about others, without their content."""
    left, messages = take_steps(steps, table, "ts", decision, 0)
    return left.to_pylist(), [message._replace(blob=None) for message in messages]


# -- what functions do ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "frames"), [(twice, "polars"), (twice_in_arrow, "arrow")], ids=["polars", "arrow"]
)
def test_a_map_makes_other_rows_of_rows(function, frames):
    step = map_step(function, frames, SCHEMA, "ts")
    assert step.schema == SCHEMA
    left, counted = taken(step)
    assert [row["items"] for row in left] == [2, 10, None]
    assert [row | {"items": None} for row in left] == [row | {"items": None} for row in full(ROWS)]
    assert counted == []


@pytest.mark.parametrize(
    ("function", "frames"), [(several, "polars"), (several_in_arrow, "arrow")], ids=["polars", "arrow"]
)
def test_a_filter_keeps_what_is_true_and_counts_the_rest(function, frames):
    """What is not known to be true goes, as in SQL."""
    step = filter_step(function, frames, SCHEMA)
    assert step.schema == SCHEMA
    left, counted = taken(step)
    assert [row["user"] for row in left] == ["bob"]
    assert counted == [Message.counter(0, "filtered", 2)]


def test_steps_are_taken_one_after_the_other():
    first = mapped(SOURCE, twice)
    steps = filtered(mapped(first, lambda rows: rows.select("ts", "items")), several).steps_taken
    left, counted = taken(*steps)
    assert left == [{"ts": at(1), "items": 2}, {"ts": at(3), "items": 10}]
    assert counted == [Message.counter(0, "filtered", 1)]


def test_each_frame_is_of_the_kind_that_was_asked_for():
    given = []
    for frames in ("polars", "arrow"):
        map_step(lambda rows: given.append(type(rows)) or rows, frames, SCHEMA, "ts")
        filter_step(lambda rows: given.append(type(rows)) or rows["items"].is_null(), frames, SCHEMA)
    assert given == [pl.DataFrame] * 2 + [pa.Table] * 2


def test_columns_are_learnt_by_calling_with_no_rows():
    heights = []

    def seen(rows):
        heights.append(len(rows))
        return rows.select("ts", shout=pl.col("user").str.to_uppercase(), half=pl.col("items") / 2)

    step = map_step(seen, "polars", SCHEMA, "ts")
    assert heights == [0]
    assert step.schema == pa.schema([("ts", TIMESTAMP), ("shout", pa.string()), ("half", pa.float64())])


def test_columns_that_a_map_adds_can_be_used_and_those_that_it_drops_cannot():
    shouted = events().map(lambda rows: rows.select("ts", shout=pl.col("user").str.to_uppercase()))
    assert shouted.key_by("shout").agg(n=tg.count()).node.schema.names == ["shout", "n", "op"]
    with pytest.raises(ColumnNotFound, match=r"^key: no column 'user'; available: 'ts', 'shout'$"):
        shouted.key_by("user")
    with pytest.raises(PlanError, match=r"^map λ failed: ColumnNotFoundError: "):
        shouted.map(twice_by_lambda)


twice_by_lambda = lambda rows: rows.with_columns(pl.col("items") * 2)  # noqa: E731


def test_steps_are_known_by_the_names_of_their_functions():
    class Scale:
        def __call__(self, rows):
            return rows

    names = [str(map_step(function, "polars", SCHEMA, "ts")) for function in (twice, Scale())]
    assert [*names, str(filter_step(several, "polars", SCHEMA))] == [
        "map twice",
        "map Scale",
        "filter several",
    ]
    assert str(Shed("strict", None, SCHEMA)) == "shed strict"
    assert str(Shed("bypass", "note", SCHEMA)) == "shed bypass by note"


# -- types ----------------------------------------------------------------------------------------


def made(expression):
    return lambda rows: rows.with_columns(made=expression)


def in_arrow(make):
    return lambda rows: rows.append_column("made", make(rows))


TYPES = {
    "uint8": (made(pl.lit(255, pl.UInt8)), pa.int16(), 255),
    "uint16": (made(pl.lit(65_535, pl.UInt16)), pa.int32(), 65_535),
    "uint32": (made(pl.lit(2**32 - 1, pl.UInt32)), pa.int64(), 2**32 - 1),
    "uint64": (made(pl.lit(2**63 - 1, pl.UInt64)), pa.int64(), 2**63 - 1),
    "int8": (made(pl.lit(-1, pl.Int8)), pa.int8(), -1),
    "text": (made(pl.col("user")), pa.string(), "ann"),
    "binary": (made(pl.lit(b"\0")), pa.binary(), b"\0"),
    "categorical": (made(pl.col("user").cast(pl.Categorical)), pa.string(), "ann"),
    "enum": (made(pl.col("user").cast(pl.Enum(["ann", "bob"]))), pa.string(), "ann"),
    "list": (made(pl.concat_list(pl.col("shop").cast(pl.UInt8))), pa.list_(pa.int16()), [None]),
    "list of text": (made(pl.concat_list("user", "note")), pa.list_(pa.string()), ["ann", "x"]),
    "array": (
        made(pl.concat_list("user", "note").list.to_array(2)), pa.list_(pa.string()), ["ann", "x"]
    ),
    "struct": (
        made(pl.struct("user", pl.col("items").cast(pl.UInt32))),
        pa.struct([("user", pa.string()), ("items", pa.int64())]),
        {"user": "ann", "items": 1},
    ),
    "list of structs": (
        made(pl.concat_list(pl.struct(pl.col("user").cast(pl.Categorical)))),
        pa.list_(pa.struct([("user", pa.string())])),
        [{"user": "ann"}],
    ),
    "decimal": (made(pl.col("items").cast(pl.Decimal(10, 2))), pa.decimal128(10, 2), Decimal("1.00")),
    "date": (made(pl.col("ts").dt.date()), pa.date32(), at(1).date()),
    "milliseconds": (
        made(pl.duration(milliseconds="items").cast(pl.Duration("ms"))),
        pa.duration("us"),
        timedelta(milliseconds=1),
    ),
    "nanoseconds": (
        made(pl.col("ts").cast(pl.Datetime("ns", "UTC"))), TIMESTAMP, at(1)
    ),
    "another zone": (made(pl.col("ts").dt.convert_time_zone("Asia/Tokyo")), TIMESTAMP, at(1)),
    "naive": (
        made(pl.col("ts").dt.replace_time_zone(None)), pa.timestamp("us"), at(1).replace(tzinfo=None)
    ),
    "float32": (made(pl.col("price").cast(pl.Float32)), pa.float32(), 0.5),
    "boolean": (made(pl.col("price") > 1), pa.bool_(), False),
    "large text": (in_arrow(lambda t: t["user"].cast(pa.large_string())), pa.string(), "ann"),
    "text view": (in_arrow(lambda t: t["user"].cast(pa.string_view())), pa.string(), "ann"),
    "large list": (
        in_arrow(lambda t: pa.array([["a"]] * len(t), pa.large_list(pa.large_string()))),
        pa.list_(pa.string()),
        ["a"],
    ),
    "half": (in_arrow(lambda t: t["price"].cast(pa.float16())), pa.float32(), 0.5),
    "date64": (
        in_arrow(lambda t: t["ts"].cast(pa.date32()).cast(pa.date64())), pa.date32(), at(1).date()
    ),
    "map": (
        in_arrow(lambda t: pa.array([[("a", 1)]] * len(t), pa.map_(pa.large_string(), pa.uint8()))),
        pa.map_(pa.string(), pa.int16()),
        [("a", 1)],
    ),
}  # fmt: skip
ARROW_TYPES = ("large text", "text view", "large list", "half", "date64", "map")


@pytest.mark.parametrize("name", TYPES)
def test_types_become_those_that_spark_has(name):
    function, kind, value = TYPES[name]
    step = map_step(function, "arrow" if name in ARROW_TYPES else "polars", SCHEMA, "ts")
    assert step.schema.field("made").type == kind
    left, _ = take_steps((step,), TABLE, "ts", None, 0)
    assert left.schema.field("made").type == kind
    assert left["made"][0].as_py() == value


@pytest.mark.parametrize("name", TYPES)
def test_and_spark_does_have_them(name):
    from tidegate.spark.schema import spark_schema

    function, *_ = TYPES[name]
    step = map_step(function, "arrow" if name in ARROW_TYPES else "polars", SCHEMA, "ts")
    assert spark_schema(step.schema).names == step.schema.names


REFUSED_TYPES = {
    "null": (made(pl.lit(None)), "polars", r"'made' has a type that Arrow cannot hold; drop or cast it"),
    "an object": (
        lambda rows: rows.with_columns(pl.Series("made", [object()] * len(rows), pl.Object)),
        "polars",
        r"'made' has type fixed_size_binary\[8\], which Spark has not; cast it",
    ),
    "a wide decimal": (
        in_arrow(lambda t: pa.nulls(len(t), pa.decimal256(50, 2))),
        "arrow",
        r"'made' has type decimal256\(50, 2\), which Spark has not; cast it",
    ),
    "an object in a list": (
        in_arrow(lambda t: pa.nulls(len(t), pa.list_(pa.binary(2)))),
        "arrow",
        r"'made' has type list<item: fixed_size_binary\[2\]>, which Spark has not; cast it",
    ),
    "a list view": (
        in_arrow(lambda t: pa.nulls(len(t), pa.list_view(pa.int8()))),
        "arrow",
        r"'made' has type list_view<item: int8>, which Spark has not; cast it",
    ),
}


@pytest.mark.parametrize("name", REFUSED_TYPES)
def test_types_that_spark_lacks_are_refused(name):
    function, frames, message = REFUSED_TYPES[name]
    with pytest.raises(TypeMismatch, match=f"^map λ gives back: column {message}$"):
        events().map(function, frames=frames)


def test_a_type_that_arrow_lacks_is_refused():
    with pytest.raises(
        PlanError, match=r"^map λ gave back a type that Arrow cannot hold: .*; it was called"
    ):
        events().map(made(pl.lit(1, pl.Int128)))


# -- refusals while the plan is made --------------------------------------------------------------

#: How messages end that say what a function gave back, or that it failed.
TRIED = "; it was called with no rows, to see what it makes of them"

REFUSED_MAPS = {
    "no function": (3, "polars", r"map() takes a function of a frame of rows, got 3"),
    "another frame": (
        lambda rows: rows.lazy(),
        "polars",
        "map λ gave back LazyFrame, not a polars.DataFrame" + TRIED,
    ),
    "a column": (
        lambda rows: rows["items"],
        "polars",
        "map λ gave back IntegerArray, not a polars.DataFrame" + TRIED,
    ),
    "batches": (
        lambda rows: rows.to_batches(),
        "arrow",
        "map λ gave back list, not a pyarrow.Table" + TRIED,
    ),
    "nothing": (lambda _: None, "arrow", "map λ gave back NoneType, not a pyarrow.Table" + TRIED),
    "no event time": (
        lambda rows: rows.drop("ts"),
        "polars",
        "map λ must keep the event time 'ts', which it is called with, as it is",
    ),
    "another event time": (
        lambda rows: rows.with_columns(ts=pl.col("ts").dt.epoch()),
        "polars",
        "map λ must keep the event time 'ts', which it is called with, as it is",
    ),
    "a naive event time": (
        lambda rows: rows.with_columns(ts=pl.col("ts").dt.replace_time_zone(None)),
        "polars",
        "map λ must keep the event time 'ts', which it is called with, as it is",
    ),
    "a name of ours": (
        lambda rows: rows.with_columns(__tidegate_key=1),
        "polars",
        "column '__tidegate_key': names that start with '__tidegate' are ours",
    ),
    "one name twice": (
        lambda rows: rows.append_column("user", rows["note"]),
        "arrow",
        "map λ gave back two columns named 'user'",
    ),
    "a failure": (
        lambda _: 1 // 0,
        "polars",
        "map λ failed: ZeroDivisionError: integer division or modulo by zero" + TRIED,
    ),
}


@pytest.mark.parametrize("name", REFUSED_MAPS)
def test_maps_that_cannot_be_are_refused(name):
    function, frames, message = REFUSED_MAPS[name]
    message = message.replace("IntegerArray", "Int64Array of type int64")
    with pytest.raises(PlanError) as refusal:
        events().map(function, frames=frames)
    assert str(refusal.value) == message


REFUSED_FILTERS = {
    "no function": (None, "polars", "filter() takes a function of a frame of rows, got None"),
    "numbers": (
        lambda rows: rows["items"],
        "polars",
        "filter λ gave back Int64Array of type int64, not a boolean for each row" + TRIED,
    ),
    "rows": (
        lambda rows: rows,
        "polars",
        "filter λ gave back Table, not a boolean for each row" + TRIED,
    ),
    "an expression": (
        lambda _: pl.col("items") > 1,
        "polars",
        "filter λ gave back Expr, not a boolean for each row" + TRIED,
    ),
    "a list": (lambda _: [], "arrow", "filter λ gave back list, not a boolean for each row" + TRIED),
    "a failure": (
        lambda rows: rows["itmes"],
        "arrow",
        """filter λ failed: KeyError: 'Field "itmes" does not exist in schema'""" + TRIED,
    ),
}


@pytest.mark.parametrize("name", REFUSED_FILTERS)
def test_filters_that_cannot_be_are_refused(name):
    function, frames, message = REFUSED_FILTERS[name]
    with pytest.raises(PlanError) as refusal:
        events().filter(function, frames=frames)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    "step", [lambda one: one.map(twice), lambda one: one.filter(several), lambda one: one.shed()]
)
def test_a_column_that_no_frame_can_hold_is_refused(step):
    unreadable = SCHEMA.append(pa.field("variant", pa.null()))
    with pytest.raises(
        TypeMismatch, match="is given all columns: column 'variant' has a type that Arrow cannot"
    ):
        step(events(unreadable))


def test_shedding_is_checked():
    with pytest.raises(PlanError) as refusal:
        events().shed("strickt")
    assert str(refusal.value) == (
        "shed(policy='strickt'): did you mean 'strict'? available: 'strict', 'prefer_throttle', 'bypass'"
    )
    with pytest.raises(TypeMismatch) as mismatch:
        events().shed(priority="items")
    assert str(mismatch.value) == (
        "priority column 'items' has type int64; it must be text: 'low', 'medium', 'high' or 'critical'"
    )
    with pytest.raises(ColumnNotFound, match=r"^priority: no column 'nots'; did you mean 'note'"):
        events().shed(priority="nots")


@pytest.mark.parametrize(
    "unite", [lambda one, other: one.union(other), lambda one, other: other.union(one)]
)
def test_a_union_of_rows_after_steps_is_refused(unite):
    with pytest.raises(PlanError) as refusal:
        unite(events().filter(several), events())
    assert str(refusal.value) == (
        "union() takes events of sources; results of operators, and rows after steps, cannot be united: "
        "unite the sources first"
    )


def test_steps_follow_a_union():
    united = events().union(events()).filter(several).key_by("user").agg(n=tg.count())
    host = KernelHost(optimize(united.node))
    assert host.batch(ROWS, ROWS).main == [{"user": "bob", "n": 2, "op": "+I"}]


@TIES_ARE_OF_NO_INTEREST
def test_a_query_sheds_by_one_policy():
    both = events().shed("strict").dedupe(on="user", within="1 s").shed("bypass").reorder()
    with pytest.raises(PlanError) as refusal:
        compile(both.node)
    assert str(refusal.value) == "shed() with several policies in one query: bypass, strict"
    twice_the_same = events().shed("bypass").dedupe(on="user", within="1 s").shed("bypass").reorder()
    assert compile(twice_the_same.node).shedding == "bypass"
    assert compile(events().reorder().node).shedding is None


def test_a_python_stage_has_a_step():
    with pytest.raises(
        PlanError, match=r"^fusion\(max_depth=0\): a Python stage has one step at least$"
    ):
        tg.fusion(max_depth=0)


@TIES_ARE_OF_NO_INTEREST
def test_what_is_shed_at_several_places_needs_the_same_columns():
    narrow = (
        events()
        .shed()
        .map(lambda rows: rows.select("ts", "user"))
        .dedupe(on="user", within="1 s")
        .shed()
    )
    with pytest.raises(
        PlanError, match=r"^rows of other columns go to the channel 'shed' already: name another$"
    ):
        compile(narrow.reorder().node)


# -- failures while the query runs ----------------------------------------------------------------


def only_when_empty(function):
    """A function that keeps its promises as long as there are no rows."""
    return lambda rows: function(rows) if len(rows) else rows


BROKEN_MAPS = {
    "a failure": (lambda rows: rows["nothing"], "polars", r"failed: ColumnNotFoundError: .*nothing"),
    "another frame": (lambda _: None, "polars", "gave back NoneType, not a polars.DataFrame"),
    "fewer rows": (
        lambda rows: rows.head(1),
        "polars",
        "gave back 1 rows for 3; only a filter may leave rows out",
    ),
    "a column less": (
        lambda rows: rows.drop("user", "note"),
        "polars",
        "gave back no column 'note', 'user'",
    ),
    "another type": (
        lambda rows: rows.with_columns(items=pl.lit("many")),
        "polars",
        "gave back other types than it said: Failed to parse string: 'many'",
    ),
    "another event time": (
        lambda rows: rows.with_columns(ts=pl.col("ts") + pl.duration(microseconds=1)),
        "polars",
        "changed the event time 'ts', which the watermark was made from",
    ),
    "another order": (
        lambda rows: rows.sort("ts", descending=True),
        "polars",
        "changed the event time 'ts', which the watermark was made from",
    ),
    "no event time": (
        lambda rows: rows.with_columns(ts=pl.lit(None, pl.Datetime("us", "UTC"))),
        "polars",
        "changed the event time 'ts', which the watermark was made from",
    ),
    "in arrow": (
        lambda rows: rows.slice(1),
        "arrow",
        "gave back 2 rows for 3; only a filter may leave rows out",
    ),
}


@pytest.mark.parametrize("name", BROKEN_MAPS)
def test_a_map_that_breaks_its_promise_fails(name):
    function, frames, message = BROKEN_MAPS[name]
    step = map_step(only_when_empty(function), frames, SCHEMA, "ts")
    with pytest.raises(StepError, match=f"^map λ {message}"):
        taken(step)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _: pl.Series([True]), "gave back 1 booleans for 3 rows"),
        (lambda rows: rows["items"], "gave back Int64Array of type int64, not a boolean for each row"),
        (lambda _: 1 // 0, "failed: ZeroDivisionError: integer division"),
    ],
)
def test_a_filter_that_breaks_its_promise_fails(function, message):
    step = filter_step(lambda rows: function(rows) if len(rows) else rows["items"] > 1, "polars", SCHEMA)
    with pytest.raises(StepError, match=f"^filter λ {message}"):
        taken(step)


def test_columns_that_were_not_there_before_are_left_out():
    step = map_step(only_when_empty(lambda rows: rows.with_columns(more=1)), "polars", SCHEMA, "ts")
    left, _ = taken(step)
    assert left == full(ROWS)


def test_an_error_of_a_step_travels():
    error = pickle.loads(pickle.dumps(StepError(map_step(twice, "polars", SCHEMA, "ts"), "failed: so")))
    assert (type(error), str(error), error.step) == (StepError, "map twice failed: so", "map twice")


# -- rows that cannot be used ---------------------------------------------------------------------

WITH_BROKEN = [ROWS[0], {"user": "eve", "price": 1.5}, *ROWS[1:]]


def refuses_nulls(rows):
    assert rows["ts"].null_count() == 0
    return rows.with_columns(items=pl.col("items") + 1)


def test_broken_rows_pass_by_all_steps_and_are_errors_with_their_text():
    feed = filtered(mapped(SOURCE, refuses_nulls), lambda rows: rows["user"] == "bob")
    feed = mapped(feed, lambda rows: rows.select("ts", "items"))
    host = KernelHost(optimize(logical_plan(TEN, keys=(), feed=feed)))
    result = host.batch(WITH_BROKEN)
    assert result.channels["errors"] == [
        {"reason": "event time 'ts' is null", "row": '{"user":"eve","price":1.5}'}
    ]
    assert +result.counts == {"rows_in": 4, "filtered": 2, "errors": 1}


def test_rows_are_counted_as_they_come_and_as_they_go():
    feed = shedding(filtered(SOURCE, several))
    host = KernelHost(optimize(logical_plan(TEN, feed=feed)))
    host.decision = Decision(0, probability=1.0)
    result = host.batch(WITH_BROKEN)
    assert +result.counts == {"rows_in": 4, "filtered": 2, "shed": 1, "errors": 1}
    assert result.channels["shed"] == [full(ROWS)[1]]
    assert {"filtered", "shed"} <= set(host.dataflow.counters)
    assert not {"filtered", "shed"} & set(compile(logical_plan(TEN)).counters)


def test_steps_after_an_operator_count_no_rows_in():
    first = dedupe_plan(10 * SECOND, on=("user",))
    feed = filtered(Derived(first, "ts"), several)
    result = KernelHost(optimize(logical_plan(TEN, feed=feed))).batch(WITH_BROKEN)
    assert +result.counts == {"rows_in": 4, "errors": 1, "duplicates_filtered": 1, "filtered": 1}


def test_a_gap_that_a_map_spoils_makes_rows_errors():
    """Of them the text is not known any more: it is made of what the map left."""
    source = Source(WITH_IDLE, "ts", Micros(0))
    given = rows(
        """
        ts   | user | idle
        1    | ann  | 5
        null | eve  | 5
        2    | bob  | 5
        3    | cid  | null
        """,
        WITH_IDLE,
    )

    def spoilt(rows):
        gap = pl.when(pl.col("user") == "bob").then(-pl.col("idle")).otherwise("idle")
        return rows.select("ts", "user", idle=gap)

    feed = mapped(source, spoilt)
    host = KernelHost(optimize(logical_plan(session("idle"), feed=feed)))
    result = host.batch(given)
    errors = {error["reason"]: [] for error in result.channels["errors"]}
    for error in result.channels["errors"]:
        errors[error["reason"]].append(error["row"])
    assert errors == {
        "event time 'ts' is null": ['{"user":"eve","idle":"INTERVAL \'0 00:00:05\' DAY TO SECOND"}'],
        "gap 'idle' is not positive": [
            '{"ts":"2024-05-01T12:00:02.000000Z","user":"bob",'
            '"idle":"INTERVAL \'-0 00:00:05\' DAY TO SECOND"}'
        ],
        "gap 'idle' is null": ['{"ts":"2024-05-01T12:00:03.000000Z","user":"cid"}'],
    }
    assert +result.counts == {"rows_in": 4, "errors": 3}
    assert [row["user"] for row in host.end().main] == ["ann"]


def test_late_rows_leave_as_the_steps_made_them():
    feed = mapped(SOURCE, lambda rows: rows.select("ts", twice=pl.col("items") * 2))
    plan = optimize(logical_plan(TEN, keys=(), late=SideOutput("late"), feed=feed))
    host = KernelHost(plan)
    host.batch(rows("ts\n40", SCHEMA))
    [late] = host.batch(rows("ts | items\n 5 | 4", SCHEMA)).channels["late"]
    assert late == {
        "ts": at(5),
        "twice": 8,
        "late_by": timedelta(seconds=35),
        "watermark": at(40),
        "late_operator": "1 tumbling(10 seconds)",
        "late_window_start": at(0),
        "late_window_end": at(10),
        "allowed_lateness": timedelta(0),
    }


def test_the_watermark_is_of_all_rows_also_of_those_that_are_filtered():
    feed = filtered(SOURCE, lambda rows: rows["user"] == "ann")
    host = KernelHost(optimize(logical_plan(TEN, feed=feed)))
    host.batch(rows("ts | user\n1 | ann\n30 | bob", SCHEMA))
    assert [row["user"] for row in host.batch([]).main] == ["ann"]


# -- load -----------------------------------------------------------------------------------------

MANY = [
    {"ts": at(number), "user": f"u{number % 7}", "items": number, "note": note}
    for number, note in enumerate(["low", "medium", "high", "critical", None] * 80)
]


def shed_users(policy="strict", priority=None, batch=3, probability=0.5):
    host = KernelHost(optimize(reorder_plan(feed=shedding(SOURCE, policy, priority))))
    host.decision = Decision(batch, probability=probability)
    result = host.batch(MANY)
    gone = result.channels.get("shed", [])
    left = host.end().main
    assert result.counts["rows_in"] == len(gone) + len(left)
    assert result.counts["shed"] == len(gone)
    return gone


def test_the_same_rows_go_in_the_same_batch_and_others_in_another():
    assert shed_users() == shed_users()
    assert shed_users(batch=4) != shed_users()
    assert 0.35 * len(MANY) < len(shed_users()) < 0.65 * len(MANY)


def test_what_matters_more_goes_less_often_and_critical_rows_never():
    gone = [row["note"] for row in shed_users(priority="note", probability=0.9)]
    shares = [gone.count(priority) for priority in ("low", None, "high", "critical")]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0
    assert len(set(shares)) == 4


@pytest.mark.parametrize("policy", ["prefer_throttle", "bypass"])
def test_only_the_strict_policy_lets_rows_go(policy):
    """Also if a decision is still there that was made while the policy was another."""
    assert shed_users(policy, probability=0.95) == []


def test_without_a_decision_nothing_goes():
    host = KernelHost(optimize(reorder_plan(feed=shedding(SOURCE))))
    assert host.batch(MANY).counts["shed"] == 0


def admitted_then_shed():
    limits = declare_sla("bronze", max_lag="1 hour", arrival="ts")
    admitted = Derived(Admit(KeyBy(SOURCE, ("user",)), limits), "ts")
    return optimize(logical_plan(AllTime(), keys=(), feed=shedding(admitted), emission=UPDATE))


UPDATE = tg.emit.on_update()


def test_rows_are_rejected_before_they_are_shed_and_all_are_accounted_for():
    """Seven streams of seven rows a second each, of which one may pass."""
    burst = [row | {"ts": at(number // 49)} for number, row in enumerate(MANY)]
    host = KernelHost(admitted_then_shed())
    host.decision = Decision(0, probability=0.5)
    result = host.batch(burst)
    rejected, shed = ({row["items"] for row in result.channels[name]} for name in ("rejected", "shed"))
    assert rejected
    assert shed
    assert not rejected & shed
    left = result.main[-1]["n"]
    assert left + len(rejected) + len(shed) == len(burst) == result.counts["rows_in"]
    assert result.counts["admitted"] == left + len(shed)


# -- fusion ---------------------------------------------------------------------------------------


def chain():
    """Two maps, two filters, a map: of named functions."""
    feed = mapped(mapped(SOURCE, twice), twice_in_arrow, "arrow")
    feed = filtered(filtered(feed, several), several_in_arrow, "arrow")
    return mapped(feed, twice)


def shape(fusion, feed=None):
    plan = optimize(logical_plan(TEN, feed=feed or chain()), fusion)
    taken = plan.upstream.python_stages
    assert plan.upstream.steps_taken == (feed or chain()).steps_taken
    assert plan.upstream.origin == SOURCE
    return [[step.kind for step in one.steps] for one in taken], taken[-1].packed


def test_what_shares_a_crossing():
    assert shape(Fusion()) == ([["map", "map", "filter", "filter", "map"]], True)
    assert shape(Fusion(pack=False)) == ([["map", "map", "filter", "filter", "map"]], False)
    assert shape(Fusion(maps=False)) == ([["map"], ["map", "filter", "filter", "map"]], True)
    assert shape(Fusion(filters=False)) == ([["map", "map", "filter"], ["filter", "map"]], True)
    assert shape(Fusion(across=False)) == ([["map", "map"], ["filter", "filter"], ["map"]], True)
    assert shape(Fusion(max_depth=2)) == ([["map", "map"], ["filter", "filter"], ["map"]], True)
    assert shape(Fusion(max_depth=5)) == ([["map", "map", "filter", "filter", "map"]], True)
    assert shape(Fusion(max_depth=4)) == ([["map", "map", "filter", "filter"], ["map"]], True)
    alone = [["map"], ["map"], ["filter"], ["filter"], ["map"]]
    assert shape(Fusion(max_depth=1)) == (alone, True)
    assert shape(FUSIONS["unfused"]) == (alone, False)


def test_shedding_is_a_kind_of_filter():
    feed = filtered(shedding(mapped(SOURCE, twice)), several)
    assert shape(Fusion(across=False), feed) == ([["map"], ["filter", "filter"]], True)


def test_to_fuse_what_is_fused_changes_nothing():
    once = optimize(logical_plan(TEN, feed=chain()), Fusion(max_depth=2))
    assert optimize(once, Fusion(max_depth=2)) == once
    assert optimize(once).upstream.python_stages[0].steps == chain().steps_taken


@pytest.mark.parametrize("fusion", FUSIONS.values(), ids=FUSIONS)
def test_fusion_does_not_show(fusion):
    first = optimize(logical_plan(TEN, feed=chain()), fusion)
    host, plain = KernelHost(first), KernelHost(optimize(logical_plan(TEN, feed=chain())))
    for given in (WITH_BROKEN, [], ROWS):
        assert host.batch(given) == plain.batch(given)
    assert host.end() == plain.end()


def test_all_columns_are_read_where_a_function_reads_them():
    read = optimize(logical_plan(TEN, feed=filtered(SOURCE, several)))
    assert read.upstream.origin.schema == SCHEMA
    assert optimize(logical_plan(TEN)).upstream.origin.schema.names == ["ts", "user"]


# -- results side by side -------------------------------------------------------------------------


def test_what_side_by_side_cannot_be_is_refused():
    one = events().agg(n=tg.count())
    for results, message in (
        ({}, "together() needs results by name, such as totals=…, sessions=…"),
        ({"n": 3}, "together(n=…) takes results such as events.agg(…), got 3"),
        ({"n": events()}, "together(n=…) takes results such as events.agg(…), got <Events by ts: ts, "),
        (
            {"main": one},
            "together() cannot name results 'main': queries have a channel of that name already",
        ),
        ({"a": one, "b": one}, "together(a=…): the same results are named twice"),
    ):
        with pytest.raises(PlanError) as refusal:
            tg.together(**results)
        assert str(refusal.value).startswith(message)


def test_side_by_side_needs_one_kind_of_frames_and_of_time():
    class Batch:
        isStreaming = False

    with pytest.raises(
        PlanError, match=r"^together\(\) of streaming and batch events: one of them would"
    ):
        tg.together(a=events().agg(n=tg.count()), b=events(frame=Batch()).agg(n=tg.count()))
    clock = Source(SCHEMA, "ts", Micros(0), declared=tg.processing_time())
    stamped = Events((Frame(),), clock).agg(n=tg.count())
    with pytest.raises(PlanError, match=r"^together\(\) of event time and processing time: they do not"):
        tg.together(a=events().agg(n=tg.count()), b=stamped)


def test_a_channel_of_results_cannot_be_one_of_rows_that_are_set_apart():
    late = events().window(tg.tumbling("1 s"), late=tg.late.side_output("totals")).agg(n=tg.count())
    with pytest.raises(PlanError, match=r"^rows of other columns go to the channel 'totals' already"):
        tg.together(totals=events().agg(n=tg.count()), windows=late)


def test_what_is_made_once_is_there_once():
    frame = Frame()
    distinct = events(frame=frame).dedupe(on="user", within="1 s")
    beside = tg.together(
        totals=distinct.agg(n=tg.count()),
        windows=distinct.filter(several).window(tg.tumbling("1 s")).agg(n=tg.count()),
        rows=distinct,
        others=events().agg(n=tg.count()),
    )
    assert beside.channels == ("totals", "windows", "rows", "others", "errors")
    assert [type(vertex.operator).__name__ for vertex in compile(beside.node).vertices] == [
        "Dedupe",
        "WindowedAggregate",
        "WindowedAggregate",
        "WindowedAggregate",
    ]
    assert upstream(beside.node) == [[(0,)], [0], [0], [(1,)]]
    assert len(beside.frames) == 2
    assert beside.frames[0] is frame


@TIES_ARE_OF_NO_INTEREST
def test_a_source_that_is_read_in_two_ways_is_two():
    """The same frame with another tolerance is under another watermark."""
    frame = Frame()
    strict = events(frame=frame)
    patient = Events((frame,), Source(SCHEMA, "ts", Micros(5)))
    beside = tg.together(a=strict.agg(n=tg.count()), b=patient.agg(n=tg.count()), c=strict.reorder())
    assert beside.frames == (frame, frame)
    assert upstream(beside.node) == [[(0,)], [(1,)], [(0,)]]


def with_numbers(plan, *numbers):
    left = iter(numbers)
    return plan.with_sources(lambda source: replace(source, number=next(left)))


def test_sources_are_changed_from_left_to_right():
    plan = logical_join(TEN, TEN, feeds=(Derived(reorder_plan(schema=LEFT_ROWS), "ts"), None))
    numbered = with_numbers(plan, 4, 2)
    assert numbered.left.as_input.upstream.origin.input.upstream.number == 4
    assert numbered.right.as_input.upstream.number == 2
    union = logical_plan(TEN, feed=filtered(Union((SOURCE, SOURCE)), several))
    assert [one.number for one in with_numbers(union, 1, 0).sources] == [1, 0]


def test_each_reader_of_an_operator_has_its_own_delay():
    minutes = logical_plan(TEN, feed=SOURCE)
    plan = Together(
        (
            ("by_end", logical_plan(TEN, keys=(), feed=Derived(minutes, "window_end"))),
            (
                "by_start",
                logical_plan(hopping(7 * SECOND), keys=(), feed=Derived(minutes, "window_start")),
            ),
            ("by_end_again", logical_plan(session(1), keys=(), feed=Derived(minutes, "window_end"))),
        )
    )
    assert [vertex.delay for vertex in compile(plan).vertices] == [0, 0, 9 * SECOND, 0]


def beside(feed, **more):
    return Together(
        (
            ("windows", logical_plan(TEN, feed=feed)),
            ("sessions", logical_plan(session(SECOND), feed=feed)),
            *more.items(),
        )
    )


@pytest.mark.parametrize("fusion", FUSIONS.values(), ids=FUSIONS)
def test_what_is_shared_is_done_and_counted_once(fusion):
    calls = []

    def counted(rows):
        calls.append(len(rows))
        return rows

    feed = shedding(filtered(mapped(SOURCE, counted), several))
    host = KernelHost(optimize(beside(feed), fusion))
    host.decision = Decision(0, probability=1.0)
    calls.clear()
    result = host.batch(WITH_BROKEN)
    assert calls == [3]
    assert +result.counts == {"rows_in": 4, "filtered": 2, "shed": 1, "errors": 1}
    assert [len(result.channels[name]) for name in ("shed", "errors")] == [1, 1]


def test_steps_part_where_branches_do():
    both, one = filtered(SOURCE, several), filtered(filtered(SOURCE, several), several_in_arrow, "arrow")
    other = filtered(SOURCE, lambda rows: rows["user"] == "ann")
    plan = Together(
        tuple(
            (name, logical_plan(AllTime(), feed=feed, emission=UPDATE, keys=keys))
            for name, feed, keys in (
                ("both", both, ()),
                ("one", one, ("user",)),
                ("other", other, ("user",)),
                ("plain", SOURCE, ()),
            )
        )
    )
    result = KernelHost(optimize(plan)).batch(WITH_BROKEN)
    seen = {name: sum(row["n"] for row in result.channels[name]) for name, _ in plan.branches}
    assert seen == {"both": 1, "one": 1, "other": 2, "plain": 3}
    assert +result.counts == {"rows_in": 4, "filtered": 2 + 0 + 1, "errors": 1}


def test_a_row_without_its_gap_is_an_error_only_for_the_sessions():
    source = Source(WITH_IDLE, "ts", Micros(0))
    plan = Together(
        (
            ("windows", logical_plan(TEN, keys=(), feed=source)),
            ("sessions", logical_plan(session("idle"), keys=(), feed=source)),
        )
    )
    host = KernelHost(optimize(plan))
    result = host.batch(rows("ts | idle\n1 | 5\n2 | null\nnull | 5", WITH_IDLE))
    assert sorted(error["reason"] for error in result.channels["errors"]) == [
        "event time 'ts' is null",
        "gap 'idle' is null",
    ]
    ended = host.end()
    assert [[row["n"] for row in ended.channels[name]] for name in ("windows", "sessions")] == [[2], [1]]


def test_results_that_leave_and_go_on_leave_as_they_are():
    """They are handed on in one Python stage, whatever fusion says: steps of others are not for them."""
    distinct = dedupe_plan(SECOND, on=("user",), feed=SOURCE)
    plan = optimize(
        Together(
            (
                ("rows", distinct),
                (
                    "totals",
                    logical_plan(
                        AllTime(), feed=mapped(Derived(distinct, "ts"), twice), emission=UPDATE
                    ),
                ),
            )
        ),
        FUSIONS["unfused"],
    )
    routes = Routes.through(compile(plan), kernels_of(compile(plan)))
    assert [(route.stages, len(route.steps)) for route in routes.of_operators[0]] == [((), 1)]
    result = KernelHost(plan).batch(ROWS)
    assert [row["items"] for row in result.channels["rows"]] == [1, 5]
    assert [row["n"] for row in result.channels["totals"]] == [1, 1]


# -- explain --------------------------------------------------------------------------------------


def explained(plan):
    dataflow = compile(plan)
    physical = render_physical(
        dataflow, [kernel.physical_operators() for kernel in kernels_of(dataflow)]
    )
    return f"{render_logical(plan)}\n\n{physical}\n"


@pytest.mark.parametrize("name", FUSIONS)
def test_fused_plans_explain_themselves(name):
    plan = optimize(logical_plan(TEN, feed=chain()), FUSIONS[name])
    assert_golden(f"explain_steps_{name.replace(' ', '_')}", explained(plan))


def test_joins_with_steps_on_both_sides_explain_themselves():
    left = filtered(Source(LEFT_ROWS, "ts", Micros(0)), several)
    right = mapped(mapped(Derived(reorder_plan(), "ts"), twice), twice_in_arrow, "arrow")
    plan = logical_join(TEN, TEN, feeds=(left, right))
    texts = [explained(optimize(plan, fusion)) for fusion in (Fusion(), Fusion(maps=False, pack=False))]
    assert_golden("explain_steps_join", "\n".join(texts))


@TIES_ARE_OF_NO_INTEREST
def test_results_side_by_side_explain_themselves():
    stream = events().admit(tg.sla("gold"), stream="user").shed(priority="note").map(twice)
    distinct = stream.dedupe(on="items", within="1 hour")
    hourly = distinct.key_by("user").window(tg.tumbling("1 hour")).agg(n=tg.count())
    plan = tg.together(
        hours=hourly,
        days=hourly.events(time="window_start")
        .filter(lambda rows: rows["n"] > 1)
        .window(tg.tumbling("1 day"))
        .agg(n=tg.sum("n")),
        rows=distinct,
        others=events().reorder(),
    )
    assert_golden("explain_together", plan.plan_text())


def full(rows):
    """Rows with all their columns."""
    return [dict.fromkeys(SCHEMA.names) | row for row in rows]
