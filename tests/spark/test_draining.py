"""Draining again and again: a table fed by the sink always has the last word on each window."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from tests.spark.conftest import run, seconds, write_batches
from tests.support.time_limits import HANG
from tidegate.spark.inspection import states_of
from tidegate.spark.query import BatchWriter


class Fed:
    """A stream whose files come as the test goes on."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder, self._files = spark, folder, 0
        folder.mkdir()

    def add(self, *batches: list[tuple[float, str | None, float]]) -> None:
        write_batches(self._folder, batches, start=self._files)
        self._files += len(batches)

    def spend(self, lateness: str = "0 s") -> Any:
        reader = self._spark.readStream.schema("ts timestamp, user string, price double")
        stream = reader.option("maxFilesPerTrigger", 1).parquet(str(self._folder))
        window = tg.tumbling("10 s")
        keyed = tg.events(stream, time="ts").key_by("user").window(window, allowed_lateness=lateness)
        return keyed.agg(spend=tg.sum("price"))


@pytest.fixture
def fed(spark: Any, tmp_path: Path) -> Fed:
    return Fed(spark, tmp_path / "in")


def spends(sink: Any, until: float = 10) -> list[tuple[str | None, float]]:
    """What was said of the first window, in order."""
    rows = [row for row in sink.rows() if seconds(row["window_end"]) <= until]
    return [(row["user"], row["spend"]) for row in rows]


