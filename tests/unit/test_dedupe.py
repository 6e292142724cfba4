"""Duplicates: which row of an id counts, how long ids are remembered, and how the others go on."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from tests.support.plans import (
    LEFT_ROWS,
    RIGHT_ROWS,
    ROWS,
    SCHEMA,
    changed_parts,
    dedupe_plan,
    hopping,
    join_plan,
    logical_plan,
    plan_of,
    reorder_plan,
    session,
    sliding,
)
from tidegate.api import late
from tidegate.api.aggregates import count
from tidegate.api.events import Events
from tidegate.api.windows import tumbling
from tidegate.columnar import ipc
from tidegate.columnar.hashing import digest_columns, mix
from tidegate.dataflow import compile
from tidegate.errors import ColumnNotFound, DurationError, PlanError, TypeMismatch
from tidegate.kernels import dedupe
from tidegate.kernels.registry import kernels_of
from tidegate.optimize import optimize
from tidegate.plan.channels import COUNTERS, DEDUPE_COUNTERS
from tidegate.plan.inputs import KeyBy
from tidegate.plan.pass_through import Dedupe
from tidegate.plan.policies import OnWindowClose, Reassign, SideOutput
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.state.pages import BucketState
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of, micros_of

SIDE = SideOutput("late")


def at(time, user="ann", items=None, **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def passed(result, *names):
    """What went on: times, and the named columns."""
    return [(micros_of(row["ts"]), *(row[name] for name in names)) for row in result.main]


def duplicates(result):
    return result.counts["duplicates_filtered"]


# -- rules of Spark's -----------------------------------------------------------------------------


def test_by_sparks_rules_a_row_at_or_below_the_watermark_is_late():
    """What is remembered does not matter: our own rule would let the row at 95 pass."""
    for rule, on in (
        ("drop_duplicates", ("user", "ts")),
        ("drop_duplicates_within_watermark", ("user",)),
    ):
        host = KernelHost(dedupe_plan(0, on=on, tolerance=10, rule=rule))
        host.batch([at(100, "a"), at(105, "b")])
        got = host.batch([at(94, "old"), at(95, "at"), at(96, "new"), at(100, "a")])
        assert passed(got, "user") == [(96, "new")]
        assert (got.counts["late_rows"], got.counts["late_rows_at_watermark"]) == (2, 1)
        assert duplicates(got) == 1
        assert "late_rows_at_watermark" in compile(dedupe_plan(0, on=on, rule=rule)).counters


@pytest.mark.parametrize(
    ("policy", "forwarded", "late_rows", "filtered"),
    [(SIDE, [(101, "c")], 4, 0), (Reassign(Micros(5)), [(101, "c"), (90, "ann")], 3, 1)],
    ids=["side output", "reassign"],
)
def test_by_sparks_rules_a_late_row_is_late_even_if_its_id_is_known(
    policy, forwarded, late_rows, filtered
):
    """Our own rule looks ids up first. A row that is moved to the watermark is late no more."""
    rule = "drop_duplicates_within_watermark"
    host = KernelHost(dedupe_plan(0, on=("user",), tolerance=10, rule=rule, late=policy))
    host.batch([at(95, "b"), at(100, "a")])  # then W = 90
    got = host.batch([at(101, "c"), at(80, "b"), at(90, "a"), at(70, "c"), at(90, "ann")])
    assert passed(got, "user") == forwarded
    assert (got.counts["late_rows"], duplicates(got)) == (late_rows, filtered)


def test_within_the_watermark_ids_are_remembered_for_the_tolerance():
    host = KernelHost(dedupe_plan(0, tolerance=10, rule="drop_duplicates_within_watermark"))
    host.batch([at(100, "a")])
    host.batch([at(119, "b")])  # then W = 109
    assert passed(host.batch([at(112, "a")])) == []
    host.batch([at(120, "b")])  # then W = 110: the row at 100 lies the tolerance behind
    assert passed(host.batch([at(112, "a")])) == [(112,)]


def test_rules_are_told_apart():
    assert dedupe_plan(0, rule="drop_duplicates_within_watermark").label() == (
        "Dedupe[drop_duplicates_within_watermark, late=drop]"
    )
    with pytest.raises(PlanError) as refused:
        dedupe_plan(0, on=("user",), rule="drop_duplicates")
    assert str(refused.value) == (
        "dedupe(rule='drop_duplicates') of user: without the event time 'ts' among the columns, ids "
        "would be remembered for ever; add it, or use rule='drop_duplicates_within_watermark' or "
        "within=…"
    )
    with pytest.raises(PlanError, match="did you mean 'drop_duplicates'"):
        dedupe_plan(0, rule="dropDuplicates")
    for both in ({}, {"within": "1 s", "rule": "drop_duplicates"}):
        with pytest.raises(
            PlanError, match="needs either within=…, how long ids are remembered, or rule="
        ):
            events().dedupe(on="user", **both)


# -- which row counts -----------------------------------------------------------------------------


def test_the_first_to_arrive_counts_whatever_its_time():
    got = KernelHost(dedupe_plan(100)).batch([at(5, items=1), at(3, items=2), at(9, items=3)])
    assert passed(got, "items") == [(5, 1)]
    assert got.counts == {"rows_in": 3, "duplicates_filtered": 2}


def test_rows_go_on_in_the_batch_they_come_in_and_in_their_order():
    got = KernelHost(dedupe_plan(100)).batch([at(5, "b"), at(3, "a"), at(5, "b"), at(9, "c")])
    assert passed(got, "user") == [(5, "b"), (3, "a"), (9, "c")]


def test_an_id_is_known_in_later_batches_to_other_workers_and_after_restarts():
    host = KernelHost(dedupe_plan(100), buckets=3)
    users = [f"u{number}" for number in range(20)]
    assert len(host.batch([at(5, user) for user in users]).main) == 20
    assert duplicates(host.batch([at(6, user) for user in users], worker=1)) == 20
    host.restart()
    again = host.batch([at(7, user) for user in [*users, "new"]])
    assert (passed(again, "user"), duplicates(again)) == ([(7, "new")], 20)


def test_what_a_failed_attempt_has_seen_is_not_known():
    host = KernelHost(dedupe_plan(100))
    host.batch([at(1, "ann")])
    host.failed_batch([at(2, "bob")])
    assert passed(host.batch([at(2, "bob"), at(2, "ann")]), "user") == [(2, "bob")]


def test_partitions_are_read_side_by_side():
    """The first in the middle of one partition came before the last of the other."""
    host = KernelHost(dedupe_plan(100))
    one = [at(1, "a"), at(1, "b"), at(1, "x", 1)]
    other = [at(1, "c"), at(1, "x", 2), at(1, "d")]
    got = host.batch([*one, *other], packs=2)
    assert [row["items"] for row in got.main if row["user"] == "x"] == [2]
    assert duplicates(got) == 1


def test_ids_of_several_columns_in_which_null_is_a_value():
    host = KernelHost(dedupe_plan(100, on=("user", "shop")))
    ids = [("a", 1), ("a", None), (None, 1), (None, None), ("a", 2)]
    rows = [at(1, user, shop=shop) for user, shop in ids]
    assert passed(host.batch(rows), "user", "shop") == [(1, *own) for own in ids]
    host.restart()
    assert duplicates(host.batch(rows)) == 5


def test_the_event_time_can_be_part_of_the_id():
    host = KernelHost(dedupe_plan(100, on=("user", "ts")))
    assert passed(host.batch([at(1), at(2), at(1)])) == [(1,), (2,)]
    assert passed(host.batch([at(2), at(3)])) == [(3,)]


# -- how long ids are remembered ------------------------------------------------------------------


@pytest.mark.parametrize(("watermark", "known"), [(14, True), (15, False)])
def test_an_id_goes_when_the_watermark_has_passed_its_row_by_within(watermark, known):
    host = KernelHost(dedupe_plan(5))
    host.batch([at(10)])
    host.batch([at(watermark, "other")])
    got = host.batch([at(watermark + 1)])
    assert got.watermark_micros == watermark
    assert duplicates(got) == known
    assert passed(got) == ([] if known else [(watermark + 1,)])


@pytest.mark.parametrize(("time", "is_late"), [(10, True), (11, False)])
def test_a_row_that_cannot_be_checked_is_late(time, is_late):
    host = KernelHost(dedupe_plan(5, late=SIDE))
    host.batch([at(15, "other")])
    got = host.batch([at(time)])
    assert got.watermark_micros == 15
    assert got.counts["late_rows"] == is_late
    assert len(got.channels.get("late", [])) == is_late
    assert len(got.main) == (not is_late)


def test_a_known_id_is_a_duplicate_whatever_the_time_of_its_row():
    """It can be checked, so it is not late; and it does not make the id known for longer."""
    host = KernelHost(dedupe_plan(5, late=SIDE))
    host.batch([at(12)])
    host.batch([at(15, "other")])
    got = host.batch([at(1), at(16), at(12)])  # W = 15
    assert (duplicates(got), got.counts["late_rows"]) == (3, 0)
    host.batch([at(17, "other one")])
    assert passed(host.batch([at(18)])) == [(18,)]  # W = 17 has passed 12 by 5


def test_before_there_is_a_watermark_everything_is_known_and_nothing_late():
    host = KernelHost(dedupe_plan(1), as_spark=True)
    host.batch([at(-1000)])
    got = host.batch([at(-5), at(-2000, "bob")])
    assert (got.watermark_micros, duplicates(got), passed(got, "user")) == (None, 1, [(-2000, "bob")])


def test_nothing_is_kept_of_ids_that_are_forgotten():
    host = KernelHost(dedupe_plan(10), buckets=2)
    for time in range(0, 200, 3):
        host.batch([at(time + number, f"{time} {number}", note="x" * 100) for number in range(5)])
    kept = sum(len(page) for pages in host.stored.values() for page in pages.values())
    assert kept < 20_000
    assert host.end().main == []
    assert not any(host.stored.values())


def test_state_grows_with_what_is_remembered_not_with_time():
    """Twenty times as long, the same memory; and each id in little more than its digest and time."""
    host, sizes = KernelHost(dedupe_plan(4_000)), []
    for start in range(0, 200_000, 1_000):
        host.batch([at(time, f"message {time}") for time in range(start, start + 1_000)])
        sizes.append(sum(len(page) for pages in host.stored.values() for page in pages.values()))
    remembered = 4_000 + 1_000 + 1_000  # within, the batch's own, and a page that goes as a whole
    assert max(sizes[10:]) < 24 * remembered
    assert max(sizes[100:]) <= 1.05 * max(sizes[10:100])


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_ids_that_share_half_of_their_digest_are_told_apart(monkeypatch, bits):
    """Which never happens: so it is made to."""

    def alike(table, secret):
        one, two = digest_columns(table, secret)
        return one & np.uint64((1 << bits) - 1), two

    monkeypatch.setattr(dedupe, "digest_columns", alike)
    host = KernelHost(dedupe_plan(100), buckets=2)
    users = [f"u{number}" for number in range(50)]
    assert duplicates(host.batch([at(1, user) for user in users * 2])) == 50
    assert duplicates(host.batch([at(2, user) for user in [*users, "new"]])) == 50
    host.restart()
    got = host.batch([at(2, user) for user in ["newer", *users, "new"]])
    assert (passed(got, "user"), duplicates(got)) == ([(2, "newer")], 51)


#: Ids of two numbers that digests without a secret do not tell apart. They were found in a second.
FORGED = [
    ((820877, 6343040434199363602), (820873, -8727707777258785563)),
    ((820877, -2880331602655412206), (820873, 495664259595990245)),
    ((961840, 6233079226246893923), (961805, 27586909993871496)),
]


def without_a_secret(numbers):
    """What ids were remembered by once."""
    one, two = 0x243F6A8885A308D3, 0x13198A2E03707344
    for number in numbers:
        word = number % (1 << 64)
        one, two = mixed(one ^ word), mixed(two * 0x100000001B3 + word)
    return one, two


def mixed(number):
    [word] = mix(np.array([number % (1 << 64)], dtype=np.uint64)).tolist()
    return word


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize(("known", "forged"), FORGED)
def test_an_id_that_was_made_to_look_like_another_is_not_taken_for_it(known, forged, cut):
    assert without_a_secret(known) == without_a_secret(forged)
    host = KernelHost(dedupe_plan(100, on=("shop", "items")))
    rows = [at(1, shop=shop, items=items) for shop, items in (known, forged)]
    got = [host.batch(batch) for batch in (rows[:cut], rows[cut:])]
    assert sum(duplicates(one) for one in got) == 0
    assert [row["shop"] for one in got for row in one.main] == [known[0], forged[0]]
    assert duplicates(host.batch(rows)) == 2


def states_of(host):
    return [BucketState(pages, "plan") for pages in host.stored.values()]


def seen_by(host):
    """The digests in a host's state, and the secrets of its buckets."""
    pages = [page for state in states_of(host) for page in state.load("seen")]
    return pl.concat(pages).select(dedupe.DIGEST).rows(), [state.secret for state in states_of(host)]


