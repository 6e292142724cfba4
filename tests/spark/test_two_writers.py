"""Two writers of one checkpoint: the format of state that survives them, fencing, damage and repair."""

import io
import re
import shutil
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.spark import needs
from tests.spark.conftest import run
from tests.spark.killed_windows import hopping
from tests.spark.test_restarts import expected, windows
from tests.spark.test_windows import FLUSH, disordered
from tidegate.cli import repair as repair_command
from tidegate.errors import SessionError, StateError
from tidegate.spark import session
from tidegate.spark.checkpoint.inspection import snapshot_of, states_of
from tidegate.spark.checkpoint.metadata import batches_to_replay, last_batch, stored_format
from tidegate.spark.checkpoint.ownership import Ownership, owner_of

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
BATCHES = disordered(600, 100)


@pytest.fixture
def format_of_the_session(spark: Any) -> Any:
    """Set what the session says of its own accord; it is what it was afterwards."""
    before = spark.conf.get(FORMAT)
    yield lambda value: spark.conf.set(FORMAT, value)
    spark.conf.set(FORMAT, before)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a platform does that does not let the setting be changed."""
    monkeypatch.setattr(session, "_set_format", lambda *_: False)


def written(folder: Path) -> Counter[Any]:
    files = sorted(folder.glob("*.parquet"))
    return windows([row for file in files for row in pq.read_table(file).to_pylist()])


def uri(folder: Path) -> str:
    return folder.as_uri()


# -- the format of state --------------------------------------------------------------------------


@needs.state_format_2
@pytest.mark.parametrize(("first", "later"), [("1", "2"), ("2", "1")])
def test_a_new_checkpoint_gets_format_2_and_an_old_one_keeps_its_own(
    spark: Any,
    click_stream: Callable[..., Any],
    tmp_path: Path,
    format_of_the_session: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    first: str,
    later: str,
) -> None:
    """Whatever the session says: it is not asked, and it keeps its own value."""
    format_of_the_session(first)
    with monkeypatch.context() as platform:
        if first == "1":
            forbid(platform)
        run(
            hopping(click_stream(BATCHES[:3])),
            tmp_path / "ckpt",
            main=tg.sinks.parquet(tmp_path / "out"),
        )
    assert stored_format(uri(tmp_path / "ckpt")) == int(first)
    format_of_the_session(later)
    stream = click_stream(BATCHES + FLUSH)
    run(hopping(stream), tmp_path / "ckpt", main=tg.sinks.parquet(tmp_path / "out"))
    assert stored_format(uri(tmp_path / "ckpt")) == int(first)
    assert written(tmp_path / "out") == expected(BATCHES)
    assert spark.conf.get(FORMAT) == later
    [state] = states_of(spark, str(tmp_path / "ckpt"))
    assert state.open > 0
    assert spark.conf.get(FORMAT) == later


@needs.state_format_2
def test_a_foreign_session_gives_new_checkpoints_format_2_and_keeps_its_own_setting(
    spark: Any,
    click_stream: Callable[..., Any],
    tmp_path: Path,
    format_of_the_session: Callable[[str], None],
) -> None:
    format_of_the_session("1")
    keyed = tg.events(click_stream(BATCHES[:2]), time="ts", tolerance="4 s").key_by("user")
    fold = keyed.agg(n=tg.count()).emit(tg.emit.changelog())
    query = run(fold, tmp_path / "ckpt", main=tg.sinks.memory())
    assert spark.conf.get(FORMAT) == "1"
    assert stored_format(uri(tmp_path / "ckpt")) == 2
    assert query.snapshot() == snapshot_of(spark, str(tmp_path / "ckpt"))
    query.stop(drain=True)
    assert spark.conf.get(FORMAT) == "1"


def test_speculation_is_refused_in_format_1_and_allowed_in_format_2(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Speculating:
        """The session's settings, but for one, which cannot be changed while it runs."""

        def get(self, key: str, *default: Any) -> Any:
            return "true" if key == "spark.speculation" else spark.conf.get(key, *default)

    checked: Any = type("Session", (), {"conf": Speculating()})
    session.refuse_speculation(checked, "file:///ckpt", 2)
    with pytest.raises(SessionError) as error:
        session.refuse_speculation(checked, "file:///ckpt", 1)
    assert str(error.value) == (
        "spark.speculation=true, but the state of file:///ckpt is in Spark's format 1, which two "
        "attempts of one task can break. Start the session with spark.speculation=false, or take a new "
        f"checkpoint location in a session that lets {FORMAT}=2 be set; a checkpoint keeps its format"
    )
    session.refuse_speculation(spark, "file:///ckpt", 1)  # it does not speculate


