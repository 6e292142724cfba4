"""The kit itself: table literals, the host's watermark, the oracle, and that they notice mistakes."""

import math
from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.oracle import Oracle
from tests.support.plans import ROWS, SCHEMA, TIMESTAMP, hopping, plan_of, session
from tidegate.dataflow.watermarks import SparkWatermarkGenerator, WatermarkGenerator
from tidegate.kernels import aggregates as a
from tidegate.kernels.row_text import row_text
from tidegate.plan.policies import Retracting
from tidegate.testing import BatchResult, KernelHost, differences, rows, text
from tidegate.testing.table import NOON, at, instant_of, micros_of

KINDS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("s", pa.string()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("l", pa.list_(pa.int64())),
        ("t", pa.duration("us")),
    ]
)


def test_a_table_is_read_by_its_types():
    [full, nulls] = rows(
        """
        ts  | s   | i  | f    | b    | d          | m    | l      | t
        1.5 | a b | -3 | 1e-3 | true | 2024-05-01 | 1.20 | [1, 2] | 0.25
        null |    |    |      | null |           |      |        |
        """,
        KINDS,
    )
    assert full == {
        "ts": NOON + timedelta(seconds=1.5),
        "s": "a b",
        "i": -3,
        "f": 0.001,
        "b": True,
        "d": date(2024, 5, 1),
        "m": Decimal("1.20"),
        "l": [1, 2],
        "t": timedelta(milliseconds=250),
    }
    assert set(nulls.values()) == {None}


def test_markdown_is_a_table_too():
    markdown = """
    | i | s |
    |---|---|
    | 1 | a |
    """
    assert rows(markdown, KINDS) == [{"i": 1, "s": "a"}]
    assert rows("", KINDS) == []


def test_a_table_with_mistakes_is_refused():
    with pytest.raises(ValueError, match=r"table has columns \['x'\] that the schema lacks"):
        rows("x\n1", KINDS)
    with pytest.raises(ValueError, match="a row has 2 cells, but the header 1"):
        rows("i\n1 | 2", KINDS)


def test_tables_are_shown_as_they_are_read():
    shown = text([{"ts": at(1.5), "s": "a", "f": None}, {"ts": at(-2), "s": "long", "f": math.nan}])
    assert shown == "ts  | s    | f\n1.5 | a    | null\n-2  | long | nan"
    assert text([]) == "(no rows)"


def test_instants_and_micros_are_inverse():
    for micros in (-(10**15), -1, 0, 1, 10**16 + 7):
        assert micros_of(instant_of(micros)) == micros
    assert at("0.000001") - NOON == timedelta(microseconds=1)


def test_broken_rows_as_text():
    assert row_text({"ts": None, "user": "ann", "price": 9.0}) == '{"user":"ann","price":9.0}'
    assert row_text({"ts": at("1.5"), "d": date(2024, 5, 1), "m": Decimal("1.20")}) == (
        '{"ts":"2024-05-01T12:00:01.500000Z","d":"2024-05-01","m":1.20}'
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (timedelta(0), "0 00:00:00"),
        (timedelta(seconds=90_061, milliseconds=500), "1 01:01:01.5"),
        (timedelta(seconds=10), "0 00:00:10"),
        (timedelta(seconds=-1.5), "-0 00:00:01.5"),
        (timedelta(microseconds=1), "0 00:00:00.000001"),
    ],
)
def test_intervals_as_json_are_those_of_spark(value, shown):
    assert row_text({"idle": value}) == f"""{{"idle":"INTERVAL '{shown}' DAY TO SECOND"}}"""


# -- the watermark --------------------------------------------------------------------------------


def observed(watermark, *batches):
    seen = [watermark.watermark]
    for batch in batches:
        watermark.observe(batch)
        seen.append(watermark.watermark)
    return seen


def test_the_watermark_never_goes_back_and_is_unknown_before_data():
    assert observed(WatermarkGenerator(5), [], [10, 30], [20], [], [31]) == [None, None, 25, 25, 25, 26]
    assert observed(WatermarkGenerator(5), [-100]) == [None, -105]


def test_the_watermark_of_spark_counts_whole_milliseconds_after_1970():
    spark = SparkWatermarkGenerator(1_500)
    assert observed(spark, [-5_000], [2_000], [7_999], [8_000]) == [None, None, None, 5_000, 6_000]


# -- the oracle -----------------------------------------------------------------------------------


def test_the_oracle_puts_a_row_into_each_of_its_windows():
    oracle = Oracle(plan_of(hopping(10, 4), (("all", a.Collect("items")),), keys=()))
    oracle.batch([{"ts": instant_of(9), "items": 1}, {"ts": instant_of(8), "items": 2}], None)
    starts = [micros_of(row["window_start"]) for row in oracle.results()]
    assert starts == [0, 4, 8]
    assert [row["all"] for row in oracle.results()] == [[2, 1]] * 3