def test_every_bucket_has_a_secret_of_its_own_and_keeps_it():
    hosts = [KernelHost(dedupe_plan(100), buckets=2) for _ in range(2)]
    rows = [at(1, f"u{number}") for number in range(20)]
    for host in hosts:
        host.batch(rows)
    (first, secrets), (second, others) = map(seen_by, hosts)
    assert len({*secrets, *others}) == 4
    assert len(first) == 20
    assert not {*first} & {*second}, "the same ids, and nobody can tell"
    hosts[0].restart()
    hosts[0].failed_batch([at(3, "lost")])
    assert duplicates(hosts[0].batch([*rows, at(2, "lost")])) == 20
    assert seen_by(hosts[0])[1] == secrets
    assert not any(state.secret.hex() in repr(state.manifest) for state in states_of(hosts[0]))


def test_large_pages_are_not_written_again(monkeypatch):
    def pages_after(batches, size):
        host = KernelHost(dedupe_plan(10_000))
        for start in range(0, batches * size, size):
            host.batch([at(time, str(time)) for time in range(start, start + size)])
        assert duplicates(host.batch([at(1, str(time)) for time in range(batches * size)])) > 0
        return len([page for page in host.stored[0, 0] if page != "manifest"])

    monkeypatch.setattr(dedupe, "_LARGE", 30)
    assert pages_after(batches=25, size=31) == 25
    assert pages_after(batches=25, size=30) < 10


