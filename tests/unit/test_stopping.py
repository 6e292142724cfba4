"""Stopping with a drain, without Spark: what a batch that comes too late does, and who is told."""

from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.support.time_limits import HANG
from tidegate.errors import CheckpointDrained, CheckpointTaken, StartError
from tidegate.spark import batch_writer
from tidegate.spark import query as queries
from tidegate.spark.batch_writer import BatchWriter
from tidegate.spark.checkpoint.metadata import Drained, last_begun, refuse_drained
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.drain import complete_drain, drain
from tidegate.spark.interruption import BatchInterrupted
from tidegate.spark.query import Query

NOTHING: Any = None


class Recorded:
    """Spark's query and the drain, as far as a stop calls them."""

    def __init__(self, *, active: bool) -> None:
        self.isActive = active
        self.calls: list[str] = []

    def stop(self) -> None:
        self.calls.append("stop")

    def drain(self, writer: BatchWriter) -> None:
        self.calls.append("drain")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    spark = Recorded(active=True)
    monkeypatch.setattr(queries, "drain", spark.drain)
    return spark


def writer_at(checkpoint: Path) -> BatchWriter:
    uri = checkpoint.absolute().as_uri()
    return BatchWriter(NOTHING, {}, uri, Ownership.next(uri), NOTHING)


def test_a_batch_after_the_end_waits_for_the_stop_and_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, stopped, seen = Event(), Event(), []

    def is_active() -> bool:
        asked.set()
        return not stopped.is_set()

    def batch() -> None:
        try:
            writer(NOTHING, 0)
        except BatchInterrupted as error:
            seen.append(error)

    monkeypatch.setattr(BatchWriter, "_write", lambda *_: seen.append("written"))
    writer = writer_at(tmp_path)
    writer.end(is_active)
    asked.clear()
    late = Thread(target=batch)
    late.start()
    assert asked.wait(HANG)
    writer.end(is_active)  # a second stop does not wait for the batch
    assert seen == []
    stopped.set()
    late.join(HANG)
    # Spark looks for these words, and takes the error for the interruption by its stop.
    assert list(map(str, seen)) == [
        "py4j.protocol.Py4JJavaError: An error occurred while calling the sinks: "
        "java.lang.InterruptedException: the query was drained"
    ]


def test_a_batch_that_nothing_stops_is_still_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_writer, "_LONGEST_STOP", batch_writer._LONGEST_STOP * 0)
    writer = writer_at(tmp_path)
    writer.end(lambda: True)
    with pytest.raises(StartError, match=r"^the query is being drained: this batch is not written any"):
        writer(NOTHING, 0)


def test_a_drain_stops_first(tmp_path: Path, recorded: Any) -> None:
    Query(recorded, writer_at(tmp_path)).stop(drain=True)
    assert recorded.calls == ["stop", "drain"]


def test_a_query_that_lost_its_checkpoint_drains_nothing(tmp_path: Path, recorded: Any) -> None:
    writer = writer_at(tmp_path)
    writer.ownership.take()
    Ownership.next(tmp_path.as_uri()).take()
    with pytest.raises(CheckpointTaken):
        writer(NOTHING, 0)  # before anything is asked of the batch
    with pytest.raises(CheckpointTaken):
        Query(recorded, writer).stop(drain=True)
    assert recorded.calls == ["stop"]


def test_a_drain_that_is_refused_stops_all_the_same(tmp_path: Path, recorded: Any) -> None:
    writer, recorded.isActive = writer_at(tmp_path), False
    writer._last = 3  # written, and the query failed before it was committed
    with pytest.raises(
        StartError, match=r"^batch 3 may have been written, and the query ended before it was"
    ):
        Query(recorded, writer).stop(drain=True)
    assert recorded.calls == ["stop"]
    refuse_drained(tmp_path.as_uri())  # it is not finished: the next start goes on


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
    assert writer._stopping is None, "the batch can still be written"
    writer._last = 0
    (tmp_path / "commits" / "0").touch()
    ends.join(HANG)
    assert writer._stopping is not None


def test_a_query_that_fails_before_that_batch_is_not_drained(tmp_path: Path, recorded: Any) -> None:
    recorded.isActive = False
    with pytest.raises(StartError, match="batch 3 may have been written, and the query ended"):
        Query(recorded, replace(writer_at(tmp_path), begun_before=3)).stop(drain=True)
    assert recorded.calls == ["stop"]


# -- the metadata file ----------------------------------------------------------------------------


def test_a_drain_has_the_number_after_the_last_batch_however_often_it_begins(tmp_path: Path) -> None:
    checkpoint = tmp_path.as_uri()
    assert Drained.of(checkpoint) is None
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "6").touch()
    begun = Drained.begin(checkpoint)
    assert (begun.batch, begun.done) == (7, False)
    assert replace(begun, began="1970-01-01T00:01:00.250+00:00").now == 60_250_000
    assert Drained.begin(checkpoint) == begun == Drained.of(checkpoint)
    refuse_drained(checkpoint)  # it is completed first
    begun.end(checkpoint)
    assert Drained.begin(checkpoint) == replace(begun, done=True)
    with pytest.raises(CheckpointDrained, match=r"was drained at .*, with batch 7: it is finished"):
        refuse_drained(checkpoint)


def test_a_query_that_holds_nothing_is_finished_at_once(tmp_path: Path) -> None:
    writer = writer_at(tmp_path)
    complete_drain(writer)  # there is none
    drain(writer)
    with pytest.raises(CheckpointDrained, match="with batch 0"):
        refuse_drained(writer.checkpoint)


def test_a_damaged_metadata_file_is_no_licence_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "tidegate.drained.json").write_text("{")
    with pytest.raises(StartError, match="is damaged and cannot be read"):
        refuse_drained(tmp_path.as_uri())
