"""Aggregates: what they promise beyond the textbook, their errors, and how to write one."""

import math
import random
import statistics
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from tests.oracle import Oracle
from tests.property.programs import STRATEGIES
from tests.support.final_rows import final_rows
from tests.support.plans import ROWS, TIMESTAMP, hopping, plan_of, session, sliding
from tidegate.dataflow.watermarks import WatermarkGenerator
from tidegate.errors import EmissionRefused, NotMergeable, PlanError, TypeMismatch
from tidegate.kernels import aggregates as a
from tidegate.kernels.accumulators import TIME, Accumulators
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.policies import Retracting
from tidegate.plan.windows import AllTime
from tidegate.testing import KernelHost
from tidegate.testing.results import row_differences
from tidegate.testing.table import instant_of

MAP = pa.map_(pa.string(), pa.int64())
WINDOWS = pytest.mark.parametrize("window", [hopping(10), hopping(10, 3), hopping(3, 10)], ids=str)


def values_plan(kind, aggregate, window=None):
    schema = pa.schema([("ts", TIMESTAMP), ("v", kind)])
    return plan_of(window or hopping(1000), (("x", aggregate),), keys=(), schema=schema)


def answer(kind, values, aggregate):
    """The aggregate over one window of these values, taken in as three batches."""
    rows = [{"ts": instant_of(i % 7), "v": value} for i, value in enumerate(values)]
    [result] = final_rows(values_plan(kind, aggregate), rows, batches=3)
    return result["x"]


ROW_VALUES = {
    pa.float64(): [1.5, None, -0.0, 0.0, math.nan, math.inf, -math.inf, 1e308],
    pa.float32(): [1.5, None, -0.0, math.nan],
    pa.int64(): [0, None, -1, 2**63 - 1, -(2**63), 1 << 32],
    pa.int8(): [-128, None, 127],
    pa.decimal128(10, 2): [Decimal("1.25"), None, Decimal("-99999999.99")],
    pa.decimal128(38, 0): [Decimal(10) ** 37, None, Decimal(-1)],
}


@pytest.mark.parametrize("kind", ROW_VALUES, ids=str)
@pytest.mark.parametrize("made", [a.Count, a.Sum, a.Mean, a.Min, a.Max], ids=lambda made: made.__name__)
def test_the_state_of_a_row_is_that_of_a_group_of_one(made, kind):
    aggregate = made("v").for_type(kind)
    values = pl.from_arrow(pa.table({"v": pa.array(ROW_VALUES[kind], kind)}))
    rows = values.with_columns(pl.lit(7, dtype=pl.Int64).alias(TIME)).with_row_index("row")
    states = Accumulators([("x", aggregate), ("n", a.Count())])
    alone = states.of_rows(rows)
    assert aggregate.of_row(pl.col("v")) is not None
    grouped = states.partial(rows, ["row"]).sort("row").drop("row")
    assert alone.schema == grouped.schema
    assert list(map(repr, alone.rows())) == list(map(repr, grouped.rows()))  # -0.0 is not 0.0


def test_the_state_of_a_row_that_only_groups_have():
    rows = pl.DataFrame({"v": [3.0, None], TIME: [7, 8]})
    states = Accumulators([("x", a.Last("v")), ("n", a.Count())]).of_rows(rows)
    assert states.to_dict(as_series=False) == {
        "x.value": [3.0, None],
        "x.time": [7, None],
        "n.n": [1, 1],
    }


def test_counting_alone_has_a_state_for_each_row():
    rows = pl.DataFrame({TIME: [7, 8, 9]})
    assert Accumulators([("n", a.Count())]).of_rows(rows)["n.n"].to_list() == [1, 1, 1]


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32()], ids=str)
def test_narrow_integers_add_up_in_64_bits(kind):
    largest = 2 ** (kind.bit_width - 1) - 1
    assert answer(kind, [largest] * 100, a.Sum("v")) == 100 * largest


LARGEST = Decimal("9" * 38)
OVERFLOWS = pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [2**63 - 1, 1, 1]),
        (pa.int64(), [-(2**63), -1]),
        (pa.decimal128(38, 0), [LARGEST, LARGEST]),
        (pa.decimal128(38, 0), [LARGEST.copy_negate()] * 500),
    ],
    ids=str,
)


@OVERFLOWS
def test_a_sum_that_does_not_fit_is_null(kind, values):
    assert answer(kind, values, a.Sum("v")) is None


@OVERFLOWS
def test_a_sum_that_fits_in_the_end_is_exact(kind, values):
    back = [-(value + 1) if kind == pa.int64() else value.copy_negate() for value in values]
    total = -len(values) if kind == pa.int64() else 0
    assert answer(kind, [*values, *back], a.Sum("v")) == total