def test_a_row_with_all_windows_closed_is_late_and_one_with_some_open_is_not():
    oracle = Oracle(plan_of(hopping(10, 4), keys=()))
    got = oracle.batch([{"ts": instant_of(9)}, {"ts": instant_of(3)}], 10)
    assert got.counts == {"rows_in": 2, "late_rows": 1, "late_dropped": 1}
    assert [micros_of(row["window_start"]) for row in oracle.results()] == [4, 8]


def test_the_oracle_joins_sessions_and_judges_late_rows_after_that():
    oracle = Oracle(plan_of(session(10), keys=()))
    oracle.batch([{"ts": instant_of(30)}], None)
    got = oracle.batch([{"ts": instant_of(time)} for time in (22, 14, 12, 3)], 35)
    assert got.counts == {"rows_in": 4}
    got = oracle.batch([{"ts": instant_of(time)} for time in (2, 31)], 38)
    assert got.counts == {"rows_in": 2}
    [row] = oracle.results()
    assert (micros_of(row["window_start"]), micros_of(row["window_end"]), row["n"]) == (2, 41, 7)
    got = oracle.batch([{"ts": instant_of(time)} for time in (0, 30)], 41)
    assert got.counts == {"rows_in": 2, "late_rows": 2, "late_dropped": 2}
    assert (oracle.results(), got.main) == ([], [row])


# -- mistakes are noticed -------------------------------------------------------------------------

AGGREGATES = (*ROWS, ("q", a.Quantile("price", 0.5)), ("d", a.ApproxCountDistinct("items")))
PLAN = plan_of(hopping(10), AGGREGATES, emission=Retracting())


def result(n=1, q=100.0, d=1, op="+I", user="ann"):
    window = {"window_start": instant_of(0), "window_end": instant_of(10)}
    made = BatchResult(5)
    made.put("main", {"user": user, **window, "n": n, "q": q, "d": d, "op": op})
    return made


@pytest.mark.parametrize("change", [{"q": 100.9}, {"q": 99.1}, {"d": 3}])
def test_sketches_may_differ_within_their_bounds(change):
    assert differences(PLAN, result(), result(**change)) == []


@pytest.mark.parametrize(
    "change",
    [{"n": 2}, {"q": 101.2}, {"q": None}, {"q": math.nan}, {"d": 9}, {"op": "+U"}, {"user": None}],
    ids=str,
)
def test_a_result_that_differs_is_noticed(change):
    [missing, surplus] = differences(PLAN, result(), result(**change))
    assert missing.startswith("main: missing\n")
    assert surplus.startswith("main: not expected\n")


def test_rows_too_many_or_too_few_and_counters_are_noticed():
    twice = result()
    twice.put("main", *result().main)
    assert len(differences(PLAN, result(), twice)) == len(differences(PLAN, twice, result())) == 1
    counted, elsewhere = result(), result()
    counted.counts["late_rows"] = 1
    elsewhere.watermark_micros = None
    assert differences(PLAN, result(), counted) == ["counters: expected {}, got {'late_rows': 1}"]
    told = "watermark: expected 1970-01-01 00:00:00.000005+00:00, got None"
    assert differences(PLAN, result(), elsewhere) == [told]


class ForgetfulKernel:
    """A kernel that loses the last row of every batch."""

    def __init__(self, kernel):
        self._kernel = kernel

    @property
    def inputs(self):
        return (self,)

    def pack(self, rows, buckets):
        [only] = self._kernel.inputs
        return only.pack(rows.slice(0, rows.num_rows - 1), buckets)

    def __getattr__(self, name):
        return getattr(self._kernel, name)


def test_a_kernel_that_loses_rows_is_noticed():
    plan = plan_of(hopping(10))
    given = [{"ts": instant_of(1), "user": "ann"}, {"ts": instant_of(2), "user": "bob"}]
    honest, oracle = KernelHost(plan), Oracle(plan)
    forgetful = KernelHost(plan, kernel=ForgetfulKernel(KernelHost(plan).kernels[0]))
    expected = [oracle.batch(given, None), oracle.end()]
    assert not any(map(differences, [plan] * 2, expected, [honest.batch(given), honest.end()]))
    forgetful.batch(given)
    assert differences(plan, expected[1], forgetful.end())


def test_a_failed_batch_leaves_no_trace():
    host = KernelHost(plan_of(hopping(10)), buckets=2)
    host.batch([{"ts": instant_of(1), "user": "ann"}])
    before = {bucket: dict(pages) for bucket, pages in host.stored.items()}
    host.failed_batch([{"ts": instant_of(2), "user": "ann"}, {"ts": instant_of(90), "user": "bob"}])
    assert host.stored == before
    assert [row["n"] for row in host.end().main] == [1]


def test_the_schema_of_the_tests_has_every_column_the_plans_read():
    assert plan_of(hopping(10)).input.input.schema.names == ["ts", "user"]
    assert SCHEMA.field("ts").type == TIMESTAMP
