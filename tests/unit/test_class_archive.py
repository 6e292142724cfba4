"""The archive of Java classes: sessions use it where it is, and go on without it where it is not."""

from argparse import Namespace
from pathlib import Path

import pytest

from tidegate.cli import warmup
from tidegate.errors import SessionError
from tidegate.spark import class_archive


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive, "ARCHIVE", tmp_path / "classes.jsa")
    monkeypatch.delenv(class_archive.OPTIONS, raising=False)
    return tmp_path / "classes.jsa"


def options() -> str | None:
    import os

    return os.environ.get(class_archive.OPTIONS)


def test_without_an_archive_java_starts_as_it_is(archive: Path) -> None:
    class_archive.use_archive()
    assert options() is None


def test_an_archive_is_read_once_beside_the_users_own_options(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.touch()
    monkeypatch.setenv(class_archive.OPTIONS, "-Dmine=1")
    class_archive.use_archive()
    class_archive.use_archive()
    assert options() == f"-Dmine=1 -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:class+path=off"


@pytest.mark.parametrize("given", ["-XX:SharedArchiveFile=other", "-XX:ArchiveClassesAtExit=other"])
def test_who_names_an_archive_gets_that_one(
    archive: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    archive.touch()
    monkeypatch.setenv(class_archive.OPTIONS, given)
    class_archive.use_archive()
    assert options() == given


def test_an_environment_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "ARCHIVE", tmp_path / "gone" / "classes.jsa")
    with pytest.raises(SessionError, match="gone cannot be written: run this as the owner"):
        warmup.run(Namespace(debug=False))