@pytest.mark.parametrize("window", [hopping(10), hopping(10, 3), sliding(10), sliding(5, 5)], ids=str)
def test_a_sum_that_does_not_fit_is_an_error_of_its_result(window):
    """The query goes on, and results of other windows are what they are."""
    schema = pa.schema([("ts", TIMESTAMP), ("v", pa.int64())])
    plan = plan_of(window, (("x", a.Sum("v")),), keys=(), schema=schema)
    rows = [{"ts": instant_of(t), "v": v} for t, v in [(1, 2**63 - 1), (2, 1), (40, 5)]]
    for host, reported in ((KernelHost(plan), True), (KernelHost(plan), False)):
        host.kernels[0].reports_overflow = reported
        results = [host.batch(rows), host.end()]
        values = [row["x"] for result in results for row in result.main]
        errors = [row for result in results for row in result.channels.get("errors", ())]
        assert values.count(None) >= 1
        assert values[-1] == 5
        assert len(errors) == (values.count(None) if reported else 0)
        assert sum(result.counts["errors"] for result in results) == len(errors)
        for error in errors:
            assert error["reason"] == "sum(v) overflows, so 'x' is null"
            assert '"x"' not in error["row"]
            assert "1970-01-01T00:00:00" in error["row"] or "1969" in error["row"]


def test_a_changelog_balances_around_an_overflow():
    schema = pa.schema([("ts", TIMESTAMP), ("v", pa.int64())])
    plan = plan_of(
        hopping(10), (("x", a.Sum("v")),), keys=(), schema=schema, emission=Retracting("+I", "-U", "+U")
    )
    host = KernelHost(plan)
    host.generators[0] = WatermarkGenerator[int](100)
    batches = [host.batch([{"ts": instant_of(1), "v": v}]) for v in (2**63 - 1, 1, -1)]
    assert [[(row["op"], row["x"]) for row in batch.main] for batch in batches] == [
        [("+I", 2**63 - 1)],
        [("-U", 2**63 - 1), ("+U", None)],
        [("-U", None), ("+U", 2**63 - 1)],
    ]
    assert [batch.counts["errors"] for batch in batches] == [0, 1, 0]


@pytest.mark.parametrize("emission", STRATEGIES.values(), ids=STRATEGIES)
@pytest.mark.parametrize(
    "window", [hopping(10), hopping(10, 3), session(5), AllTime(), sliding(5, 5)], ids=str
)
def test_every_strategy_emits_what_fits_and_null_for_the_rest(window, emission):
    schema = pa.schema([("ts", TIMESTAMP), ("v", pa.int64()), ("d", pa.decimal128(38, 3))])
    sums = (("s", a.Sum("v")), ("ds", a.Sum("d")), ("dm", a.Mean("d")), ("n", a.Count(None)))
    try:
        plan = plan_of(window, sums, keys=(), schema=schema, emission=emission, tolerance=15)
    except EmissionRefused:
        return  # folds retract, and windows around rows do not
    chance, host, oracle = random.Random(5), KernelHost(plan), Oracle(plan)
    most = Decimal("9" * 35 + ".999")
    reported = 0
    for batch in range(6):
        rows = [
            {
                "ts": instant_of(batch * 8 + chance.randrange(12)),
                "v": chance.choice([2**62, -(2**62), 2**62 + 5, 1, None]),
                "d": chance.choice([most, most.copy_negate(), Decimal("0.001"), None]),
            }
            for _ in range(4)
        ]
        expected = oracle.batch(rows, host.watermark_micros)
        got = host.batch(rows)
        reported += got.counts["errors"]
        assert not row_differences(plan, "main", expected.main, got.main)
    end = host.end()
    assert not row_differences(plan, "main", oracle.end().main, end.main)
    assert reported + end.counts["errors"] > 0


@pytest.mark.parametrize(
    ("given", "total", "mean"),
    [
        (pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(14, 6)),
        (pa.decimal128(38, 0), pa.decimal128(38, 0), pa.decimal128(38, 4)),
        (pa.decimal128(38, 36), pa.decimal128(38, 36), pa.decimal128(38, 38)),
    ],
    ids=str,
)
def test_sums_and_means_of_decimals_have_sparks_types(given, total, mean):
    assert a.Sum("v").output_type(given) == total
    assert a.Mean("v").output_type(given) == mean


def test_checkpoints_with_sums_of_another_layout_are_told_apart():
    """State of 0.1.0 has one column for a sum, and must not be read as digits."""
    kinds = {"items": pa.int64(), "few": pa.int32(), "paid": pa.decimal128(10, 2), "price": pa.float64()}
    schema = pa.schema([("ts", TIMESTAMP), *kinds.items()])
    sums = tuple((f"{name}_sum", a.Sum(name)) for name in kinds)
    aggregation = plan_of(hopping(10), sums, keys=(), schema=schema).input
    digits = {one["name"]: one.get("partials") for one in aggregation.identity()}
    exact = "digits of 32 bits"
    assert digits == {"items_sum": exact, "few_sum": None, "paid_sum": exact, "price_sum": None}


