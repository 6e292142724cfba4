"""Stopping with a drain, without Spark: what a batch that comes too late does, and who is told."""

from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.support.time_limits import HANG
from tidegate.errors import CheckpointTaken, StartError
from tidegate.spark import query as queries
from tidegate.spark.checkpoint import last_begun
from tidegate.spark.ownership import Ownership
from tidegate.spark.query import BatchWriter, Query

NOTHING: Any = None


class Recorded:
    """Spark's query and the drain, as far as a stop calls them."""

    def __init__(self, *, active: bool) -> None:
        self.isActive = active
        self.calls: list[str] = []

    def stop(self) -> None:
        self.calls.append("stop")

    def run(self) -> None:
        self.calls.append("drain")


def writer_at(checkpoint: Path) -> BatchWriter:
    uri = checkpoint.absolute().as_uri()
    return BatchWriter(NOTHING, {}, uri, *[NOTHING] * 4, Ownership.next(uri))


def query_of(writer: BatchWriter, recorded: Any) -> Query:
    return Query(recorded, writer, recorded)


def test_a_batch_after_the_end_waits_for_the_stop_and_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, stopped, seen = Event(), Event(), []

    def wait(packed: Any) -> None:
        waits.set()
        assert stopped.wait(HANG)
        raise InterruptedError("by the stop")

    def batch() -> None:
        try:
            writer(NOTHING, 0)
        except InterruptedError as error:
            seen.append(error)

    monkeypatch.setattr(queries, "_wait_to_be_stopped", wait)
    monkeypatch.setattr(BatchWriter, "_write", lambda *_: seen.append("written"))
    writer = writer_at(tmp_path)
    writer.end(lambda: True)
    late = Thread(target=batch)
    late.start()
    assert waits.wait(HANG)
    writer.end(lambda: True)  # a second stop does not wait for the batch
    assert seen == []
    stopped.set()
    late.join(HANG)
    assert list(map(str, seen)) == ["by the stop"]


def test_a_batch_that_nothing_stops_is_still_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_wait_to_be_stopped", lambda _: None)
    writer = writer_at(tmp_path)
    writer.end(lambda: True)
    with pytest.raises(StartError, match=r"^the query is being drained: this batch belongs to the next"):
        writer(NOTHING, 0)


def test_a_drain_stops_first(tmp_path: Path) -> None:
    recorded = Recorded(active=True)
    query_of(writer_at(tmp_path), recorded).stop(drain=True)
    assert recorded.calls == ["stop", "drain"]


def test_a_query_that_lost_its_checkpoint_drains_nothing(tmp_path: Path) -> None:
    writer, recorded = writer_at(tmp_path), Recorded(active=True)
    writer.ownership.take()
    Ownership.next(tmp_path.as_uri()).take()
    with pytest.raises(CheckpointTaken):
        writer(NOTHING, 0)  # before anything is asked of the batch
    with pytest.raises(CheckpointTaken):
        query_of(writer, recorded).stop(drain=True)
    assert recorded.calls == ["stop"]


def test_a_drain_that_is_refused_stops_all_the_same(tmp_path: Path) -> None:
    writer, recorded = writer_at(tmp_path), Recorded(active=False)
    writer._last = 3  # written, and the query failed before it was committed
    with pytest.raises(
        StartError, match=r"^batch 3 may have been written, and the query ended before it was"
    ):
        query_of(writer, recorded).stop(drain=True)
    assert recorded.calls == ["stop"]


def test_a_batch_that_an_earlier_run_may_have_written_is_written_first(tmp_path: Path) -> None:
    """Its rows may be in the sink: a drain must not take its number."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    (tmp_path / "commits").mkdir()
    writer = replace(writer_at(tmp_path), begun_before=last_begun(tmp_path.as_uri()))
    ends = Thread(target=writer.end, args=(lambda: True,))
    ends.start()
    ends.join(0.2)
    assert ends.is_alive()
    assert not writer._ended, "the batch can still be written"
    writer._last = 0
    (tmp_path / "commits" / "0").touch()
    ends.join(HANG)
    assert writer._ended


def test_a_query_that_fails_before_that_batch_is_not_drained(tmp_path: Path) -> None:
    recorded = Recorded(active=False)
    with pytest.raises(StartError, match="batch 3 may have been written, and the query ended"):
        query_of(replace(writer_at(tmp_path), begun_before=3), recorded).stop(drain=True)
    assert recorded.calls == ["stop"]
