"""Admission: limits and their classes, lag, jitter and rate of each stream, and what is stored."""

from datetime import timedelta
from fractions import Fraction

import pyarrow as pa
import pytest

from tests.support.plans import (
    SCHEMA,
    SECOND,
    TIMESTAMP,
    changed_parts,
    hopping,
    logical_plan,
    reorder_plan,
)
from tidegate.dataflow import compile
from tidegate.errors import ColumnNotFound, PlanError, TypeMismatch
from tidegate.kernels.registry import kernels_of
from tidegate.optimize import optimize
from tidegate.plan.channels import ADMISSION_COUNTERS, COUNTERS
from tidegate.plan.inputs import KeyBy
from tidegate.plan.pass_through import Admit, Dedupe
from tidegate.plan.policies import SideOutput
from tidegate.plan.sla import declare_sla as sla
from tidegate.plan.sources import Derived, Source, Stepped
from tidegate.plan.steps import Shed
from tidegate.plan.time import Micros
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

MILLI = 1000
WITH_ARRIVAL = SCHEMA.append(pa.field("came", TIMESTAMP))


def admit_plan(limits, *, keys=("user",), schema=SCHEMA, tolerance=0):
    return optimize(Admit(KeyBy(Source(schema, "ts", Micros(tolerance)), tuple(keys)), limits))


def row(time, user="ann", **values):
    return {"ts": instant_of(time), "user": user, **values}


def rows(count, time, user="ann"):
    return [row(time, user, items=number) for number in range(count)]


class Stream:
    """Batches of rows of a plan that is nothing but admission."""

    def __init__(self, limits, **options):
        self.host = KernelHost(admit_plan(limits, **options))

    def at(self, now, *batch):
        """The numbers of rows that got in, and why the others did not."""
        self.host.now = now
        result = self.host.batch(batch)
        assert sum(result.counts[name] for name in ADMISSION_COUNTERS) == len(batch)
        return [r["items"] for r in result.main], [
            r["reason"] for r in result.channels.get("rejected", [])
        ]


# -- rate -----------------------------------------------------------------------------------------


def test_bronze_drains_after_five_rows_and_refills_at_its_rate():
    stream = Stream(sla("bronze"))
    assert stream.at(0, *rows(7, 0)) == ([0, 1, 2, 3, 4], ["rate", "rate"])
    assert stream.at(SECOND - 1, *rows(1, SECOND)) == ([], ["rate"])
    assert stream.at(SECOND, *rows(2, SECOND)) == ([0], ["rate"])
    assert stream.at(4 * SECOND, *rows(9, 4 * SECOND))[0] == [0, 1, 2]
    assert stream.at(3600 * SECOND, *rows(9, 3600 * SECOND))[0] == [0, 1, 2, 3, 4]


def test_a_bucket_that_is_nearly_full_holds_no_more_than_its_capacity():
    stream = Stream(sla("bronze", jitter_budget="1 hour"))  # so that it is not forgotten when full
    stream.at(0, *rows(3, 0))
    assert len(stream.at(4 * SECOND, *rows(9, 4 * SECOND))[0]) == 5  # 2 were left, and 4 came


@pytest.mark.parametrize(
    ("name", "capacity", "a_second", "lag"),
    [
        ("bronze", 5, 1, 5000),
        ("silver", 20, 5, 2000),
        ("gold", 50, 20, 500),
        ("platinum", 200, 100, 100),
    ],
)
def test_what_classes_allow(name, capacity, a_second, lag):
    stream = Stream(sla(name))
    assert len(stream.at(0, *rows(300, 0))[0]) == capacity
    assert len(stream.at(SECOND, *rows(300, SECOND))[0]) == a_second
    limit = 2 * SECOND - lag * MILLI
    assert stream.at(2 * SECOND, row(limit, items=0), row(limit - MILLI, items=1)) == ([0], ["lag"])


def test_explicit_values_win_over_the_class():
    limits = sla("bronze", max_rate=3, max_lag="1 hour")
    assert (limits.max_rate, limits.capacity, limits.max_lag) == (3, 5, 3600 * SECOND)
    stream = Stream(limits)
    stream.at(0, *rows(5, 0))
    assert len(stream.at(SECOND, *rows(9, 0))[0]) == 3