def test_a_correction_back_to_what_was_drained_is_put_out(fed: Fed, tmp_path: Path) -> None:
    main = tg.sinks.memory()
    fed.add([(1, "a", 5.0), (1, None, 5.0), (2, "b", 1.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main).stop(drain=True)
    assert sorted(spends(main), key=str) == [("a", 5.0), ("b", 1.0), (None, 5.0)]
    fed.add([(3, "a", 2.0), (3, None, 2.0)], [(15, "b", 0.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main)
    assert sorted(spends(main)[3:], key=str) == [("a", 7.0), (None, 7.0)], "b has not changed"
    fed.add([(4, "a", -2.0), (4, None, -2.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main)
    assert sorted(spends(main)[5:], key=str) == [("a", 5.0), (None, 5.0)]


def test_corrections_there_and_back_within_one_run(fed: Fed, tmp_path: Path) -> None:
    """The first result equals the drained one and is left out; it counts as out all the same."""
    main = tg.sinks.memory()
    fed.add([(1, "a", 5.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main).stop(drain=True)
    closing = [(15.0, "b", 0.0)], [(16.0, "b", 0.0)]
    fed.add(*closing, [(2, "a", 2.0)], [(3, "a", -2.0)], [(4, "a", 2.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main)
    assert spends(main) == [("a", 5.0), ("a", 7.0), ("a", 5.0), ("a", 7.0)]
    kept = list((tmp_path / "checkpoint" / "tidegate.drained" / "since").iterdir())
    assert len(kept) == 2, "what the last batch needs, and what it leaves to the next"


def test_a_batch_that_is_replayed_puts_out_the_same_rows(fed: Fed, tmp_path: Path) -> None:
    """The sink fails before it has written the correction, and after it has written the next one."""
    main, attempts, failing = tg.sinks.memory(), [], {"before": 7.0, "after": 5.0}

    def fails_once_each(rows: Any, batch_id: int) -> None:
        found = [row["spend"] for row in rows.collect()]
        attempts.append((batch_id, found))
        fail("before", found)
        main(rows, batch_id)
        fail("after", found)

    def fail(when: str, found: list[float]) -> None:
        if failing.get(when) in found:
            del failing[when]
            raise RuntimeError("the sink fails")

    fed.add([(1, "a", 5.0)])
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=main).stop(drain=True)
    closing = [(15.0, "b", 0.0)], [(16.0, "b", 0.0)]
    fed.add([(2, "a", 2.0)], *closing, [(3, "a", -2.0)], [(4, "a", 1.0)])
    for _ in range(2):
        with pytest.raises(StreamingQueryException):
            run(fed.spend("1 minute"), tmp_path / "checkpoint", main=fails_once_each)
    run(fed.spend("1 minute"), tmp_path / "checkpoint", main=fails_once_each)
    first = attempts[0][0]
    again = [(first, [7.0]), (first, [7.0]), (first + 1, [5.0]), (first + 1, [5.0])]
    assert attempts == [*again, (first + 2, [6.0])]
    assert spends(main) == [("a", 5.0), ("a", 7.0), ("a", 5.0), ("a", 6.0)]


def test_each_drain_is_compared_with_the_one_before_it(fed: Fed, tmp_path: Path) -> None:
    """A window that goes from 5 to 7 and back comes out each time it has changed, and only then."""
    main = tg.sinks.memory()
    for paid in (5.0, 2.0, -2.0, 0.0):
        fed.add([(1, "a", paid)])
        run(fed.spend(), tmp_path / "checkpoint", main=main).stop(drain=True)
    assert spends(main) == [("a", 5.0), ("a", 7.0), ("a", 5.0)]
    fed.add([(3, "a", 2.0)], [(15, "b", 0.0)])
    run(fed.spend(), tmp_path / "checkpoint", main=main)
    assert spends(main) == [("a", 5.0), ("a", 7.0), ("a", 5.0), ("a", 7.0)]


def test_a_batch_that_comes_between_end_and_stop_is_left_to_the_next_start(
    fed: Fed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query ends as one that was stopped does, whoever waits for it."""
    came_after, write = Event(), BatchWriter.__call__

    def noticed(writer: BatchWriter, packed: Any, batch_id: int) -> None:
        if writer._ended:
            came_after.set()
        write(writer, packed, batch_id)

    monkeypatch.setattr(BatchWriter, "__call__", noticed)
    main = tg.sinks.memory()
    fed.add([(1, "a", 5.0)], [(15, "b", 1.0)])
    query = fed.spend().start(checkpoint=tmp_path / "checkpoint", main=main)
    query.process_all_available()
    stop = query.spark.stop

    def stops_late() -> None:
        fed.add([(16, "b", 1.0)], [(30, "c", 1.0)])
        assert came_after.wait(HANG)
        time.sleep(1)  # long enough for a failure to end the query
        stop()

    monkeypatch.setattr(query.spark, "stop", stops_late)
    with ThreadPoolExecutor() as threads:
        ended = threads.submit(query.await_termination)
        query.stop(drain=True)
        assert ended.result(timeout=HANG)
    assert query.spark.exception() is None
    assert spends(main, until=60) == [("a", 5.0), ("b", 1.0)]
    run(fed.spend(), tmp_path / "checkpoint", main=main).stop(drain=True)
    assert spends(main, until=60) == [("a", 5.0), ("b", 1.0), ("b", 2.0), ("c", 1.0)]


def test_folders_with_odd_names_are_each_one_folder(spark: Any, tmp_path: Path) -> None:
    """Arrow reads `%20` in a URI as a blank, Spark takes it as it stands: both must mean one place."""
    place = tmp_path / "my täglich 100% #1"
    place.mkdir()
    fed = Fed(spark, place / "in")
    checkpoint, out = place / "check point", tg.sinks.parquet(place / "what comes out")
    fed.add([(1, "a", 5.0)], [(12, "a", 1.0)])
    query = run(fed.spend(), checkpoint, main=out)
    with pytest.raises(tg.errors.StateError, match="whose path has blanks or special characters"):
        query.stop(drain=True)
    fed.add([(13, "a", 1.0)], [(25, "a", 0.0)])
    run(fed.spend(), checkpoint, main=out)
    assert sorted(one.name for one in place.iterdir()) == ["check point", "in", "what comes out"]
    assert {"tidegate.json", "offsets", "commits", "state"} <= {one.name for one in checkpoint.iterdir()}
    rows = pq.read_table(sorted((place / "what comes out").glob("batch-*.parquet"))).to_pylist()
    assert [row["spend"] for row in rows] == [5.0, 2.0]
    with pytest.raises(tg.errors.StateError, match="whose path has blanks or special characters"):
        states_of(spark, str(checkpoint))
    with pytest.raises(tg.errors.CheckpointMismatch, match="another program"):
        run(fed.spend("1 minute"), checkpoint, main=out)
