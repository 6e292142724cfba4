"""Counters of a query: totals over batches, a replayed batch counted once; and how far it has come."""

from dataclasses import replace

import pytest

from tests.support.plans import SECOND, hopping, plan_of
from tidegate.dataflow import compile
from tidegate.kernels import aggregates as a
from tidegate.kernels.messages import Message
from tidegate.observe.metrics import Metrics
from tidegate.plan.inputs import KeyBy
from tidegate.plan.sources import Derived, Union
from tidegate.plan.time import Micros
from tidegate.plan.windowed_aggregates import Aggregation, WindowBy, WindowedAggregate

PLAN = plan_of(hopping(10 * SECOND), tolerance=2 * SECOND)
NOON = 43_200 * SECOND


def counted(name, value):
    return Message.counter(0, name, value)


def rows(channel, number):
    return Message.output(0, channel, number, None)


def seen(time, source=0):
    return Message.high_water_mark(0, source, time)


def held(bucket, vertex, value):
    return Message.gauge(bucket, vertex, "buffer_size", value)


def kept(bucket, vertex, rows):
    return Message.state(bucket, vertex, {"rows": rows, "due": None})


def record(metrics, batch, *messages, now=0):
    return metrics.record(batch, messages, now)


def test_totals_add_up_over_batches() -> None:
    metrics = Metrics(compile(PLAN))
    for batch in range(10):
        record(
            metrics,
            batch,
            counted("rows_in", 5),
            rows("main", 2),
            counted("rows_in", 1),
            rows("late", 3),
        )
    totals = metrics.totals()
    assert totals["rows_in"] == 60
    assert totals["rows_out"] == 20
    assert totals["rows_out.late"] == 30


def test_a_replayed_batch_counts_once() -> None:
    metrics = Metrics(compile(PLAN))
    record(metrics, 0, counted("rows_in", 1))
    record(metrics, 1, counted("rows_in", 5), counted("late_rows", 2))
    record(metrics, 1, counted("rows_in", 5))
    assert metrics.totals()["rows_in"] == 6
    assert metrics.totals()["late_rows"] == 0


def test_it_is_known_what_each_of_the_last_batches_put_out() -> None:
    """As written: of a batch that is replayed the last word counts."""
    metrics = Metrics(compile(PLAN))
    for batch in range(150):
        record(metrics, batch, rows("main", batch), rows("late", 7))
    record(metrics, 149, rows("main", 1), rows("main", 2))
    assert metrics.rows_out_by_batch()["149"] == 3
    assert metrics.rows_out_by_batch()["50"] == 50
    assert "49" not in metrics.rows_out_by_batch()
    assert "150" not in metrics.rows_out_by_batch()


def test_every_counter_is_there_from_the_start() -> None:
    totals = Metrics(compile(PLAN)).totals()
    assert set(totals.values()) == {0}
    assert {"late_rows", "late_dropped_count", "buffer_size", "watermark_emitted_count"} <= set(totals)
    assert "max_timestamp_seen" not in totals


def test_the_rows_of_each_channel_come_back() -> None:
    assert record(Metrics(compile(PLAN)), 0, rows("main", 2), rows("main", 3)).rows == {"main": 5}


def test_what_buckets_hold_is_the_latest_word_of_each() -> None:
    metrics = Metrics(compile(PLAN))
    first = [held(0, 0, 5), held(1, 0, 7), held(1, 1, 1)]
    metrics.record(0, first, 0)
    metrics.record(1, [held(1, 0, 2)], 0)
    assert metrics.totals()["buffer_size"] == 8
    assert metrics.totals()["state_rows"] == 0


def test_entries_in_state_are_those_of_all_operators() -> None:
    metrics = Metrics(compile(PLAN))
    first = [kept(0, 0, 5), kept(0, 1, 1), kept(1, 0, 2)]
    metrics.record(0, first, 0)
    metrics.record(1, [kept(0, 0, 4)], 0)
    assert metrics.totals()["state_rows"] == 7
    assert metrics.totals()["buffer_size"] == 0


def test_the_busiest_machine_of_the_newest_batch_says_what_the_load_is() -> None:
    metrics = Metrics(compile(PLAN))
    loads = [Message.load(0, "cpu", 4_000), Message.load(0, "cpu", 9_000), Message.load(0, "memory", 1)]
    record(metrics, 0, *loads)
    assert metrics.load == {"cpu": 9_000, "memory": 1}
    record(metrics, 1, Message.load(0, "cpu", 2_000))
    assert metrics.load == {"cpu": 2_000}


def test_a_message_that_an_operator_should_have_taken_is_an_error() -> None:
    metrics = Metrics(compile(PLAN))
    for astray in (Message.input(0, "partials", 1, b""), Message.page(0, "p", b"")):
        with pytest.raises(ValueError, match=f"no message for the driver: .*'{astray.kind}'"):
            record(metrics, 0, astray)


def test_event_time_is_followed() -> None:
    metrics = Metrics(compile(PLAN))
    record(metrics, 0, seen(NOON + 3 * SECOND), seen(NOON))
    record(metrics, 1, seen(NOON + SECOND))
    record(metrics, 2, seen(NOON + 9 * SECOND), counted("late_dropped", 4))
    totals = metrics.totals()
    assert totals["max_timestamp_seen"] == NOON + 9 * SECOND
    assert totals["watermark_emitted_count"] == 2
    assert totals["late_dropped_count"] == totals["late_dropped"] == 4
    assert metrics.watermarks() == {"1 tumbling(10 seconds)": NOON + 7 * SECOND}


def test_several_sources_align_and_say_when_they_were_seen() -> None:
    source = PLAN.upstream
    metrics = Metrics(compile(PLAN.with_upstream(Union((source, replace(source, tolerance=Micros(0)))))))
    record(metrics, 0, seen(NOON), now=5)
    assert list(metrics.watermarks().values()) == [None]
    record(metrics, 1, seen(NOON + SECOND, source=1), now=6)
    record(metrics, 2, Message.heartbeat(0, 0, NOON + 4 * SECOND), now=7)
    assert list(metrics.watermarks().values()) == [NOON + SECOND]
    assert metrics.sources.metadata() == {
        "0": {"watermark": NOON + 2 * SECOND, "seen_at": 5},
        "1": {"watermark": NOON + SECOND, "seen_at": 6},
    }
    assert metrics.totals()["max_timestamp_seen"] == NOON + SECOND, "a heartbeat is not a row"


def test_operators_of_a_chain_lie_behind_by_what_is_held_back() -> None:
    held = plan_of(hopping(10 * SECOND), lateness=3 * SECOND)
    window = WindowBy(KeyBy(Derived(held, "window_end"), ()), hopping(60 * SECOND))
    metrics = Metrics(compile(WindowedAggregate(Aggregation(window, (("n", a.Count(None)),)))))
    record(metrics, 0, seen(NOON))
    assert metrics.watermarks() == {
        "1 tumbling(10 seconds)": NOON,
        "2 tumbling(1 minute)": NOON - 3 * SECOND,
    }