def test_a_row_takes_what_it_costs():
    stream = Stream(sla(max_rate=1, capacity=4, token_cost=1.5))
    assert stream.at(0, *rows(3, 0)) == ([0, 1], ["rate"])
    assert stream.at(SECOND // 2, *rows(2, 0)) == ([0], ["rate"])  # 1 + 0.5 is enough: equal passes


def test_a_rejected_row_spends_no_token():
    stream = Stream(sla("bronze"))
    stream.at(10 * SECOND, *rows(50, 0))
    assert len(stream.at(10 * SECOND, *rows(9, 10 * SECOND))[0]) == 5


def test_streams_have_buckets_of_their_own_and_null_is_a_stream():
    host = KernelHost(admit_plan(sla("bronze")), buckets=3)
    batch = [r for user in ("ann", "bob", None) for r in rows(8, 0, user)]
    admitted = [r["user"] for r in host.batch(batch).main]
    assert [admitted.count(user) for user in ("ann", "bob", None)] == [5, 5, 5]


def test_without_a_column_all_rows_are_one_stream():
    host = KernelHost(admit_plan(sla("bronze"), keys=()))
    assert len(host.batch([*rows(4, 0), *rows(4, 0, "bob")]).main) == 5


def test_a_third_is_a_third():
    stream = Stream(sla(max_rate=1 / 3, capacity=1))
    for number in range(5):
        assert stream.at(3 * number * SECOND, *rows(1, 0))[0] == [0]
        assert stream.at(3 * (number + 1) * SECOND - 1, *rows(1, 0))[0] == []


# -- lag and jitter -------------------------------------------------------------------------------


def test_a_lag_of_exactly_the_limit_passes():
    stream = Stream(sla("bronze"))
    old = 5 * SECOND
    assert stream.at(10 * SECOND, row(old, items=1), row(old - MILLI, items=2)) == ([1], ["lag"])


def test_a_jitter_reject_is_followed_by_an_admit():
    stream = Stream(sla("gold", max_lag="1 day", jitter_budget="2 s"))
    assert stream.at(0, row(0, items=1)) == ([1], [])  # the first is exempt
    assert stream.at(2 * SECOND, row(0, items=2)) == ([2], [])
    late = 4 * SECOND + 1
    assert stream.at(late, row(0, items=3), row(0, items=4)) == ([4], ["jitter"])
    assert stream.at(late + SECOND, row(0, items=5)) == ([5], [])


def test_a_stream_that_was_silent_loses_one_row():
    stream = Stream(sla("gold", max_lag="1 day", jitter_budget="2 s"))
    assert stream.at(0, row(0, items=1)) == ([1], [])
    assert stream.at(9 * SECOND, row(0, items=2)) == ([], ["jitter"])
    assert stream.at(10 * SECOND, row(0, items=3)) == ([3], [])


def test_an_arrival_that_was_rejected_is_one():
    stream = Stream(sla(max_rate=1, capacity=1, max_lag="1 s", jitter_budget="2 s"))
    assert stream.at(10 * SECOND, row(0, items=1)) == ([], ["lag"])
    assert stream.at(12 * SECOND, row(12 * SECOND, items=2)) == ([2], [])
    assert stream.at(12 * SECOND, row(12 * SECOND, items=3)) == ([], ["rate"])
    assert stream.at(14 * SECOND, row(14 * SECOND, items=4)) == ([4], [])


def test_the_first_reason_counts():
    stream = Stream(sla(max_rate=1, capacity=1, max_lag="1 s", jitter_budget="1 s"))
    stream.at(0, row(0))
    assert stream.at(9 * SECOND, row(0)) == ([], ["lag"])
    assert stream.at(18 * SECOND, row(18 * SECOND)) == ([], ["jitter"])


def test_rejected_rows_carry_reason_and_numbers():
    host = KernelHost(admit_plan(sla(max_rate=1, capacity=1.5, max_lag="3 s", jitter_budget="2 s")))
    host.batch([row(0)])
    host.now = 2 * SECOND
    host.batch([row(2 * SECOND), row(0, note="slow")])
    host.now = 2_250_000
    [rate] = host.batch([row(0, items=7)]).channels["rejected"]
    assert rate == {
        **dict.fromkeys(SCHEMA.names),
        **row(0, items=7),
        "reason": "rate",
        "lag": timedelta(seconds=2.25),
        "gap": timedelta(seconds=0.25),
        "tokens": 0.75,
    }
    host.now = 9 * SECOND
    lag, jitter = host.batch([row(0), row(9 * SECOND, "bob"), row(9 * SECOND)]).channels["rejected"] * 2
    assert (lag["reason"], lag["tokens"]) == ("lag", None)
    assert jitter["lag"] == timedelta(seconds=9)


def test_the_first_row_of_a_stream_has_no_gap():
    host = KernelHost(admit_plan(sla("gold")))
    host.now = 9 * SECOND
    [rejected] = host.batch([row(0)]).channels["rejected"]
    assert rejected["gap"] is None


# -- time of arrival ------------------------------------------------------------------------------


def test_a_column_can_say_when_rows_arrived():
    stream = Stream(sla(max_rate=1, capacity=1, arrival="came"), schema=WITH_ARRIVAL)
    batch = [row(0, items=n, came=instant_of(n * SECOND // 2)) for n in range(6)]
    assert stream.at(77, *reversed(batch))[0] == [4, 2, 0]


def test_a_row_without_a_time_of_arrival_came_with_the_batch():
    stream = Stream(sla(max_rate=1, capacity=1, max_lag="5 s", arrival="came"), schema=WITH_ARRIVAL)
    assert stream.at(9 * SECOND, row(0, came=None)) == ([], ["lag"])
    assert stream.at(9 * SECOND, row(0, came=instant_of(5 * SECOND), items=1)) == ([1], [])


def test_the_clock_of_a_stream_does_not_go_back():
    stream = Stream(sla(max_rate=1, capacity=1, jitter_budget="9 s"))
    assert stream.at(10 * SECOND, *rows(2, 0)) == ([0], ["rate"])
    assert stream.at(3 * SECOND, *rows(1, 0)) == ([], ["rate"])
    assert stream.at(11 * SECOND, *rows(2, 0)) == ([0], ["rate"])


# -- state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"jitter_budget": "1 hour"}], ids=["rate", "jitter"])
def test_a_restart_keeps_the_level(options):
    stream = Stream(sla("bronze", **options))
    stream.at(0, *rows(4, 0))
    stream.host.restart()
    stream.host.failed_batch(rows(9, 0))
    assert stream.at(0, *rows(4, 0)) == ([0], ["rate"] * 3)


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        (sla(max_rate="0.7", capacity=10), 4),
        (sla(max_rate=7, capacity=2.5), 2),
        (sla(max_rate=7, capacity=10, token_cost=2), 2),
    ],
    ids=str,
)
def test_other_limits_go_on_from_the_level(limits, left):
    """Limits may change between runs: tokens that are left are left."""
    host = KernelHost(admit_plan(sla(max_rate=1, capacity=10)))
    host.batch(rows(6, 0))
    host.restart()
    host.kernels = kernels_of(compile(admit_plan(limits)))
    assert len(host.batch(rows(9, 0)).main) == left


def test_limits_are_not_part_of_the_identity_but_streams_are():
    bronze, gold, split, other = (
        admit_plan(limits, keys=keys)
        for limits, keys in (
            (sla("bronze"), ("user",)),
            (sla("gold", jitter_budget="1 s"), ("user",)),
            (sla("bronze", shards=2), ("user",)),
            (sla("bronze"), ("shop",)),
        )
    )
    assert changed_parts(bronze, gold) == []
    assert changed_parts(bronze, split) == ["shards"]
    assert changed_parts(bronze, other) == ["keys"]


def test_full_buckets_are_not_stored():
    host = KernelHost(admit_plan(sla("bronze")))
    for number in range(100):
        host.now = number * 10 * SECOND
        host.batch([row(host.now, f"u{number}")])
        assert sum(map(len, host.stored.values())) < 25


def test_where_gaps_count_streams_are_remembered():
    stream = Stream(sla("bronze", jitter_budget="1 s"))
    for number in range(40):
        stream.at(number * 10 * SECOND, row(number * 10 * SECOND, f"u{number}"))
    now = 500 * SECOND
    assert stream.at(now, row(now, "u3"), row(now, "new", items=1)) == ([1], ["jitter"])


def test_shards_share_the_budget():
    whole, split = (
        KernelHost(admit_plan(sla(max_rate=100, capacity=100, shards=shards)), buckets=4)
        for shards in (1, 10)
    )
    batch = [row(number, items=number) for number in range(5000)]
    assert len(whole.batch(batch).main) == len(split.batch(batch).main) == 100
    assert len({bucket for bucket, pages in split.stored.items() if pages}) > 1
    split.now = SECOND
    split.restart()
    assert len(split.batch(batch).main) == 100


# -- what follows ---------------------------------------------------------------------------------


def test_what_follows_judges_rows_as_those_of_a_source():
    admitted = Derived(admit_plan(sla("bronze"), tolerance=SECOND), "ts")
    plan = optimize(logical_plan(hopping(10 * SECOND), feed=admitted, late=SideOutput("late")))
    host = KernelHost(plan)
    assert tuple(compile(plan).channels) == ("main", "errors", "rejected", "late")
    host.now = 13 * SECOND
    first = host.batch([row(8 * SECOND), row(7 * SECOND), row(12 * SECOND)])
    assert dict(first.counts) == {"rows_in": 3, "admitted": 2, "rejected_lag": 1}
    then = host.batch([row(9 * SECOND)])
    assert [r["n"] for r in then.main] == [1]
    assert [r["ts"] for r in then.channels["late"]] == [instant_of(9 * SECOND)]
    assert set(then.counts) <= set(compile(plan).counters)


def test_the_plan_shows_the_limits():
    plan = admit_plan(sla("gold", jitter_budget="2 s", arrival="came"), schema=WITH_ARRIVAL)
    limits = "sla(max_rate=20, capacity=50, max_lag=500 ms, jitter_budget=2 seconds, arrival=came)"
    assert plan.label() == f"Admit[{limits}]"
    assert kernels_of(compile(plan))[0].physical_operators() == [f"Admission[user, {limits}]"]
    assert compile(plan).counters == (*COUNTERS, *ADMISSION_COUNTERS)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: sla("brnze"), r"sla\('brnze'\): no such class; did you mean 'bronze'\?"),
        (lambda: sla(max_rate=1), "without a class needs both max_rate and capacity"),
        (lambda: sla("gold", max_rate=0), r"sla\(max_rate=0\) must be a number greater than zero"),
        (lambda: sla("gold", capacity=-1), r"sla\(capacity=-1\) must be"),
        (lambda: sla("gold", token_cost=float("nan")), r"sla\(token_cost=nan\) must be"),
        (lambda: sla("gold", max_rate="many"), r"sla\(max_rate='many'\) must be"),
        (lambda: sla("bronze", token_cost=6), "capacity=5 is less than token_cost=6, so no row"),
        (lambda: sla("bronze", shards=6), "a shard's share of capacity=5 is less than token_cost=1"),
        (lambda: sla("gold", shards=0), r"sla\(shards=0\): a stream has one shard at least"),
        (lambda: sla("gold", shards=2, jitter_budget="1 s"), "no shard sees all arrivals"),
        (lambda: sla("gold", max_lag="soon"), r"sla\(max_lag\): cannot read 'soon'"),
        (lambda: sla("gold", capacity=1e15), "capacity=1e[+]15[)]: further apart than can be counted"),
    ],
)  # fmt: skip
def test_limits_that_mean_nothing_are_refused(given, message):
    with pytest.raises(PlanError, match=message):
        given()


