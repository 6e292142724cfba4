"""The clock's arithmetic: offsets never go back, and hold all that rows are made of."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidegate.errors import PlanError
from tidegate.spark.sources.clock import ClockReader, Settings, rows_between

LIMIT = ReadAllAvailable()
SECOND = 1_000_000


class Wall:
    """A wall clock that stands where it is put."""

    def __init__(self, now: int = 0) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Sources:
    """A reader with the progress file beside it; source 0 never falls idle, 1 and 2 may."""

    def __init__(self, folder: Path, idle: dict[str, int], tolerances: list[int]) -> None:
        self.wall = Wall(1_000 * SECOND)
        self.file = folder / "progress.json"
        settings = Settings(idle=idle, tolerances=tolerances, progress=self.file.as_uri())
        self.reader = ClockReader(settings, now=self.wall)
        self.offset = self.reader.initialOffset()

    def write(self, progress: dict[str, Any]) -> None:
        self.file.write_text(json.dumps(progress))

    def next(self) -> list[tuple[int, int | None]]:
        """A second later: the rows of the next batch."""
        self.wall.now += SECOND
        # Spark keeps offsets as text.
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, LIMIT)))
        rows = rows_between(self.offset, end)
        self.offset = end
        return rows

    def seen(self, ago: int) -> int:
        return self.wall.now - ago


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path, {"1": 10 * SECOND, "2": 10 * SECOND}, [5, 70, 900])


# -- ticks --------------------------------------------------------------------------------------


def ticking(now: int) -> tuple[ClockReader, Wall]:
    wall = Wall(now)
    return ClockReader(Settings(tick=10), now=wall), wall


def test_an_offset_is_the_time_of_the_present_tick():
    reader, wall = ticking(1_005)
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert offset == {"tick": 1_000, "levels": {}}
    wall.now = 1_009
    assert reader.latestOffset(offset, LIMIT) == offset
    wall.now = 1_010
    assert reader.latestOffset(offset, LIMIT)["tick"] == 1_010


def test_a_clock_that_goes_back_never_takes_the_offset_back():
    reader, wall = ticking(1_000)
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    wall.now = 500
    assert reader.latestOffset(offset, LIMIT) == offset


@pytest.mark.parametrize(("ticks", "rows"), [(0, []), (1, [(-1, None)]), (1_000, [(-1, None)])])
def test_many_ticks_are_one_row(ticks, rows):
    start, end = {"tick": 7, "levels": {}}, {"tick": 7 + ticks, "levels": {}}
    assert rows_between(start, end) == rows
    assert [p.value for p in ticking(0)[0].partitions(start, end)] == ([rows] if rows else [])


def test_the_first_batch_begins_where_a_replay_of_it_begins():
    reader, wall = ticking(1_000)
    first = reader.initialOffset()
    wall.now = 2_000
    assert ticking(3_000)[0].initialOffset() == reader.initialOffset() == first


def test_time_stops_for_a_run_over_what_is_there():
    reader, wall = ticking(1_000)
    reader.prepareForTriggerAvailableNow()
    wall.now = 2_000
    offset = reader.latestOffset(reader.initialOffset(), LIMIT)
    assert offset["tick"] == 1_000
    wall.now = 3_000
    assert reader.latestOffset(offset, LIMIT) == offset


def test_without_ticks_nothing_moves():
    wall = Wall(1_000)
    reader = ClockReader(Settings(), now=wall)
    wall.now = 1 << 60
    assert reader.latestOffset(reader.initialOffset(), LIMIT) == reader.initialOffset()


def test_rows_as_arrow():
    [batch] = ticking(0)[0].read(ticking(0)[0].partitions({"tick": 0, "levels": {}}, LATER)[0])
    assert batch.to_pydict()["source"] == [-1, 1]
    assert batch.column("level").cast("int64").to_pylist() == [None, 77]


LATER = {"tick": 1, "levels": {"1": 77}}


# -- heartbeats ---------------------------------------------------------------------------------


def test_an_idle_source_is_brought_to_the_lowest_of_the_others(sources):
    sources.write(
        {
            "0": {"watermark": 400, "seen_at": sources.seen(999 * SECOND)},  # never falls idle
            "1": {"watermark": 100, "seen_at": sources.seen(20 * SECOND)},
            "2": {"watermark": 300, "seen_at": sources.seen(0)},
        }
    )
    assert sources.next() == [(1, 300 + 70)]
    assert sources.next() == []


def test_silence_must_be_longer_than_allowed(sources):
    sources.write(
        {
            "0": {"watermark": 400, "seen_at": sources.seen(0)},
            "1": {"watermark": 100, "seen_at": sources.seen(9 * SECOND)},
            "2": {"watermark": 300, "seen_at": sources.seen(9 * SECOND - 1)},
        }
    )
    assert sources.next() == []  # exactly ten seconds
    sources.wall.now -= SECOND - 1  # and one microsecond more
    assert sources.next() == [(1, 300 + 70)]


def test_a_source_that_was_never_seen_counts_from_the_start(sources):
    sources.write({"0": {"watermark": 400, "seen_at": 0}})
    for _ in range(10):
        assert sources.next() == []
    assert sources.next() == [(1, 400 + 70), (2, 400 + 900)]


def test_levels_follow_the_others_and_never_go_back(sources):
    silent = {"watermark": None, "seen_at": 0}
    found = []
    for mark in (400, 400, 500, 450, 600):
        sources.write({"0": {"watermark": mark, "seen_at": 0}, "1": silent, "2": silent})
        found.append(sources.next())
    assert found == [
        [(1, 470), (2, 1_300)],
        [],
        [(1, 570), (2, 1_400)],
        [],
        [(1, 670), (2, 1_500)],
    ]


def test_a_source_that_is_further_than_the_others_is_left_alone(sources):
    idle = sources.seen(20 * SECOND)
    sources.write(
        {
            "0": {"watermark": 400, "seen_at": 0},
            "1": {"watermark": 400, "seen_at": idle},
            "2": {"watermark": 399, "seen_at": idle},
        }
    )
    assert sources.next() == [(2, 400 + 900)]


@pytest.mark.parametrize("mark", [None, 400])
def test_no_heartbeat_where_nobody_is_active(tmp_path, mark):
    sources = Sources(tmp_path, {"0": SECOND, "1": SECOND}, [0, 0])
    entry = {"watermark": mark, "seen_at": 0}
    sources.write({"0": entry, "1": entry})
    assert sources.next() == []


def test_no_heartbeat_while_the_active_ones_have_no_watermark(sources):
    silent = {"watermark": 100, "seen_at": 0}
    sources.write({"0": {"watermark": None, "seen_at": sources.seen(0)}, "1": silent, "2": silent})
    assert sources.next() == []


def test_a_file_that_is_not_there_yet_or_half_written(sources):
    assert sources.next() == []
    silent = {"watermark": None, "seen_at": 0}
    sources.write({"0": {"watermark": 400, "seen_at": 0}, "1": silent})
    assert sources.next() == [(1, 470)]
    sources.file.write_text('{"0": {"water')
    before = sources.offset
    assert sources.next() == []
    assert sources.offset == before


def test_the_file_is_not_read_each_time_spark_asks(sources):
    silent = {"watermark": None, "seen_at": 0}
    sources.write({"0": {"watermark": 400, "seen_at": 0}, "1": silent})
    assert sources.next() == [(1, 470)]
    sources.write({"0": {"watermark": 500, "seen_at": 0}, "1": silent})
    sources.wall.now -= SECOND - 50_000
    assert sources.next() == []
    assert sources.next() == [(1, 570)]


def test_a_run_over_what_is_there_sees_every_progress(sources):
    sources.reader.prepareForTriggerAvailableNow()
    for mark in (400, 500):
        sources.write({"0": {"watermark": mark, "seen_at": 0}, "1": {"watermark": None, "seen_at": 0}})
        assert sources.next() == [(1, mark + 70)]
        sources.wall.now -= SECOND
    assert sources.next() == []


def test_equal_offsets_are_equal_texts(tmp_path):
    sources = Sources(tmp_path, {str(i): SECOND for i in (11, 2, 1)}, [0] * 12)
    sources.write({"0": {"watermark": 400, "seen_at": 0}, "2": {"watermark": None, "seen_at": 0}})
    sources.next()
    sources.next()
    assert list(sources.offset["levels"]) == ["1", "2", "11"]


def test_a_replay_repeats_the_rows():
    start = {"tick": 3, "levels": {"1": 50, "2": 60}}
    end = {"tick": 9, "levels": {"1": 50, "2": 80, "3": 10}}
    assert rows_between(start, end) == [(-1, None), (2, 80), (3, 10)]


# -- options ------------------------------------------------------------------------------------


def test_options_are_text():
    options = {"tick": "1000", "idle": '{"1": 5}', "tolerances": "[0, 7]", "progress": "file:///p"}
    assert Settings.of(options) == Settings(1_000, {"1": 5}, [0, 7], "file:///p")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tick": "0"}, "a tick must be greater than zero, got 0"),
        ({"idle": '{"0": 5}', "tolerances": "[0]"}, "the progress file; name it"),
        ({"idle": '{"1": 5}', "tolerances": "[0]", "progress": "p"}, "source 1 is not one of 1 sources"),
    ],
)
def test_options_that_mean_nothing(options, message):
    with pytest.raises(PlanError, match=message):
        Settings.of(options)
