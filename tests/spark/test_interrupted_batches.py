"""Stopping a query in the middle of a batch: it ends as stopped, whatever the sink says of it."""

from threading import Event

import pytest

import tidegate as tg
from tests.spark.conftest import run
from tests.support.time_limits import HANG
from tidegate.spark.interruption import BatchInterrupted

LONGER_THAN_ANY_STACK = 200_000  # letters: Java's regular expressions take a call for each


class Stuck:
    """A sink that waits in the JVM until it is interrupted, and complains at length."""

    def __init__(self) -> None:
        self.waits = Event()
        self.errors: list[BaseException] = []

    def __call__(self, rows, batch_id) -> None:
        try:
            self.waits.set()
            self.wait(rows)
        except Exception as error:
            self.errors.append(error)
            raise RuntimeError("why? " * (LONGER_THAN_ANY_STACK // 5)) from error

    def wait(self, rows) -> None:
        rows.sparkSession._jvm.java.lang.Thread.sleep(600_000)


class Busy(Stuck):
    """The same, in a job of Spark's, which a stop cancels."""

    def wait(self, rows) -> None:
        rows.sparkSession.range(10**15).selectExpr("max(id * 31 % 7)").collect()


def counts(stream):
    return tg.events(stream, time="ts").key_by("user").agg(n=tg.count())


@pytest.mark.parametrize("sink", [Stuck, Busy])
def test_a_stop_in_a_batch_is_a_stop(click_stream, tmp_path, sink):
    stuck = sink()
    query = counts(click_stream([[(1, "ann", 1.0)]])).start(checkpoint=tmp_path / "cp", main=stuck)
    assert stuck.waits.wait(HANG)
    query.stop()
    # If its thread dies while it looks at the error, Spark neither says so nor has an exception.
    assert query.spark.status["message"] == "Stopped"
    assert query.spark.exception() is None
    assert len(stuck.errors) == 1
    kept = tg.sinks.memory()
    run(counts(click_stream([[(1, "ann", 1.0)]])), tmp_path / "cp", main=kept)
    assert [row["n"] for row in kept.rows()] == [1]


def test_other_errors_of_a_sink_end_the_query_with_their_text(click_stream, tmp_path):
    def fail(rows, batch_id):
        raise ValueError("no room left")

    query = counts(click_stream([[(1, "ann", 1.0)]])).start(checkpoint=tmp_path / "cp", main=fail)
    with pytest.raises(Exception, match="no room left"):
        query.await_termination(HANG)
    assert not isinstance(query.spark.exception(), BatchInterrupted)
