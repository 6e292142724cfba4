"""Every aggregate over every type it takes equals the textbook, however its rows were cut up."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.support.plans import plan_of
from tidegate.columnar.ipc import to_arrow, to_polars
from tidegate.kernels import aggregates as a
from tidegate.kernels.accumulators import TIME, Accumulators
from tidegate.plan.time import Micros
from tidegate.plan.windows import Hopping
from tidegate.testing.results import row_differences
from tidegate.testing.table import instant_of

INSTANT = pa.timestamp("us", tz="UTC")
HALVES = st.integers(-(10**6), 10**6).map(lambda half: half / 2)
SPECIAL = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0])

EXACT = Context(200)
DECIMALS = ("decimal", "wide decimal", "fraction")

VALUES = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), st.one_of(HALVES, SPECIAL)),
    "float64": (pa.float64(), st.one_of(HALVES, SPECIAL)),
    "decimal": (pa.decimal128(12, 2), st.integers(-(10**6), 10**6).map(lambda c: Decimal(c).scaleb(-2))),
    "wide decimal": (
        pa.decimal128(38, 6),
        st.integers(1 - 10**38, 10**38 - 1).map(lambda c: Decimal(c).scaleb(-6, EXACT)),
    ),
    "fraction": (
        pa.decimal128(38, 34),
        st.integers(1 - 10**35, 10**35 - 1).map(lambda c: Decimal(c).scaleb(-34, EXACT)),
    ),
    "string": (pa.string(), st.text(max_size=4)),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "timestamp": (
        INSTANT,
        st.integers(-(10**12), 10**15).map(
            lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, us)
        ),
    ),
}
VALUES |= {
    "interval": (pa.duration("us"), st.timedeltas(-timedelta(days=9), timedelta(days=9))),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        st.builds(dict, a=st.none() | st.integers(0, 2), b=st.none() | st.text("ab", max_size=1)),
    ),
    "list": (pa.list_(pa.int16()), st.lists(st.none() | st.integers(0, 2), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(st.text("ab", max_size=1), st.integers(0, 2), max_size=2).map(
            lambda pairs: [*pairs.items()]
        ),
    ),
}
NUMBERS = ("int8", "int32", "float64", "decimal")
ALL = tuple(VALUES)
ORDERED = tuple(kind for kind in VALUES if kind != "map")

CASES = [
    *((a.Count("v"), kind) for kind in ALL),
    *((a.Sum("v"), kind) for kind in ("int8", "int32", "int64", "float32", "float64", *DECIMALS)),
    *((a.Mean("v"), kind) for kind in ("int8", "int32", "float64", *DECIMALS)),
    *((a.Min("v"), kind) for kind in ORDERED),
    *((a.Max("v"), kind) for kind in ORDERED),
    *((a.Var("v"), kind) for kind in NUMBERS),
    *((a.Var("v", population=True), kind) for kind in ("float64",)),
    *((a.Stddev("v"), kind) for kind in ("int8", "float64")),
    *((a.First("v"), kind) for kind in ALL),
    *((a.Last("v"), kind) for kind in ALL),
    *((a.CountDistinct("v"), kind) for kind in ORDERED),
    *((a.Collect("v"), kind) for kind in ALL),
    *((a.ApproxCountDistinct("v"), kind) for kind in ORDERED),
    *((a.Quantile("v", q), kind) for q in (0.0, 0.5, 1.0) for kind in NUMBERS),
]


def pieces_of(data, rows):
    """The rows cut into pieces, some of them empty."""
    edges = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return [rows[i:j] for i, j in zip([0, *edges], [*edges, len(rows)], strict=True)]


def frame_of(rows, kind):
    table = pa.table(
        {
            "v": pa.array([value for _, value in rows], kind),
            TIME: pa.array([time for time, _ in rows], pa.int64()),
            "g": pa.array(np.zeros(len(rows), dtype=np.int64)),
        }
    )
    return to_polars(table)


def agree(aggregate, kind, rows, result):
    """Does the finished frame hold what the oracle says about the rows?"""
    schema = pa.schema([("ts", INSTANT), ("v", kind)])
    plan = plan_of(Hopping(Micros(10**6), Micros(10**6)), (("x", aggregate),), keys=(), schema=schema)
    oracle = Oracle(plan)
    given_rows = [{"ts": instant_of(time), "v": value} for time, value in rows]
    oracle.batch(given_rows, None)
    [expected] = oracle.results()
    got = to_arrow(result.select("x")).cast(pa.schema([plan.schema.field("x")])).to_pylist()
    return row_differences(plan, "main", [expected], [expected | got[0]])


@pytest.mark.parametrize(("aggregate", "kind"), CASES, ids=lambda case: str(case))
@given(data=st.data())
def test_partials_merge_to_the_textbook_answer(aggregate, kind, data):
    type_, values = VALUES[kind]
    pairs = st.tuples(st.integers(0, 5), st.one_of(st.none(), values))
    rows = data.draw(st.lists(pairs, min_size=1, max_size=12))
    accumulators = Accumulators([("x", aggregate.for_type(type_))])
    partials = [
        accumulators.partial(frame_of(piece, type_), ["g"]) for piece in pieces_of(data, rows) if piece
    ]
    while len(partials) > 1:  # neighbours merge first, in any grouping
        place = data.draw(st.integers(0, len(partials) - 2))
        merged = accumulators.merge(pl.concat(partials[place : place + 2]), ["g"])
        partials[place : place + 2] = [merged]
    assert not agree(aggregate, type_, rows, accumulators.finish(partials[0]))


@pytest.mark.parametrize(("aggregate", "kind"), CASES, ids=lambda case: str(case))
def test_over_nothing_but_nulls_the_answer_is_null_and_a_count_zero(aggregate, kind):
    type_, _ = VALUES[kind]
    rows = [(time, None) for time in range(3)]
    accumulators = Accumulators([("x", aggregate.for_type(type_))])
    halves = [accumulators.partial(frame_of(part, type_), ["g"]) for part in (rows[:1], rows[1:])]
    result = accumulators.finish(accumulators.merge(pl.concat(halves), ["g"]))
    assert result["x"].to_list() == [0 if "count" in str(aggregate) else None]
    assert not agree(aggregate, type_, rows, result)