# -- a driver that is no longer the owner ---------------------------------------------------------


class Taking:
    """A sink that hands the checkpoint to another owner when it is given a batch."""

    def __init__(self, sink: Any, checkpoint: Path, at: int) -> None:
        self.sink, self.checkpoint, self.at = sink, checkpoint, at

    def prepare(self, target: Any) -> Any:
        write = self.sink.prepare(target)

        def take(rows: Any, batch_id: int) -> None:
            write(rows, batch_id)
            if batch_id == self.at:
                Ownership.next(uri(self.checkpoint)).take()

        return take


def everything(folder: Path) -> dict[str, bytes]:
    """All files below, but for those of the owners."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files if "tidegate.owners" not in file.parts}


def test_a_driver_that_lost_its_checkpoint_fails_and_changes_nothing_more(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    checkpoint, out = tmp_path / "ckpt", tmp_path / "out"
    stream = click_stream(BATCHES + FLUSH)
    sink = Taking(tg.sinks.parquet(out), checkpoint, at=2)
    with pytest.raises(Exception, match=r"has another owner: process .* took it over at"):
        run(hopping(stream), checkpoint, main=sink)
    # Spark has begun one more batch. Neither its state nor its rows are there.
    assert last_batch(uri(checkpoint)) == 2
    states = [file for file in checkpoint.glob("state/0/*/*.changelog") if file.name.startswith("4")]
    assert states == []
    assert max(int(file.name[6:14]) for file in out.glob("batch-*")) <= 2
    run(hopping(stream), checkpoint, main=tg.sinks.parquet(out))
    assert written(out) == expected(BATCHES)


def test_a_start_that_is_refused_leaves_the_owner_alone(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    run(hopping(click_stream(BATCHES[:1])), tmp_path / "ckpt", main=tg.sinks.memory())
    owner, before = owner_of(uri(tmp_path / "ckpt")), everything(tmp_path / "ckpt")
    other = hopping(click_stream(BATCHES[:1])).emit(tg.emit.changelog())
    with pytest.raises(tg.errors.CheckpointMismatch):
        run(other, tmp_path / "ckpt", main=tg.sinks.memory())
    assert (owner_of(uri(tmp_path / "ckpt")), everything(tmp_path / "ckpt")) == (owner, before)


# -- damage, and repair ---------------------------------------------------------------------------


def repair(checkpoint: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> str:
    """`tidegate repair` in the session of the tests."""

    class Session:
        def __enter__(self) -> Any:
            return spark

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(repair_command, "session", lambda _: Session())
    monkeypatch.setattr(repair_command, "end_on_sigterm", lambda: None)
    told = io.StringIO()
    given = {"checkpoint": checkpoint, "to": None, "dry_run": False} | options
    with redirect_stdout(told):
        assert repair_command.run(Namespace(**given)) == 0
    return told.getvalue()


def swap(checkpoint: Path, version: int, other: Path) -> None:
    """One version's changelogs as another attempt wrote them, as if it had been the second to commit."""
    for changelog in other.glob(f"state/0/*/{version}.changelog"):
        shutil.copy(changelog, checkpoint / changelog.relative_to(other))