def test_state_holds_ids_and_times_alone():
    slim, wide = KernelHost(dedupe_plan(10)), KernelHost(dedupe_plan(10))
    slim.batch([at(1, str(number)) for number in range(100)])
    wide.batch([at(1, str(number), note="x" * 1000, items=number) for number in range(100)])
    sizes = [sum(map(len, host.stored[0, 0].values())) for host in (slim, wide)]
    assert sizes[0] == sizes[1]


def test_a_thousand_rows_over_many_pages_restarts_and_failures():
    chance = random.Random(7)
    rows = [at(5 * number + chance.randrange(300), str(chance.randrange(150))) for number in range(1000)]
    host = KernelHost(dedupe_plan(400, tolerance=300), buckets=2)
    seen, expected, out, filtered = {}, [], [], 0
    for start in range(0, 1000, 20):
        batch = rows[start : start + 20]
        for row in batch:
            first = seen.get(row["user"])
            reached = host.watermark_micros
            if first is None or (reached is not None and reached >= first + 400):
                seen[row["user"]] = micros_of(row["ts"])
                expected.append((micros_of(row["ts"]), row["user"]))
        if start % 60 == 0:
            host.restart()
            host.failed_batch([*batch, at(5 * start, "failed")])
        got = host.batch(batch, worker=start % 3)
        out += passed(got, "user")
        filtered += duplicates(got)
    assert sorted(out) == sorted(expected)
    assert 300 < filtered == 1000 - len(out)


