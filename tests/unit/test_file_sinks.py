"""Folders of files: every batch is there once, whatever moment its writer was killed at."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tidegate import sinks
from tidegate.connectors import Target, files
from tidegate.connectors import metadata_files as notes
from tidegate.errors import SinkError

NUMBERS = Target("query-1", "main", pa.schema([("n", pa.int64())]))


@dataclass
class Rows:
    """Stands in for the DataFrame of a batch, and for Spark, which writes a file for each partition."""

    partitions: Iterable[list[int]]
    sparkSession = SimpleNamespace(conf=SimpleNamespace(get=str, set=lambda *_: None))

    @property
    def write(self) -> "Rows":
        return self

    def format(self, name: str) -> "Rows":
        assert name == "parquet"
        return self

    def save(self, uri: str) -> None:
        folder = Path(uri.removeprefix("file://"))
        folder.mkdir(parents=True)
        for number, rows in enumerate(self.partitions):
            pq.write_table(pa.table({"n": rows}), folder / f"part-{number}-{id(self)}.parquet")
        (folder / "_SUCCESS").touch()


def rows_in(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("*.parquet") for n in pq.read_table(file)["n"].to_pylist())


def write(folder: Path, batch_id: int, *partitions: list[int], target: Target = NUMBERS) -> None:
    sinks.parquet(folder).prepare(target)(Rows(partitions), batch_id)


def test_batches_are_added_and_one_written_again_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, [1, 2], [3])
    write(tmp_path, 4, [4])
    before = sorted(tmp_path.rglob("*"))
    write(tmp_path, 4, [4])
    assert rows_in(tmp_path) == [1, 2, 3, 4]
    assert sorted(tmp_path.rglob("*")) == before


class Killed(Exception):
    """Nobody catches it: from here on the process does nothing."""


class Dying:
    """A file system whose user is killed just before one of its steps."""

    def __init__(self, inner: fs.FileSystem, steps: Iterable[int], last: int) -> None:
        self._inner, self._steps, self._last = inner, steps, last

    def __getattr__(self, name: str) -> Any:
        if next(self._steps) == self._last:
            raise Killed(name)
        return getattr(self._inner, name)


def kill_at(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    steps = count()

    def from_uri(uri: str) -> tuple[Any, str]:
        inner, path = fs.FileSystem.from_uri(uri)
        return Dying(inner, steps, last), path

    dying = SimpleNamespace(
        FileSystem=SimpleNamespace(from_uri=from_uri), FileSelector=fs.FileSelector, FileType=fs.FileType
    )
    for module in (files, notes):
        monkeypatch.setattr(module, "fs", dying)


def test_a_kill_before_any_step_leaves_nothing_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_before = []
    for last in count():
        folder = tmp_path / str(last)
        write(folder, 0, [0])
        with monkeypatch.context() as patch:
            kill_at(patch, last)
            try:
                write(folder, 1, [1, 2], [3])
            except Killed as at:
                killed_before.append(str(at))
            else:
                break
        assert rows_in(folder)[0] == 0
        write(folder, 1, [1, 2], [3])
        write(folder, 2, [4])
        assert rows_in(folder) == [0, 1, 2, 3, 4], killed_before
        assert list((folder / "_staging").iterdir()) == []
    # Two files to move and a note to put in place, at least.
    assert killed_before.count("move") == 3


def test_what_a_killed_process_still_writes_is_not_taken_in(tmp_path: Path) -> None:
    class Slow(Rows):
        """While these rows are written, Spark's part of a killed process goes on for a while."""

        def save(self, uri: str) -> None:
            super().save(uri)
            earlier = Path(uri.removeprefix("file://")).parent
            for place in (earlier, earlier / "earlier"):
                Rows([[1]]).save((place / "_temporary").as_uri())
                pq.write_table(pa.table({"n": [1]}), place / "part-9.parquet")

    sinks.parquet(tmp_path).prepare(NUMBERS)(Slow([[1]]), 0)
    assert rows_in(tmp_path) == [1]


def test_a_folder_belongs_to_one_channel_of_one_query(tmp_path: Path) -> None:
    write(tmp_path, 3, [1])
    for other in (replace(NUMBERS, query="query-2"), replace(NUMBERS, channel="late")):
        with pytest.raises(
            SinkError,
            match=r"belongs to another query \(query-1, channel 'main', written up to batch 3\): choose",
        ):
            write(tmp_path, 0, [1], target=other)
    early = sinks.parquet(tmp_path / "new").prepare(replace(NUMBERS, query="query-2"))
    write(tmp_path / "new", 0, [1])
    with pytest.raises(SinkError, match="belongs to another query"):
        early(Rows([[2]]), 0)
    assert rows_in(tmp_path / "new") == [1]


def test_a_batch_that_is_older_than_the_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 3, [1])
    with pytest.raises(SinkError, match=r"batch 2 of channel 'main': out of order, batch 3 has been"):
        write(tmp_path, 2, [1])
    assert rows_in(tmp_path) == [1]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"query": "query-1"}'])
def test_a_damaged_note_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "_tidegate_batches").write_text(text)
    with pytest.raises(SinkError, match="_tidegate_batches is damaged and cannot be read"):
        write(tmp_path, 0, [1])


def test_files_that_executors_wrote_onto_disks_of_their_own_are_missed(tmp_path: Path) -> None:
    """The batch is not listed: nothing says that rows are there which are not."""
    with pytest.raises(SinkError, match="the driver does not see the files that executors wrote"):
        write(tmp_path / "out", 0)
    assert not (tmp_path / "out" / files.METADATA).exists()
    write(tmp_path / "out", 0, [1, 2])
    assert rows_in(tmp_path / "out") == [1, 2]