def test_damaged_state_is_told_at_the_start_and_repaired_without_losing_or_doubling_a_row(
    spark: Any,
    click_stream: Callable[..., Any],
    tmp_path: Path,
    format_of_the_session: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Format 1: the changelog of one attempt, and later ones built on another's."""
    checkpoint, twin, out = tmp_path / "ckpt", tmp_path / "twin", tmp_path / "out"

    def upto(batches: int) -> Any:
        return hopping(click_stream(BATCHES[:batches]))

    with monkeypatch.context() as platform:
        forbid(platform)
        format_of_the_session("1")
        run(upto(2), checkpoint, main=tg.sinks.parquet(out))
        whole = last_batch(uri(checkpoint)) + 2  # the next version, which both will write
        shutil.copytree(checkpoint, twin)
        run(upto(5), checkpoint, main=tg.sinks.parquet(out))
        run(upto(5), twin, main=tg.sinks.memory())
    swap(checkpoint, whole, twin)
    last = last_batch(uri(checkpoint))
    stream = click_stream(BATCHES + FLUSH)

    def go_on() -> None:
        run(hopping(stream), checkpoint, main=tg.sinks.parquet(out))

    with pytest.raises(StateError) as error:
        go_on()
    text = str(error.value)
    assert text.startswith(
        f"the state of {uri(checkpoint)} is damaged in version {last + 1}, after batch"
    )
    assert "operator 1, hopping(20 seconds, 10 seconds) by user, bucket" in text
    assert re.search("listed in the manifest but not stored|stored but not listed in the manifest", text)
    assert f"the last whole version is {whole}, after batch {whole - 1}" in text
    assert f"`tidegate repair {uri(checkpoint)}` goes back to it" in text
    before = everything(tmp_path)
    told = repair(checkpoint, spark, monkeypatch, dry_run=True)
    assert f"back to version {whole}, after batch {whole - 1}" in told
    assert f"the next start replays batches {whole} to {last}, with the same rows" in told
    assert f"sink of main: parquet files in {uri(out)}, which has batches up to" in told
    assert everything(tmp_path) == before
    told = repair(checkpoint, spark, monkeypatch)
    assert "kept in tidegate.repaired/1" in told
    assert batches_to_replay(uri(checkpoint)) == list(range(whole, last + 1))
    # Nothing is gone: what is no longer in its place is in the folder that keeps it.
    assert Counter(before.values()) <= Counter(everything(tmp_path).values())
    go_on()
    assert written(out) == expected(BATCHES)
    assert batches_to_replay(uri(checkpoint)) == []
    assert repair(checkpoint, spark, monkeypatch) == "the state is whole: there is nothing to repair\n"


def test_a_whole_checkpoint_goes_back_if_asked_and_replays_exactly(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few batches, and then to the very beginning."""
    checkpoint, out = tmp_path / "ckpt", tmp_path / "out"
    query = run(hopping(click_stream(BATCHES[:4])), checkpoint, main=tg.sinks.parquet(out))
    last, before = last_batch(uri(checkpoint)), everything(out)
    replays: list[int] = []

    class Seen:
        """What a sink of a user is given."""

        def prepare(self, target: Any) -> Any:
            write = tg.sinks.parquet(out).prepare(target)
            return lambda rows, batch: (replays.append(batch), write(rows, batch))

    with pytest.raises(StateError, match=r"cannot go back to version 99: .* Possible: 0, 1, 2"):
        repair(checkpoint, spark, monkeypatch, to=99)
    for version in (2, 0):
        replays.clear()
        told = repair(checkpoint, spark, monkeypatch, to=version)
        assert f"the next start replays batches {version} to {last}" in told
        run(hopping(click_stream(BATCHES[:4])), checkpoint, main=Seen())
        assert everything(out) == before
        assert replays == sorted(set(replays))
        assert version <= min(replays) <= max(replays) <= last
        assert query.metrics["rows_in"] == 400
    run(hopping(click_stream(BATCHES + FLUSH)), checkpoint, main=Seen())
    assert written(out) == expected(BATCHES)


def test_a_query_that_runs_is_not_repaired(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = hopping(click_stream(BATCHES[:1])).start(
        checkpoint=tmp_path / "ckpt", main=tg.sinks.memory()
    )
    try:
        query.process_all_available()
        with pytest.raises(StateError, match="still runs: end it, and repair then"):
            repair(tmp_path / "ckpt", spark, monkeypatch)
    finally:
        query.stop()
    told = repair(tmp_path / "ckpt", spark, monkeypatch)
    assert told == "the state is whole: there is nothing to repair\n"