def test_numbers_are_read_as_they_are_written():
    assert sla(max_rate=0.1, capacity=0.3, token_cost=0.1).max_rate == Fraction(1, 10)
    budget = sla(max_rate=0.1, capacity=0.3, token_cost=0.1).budget()
    assert (budget.capacity, budget.refill) == (3 * budget.cost, 1)


@pytest.mark.parametrize("rate", [3.141592653589793, 1 / 86400, 12345.6789, 1000 / 60, 987654321.5])
@pytest.mark.parametrize("capacity", [5, 200, 1_500])
def test_odd_rates_are_kept_to_a_millionth(rate, capacity):
    budget = sla(max_rate=rate, capacity=capacity).budget()
    assert budget.refill * 1_000_000 / budget.unit == pytest.approx(
        min(rate, capacity * 1_000_000), rel=1e-6
    )
    assert budget.capacity / budget.unit == capacity


def test_a_full_bucket_has_enough_for_a_row_however_numbers_are_rounded():
    large = 10_000_000.4
    budget = sla(max_rate=1234.5678, capacity=large, token_cost=large - 0.1).budget()
    assert budget.cost <= budget.capacity
    assert Stream(sla(max_rate=1234.5678, capacity=large, token_cost=large)).at(0, *rows(1, 0))[0] == [0]