def test_a_mean_of_decimals_is_rounded_half_up():
    cents = [Decimal("0.01"), Decimal("0.02")] + [Decimal(0)] * 199_998
    assert answer(pa.decimal128(10, 2), cents, a.Mean("v")) == Decimal("0.000000")
    assert answer(
        pa.decimal128(2, 2), [Decimal("-0.01")] + [Decimal(0)] * 19_999, a.Mean("v")
    ) == Decimal("-0.000001")


def test_a_mean_is_null_where_the_sum_does_not_fit():
    assert answer(pa.decimal128(38, 0), [LARGEST, LARGEST], a.Mean("v")) is None


def test_narrow_floats_add_up_as_doubles():
    assert answer(pa.float32(), [2.0**24] + [1.0] * 10, a.Sum("v")) == 2.0**24 + 10


def test_variance_survives_a_large_mean():
    """Sums of squares would have no digit left."""
    values = [1e9 + step for step in (4.0, 7.0, 13.0, 16.0)] * 5
    assert answer(pa.float64(), values, a.Var("v")) == pytest.approx(
        statistics.variance(values), rel=1e-6
    )


def test_one_value_has_no_sample_variance_but_a_population_one():
    assert answer(pa.float64(), [3.0, None], a.Var("v")) is None
    assert answer(pa.float64(), [3.0, None], a.Stddev("v")) is None
    assert answer(pa.float64(), [3.0, None], a.Var("v", population=True)) == 0.0


def test_bad_numbers_stay_in_their_windows():
    prices = {3: math.nan, 33: math.inf, 63: 1e300}
    rows = [{"ts": instant_of(t), "user": "u", "price": prices.get(t, 1.0)} for t in range(90)]
    totals = (("total", a.Sum("price")), ("mean", a.Mean("price")), ("spread", a.Var("price")))
    for result in final_rows(plan_of(hopping(10, 3), totals), rows, batches=2):
        start = (result["window_start"] - instant_of(0)).microseconds
        start = start if start < 500_000 else start - 1_000_000
        if not any(start <= bad < start + 10 for bad in prices):
            count = len(range(max(start, 0), min(start + 10, 90)))
            assert result["total"] == count
            assert result["mean"] == 1.0
            assert result["spread"] in (0.0, None)


# -- sketches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("shape", ["uniform", "lognormal", "mixed", "tiny", "integers"])
def test_quantiles_are_within_one_percent(shape, q):
    chance = random.Random(7)
    draw = {
        "uniform": lambda: chance.uniform(0, 1000),
        "lognormal": lambda: chance.lognormvariate(0, 4),
        "mixed": lambda: chance.choice([-1, 0, 1]) * chance.lognormvariate(0, 2),
        "tiny": lambda: chance.uniform(-1e-9, 1e-9),
        "integers": lambda: float(chance.randrange(-5, 6)),
    }[shape]
    values = [draw() for _ in range(3000)]
    exact = sorted(values)[math.floor((len(values) - 1) * q)]
    assert answer(pa.float64(), values, a.Quantile("v", q)) == pytest.approx(exact, rel=0.0101)


@pytest.mark.parametrize("value", [0.0, 1e-310, 1e-200, 1.0, -1.0, 1e200, 1.7e308, -1.7e308])
def test_quantiles_at_the_ends_of_the_number_line(value):
    assert answer(pa.float64(), [value], a.Quantile("v", 0.5)) == pytest.approx(
        value, rel=0.0101, abs=1e-299
    )


@pytest.mark.parametrize("q", [-0.1, 1.1, math.nan])
def test_a_quantile_lies_between_zero_and_one(q):
    with pytest.raises(PlanError, match=r"quantile of 'v': q must lie between 0 and 1, got "):
        a.Quantile("v", q)


@pytest.mark.parametrize("distinct", [1, 10, 100, 1_000, 5_000, 20_000, 100_000])
def test_distinct_counts_are_within_five_standard_errors(distinct):
    values = [f"user-{i % distinct}" for i in range(min(2 * distinct, 150_000))]
    error = abs(answer(pa.string(), values, a.ApproxCountDistinct("v")) - distinct)
    assert error <= max(1, 5 * 0.016 * distinct)