# -- late rows ------------------------------------------------------------------------------------


def test_a_late_row_makes_no_id_known():
    host = KernelHost(dedupe_plan(5))
    host.batch([at(20, "other")])
    got = host.batch([at(3), at(21), at(22), at(4)])
    assert passed(got) == [(21,)]
    assert got.counts == {"rows_in": 4, "late_rows": 1, "late_dropped": 1, "duplicates_filtered": 2}


def test_late_rows_leave_unchanged_with_how_late_they_are():
    host = KernelHost(dedupe_plan(5, late=SIDE))
    host.batch([at(20, "other")])
    [row] = host.batch([at(3, items=7, note="old")]).channels["late"]
    assert {name: row[name] for name in SCHEMA.names} == at(
        3, items=7, note="old", shop=None, price=None
    )


def test_a_row_that_is_moved_counts_at_the_watermark_and_makes_its_id_known_from_there():
    host = KernelHost(dedupe_plan(5, late=Reassign(Micros(17))))
    host.batch([at(20, "other")])
    got = host.batch([at(2, items=1), at(3, items=2), at(21, items=3), at(1, "bob")])
    assert passed(got, "items") == [(20, 2)]
    assert got.counts == {
        "rows_in": 4,
        "late_rows": 3,
        "late_reassigned": 1,
        "late_dropped": 2,
        "duplicates_filtered": 1,
    }
    host.batch([at(24, "other one")])
    assert duplicates(host.batch([at(24)])) == 1  # W = 24
    host.batch([at(25, "yet another")])
    assert passed(host.batch([at(26)])) == [(26,)]  # W = 25


