"""Stopping with a drain, without Spark: what happens in which order, and who is told."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.errors import CheckpointDrained, CheckpointTaken, StartError
from tidegate.spark import query as queries
from tidegate.spark.batch_writer import BatchWriter
from tidegate.spark.checkpoint.metadata import Drained, refuse_drained
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.drain import drain
from tidegate.spark.query import Query, Stream

NOTHING: Any = None


class Recorded(Stream):
    """A stream of rows, Spark's query and the drain, as far as a stop calls them."""

    def __init__(self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frame: Any = SimpleNamespace(sparkSession=NOTHING)
        super().__init__(frame, writer_at(checkpoint), NOTHING)
        calls: list[str] = []
        object.__setattr__(self, "calls", calls)
        monkeypatch.setattr(queries, "drain", lambda *_, **__: calls.append("drain"))

    def query(self) -> Query:
        stop = lambda: self.calls.append("stop")  # noqa: E731
        spark: Any = SimpleNamespace(isActive=False, stop=stop)
        return Query(spark, self)

    def run_one_batch(self) -> None:
        self.calls.append("batch")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return Recorded(tmp_path, monkeypatch)


def writer_at(checkpoint: Path) -> BatchWriter:
    uri = checkpoint.absolute().as_uri()
    return BatchWriter(NOTHING, {}, uri, Ownership.next(uri), NOTHING)


def test_a_drain_stops_first(recorded: Any) -> None:
    recorded.query().stop(drain=True)
    assert recorded.calls == ["stop", "drain"]


def test_a_batch_that_was_begun_is_completed_before_the_drain(tmp_path: Path, recorded: Any) -> None:
    """Its rows may be in the sinks: a drain must not take its number."""
    for folder, batches in (("offsets", "01"), ("commits", "0")):
        (tmp_path / folder).mkdir()
        for batch in batches:
            (tmp_path / folder / batch).touch()
    recorded.query().stop(drain=True)
    assert recorded.calls == ["stop", "batch", "drain"]


def test_a_drain_is_not_begun_if_that_batch_fails(
    tmp_path: Path, recorded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()

    def fails(_: Any) -> None:
        raise RuntimeError("the sink fails")

    monkeypatch.setattr(Recorded, "run_one_batch", fails)
    with pytest.raises(RuntimeError, match="the sink fails"):
        recorded.query().stop(drain=True)
    assert recorded.calls == ["stop"]
    refuse_drained(tmp_path.as_uri())  # it is not finished: the next start goes on


def test_a_query_that_lost_its_checkpoint_drains_nothing(tmp_path: Path, recorded: Any) -> None:
    recorded.writer.ownership.take()
    Ownership.next(tmp_path.as_uri()).take()
    with pytest.raises(CheckpointTaken):
        recorded.writer(NOTHING, 0)  # before anything is asked of the batch
    with pytest.raises(CheckpointTaken):
        recorded.query().stop(drain=True)
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
    drain(NOTHING, writer)
    with pytest.raises(CheckpointDrained, match="with batch 0"):
        refuse_drained(writer.checkpoint)


def test_a_damaged_metadata_file_is_no_licence_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "tidegate.drained.json").write_text("{")
    with pytest.raises(StartError, match="is damaged and cannot be read"):
        refuse_drained(tmp_path.as_uri())
