"""Rows in order: when they leave, in which order, what becomes of late ones, and what is stored."""

import random

import pyarrow as pa
import pytest

from tests.support.plans import SCHEMA, TIMESTAMP, changed_parts, reorder_plan
from tests.unit.test_sliding import EVERY_PAYLOAD, FOREVER, INNER_NAMES, PAYLOADS
from tidegate.api import late
from tidegate.api.events import Events
from tidegate.columnar import ipc
from tidegate.errors import PlanError, TypeMismatch
from tidegate.plan.channels import COUNTERS, LATE_AT_WATERMARK
from tidegate.plan.inputs import KeyBy
from tidegate.plan.pass_through import Reorder
from tidegate.plan.policies import Reassign, SideOutput
from tidegate.plan.sources import Source
from tidegate.plan.time import Micros
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of, micros_of


def at(time, items=None, user="ann", **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def released(rows, *names):
    """Rows as tuples, in the order they were released."""
    return [(micros_of(row["ts"]), *(row[name] for name in names)) for row in rows]


# -- order ----------------------------------------------------------------------------------------


def test_rows_are_released_up_to_the_watermark():
    host = KernelHost(reorder_plan(tolerance=1))
    assert host.batch([at(3), at(1), at(2)]).main == []
    then = host.batch([])
    assert (then.watermark_micros, released(then.main)) == (2, [(1,), (2,)])
    assert released(host.end().main) == [(3,)]


def test_equal_times_go_by_arrival_in_one_batch_and_over_several():
    host = KernelHost(reorder_plan(tolerance=100))
    for number in range(0, 30, 3):
        host.batch([at(5, number), at(4, number + 1), at(5, number + 2)])
        host.restart()
    ended = released(host.end().main, "items")
    assert ended == [
        *((4, number + 1) for number in range(0, 30, 3)),
        *((5, number + more) for number in range(0, 30, 3) for more in (0, 2)),
    ]


def test_a_thousand_rows_over_many_pages_restarts_and_failures():
    chance = random.Random(3)
    rows = [at(chance.randrange(40 * number, 40 * number + 200), number) for number in range(1000)]
    host = KernelHost(reorder_plan(tolerance=200))
    out = []
    for start in range(0, 1000, 20):
        if start % 60 == 0:
            host.restart()
            host.failed_batch([*rows[start : start + 20], at(40 * start)])
        out += host.batch(rows[start : start + 20], worker=start % 3).main
    out += host.end().main
    assert released(out, "items") == released(sorted(rows, key=lambda row: row["ts"]), "items")


def test_pieces_of_a_large_release_stay_in_order(monkeypatch):
    monkeypatch.setattr(ipc, "MAX_BYTES", 2000)
    chance = random.Random(5)
    rows = [at(chance.randrange(500), number, note="x" * 50) for number in range(1000)]
    host = KernelHost(reorder_plan())
    host.batch(rows)
    assert released(host.end().main, "items") == released(sorted(rows, key=lambda r: r["ts"]), "items")


def test_with_a_key_each_key_is_in_order():
    host = KernelHost(reorder_plan(keys=("user",), tolerance=10), buckets=4)
    users = [f"u{number}" for number in range(20)] + [None]
    host.batch([at(time, user=user) for time in (5, 3, 9) for user in users])
    host.batch([at(time, user=user) for time in (4, 19) for user in users])
    got = host.batch([])
    assert got.watermark_micros == 9
    for user in users:
        assert released([row for row in got.main if row["user"] == user]) == [(3,), (4,), (5,), (9,)]


def test_nothing_is_released_before_there_is_a_watermark():
    host = KernelHost(reorder_plan(), as_spark=True)
    results = [host.batch([at(-time)]) for time in range(5)]
    assert [(result.watermark_micros, result.main) for result in results] == [(None, [])] * 5
    assert released(host.end().main) == [(-4,), (-3,), (-2,), (-1,), (0,)]


def test_times_that_span_thousands_of_years():
    times = [250_000_000_000_000_000, -60_000_000_000_000_000, 0, 80_000_000_000_000_000]
    host = KernelHost(reorder_plan())
    host.batch([at(time) for time in times])
    assert [micros_of(row["ts"]) for row in host.end().main] == sorted(times)


# -- late rows ------------------------------------------------------------------------------------


def test_a_row_at_the_watermark_is_late():
    host = KernelHost(reorder_plan(late=SideOutput("late")))
    host.batch([at(10)])
    got = host.batch([at(10, 1), at(11, 2), at(9, 3)])
    assert released(got.main) == [(10,)]
    assert released(got.channels["late"], "items") == [(10, 1), (9, 3)]
    assert [micros_of(row["watermark"]) for row in got.channels["late"]] == [10, 10]
    assert released(host.end().main, "items") == [(11, 2)]


def test_a_moved_row_goes_on_at_once_and_only_once():
    host = KernelHost(reorder_plan(late=Reassign(Micros(5))))
    host.batch([at(10, 0)])
    got = host.batch([at(12, 1), at(5, 2), at(4, 3), at(9, 4)])
    assert released(got.main, "items") == [(10, 0), (10, 2), (10, 4)]
    assert released(host.batch([at(7, 5)]).main, "items") == [(12, 1), (12, 5)]
    assert host.end().main == []


def test_every_row_in_is_accounted_for():
    host = KernelHost(reorder_plan(late=Reassign(Micros(30))), buckets=2)
    host.batch([at(50)])
    counts = host.batch([at(19), at(20), at(50), at(51), at(0) | {"ts": None}]).counts
    assert set(counts) <= {*COUNTERS, LATE_AT_WATERMARK}
    assert dict(counts) == {
        "rows_in": 5,
        "errors": 1,
        "late_rows": 3,
        "late_rows_at_watermark": 1,
        "late_dropped": 1,
        "late_reassigned": 2,
    }


def test_a_row_without_a_time_is_an_error():
    [error] = KernelHost(reorder_plan()).batch([at(1) | {"ts": None}]).channels["errors"]
    assert error == {"reason": "event time 'ts' is null", "row": '{"user":"ann"}'}


# -- columns --------------------------------------------------------------------------------------


@EVERY_PAYLOAD
@pytest.mark.parametrize("policy", [SideOutput("late"), Reassign(Micros(FOREVER))], ids=str)
def test_rows_keep_columns_of_every_type(kind, policy):
    type_, value = PAYLOADS[kind]
    schema = pa.schema([("payload", type_), ("ts", TIMESTAMP), ("user", pa.string())])
    host = KernelHost(reorder_plan(schema=schema, late=policy))
    first = host.batch([at(3, payload=None), at(1, payload=value), at(2, payload=value, user=None)])
    host.restart()  # so that they are read from their pages
    then = host.batch([at(0, payload=value), at(9, payload=value)])
    assert first.main == []
    late_rows = then.channels.get("late", then.main[3:])
    assert [row["payload"] for row in then.main[:3]] == [value, value, None]
    assert [row["payload"] for row in late_rows] == [value]
    assert [row["payload"] for row in host.end().main] == [value]


@pytest.mark.parametrize("name", INNER_NAMES)
def test_columns_may_have_any_name(name):
    schema = pa.schema([("ts", TIMESTAMP), (name, pa.int64())])
    rows = [{"ts": instant_of(time), name: time} for time in (3, 1, 2)]
    for keys in ((), (name,)):
        host = KernelHost(reorder_plan(keys=keys, schema=schema))
        host.batch(rows)
        assert [row[name] for row in host.end().main] == [1, 2, 3]


def test_rows_of_nothing_but_a_time():
    host = KernelHost(reorder_plan(schema=pa.schema([("ts", TIMESTAMP)])))
    host.batch([{"ts": instant_of(2)}, {"ts": instant_of(1)}])
    assert [row["ts"] for row in host.end().main] == [instant_of(1), instant_of(2)]


def test_the_event_time_may_be_a_key():
    host = KernelHost(reorder_plan(keys=("ts",)), buckets=3)
    host.batch([at(2), at(1), at(2)])
    assert sorted(released(host.end().main)) == [(1,), (2,), (2,)]


# -- state ----------------------------------------------------------------------------------------


def test_what_was_released_is_not_stored():
    host = KernelHost(reorder_plan(tolerance=30))
    for time in range(0, 500, 5):
        host.batch([at(time)])
        assert sum(map(len, host.stored.values())) < 40
    host.end()
    assert not any(host.stored.values())


def test_nothing_is_stored_of_rows_that_are_late():
    host = KernelHost(reorder_plan(late=Reassign(Micros(FOREVER))))
    host.batch([at(100)])
    host.batch([at(50)])
    assert not any(host.stored.values())


# -- what the user writes -------------------------------------------------------------------------


def events():
    return Events((), Source(SCHEMA, "ts", Micros(0)))


def test_rows_go_on_as_they_are():
    ordered = events().key_by("user").reorder(late=late.side_output("too_late"))
    assert ordered.node.schema == SCHEMA
    assert ordered.channels == ("main", "errors", "too_late")
    assert events().reorder().node == Reorder(KeyBy(Source(SCHEMA, "ts", Micros(0)), ()))


def test_the_policy_is_one():
    with pytest.raises(PlanError, match=r"late= takes tg\.late\.drop\(\), reassign\(…\)"):
        events().reorder(late="drop")


def test_a_late_channel_must_not_collide():
    for channel in ("main", "errors", " "):
        with pytest.raises(PlanError, match="late rows cannot go to a channel named"):
            events().reorder(late=SideOutput(channel))


def test_a_column_that_arrow_cannot_hold_is_refused():
    with pytest.raises(TypeMismatch) as raised:
        reorder_plan(schema=SCHEMA.append(pa.field("odd", pa.null())))
    assert "column 'odd' has a type that Arrow cannot hold" in str(raised.value)


def test_keys_and_columns_are_part_of_the_identity():
    wider = reorder_plan(schema=SCHEMA.append(pa.field("more", pa.int64())))
    assert reorder_plan().identity()["kind"] == "reorder"
    assert changed_parts(reorder_plan(), reorder_plan(keys=("user",))) == ["keys"]
    assert changed_parts(reorder_plan(), wider) == ["rows"]
