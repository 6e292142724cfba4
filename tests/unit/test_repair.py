"""A repair's files: what moves where, from any moment of an interruption, and replays."""

import posixpath
import shutil
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidegate.api import sinks
from tidegate.cli import repair as command
from tidegate.connectors import Target
from tidegate.errors import CheckpointDrained, SinkError, StateError
from tidegate.spark.checkpoint import repair
from tidegate.spark.checkpoint.metadata import (
    Drained,
    batches_to_replay,
    last_batch,
    last_begun,
    stored_format,
)
from tidegate.spark.checkpoint.ownership import Owner
from tidegate.spark.checkpoint.repair import (
    Repair,
    carry_out,
    offsets_of,
    pending_repair,
    refuse_unfinished,
    replay,
    taken_by,
    versions_to_go_back_to,
)

GO_BACK = Repair(version=3, until=6, kept="tidegate.repaired/1")


def write(checkpoint: Path, path: str, text: str = "") -> None:
    file = checkpoint / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text or path)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 5 are committed, 6 has begun. Two partitions in format 1, with checksums of logs."""
    folder = tmp_path / "check point"
    for batch in range(7):
        write(folder, f"offsets/{batch}", f'v1\n{{}}\n{{"logOffset":{batch}}}\n-')
        write(folder, f"offsets/.{batch}.crc")
    for batch in range(6):
        write(folder, f"commits/{batch}", "v1\n{}")
        write(folder, f"commits/.{batch}.crc")
    for partition in range(2):
        for version in range(1, 8):
            write(folder, f"state/0/{partition}/{version}.changelog")
            write(folder, f"state/0/{partition}/.{version}.changelog.crc")
        write(folder, f"state/0/{partition}/2.zip")
        write(folder, f"state/0/{partition}/5.zip")
        write(folder, f"state/0/{partition}/SSTs/000009-ab.sst")
        write(folder, f"state/0/{partition}/_metadata/schema")
    write(folder, "state/0/_metadata/metadata/5")
    write(folder, "sources/0/5")
    write(folder, "tidegate.json")
    return folder


def everything(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_text() for file in files}


def test_what_is_newer_than_the_version_moves_aside_and_offsets_are_held_back(checkpoint: Path) -> None:
    before, uri = everything(checkpoint), checkpoint.as_uri()
    assert carry_out(uri, GO_BACK) == {"offsets": 4, "commits": 3, "files of state": 2 * (2 * 4 + 1)}
    assert (last_batch(uri), last_begun(uri), batches_to_replay(uri)) == (2, 2, [3, 4, 5, 6])
    after, kept = everything(checkpoint), "tidegate.repaired/1/"
    gone = {path for path in before if path not in after}
    assert gone == {path for path in before if is_newer(path)}
    assert {path: after[path] for path in before if path not in gone}.items() <= before.items()
    # The checksums of offsets are held back with them; of all else there is a copy.
    copied = {path for path in gone if not path.startswith("offsets/.")}
    assert {path: after[kept + path] for path in copied}.items() <= before.items()
    assert after["tidegate.replay/4"] == before["offsets/4"]
    assert after["tidegate.replay/.4.crc"] == before["offsets/.4.crc"]
    assert pending_repair(uri) is None


def is_newer(path: str) -> bool:
    """Does a file belong to batch 3 or later, or to version 4 or later of the state?"""
    folder, name = path.split("/")[0], posixpath.basename(path).strip(".").split(".")[0]
    if folder == "state":
        return path.endswith((".changelog", ".zip", ".crc")) and int(name) > 3
    return folder in ("offsets", "commits") and int(name) >= 3


class Crash(Exception):
    pass


def test_a_repair_that_is_interrupted_anywhere_is_finished_by_the_next_one(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = tmp_path / "straight"
    shutil.copytree(checkpoint, straight)
    carry_out(straight.as_uri(), GO_BACK)
    wanted, moves = everything(straight), 0
    for steps in range(1, 1000):
        crashed = tmp_path / f"crashed-{steps}"
        shutil.copytree(checkpoint, crashed)
        left = iter(range(steps))
        with monkeypatch.context() as patched:
            for name in ("_move", "_copy"):
                patched.setattr(repair, name, crashing(getattr(repair, name), left))
            try:
                carry_out(crashed.as_uri(), GO_BACK)
                break
            except Crash:
                moves += 1
        with pytest.raises(StateError, match="was interrupted: run `tidegate repair"):
            refuse_unfinished(crashed.as_uri())
        pending = pending_repair(crashed.as_uri())
        assert pending == GO_BACK
        carry_out(crashed.as_uri(), pending)
        assert everything(crashed) == wanted
        refuse_unfinished(crashed.as_uri())
    assert moves > 25


def crashing(real: Any, left: Iterator[int]) -> Any:
    def run(*given: Any) -> None:
        if next(left, None) is None:
            raise Crash
        real(*given)

    return run


def test_batches_are_replayed_one_by_one_and_in_order(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    carry_out(uri, GO_BACK)
    ran: list[int] = []

    def run_one() -> None:
        """What Spark does: the last batch it has begun, if that is not committed."""
        assert last_begun(uri) == last_batch(uri) + 1
        ran.append(last_begun(uri))
        write(checkpoint, f"commits/{last_begun(uri)}", "v1\n{}")

    replay(uri, run_one)
    assert ran == [3, 4, 5, 6]
    replay(uri, run_one)
    assert ran == [3, 4, 5, 6]


def test_a_replay_that_is_killed_goes_on_with_the_batch_that_was_begun(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    carry_out(uri, GO_BACK)

    def killed() -> None:
        raise Crash

    with pytest.raises(Crash):
        replay(uri, killed)
    assert (last_begun(uri), batches_to_replay(uri)) == (3, [4, 5, 6])
    ran: list[int] = []

    def run_one() -> None:
        ran.append(last_begun(uri))
        write(checkpoint, f"commits/{last_begun(uri)}", "v1\n{}")

    replay(uri, run_one)
    assert ran == [3, 4, 5, 6]


def test_a_second_repair_amid_replays_holds_back_what_was_and_what_is_new(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    carry_out(uri, GO_BACK)
    assert versions_to_go_back_to(uri) == [3, 2, 1, 0]
    carry_out(uri, Repair(1, 6, "tidegate.repaired/2"))
    assert batches_to_replay(uri) == [1, 2, 3, 4, 5, 6]
    assert last_batch(uri) == 0


def test_only_versions_whose_later_batches_can_be_replayed_are_possible(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    assert versions_to_go_back_to(uri) == [6, 5, 4, 3, 2, 1, 0]
    (checkpoint / "offsets" / "2").unlink()
    assert versions_to_go_back_to(uri) == [6, 5, 4]
    (checkpoint / "commits" / "4").unlink()
    assert versions_to_go_back_to(uri) == [6, 4]
    (checkpoint / "offsets" / "6").unlink()
    (checkpoint / "offsets" / "5").unlink()
    assert versions_to_go_back_to(uri) == []


def test_back_to_before_any_batch_leaves_no_version(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    carry_out(uri, Repair(0, 6, "tidegate.repaired/1"))
    assert batches_to_replay(uri) == [0, 1, 2, 3, 4, 5, 6]
    assert not list(checkpoint.glob("state/**/*.changelog"))
    assert not list(checkpoint.glob("commits/[0-9]*"))


def test_how_far_sources_had_come_is_found_in_both_places(checkpoint: Path) -> None:
    uri = checkpoint.as_uri()
    expected = ['{"logOffset":4}', "-"]
    assert offsets_of(uri, 4) == expected
    carry_out(uri, GO_BACK)
    assert offsets_of(uri, 4) == expected
    assert offsets_of(uri, 40) == offsets_of(uri, -1) == []


@pytest.mark.parametrize(
    ("commit", "expected"),
    [("v1\n{}", 1), ('v2\n{"stateUniqueIds":{}}', 2), ("v3\n{}", 2), (None, None)],
)
def test_the_format_is_read_off_the_last_commit(
    tmp_path: Path, commit: str | None, expected: int | None
) -> None:
    if commit is not None:
        write(tmp_path, "commits/9", "v1\n{}")
        write(tmp_path, "commits/10", commit)
        write(tmp_path, "commits/.11.tmp", "v1")
    assert stored_format(tmp_path.as_uri()) == expected


# -- sinks ----------------------------------------------------------------------------------------


class Rows:
    """As much of a DataFrame as a folder needs, which must not be asked for anything."""

    @property
    def write(self) -> Any:
        raise AssertionError("the batch is there already")


def test_folders_leave_out_replays_and_refuse_other_old_batches(tmp_path: Path) -> None:
    target = Target("query", "main", pa.schema([("n", pa.int64())]), replayed=6)
    write(tmp_path, "_tidegate_batches", '{"query": "query", "channel": "main", "batch_id": 8}')
    folder = sinks.parquet(tmp_path).prepare(target)
    for batch in range(7):
        folder(Rows(), batch)
    folder(Rows(), 8)
    with pytest.raises(SinkError, match="out of order"):
        folder(Rows(), 7)
    owner = Owner("host", 1, 0.0, "now", {"main": f"parquet files in {tmp_path.as_uri()}", "late": "f"})
    told = f"parquet files in {tmp_path.as_uri()}, which has batches up to 8"
    assert taken_by(owner) == {"main": told, "late": "f"}
    assert taken_by(None) == {}


# -- the command ----------------------------------------------------------------------------------


def test_a_checkpoint_whose_owner_runs_is_left_alone() -> None:
    own = Owner.this_process({})
    with pytest.raises(StateError, match="still runs: end it, and repair then"):
        command._refuse_while_alive(own)
    command._refuse_while_alive(None)
    elsewhere: Any = SimpleNamespace(is_alive=None)
    command._refuse_while_alive(elsewhere)


def test_a_finished_checkpoint_is_not_repaired(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No start would replay anything."""
    monkeypatch.setattr(command, "end_on_sigterm", lambda: None)
    (checkpoint / "tidegate.json").touch()
    Drained.begin(checkpoint.as_uri()).end(checkpoint.as_uri())
    with pytest.raises(CheckpointDrained, match="it is finished, and no query goes on from it"):
        command.run(Namespace(checkpoint=checkpoint, to=None, dry_run=False))
