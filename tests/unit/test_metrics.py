"""Counters of a query: totals over batches, a replayed batch counted once."""

from tidegate.observe.metrics import Metrics


def test_totals_add_up_over_batches() -> None:
    metrics = Metrics()
    for batch in range(10):
        metrics.record(batch, [("#rows_in", 5), ("main", 2), ("#rows_in", 1), ("late", 3)])
    totals = metrics.totals()
    assert totals["rows_in"] == 60
    assert totals["rows_out"] == 20
    assert totals["rows_out.late"] == 30


def test_a_replayed_batch_counts_once() -> None:
    metrics = Metrics()
    metrics.record(0, [("#rows_in", 1)])
    metrics.record(1, [("#rows_in", 5), ("#late_rows", 2)])
    metrics.record(1, [("#rows_in", 5)])
    assert metrics.totals()["rows_in"] == 6
    assert metrics.totals()["late_rows"] == 0


def test_every_counter_is_there_from_the_start() -> None:
    assert set(Metrics().totals().values()) == {0}
    assert "late_rows" in Metrics().totals()


def test_the_rows_of_each_channel_come_back() -> None:
    assert Metrics().record(0, [("main", 2), ("main", 3)])["main"] == 5