def test_a_row_without_a_time_is_an_error():
    got = KernelHost(dedupe_plan(5)).batch([at(1) | {"ts": None}, at(1)])
    assert got.channels["errors"] == [{"reason": "event time 'ts' is null", "row": '{"user":"ann"}'}]
    assert passed(got) == [(1,)]


@pytest.mark.parametrize("policy", [late.drop(), late.reassign("30 us"), SIDE], ids=str)
def test_every_row_in_is_accounted_for(policy):
    chance = random.Random(11)
    host = KernelHost(dedupe_plan(20, late=policy), buckets=3)
    total = Counter()
    for start in range(0, 300, 10):
        rows = [at(start + chance.randrange(-60, 10), str(chance.randrange(40))) for _ in range(30)]
        got = host.batch([*rows, at(0) | {"ts": None}], packs=3)
        total += got.counts + Counter(out=len(got.main))
    lost = total["errors"] + total["duplicates_filtered"] + total["late_rows"] - total["late_reassigned"]
    assert total["rows_in"] == 30 * 31 == total["out"] + lost
    assert min(total["duplicates_filtered"], total["late_rows"], total["errors"]) > 20


# -- what follows ---------------------------------------------------------------------------------


def over(plan=None, **options):
    return Derived(plan or dedupe_plan(1000, **options), "ts")


def test_what_follows_is_not_held_back_by_within():
    windows = plan_of(hopping(10), feed=over())
    assert compile(windows).vertices[-1].delay == 0
    assert [vertex.name for vertex in compile(windows).vertices] == ["1 dedupe", "2 tumbling(10 us)"]
    assert [vertex.delay for vertex in compile(windows).vertices] == [0, 0]
    host = KernelHost(windows, buckets=2)
    host.batch([at(1), at(2, "bob"), at(1), at(12, "eve")])
    got = host.batch([])
    assert got.watermark_micros == 12
    assert sorted((row["user"], row["n"]) for row in got.main) == [("ann", 1), ("bob", 1)]


def test_what_follows_judges_rows_as_those_of_a_source():
    """Late for a window that has closed, though not for the memory of ids."""
    host = KernelHost(plan_of(hopping(10), feed=over(), late=SIDE))
    host.batch([at(25)])
    got = host.batch([at(19, "bob"), at(20, "eve")])
    assert [row["user"] for row in got.channels["late"]] == ["bob"]
    assert got.counts == {"rows_in": 2, "late_rows": 1}