def test_sketches_do_not_depend_on_how_rows_were_cut():
    chance = random.Random(3)
    schema = pa.schema([("ts", TIMESTAMP), ("v", pa.float64())])
    sketches = (("q", a.Quantile("v", 0.5)), ("d", a.ApproxCountDistinct("v")))
    plan = plan_of(hopping(20, 7), sketches, keys=(), schema=schema)
    rows = [{"ts": instant_of(chance.randrange(40)), "v": chance.uniform(-9, 9)} for _ in range(500)]
    by_start = [
        sorted(final_rows(plan, rows, batches=cuts), key=lambda row: row["window_start"])
        for cuts in (1, 2, 17)
    ]
    assert by_start[0] == by_start[1] == by_start[2]


# -- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregate", "kind", "complaint"),
    [
        (a.Sum("v"), pa.string(), "x=sum(v): column 'v' is string; sum() adds up numbers"),
        (a.Sum("v"), pa.bool_(), "x=sum(v): column 'v' is bool; sum() adds up numbers"),
        (a.Mean("v"), pa.date32(), "x=mean(v): column 'v' is date32[day]; mean() needs numbers"),
        (a.Var("v"), pa.string(), "x=var(v): column 'v' is string; var() needs numbers"),
        (a.Stddev("v"), pa.string(), "x=stddev(v): column 'v' is string; stddev() needs numbers"),
        (
            a.Min("v"),
            MAP,
            "x=min(v): column 'v' is map<string, int64>; min() needs values that have an order",
        ),
        (
            a.Max("v"),
            pa.struct([("m", MAP)]),
            "x=max(v): column 'v' is struct<m: map<string, int64>>; max() needs values that have an "
            "order",
        ),
        (
            a.Quantile("v", 0.5),
            pa.string(),
            "x=quantile(v, q=0.5): column 'v' is string; quantile() needs numbers",
        ),
        (
            a.CountDistinct("v"),
            MAP,
            "x=count_distinct(v): column 'v' is map<string, int64>; count_distinct() compares values, "
            "and maps are never equal",
        ),
        (
            a.ApproxCountDistinct("v"),
            pa.list_(MAP),
            "x=approx_count_distinct(v): column 'v' is list<item: map<string, int64>>; "
            "approx_count_distinct() compares values, and maps are never equal",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Aggregate) else None,
)
def test_a_type_an_aggregate_cannot_work_on_is_refused(aggregate, kind, complaint):
    with pytest.raises(TypeMismatch) as error:
        values_plan(kind, aggregate)
    assert str(error.value) == complaint


def test_an_aggregate_that_does_not_merge_is_refused_by_name():
    with pytest.raises(NotMergeable) as error:
        values_plan(pa.float64(), a.Median("v"))
    assert str(error.value) == (
        "x=median(v) cannot be computed from partial results, which windows are built of; "
        "use a mergeable one, such as tg.quantile('column', 0.5) for a median"
    )


@pytest.mark.parametrize(
    ("aggregate", "text"),
    [
        (a.Count(None), "count(*)"),
        (a.Count("v"), "count(v)"),
        (a.CountDistinct("v"), "count_distinct(v)"),
        (a.ApproxCountDistinct("v"), "approx_count_distinct(v)"),
        (a.Var("v", population=True), "var(v, population=True)"),
        (a.Quantile("v", 0.99), "quantile(v, q=0.99)"),
    ],
    ids=str,
)
def test_aggregates_name_themselves(aggregate, text):
    assert str(aggregate) == text


# -- user-defined ---------------------------------------------------------------------------------


class GeometricMean(Aggregate):
    """The n-th root of the product, in ten lines."""

    def output_type(self, column_type):
        return pa.float64()

    def partial(self, value, time):
        return {"n": value.count().cast(pl.Int64), "logs": value.log().sum()}

    def merge(self, state):
        return {"n": state["n"].sum(), "logs": state["logs"].sum()}

    def finish(self, state):
        return pl.when(state["n"] > 0).then((state["logs"] / state["n"]).exp())


class FastGeometricMean(GeometricMean):
    """The same, with columns that merge by themselves."""

    columnwise = {"n": "sum", "logs": "sum"}  # noqa: RUF012


@WINDOWS
@pytest.mark.parametrize("mean", [GeometricMean, FastGeometricMean])
def test_a_user_defined_aggregate_goes_through_every_window(mean, window):
    chance = random.Random(1)
    rows = [
        {
            "ts": instant_of(chance.randrange(60)),
            "user": "u",
            "price": chance.choice([None, 2.0, 8.0, 0.5]),
        }
        for _ in range(80)
    ]
    plan = plan_of(window, (*ROWS, ("x", mean("price"))))
    results = final_rows(plan, rows, batches=4)
    assert len(results) > 3
    for result in results:
        prices = [
            row["price"]
            for row in rows
            if result["window_start"] <= row["ts"] < result["window_end"] and row["price"]
        ]
        expected = statistics.geometric_mean(prices) if prices else None
        assert result["x"] == (expected and pytest.approx(expected))
