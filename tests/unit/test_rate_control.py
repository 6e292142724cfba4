"""How a query speaks with its readers, without Spark: notes on disk, and marks in columns' metadata."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tidegate.errors import DurationError, PlanError, StartError
from tidegate.plan.time import Micros
from tidegate.spark import rate_control as pacing
from tidegate.spark.rate_control import (
    ControlFiles,
    Pace,
    RateControl,
    Taken,
    hold_sources,
    mark,
    paced_sources,
)

MINUTE = Pace(Micros(60_000_000), least=10, most=1_000, start=100)


def frame(folder: Path | None, pace: Pace = MINUTE) -> Any:
    """What is looked at of a DataFrame: the metadata of its columns."""
    given = {} if folder is None else {"tidegate.pace": mark(ControlFiles(folder.as_uri()), pace)}
    columns = [SimpleNamespace(metadata={}), SimpleNamespace(metadata=given)]
    return SimpleNamespace(schema=columns)


class Query:
    """A query over folders that are controlled, and its clock."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *frames: Any) -> None:
        self.path, self.frames, self.now = path, frames, 1_000.0
        monkeypatch.setattr(pacing, "now", lambda: self.now)
        self.start()

    def start(self) -> None:
        self.paced = list(paced_sources(self.frames, None))
        self.pacing = RateControl.of(self.paced, (self.path / "checkpoint").as_uri())
        self.pacing.begin()

    def control(self, name: str) -> ControlFiles:
        return ControlFiles((self.path / name).as_uri())

    def batch(self, seconds: float, **rows: int) -> None:
        """A batch for which readers are asked, each handing out as much as it is asked for."""
        for name in rows:
            self.control(name).tell(Taken(rows[name], self.now))
        self.now += seconds
        self.pacing.observe(sum(rows.values()), self.now - seconds / 2)


@pytest.fixture
def query(tmp_path, monkeypatch):
    return Query(tmp_path, monkeypatch, frame(None), frame(tmp_path / "a"), frame(tmp_path / "b"))


def test_readers_are_told_what_to_begin_with(query):
    assert [query.control(name).asked() for name in "ab"] == [100, 100]


def test_each_reader_is_steered_by_its_own_rows_and_the_time_of_the_whole_batch(query):
    query.batch(1, a=100, b=100)
    query.batch(1, a=100, b=3)
    assert [query.control(name).asked() for name in "ab"] == [200, 100]
    query.batch(120, a=200)
    query.batch(120, a=200)
    assert [query.control(name).asked() for name in "ab"] == [100, 100]


def test_a_batch_counts_from_when_it_was_asked_for(query):
    query.batch(1, a=100)
    query.batch(70, a=100)  # written in 35 seconds, but it took 70
    assert query.control("a").asked() < 100


def test_a_batch_that_was_not_taken_anew_says_nothing(query):
    for _ in range(3):
        query.batch(1, a=100)
    points = query.pacing.metrics()["batch_points.1"]
    query.batch(1000)
    assert query.pacing.metrics()["batch_points.1"] == points


def test_what_an_earlier_query_left_is_not_looked_at(query):
    query.batch(1, a=100)
    query.control("a").tell(Taken(100, query.now))
    query.start()
    query.batch(1)
    query.batch(1)
    assert query.pacing.metrics()["batch_points.1"] == 0
    assert query.pacing.metrics()["batch_rows.1"] == 100


def test_the_choice_survives_and_bounds_still_hold(query):
    query.batch(1, a=100, b=100)
    query.batch(1, a=100, b=100)
    query.start()
    assert query.pacing.metrics()["batch_rows.1"] == 200
    narrow = Pace(Micros(60_000_000), least=10, most=150)
    query.frames = [frame(None), frame(query.path / "a", narrow), frame(None)]
    query.start()
    assert query.pacing.metrics()["batch_rows"] == 150


def test_names_have_numbers_where_there_are_several(query):
    names = query.pacing.metrics()
    assert {"batch_rows.1", "batch_rows.2", "batch_target_seconds.2"} <= names.keys()
    query.frames = query.frames[:2]
    query.start()
    assert "batch_rows" in query.pacing.metrics()


def test_a_stream_that_is_read_twice_has_one_reader(query):
    query.frames = [frame(query.path / "a"), frame(query.path / "a")]
    query.start()
    assert query.pacing.metrics()["batch_rows"] == 100


def test_a_throttle_reaches_the_readers_at_once(query):
    query.pacing.throttle(0.25)
    assert [query.control(name).asked() for name in "ab"] == [25, 25]
    query.batch(1, a=25, b=25)
    assert query.pacing.metrics()["batch_rows.1"] == 100
    assert query.pacing.metrics()["batch_rows_asked.1"] == 25


def test_a_query_without_a_pace_says_nothing_and_writes_nothing(tmp_path, monkeypatch):
    query = Query(tmp_path, monkeypatch, frame(None))
    query.batch(1)
    assert query.pacing.metrics() == {}
    assert not (tmp_path / "checkpoint").exists()


def test_a_reader_belongs_to_one_active_query(query):
    active = [True]
    hold_sources(query.paced, lambda: bool(active))
    with pytest.raises(StartError, match=r"another active query .* call read_folder\(\) once for each"):
        query.start()
    active.clear()
    query.start()


def test_a_watched_query_goes_by_its_own_rows(tmp_path, monkeypatch):
    clock = Query(tmp_path, monkeypatch, frame(None))
    checkpoint = tmp_path / "checkpoint"
    watched = RateControl.of(paced_sources(clock.frames, MINUTE), checkpoint.as_uri())
    for _ in range(2):
        watched.observe(500, clock.now - 1)
    assert watched.metrics()["batch_rows"] == 200
    assert MINUTE.rows(checkpoint) == 200
    assert MINUTE.rows(tmp_path / "other") == 100
    with pytest.raises(StartError, match="only watched, but this query reads a folder with a pace"):
        list(paced_sources([frame(tmp_path / "a")], MINUTE))


def test_a_pace_must_make_sense():
    with pytest.raises(DurationError, match=r"pace\(target\) must be greater than zero"):
        tg.pace("0 s")
    with pytest.raises(PlanError, match="batches of 5 to 4 rows"):
        tg.pace("1 s", least=5, most=4)
