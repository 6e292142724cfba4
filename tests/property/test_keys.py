"""Windows per key: every key type, nulls, keys of several columns, and no key at all."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import plan_of
from tidegate.kernels import aggregates as a
from tidegate.plan.time import Micros
from tidegate.plan.windows import Hopping
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

TIME = pa.timestamp("us", tz="UTC")
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
DECIMALS = st.decimals(-(10**5), 10**5, places=3, allow_nan=False)
FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan, math.inf]))

KEY_VALUES = {
    "bool": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (pa.float32(), FLOATS),
    "float64": (pa.float64(), st.one_of(FLOATS, st.floats())),
    "decimal": (pa.decimal128(12, 3), DECIMALS.map(lambda d: d.quantize(Decimal("0.001")))),
    "string": (pa.string(), st.text(max_size=5)),
    "binary": (pa.binary(), st.binary(max_size=5)),
    "date": (pa.date32(), st.dates(date(1900, 1, 1), date(2100, 1, 1))),
    "timestamp": (TIME, INSTANTS),
    "interval": (pa.duration("us"), st.timedeltas(-timedelta(days=1), timedelta(days=1))),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.struct([("c", pa.string())]))]),
        st.builds(
            dict,
            a=st.none() | st.integers(0, 1),
            b=st.none() | st.builds(dict, c=st.none() | st.text(max_size=2)),
        ),
    ),
    "list": (pa.list_(pa.float64()), st.lists(st.none() | FLOATS, max_size=3)),
    "list of text": (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=2), max_size=3)),
    "list of structs": (
        pa.list_(pa.struct([("a", pa.list_(pa.binary()))])),
        st.lists(
            st.none() | st.builds(dict, a=st.none() | st.lists(st.none() | st.binary(max_size=2))),
            max_size=2,
        ),
    ),
}
WINDOWS = [Hopping(Micros(10), Micros(10)), Hopping(Micros(10), Micros(4))]


def check(columns: dict[str, pa.DataType], data: st.DataObject, values: st.SearchStrategy) -> None:
    schema = pa.schema([("ts", TIME), *columns.items(), ("v", pa.int64())])
    plan = plan_of(
        data.draw(st.sampled_from(WINDOWS)),
        (("n", a.Count(None)), ("total", a.Sum("v"))),
        keys=tuple(columns),
        tolerance=20,
        schema=schema,
    )
    few = data.draw(st.lists(values, min_size=1, max_size=5))  # so that keys come again
    rows = st.tuples(st.sampled_from(few), st.integers(0, 60), st.integers(0, 9))
    host, oracle = KernelHost(plan, buckets=data.draw(st.integers(1, 4))), Oracle(plan)
    for _ in range(data.draw(st.integers(1, 4))):
        batch = [
            {**dict(zip(columns, key, strict=True)), "ts": instant_of(time), "v": value}
            for key, time, value in data.draw(st.lists(rows, max_size=8))
        ]
        got = host.batch(batch, worker=data.draw(st.integers(0, 1)))
        p.assert_same(p.Program(plan, []), [oracle.batch(batch, got.watermark_micros)], [got])
    p.assert_same(p.Program(plan, []), [oracle.end()], [host.end()])


@pytest.mark.parametrize("kind", KEY_VALUES)
@given(data=st.data())
def test_a_key_of_each_type_null_included(kind, data):
    type_, values = KEY_VALUES[kind]
    check({"k": type_}, data, st.tuples(st.one_of(st.none(), values)))


@given(data=st.data())
def test_keys_of_several_columns(data):
    kinds = data.draw(st.lists(st.sampled_from(list(KEY_VALUES)), min_size=2, max_size=3))
    columns = {f"k{i}": KEY_VALUES[kind][0] for i, kind in enumerate(kinds)}
    check(columns, data, st.tuples(*(st.one_of(st.none(), KEY_VALUES[kind][1]) for kind in kinds)))


@given(data=st.data())
def test_no_key_at_all(data):
    check({}, data, st.just(()))
