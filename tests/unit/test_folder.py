"""A folder as one sequence of rows: wherever it is cut, each row comes once, and a replay repeats it."""

import io
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tidegate.connectors import file_splits as module
from tidegate.connectors.file_splits import BEGINNING, FILE, LINE, Folder, Lines, Parquet
from tidegate.errors import PlanError, SourceError, StartError
from tidegate.spark.rate_control import ControlFiles, Taken
from tidegate.spark.sources.folder import FolderReader, Settings, reads, refuse_folders_inside, shares

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
LIMIT = ReadMaxRows(10**9)


class Place:
    """A folder of numbered rows, read batch by batch."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind, self.count = path, kind, 0
        self.folder = Folder(path.as_uri(), Lines() if kind == "lines" else Parquet(SCHEMA))
        self.offset = BEGINNING
        self.offsets = [BEGINNING]

    def put(self, name: str, rows: int, at: int = 0) -> list[int]:
        """A file with the next numbers; they come back."""
        numbers = list(range(self.count, self.count + rows))
        self.count += rows
        staged = self.path / f"_{name}"
        if self.kind == "lines":
            staged.write_text("".join(f"{n}\n" for n in numbers))
        else:
            names = pa.array([f"row {n}" for n in numbers], pa.string())
            pq.write_table(pa.table([numbers, names], SCHEMA), staged, row_group_size=7)
        os.utime(staged, (at, at))
        staged.rename(self.path / name)
        return numbers

    def take(self, *rows: int, most_files: int | None = None) -> list[int]:
        """The next batch, of so many rows for each task."""
        end, taken = self.folder.take(self.offset, self.folder.names(), rows, most_files)
        start, self.offset = self.offset, json.loads(json.dumps(end))  # Spark keeps offsets as text
        if self.offset == start:
            assert taken == 0
            return []
        self.offsets.append(self.offset)
        numbers = self.rows(self.offset)
        assert taken == len(numbers)
        return numbers

    def rows(self, offset) -> list[int]:
        batches = [batch for pieces in offset["batch"] for batch in self.folder.read(pieces)]
        return [int(value) for batch in batches for value in batch.column(0).to_pylist()]

    def rest(self, *rows: int) -> list[int]:
        """Everything that is left, in batches of so many rows."""
        found = []
        while batch := self.take(*rows):
            found += batch
        return found


@pytest.fixture(params=["lines", "parquet"])
def place(request, tmp_path):
    return Place(tmp_path, request.param)


# -- cutting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [(1,), (3,), (7,), (8,), (100,), (1, 1), (2, 5), (50, 50)])
def test_each_row_comes_once_and_in_order_wherever_it_is_cut(place, share):
    rows = [*place.put("a", 10, at=1), *place.put("b", 1, at=2), *place.put("c", 25, at=3)]
    assert place.rest(*share) == rows


def test_a_batch_is_as_large_as_asked_for(place):
    for name in "abc":
        place.put(name, 10, at=ord(name))
    assert [len(place.take(*share)) for share in ([4], [3, 2], [12], [100], [1])] == [4, 5, 12, 9, 0]


def test_tasks_read_one_after_the_other(place):
    rows = place.put("a", 10)
    place.take(3, 4)
    assert [len(task) for task in place.offset["batch"]] == [1, 1]
    assert place.rows(place.offset) == rows[:7]


def test_a_replay_repeats_each_batch(place):
    place.put("a", 20, at=1)
    place.put("b", 20, at=2)
    batches = [place.take(6, 5), place.take(9), place.take(3, 3, 3), place.take(100)]
    place.put("c", 20, at=0)  # what has come since makes no difference
    assert [place.rows(offset) for offset in place.offsets[1:]] == batches


def test_empty_files_are_passed_over(place):
    place.put("a", 0, at=1)
    rows = place.put("b", 3, at=2)
    place.put("c", 0, at=3)
    assert place.rest(2) == rows


def test_nothing_new_leaves_the_offset_as_it_is(place):
    place.put("a", 3)
    place.take(3)
    before = place.offset
    assert place.take(10) == []
    assert place.offset == before


# -- files that come and go ---------------------------------------------------------------------


@pytest.mark.parametrize("times", [(5, 5, 5, 5, 5), (1, 2, 3, 4, 5), (5, 4, 3, 2, 1)], ids=str)
def test_files_are_taken_by_name_whatever_their_times(place, times):
    """Numbers in names are numbers: a copy of a folder is read like the folder itself."""
    names = ("2.json", "10.json", "day-9-10.json", "day-10-2.json", "x.json")
    rows = [place.put(name, 2, at=at) for name, at in zip(names, times, strict=True)]
    assert place.rest(1) == [number for file in rows for number in file]


def test_names_that_differ_in_zeros_only_have_an_order_too(place):
    third, first, second = place.put("1", 1), place.put("001", 1), place.put("01", 1)
    assert place.folder.names() == ["001", "01", "1"]
    assert place.rest(5) == [*first, *second, *third]


def test_or_by_time_then_name(place):
    place.folder = replace(place.folder, order="modified")
    late, second, first = place.put("a", 2, at=9), place.put("c", 2, at=5), place.put("b", 2, at=5)
    assert place.rest(1) == [*first, *second, *late]


@pytest.mark.parametrize("order", ["name", "modified"])
def test_a_file_that_appears_late_is_the_next_one(place, order):
    place.folder = replace(place.folder, order=order)
    first, second = place.put("m", 4, at=50), place.put("n", 4, at=60)
    assert place.take(2) == first[:2]
    late = place.put("a", 4, at=5)
    # The file that was begun is finished before.
    assert place.take(4) == [*first[2:], *late[:2]]
    later = place.put("b", 1, at=10)
    assert place.rest(3) == [*late[2:], *later, *second]


def test_a_batch_has_so_many_files(place):
    """Those without rows do not count, and hold nothing up."""
    files = [place.put(name, rows) for name, rows in zip("abcdef", (3, 0, 1, 0, 0, 5), strict=True)]
    batches = [place.take(*[100] * 3, most_files=1) for _ in range(4)]
    assert batches == [files[0], files[2], files[5], []]


def test_a_batch_of_so_many_files_goes_over_several_tasks(place):
    rows = [*place.put("a", 7), *place.put("b", 2)]
    place.put("c", 1)
    assert place.take(3, 3, 3, most_files=2) == rows
    assert len(place.offset["batch"]) == 3


def test_a_batch_has_so_many_files_and_rows(place):
    rows = [*place.put("a", 5), *place.put("b", 5)]
    place.put("c", 5)
    # What is left of a file that was begun does not count.
    batches = [place.take(*share, most_files=1) for share in ([3], [3], [100], [100])]
    assert batches == [rows[:3], rows[3:6], [*rows[6:], *range(10, 15)], []]


def test_hidden_files_and_folders_are_left_out(place):
    rows = place.put("a", 2)
    (place.path / "_staging").mkdir()
    (place.path / "sub").mkdir()
    (place.path / ".hidden").write_text("1\n")
    (place.path / "_SUCCESS").write_text("")
    assert place.rest(5) == rows


def test_files_that_are_gone_are_forgotten_with_the_next_batch(place):
    for name in "abcd":
        place.put(name, 2, at=ord(name))
    place.rest(2)
    known = len(place.offset["read"])
    for name in "abc":
        (place.path / name).unlink()
    assert place.take(2) == []  # a folder that is not there for a moment is not forgotten
    rows = place.put("e", 2)
    assert place.rest(2) == rows
    assert len(place.offset["read"]) < known


def test_a_folder_that_cannot_be_seen_has_nothing_new(place, tmp_path):
    place.put("a", 2)
    place.rest(2)
    place.path.rename(tmp_path.with_name(tmp_path.name + "-away"))
    assert place.take(2) == []


def test_at_random(place):
    """Files of any size and time come at any moment, batches have any number of rows."""
    chance = random.Random(7)
    found = []
    for _ in range(60):
        if chance.random() < 0.5:
            place.put(f"{chance.random()}", chance.randrange(30), at=chance.randrange(100))
        found += place.take(*(chance.randrange(1, 20) for _ in range(chance.randrange(1, 4))))
    found += place.rest(10)
    assert sorted(found) == list(range(place.count))


# -- lines --------------------------------------------------------------------------------------


def lines(path: Path, begin: int, end: int) -> list[bytes]:
    with pa.OSFile(str(path)) as file:
        return [line for batch in Lines().read(file, begin, end) for line in batch[0].to_pylist()]


@pytest.mark.parametrize("chunk", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    "text", [b"", b"\n", b"a", b"a\n", b"a\nbb", b"a\n\nbb\r\nccc\n", b"\xff\xfe\n\x80"]
)
def test_lines_are_found_whatever_the_chunks(tmp_path, monkeypatch, text, chunk):
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk)
    (tmp_path / "file").write_bytes(text)
    wanted = io.BytesIO(text).readlines()
    found, position = [], 0
    with pa.OSFile(str(tmp_path / "file")) as file:
        while True:
            cut = Lines().cut(file, position, 1)
            if cut.rows:
                found += lines(tmp_path / "file", position, cut.end)
            position = cut.end
            if cut.is_last:
                break
    assert found == wanted
    assert lines(tmp_path / "file", 0, len(text)) == wanted


def test_a_header_is_left_out(tmp_path):
    (tmp_path / "a").write_text("n,name\n1,x\n2,y\n")
    (tmp_path / "b").write_text("n,name\n")
    folder = Folder(tmp_path.as_uri(), Lines(header=True))
    offset, taken = folder.take(BEGINNING, ["a", "b"], [1, 9])
    assert taken == 2
    assert [batch[0].to_pylist() for task in offset["batch"] for batch in folder.read(task)] == [
        [b"1,x\n"], [b"2,y\n"],
    ]  # fmt: skip


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".zst", ".lz4"])
def test_compressed_lines_are_read_by_what_they_are(tmp_path, ending):
    text = "".join(f"{number}\n" for number in range(1000)).encode()
    file = tmp_path / f"a.json{ending}"
    with pa.CompressedOutputStream(str(file), pa.Codec.detect(file.name).name) as out:
        out.write(text)
    place = Place(tmp_path, "lines")
    assert place.take(7) == list(range(7))
    assert place.rest(100) == list(range(7, 1000))


def test_a_broken_compressed_file_is_named(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(b"no such thing")
    with pytest.raises(SourceError, match=r"a\.json\.gz: "):
        Place(tmp_path, "lines").take(1)


def test_lines_know_their_files(tmp_path):
    (tmp_path / "a b").write_text("1\n2\n")
    (tmp_path / "c").write_text("3")
    folder = Folder(tmp_path.as_uri(), Lines())
    offset, _ = folder.take(BEGINNING, ["a b", "c"], [9])
    [task] = offset["batch"]
    found = [row for batch in folder.read(task) for row in batch.to_pylist()]
    place = tmp_path.as_uri()
    assert [(row[LINE], row[FILE]) for row in found] == [
        (b"1\n", f"{place}/a b"), (b"2\n", f"{place}/a b"), (b"3", f"{place}/c"),
    ]  # fmt: skip


def test_a_file_that_became_shorter_is_noticed(tmp_path):
    (tmp_path / "a").write_text("1\n2\n")
    folder = Folder(tmp_path.as_uri(), Lines())
    offset, _ = folder.take(BEGINNING, ["a"], [9])
    (tmp_path / "a").write_text("1\n")
    with pytest.raises(
        SourceError, match="the file has become shorter: 2 bytes of its rows are missing"
    ):
        list(folder.read(offset["batch"][0]))


# -- Parquet ------------------------------------------------------------------------------------


def test_columns_are_found_by_name_and_missing_ones_are_null(tmp_path):
    pq.write_table(pa.table({"other": [1], "n": pa.array([5], pa.int32())}), tmp_path / "a")
    folder = Folder(tmp_path.as_uri(), Parquet(SCHEMA))
    [batch] = folder.read([("a", 0, 1)])
    assert batch.schema == SCHEMA
    assert batch.to_pylist() == [{"n": 5, "name": None}]


# -- the reader ---------------------------------------------------------------------------------


class Reading:
    """A reader beside the folder of notes through which it is steered."""

    def __init__(self, path: Path) -> None:
        (path / "in").mkdir()
        self.place = Place(path / "in", "lines")
        self.control = ControlFiles((path / "control").as_uri())
        settings = Settings(self.place.path.as_uri(), "json", False, 2, control=self.control.folder)
        self.reader = FolderReader(settings, Lines())

    def next(self, start, limit=LIMIT):
        end = self.reader.latestOffset(start, limit)
        return end, self.place.rows(end) if end != start else []


@pytest.fixture
def reading(tmp_path):
    return Reading(tmp_path)


def test_a_batch_has_the_rows_that_were_asked_for_last(reading):
    rows = reading.place.put("a", 100)
    offset, found = reading.reader.initialOffset(), []
    for asked in (10, 30, 1):
        reading.control.ask(asked)
        offset, batch = reading.next(offset)
        assert len(batch) == reading.control.taken().rows == asked
        found += batch
    assert found == rows[:41]


def test_what_was_taken_is_told_once(reading):
    reading.control.ask(10)
    reading.place.put("a", 5)
    offset, _ = reading.next(BEGINNING)
    told = reading.control.taken()
    assert told.rows == 5
    reading.next(offset)
    assert reading.control.taken() == told


def test_a_reader_that_nobody_steers_says_so(reading):
    reading.place.put("a", 5)
    with pytest.raises(StartError, match=r"is controlled by start.*keep a column as it is"):
        reading.next(BEGINNING)


def test_a_trigger_that_takes_everything_takes_everything(reading):
    rows = reading.place.put("a", 50)
    reading.control.ask(10)
    assert reading.next(BEGINNING, ReadAllAvailable())[1] == rows


def test_without_a_pace_a_batch_is_everything(tmp_path):
    place = Place(tmp_path, "lines")
    rows = [*place.put("a", 5, at=1), *place.put("b", 5, at=2)]
    reader = FolderReader(Settings(place.path.as_uri(), "json", False, 2), Lines())
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    assert place.rows(reader.latestOffset(BEGINNING, ReadAllAvailable())) == rows


def test_a_batch_of_so_many_files_has_all_their_rows(tmp_path):
    place = Place(tmp_path, "lines")
    first, second = place.put("a", 5), place.put("b", 5)
    reader = FolderReader(Settings(place.path.as_uri(), "json", False, 2, max_files=1), Lines())
    limit = reader.getDefaultReadLimit()
    offset = reader.latestOffset(BEGINNING, limit)
    assert place.rows(offset) == first
    assert place.rows(reader.latestOffset(offset, limit)) == second
    # A trigger that asks for everything still gets a file at a time, as from Spark's own source.
    assert place.rows(reader.latestOffset(BEGINNING, ReadAllAvailable())) == first


@pytest.mark.parametrize(
    ("kind", "options", "ours"),
    [
        ("json", {}, True),
        ("json", {"timestampFormat": "yyyy", "mode": "FAILFAST"}, True),
        ("csv", {"header": "true", "sep": ";"}, True),
        ("parquet", {}, True),
        ("json", {"mode": "dropMalformed"}, False),
        ("json", {"multiLine": "true"}, False),
        ("csv", {"header": "true", "pathGlobFilter": "*.csv"}, False),
        ("csv", {"latestFirst": "false"}, False),
        ("parquet", {"recursiveFileLookup": "true"}, False),
        ("parquet", {"mode": "PERMISSIVE"}, False),
    ],
    ids=str,
)
def test_what_only_sparks_source_can_do_is_left_to_it(tmp_path, kind, options, ours):
    assert reads(str(tmp_path), kind, options) == ours


def test_only_folders_on_a_disk_are_read_by_us(tmp_path):
    place = tmp_path / "some folder"
    place.mkdir()
    (place / "1.json").write_text("{}")
    assert reads(str(place), "json", {})
    assert reads(place.as_uri(), "json", {})
    for other in (
        place / "1.json",
        place / "*.json",
        place / "gone",
        "s3://bucket/folder",
        "hdfs://h/f",
    ):
        assert not reads(str(other), "json", {})
    (place / "_spark_metadata").mkdir()  # the list of what a sink of Spark's has committed
    assert not reads(str(place), "json", {})


def test_folders_inside_are_not_left_out_silently(tmp_path):
    (tmp_path / "_staging").mkdir()
    refuse_folders_inside(str(tmp_path))
    (tmp_path / "day=1").mkdir()
    with pytest.raises(PlanError, match=r"has folders in it, such as 'day=1', .* recursiveFileLookup"):
        refuse_folders_inside(str(tmp_path))


@pytest.mark.parametrize("method", ["latestOffset", "partitions"])
def test_offsets_of_sparks_own_source_are_refused(reading, method):
    given = {"latestOffset": ({"logOffset": 3}, LIMIT), "partitions": (BEGINNING, {"logOffset": 3})}
    with pytest.raises(StartError, match=r"Spark's own source of files.*latestFirst = false keeps"):
        getattr(reading.reader, method)(*given[method])


def test_a_run_over_what_is_there_ends(reading):
    rows = reading.place.put("a", 5)
    reading.reader.prepareForTriggerAvailableNow()
    reading.place.put("b", 5)
    reading.control.ask(3)
    offset, first = reading.next(BEGINNING)
    offset, second = reading.next(offset)
    assert first + second == rows
    assert reading.next(offset) == (offset, [])


def test_an_empty_range_has_no_partitions(reading):
    reading.place.put("a", 5)
    reading.control.ask(3)
    offset, _ = reading.next(BEGINNING)
    assert [p.value for p in reading.reader.partitions(BEGINNING, offset)] == offset["batch"]
    assert reading.reader.partitions(offset, offset) == []


@pytest.mark.parametrize(
    ("rows", "most", "wanted"),
    [(1, 2, [1]), (10_000, 2, [10_000]), (10_001, 2, [5001, 5000]), (50_001, 3, [16_667] * 3)],
)
def test_small_batches_are_not_spread(rows, most, wanted):
    assert shares(rows, most) == wanted


def test_notes_survive_as_they_are(tmp_path):
    control = ControlFiles(tmp_path.as_uri())
    assert (control.asked(), control.taken()) == (None, None)
    control.tell(Taken(3, 1.5))
    assert control.taken() == Taken(3, 1.5)


def declared(tmp_path, kind: pa.DataType) -> Folder:
    return Folder(tmp_path.as_uri(), Parquet(pa.schema([("ts", kind)])))


def test_of_nanoseconds_microseconds_are_left(tmp_path):
    """Spark has no more, and a row that has is no reason to stop."""
    nanos = pa.array([1_700_000_000_000_000_999, None], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ts": nanos}), tmp_path / "a.parquet")
    [batch] = declared(tmp_path, pa.timestamp("us", "UTC")).read([("a.parquet", 0, 2)])
    assert batch.column("ts").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000, None]


def test_a_column_of_another_type_says_which_of_which_file(tmp_path):
    pq.write_table(pa.table({"ts": ["noon"]}), tmp_path / "a.parquet")
    with pytest.raises(
        SourceError, match=r"a\.parquet: column 'ts' is string there, and declared as int64"
    ):
        list(declared(tmp_path, pa.int64()).read([("a.parquet", 0, 1)]))


def test_a_file_that_is_broken_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(SourceError, match=r"a\.parquet: .*"):
        declared(tmp_path, pa.int64()).take(BEGINNING, ["a.parquet"], [10])