@pytest.mark.parametrize("kind", ["reorder", "sliding"])
def test_rows_at_the_watermark_are_late_for_what_follows(kind):
    after = {
        "reorder": lambda: reorder_plan(feed=over(), late=SIDE),
        "sliding": lambda: plan_of(sliding(5), feed=over(), late=SIDE),
    }
    host = KernelHost(after[kind]())
    host.batch([at(10)])
    got = host.batch([at(10, "bob"), at(11, "eve")])
    assert [row["user"] for row in got.channels["late"]] == ["bob"]


def test_late_rows_are_counted_by_each_operator():
    host = KernelHost(plan_of(hopping(10), feed=over(dedupe_plan(50, late=late.reassign("1 hour")))))
    host.batch([at(100)])
    got = host.batch([at(20, "bob"), at(80, "eve"), at(100, "joe")])
    assert got.counts == {"rows_in": 3, "late_rows": 2, "late_reassigned": 1, "late_dropped": 1}


def test_sessions_tie_together_what_passed():
    host = KernelHost(plan_of(session(10), feed=over(on=("user", "items"))))
    host.batch([at(1, items=1), at(8, items=2), at(8, items=2)])
    host.batch([at(15, items=3), at(1, items=1)])
    [row] = host.end().main
    assert (micros_of(row["window_start"]), micros_of(row["window_end"]), row["n"]) == (1, 25, 3)


def test_each_side_of_a_join_may_be_without_duplicates():
    feeds = (
        Derived(dedupe_plan(100, on=("user", "items"), schema=LEFT_ROWS), "ts"),
        Derived(
            Dedupe(KeyBy(Source(RIGHT_ROWS, "at", Micros(0)), ("user", "shop")), Micros(100)),
            "at",
        ),
    )
    host = KernelHost(join_plan(hopping(10), hopping(10), feeds=feeds), buckets=2)
    left = [at(1, items=1), at(1, items=1), at(2, items=2)]
    right = [{"at": instant_of(3), "user": "ann", "shop": 1}] * 2
    got = host.batch(left, right)
    assert len(got.main) == 2
    assert got.counts == {
        "rows_in": 5,
        "duplicates_filtered": 2,
        "left_rows": 2,
        "right_rows": 1,
        "joined_pairs": 2,
    }


def test_one_after_the_other_with_ids_of_their_own():
    plan = dedupe_plan(100, on=("shop",), feed=over(on=("user",)))
    got = KernelHost(plan).batch([at(1, "a", shop=1), at(1, "a", shop=2), at(1, "b", shop=1)])
    assert passed(got, "user", "shop") == [(1, "a", 1)]
    assert duplicates(got) == 2


def test_rows_stamped_as_they_come_are_never_late_behind_it_either():
    stamped = replace(Source(SCHEMA, "ts", Micros(0)), declared=ProcessingTime(Micros(10)))
    plan = optimize(logical_plan(hopping(10), feed=over(Dedupe(KeyBy(stamped, ("user",)), Micros(5)))))
    assert isinstance(plan.late, Reassign)
    assert isinstance(plan.upstream.input.late, Reassign)
    with pytest.raises(PlanError, match="stamped with the time they come at are never late"):
        logical_plan(hopping(10), feed=plan.upstream, late=SIDE)


# -- plans ----------------------------------------------------------------------------------------


def test_only_what_is_read_above_and_the_id_travels():
    plan = optimize(logical_plan(hopping(10), feed=over(on=("user", "shop")), keys=("note",)))
    assert plan.upstream.schema.names == ["ts", "user", "shop", "note"]


@pytest.mark.parametrize(
    "plan",
    [
        logical_plan(hopping(10), feed=over(late=SIDE)),
        logical_plan(hopping(10), feed=over(), late=SIDE),
        dedupe_plan(10),
    ],
    ids=["late rows of its own", "late rows of the window", "rows leave"],
)
def test_every_column_stays_where_rows_themselves_leave(plan):
    assert optimize(plan).upstream.schema == SCHEMA


def test_the_counter_is_there_only_for_plans_that_filter():
    assert compile(plan_of(hopping(10), feed=over())).counters == (*COUNTERS, *DEDUPE_COUNTERS)
    assert compile(plan_of(hopping(10))).counters == COUNTERS