def test_the_time_of_arrival_is_a_timestamp():
    with pytest.raises(ColumnNotFound, match="arrival time: no column 'came'"):
        admit_plan(sla("gold", arrival="came"))
    with pytest.raises(TypeMismatch, match="arrival time column 'note' has type string; it must be a"):
        admit_plan(sla("gold", arrival="note"))


def test_columns_of_the_channel_must_not_collide():
    with pytest.raises(PlanError, match="the channel 'rejected' adds 'lag', which is a column already"):
        admit_plan(sla("gold"), schema=SCHEMA.append(pa.field("lag", pa.int64())))


def test_results_are_not_admitted():
    ordered = Derived(reorder_plan(), "ts")
    with pytest.raises(PlanError, match=r"admit\(\) of results of another operator"):
        Admit(KeyBy(ordered, ("user",)), sla("gold"))


@pytest.mark.parametrize("between", ["nothing", "dedupe"])
def test_rows_are_rejected_before_they_are_shed(between):
    source = Source(SCHEMA, "ts", 0)
    shed = Stepped(source, (Shed("strict", None, SCHEMA),))
    feed = shed if between == "nothing" else Derived(Dedupe(KeyBy(shed, ("user",)), SECOND), "ts")
    with pytest.raises(
        PlanError, match=r"^admit\(\) after shed\(\): rejecting comes first; write admit"
    ):
        Admit(KeyBy(feed, ("user",)), sla("gold"))