def test_ids_and_how_long_they_are_known_are_part_of_the_identity():
    plain = dedupe_plan(10)
    assert (plain.identity()["kind"], plain.identity()["within"]) == ("dedupe", 10)
    others = {
        "keys": dedupe_plan(10, on=("user", "shop")),
        "within": dedupe_plan(20),
    }
    for name, other in others.items():
        assert changed_parts(plain, other) == [name]
    for same in (
        dedupe_plan(10, tolerance=7),
        dedupe_plan(10, late=SIDE),
        dedupe_plan(10, schema=SCHEMA.append(pa.field("more", pa.int64()))),
    ):
        assert changed_parts(plain, same) == []


def test_the_physical_operator():
    [kernel] = kernels_of(compile(dedupe_plan(10, on=("user", "shop"), late=SIDE)))
    assert kernel.physical_operators() == ["Dedupe[user, shop within 10 us, late=side_output('late')]"]


# -- the public way to it -------------------------------------------------------------------------


def events():
    return Events((), Source(SCHEMA, "ts", Micros(0)))


def test_the_result_leaves_or_goes_on():
    distinct = events().dedupe(on=["user", "shop"], within="10 us", late=late.side_output("old"))
    assert distinct.node == dedupe_plan(10, on=("user", "shop"), late=SideOutput("old"))
    assert distinct.channels == ("main", "errors", "old")
    assert events().dedupe(on="user", within="10 us").node == dedupe_plan(10)
    rows = count()
    by_hand = distinct.events(time="ts").window(tumbling("1 s")).agg(n=rows)
    assert distinct.window(tumbling("1 s")).agg(n=rows).node == by_hand.node
    assert distinct.reorder().node.upstream == distinct.upstream
    assert distinct.key_by("note").reorder().node.upstream == distinct.upstream
    assert distinct.dedupe(on="note", within="1 s").node.upstream == distinct.upstream


def test_what_cannot_be():
    results = plan_of(hopping(10), ROWS, emission=OnWindowClose())
    refused = {
        "needs the columns that tell rows apart": lambda: events().dedupe(on=[], within="1 s"),
        "dedupe() of results of another operator": lambda: dedupe_plan(
            10, feed=Derived(results, "window_end")
        ),
        "results of operators, and rows after steps, cannot be united": lambda: events().union(
            events().dedupe(on="user", within="1 s")
        ),
        "late= takes tg.late.drop()": lambda: events().dedupe(on="user", within="1 s", late="drop"),
        "key columns are named twice": lambda: events().dedupe(on=["user", "user"], within="1 s"),
        "cannot go to a channel named 'main'": lambda: dedupe_plan(10, late=SideOutput("main")),
    }
    for message, attempt in refused.items():
        with pytest.raises(PlanError) as raised:
            attempt()
        assert message in str(raised.value)


def test_ids_are_columns_that_are_there_and_can_be_compared():
    with pytest.raises(ColumnNotFound, match="'usr'"):
        events().dedupe(on="usr", within="1 s")
    with pytest.raises(TypeMismatch, match="keys can be booleans, numbers"):
        dedupe_plan(1, schema=SCHEMA.append(pa.field("m", pa.map_(pa.string(), pa.int64()))), on=("m",))
    with pytest.raises(TypeMismatch, match="column 'odd' has a type that Arrow cannot hold"):
        dedupe_plan(1, schema=SCHEMA.append(pa.field("odd", pa.null())))
    with pytest.raises(DurationError):
        events().dedupe(on="user", within="0 s")


def test_large_batches_leave_in_pieces(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 2000)
    rows = [at(number, str(number), note="x" * 50) for number in range(500)]
    assert passed(KernelHost(dedupe_plan(10_000)).batch(rows + rows)) == [(n,) for n in range(500)]


def test_with_feed_keeps_the_operator():
    plan = dedupe_plan(10, late=SIDE)
    wider = Source(SCHEMA.append(pa.field("more", pa.int64())), "ts", Micros(0))
    assert plan.with_upstream(wider) == replace(plan, input=KeyBy(wider, ("user",)))
