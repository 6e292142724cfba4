"""What `tg.local_spark` does beyond settings: how checkpoints are written, and how Python starts."""

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext

from scripts.jar import SOURCES, jar
from tidegate.spark import classic

OURS, HADOOPS = "tidegate.LocalFiles", "org.apache.hadoop.fs.local.RawLocalFs"


# -- checkpoints on a local disk: what Hadoop's own class does, without a process for each file ----


class Disk:
    """The local disk through a class of choice, as Spark's checkpoints see it."""

    def __init__(self, spark: Any, implementation: str) -> None:
        self._jvm = spark._jvm
        conf = spark._jsc.hadoopConfiguration()
        assert conf.get("fs.AbstractFileSystem.file.impl") == OURS, "sessions of tests use it too"
        mine = self._jvm.org.apache.hadoop.conf.Configuration(conf)
        mine.set("fs.AbstractFileSystem.file.impl", implementation)
        self._context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(mine)
        assert self._context.getDefaultFileSystem().getClass().getName() == implementation

    def path(self, path: Path) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"file:{path}")

    def write(self, path: Path, content: bytes) -> None:
        flag = self._jvm.org.apache.hadoop.fs.CreateFlag
        flags = self._jvm.java.util.EnumSet.of(flag.CREATE, flag.OVERWRITE)
        options = self._array(self._jvm.org.apache.hadoop.fs.Options.CreateOpts, 0)
        stream = self._context.create(self.path(path), flags, options)
        stream.write(bytearray(content))
        stream.close()

    def rename(self, old: Path, new: Path, over: str = "OVERWRITE") -> None:
        rename = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._array(rename, 1)
        options[0] = rename.valueOf(over)
        self._context.rename(self.path(old), self.path(new), options)

    def make_folder(self, path: Path, mode: str) -> None:
        permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission(mode)
        self._context.mkdir(self.path(path), permission, True)

    def set_mode(self, path: Path, mode: str) -> None:
        self._context.setPermission(
            self.path(path), self._jvm.org.apache.hadoop.fs.permission.FsPermission(mode)
        )

    def status(self, path: Path) -> dict[str, Any]:
        found = self._context.getFileLinkStatus(self.path(path))
        return {
            "path": found.getPath().toString(),
            "length": found.getLen(),
            "mode": found.getPermission().toString(),
            "folder": found.isDirectory(),
            "link": found.isSymlink(),
        }

    def _array(self, of: Any, size: int) -> Any:
        return SparkContext._gateway.new_array(of, size)  # type: ignore[union-attr]


def everything(disk: Disk, folder: Path) -> list[Any]:
    """What a checkpoint does with files, and what can be seen of it afterwards."""
    odd = folder / "a b: 100% ü"
    disk.make_folder(odd, "750")
    disk.write(odd / "new", b"new one")
    disk.write(odd / "old", b"old")
    disk.rename(odd / "new", odd / "old")
    disk.write(odd / "new", b"x")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        disk.rename(odd / "new", odd / "old", over="NONE")
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        disk.rename(odd / "missing", odd / "old")
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        disk.status(odd / "missing")
    disk.set_mode(odd / "new", "604")
    disk.set_mode(odd, "1750")
    names = sorted(odd.iterdir())
    seen = [(file.name, oct(file.stat().st_mode), file.read_bytes()) for file in names]
    shown = [disk.status(file) for file in (odd, *names)]
    return [oct(odd.stat().st_mode), *seen, *(one | {"path": Path(one["path"]).name} for one in shown)]


def test_files_are_as_hadoops_own_class_leaves_them(spark: Any, tmp_path: Path) -> None:
    left = []
    for name in (OURS, HADOOPS):
        (tmp_path / name).mkdir()
        left.append(everything(Disk(spark, name), tmp_path / name))
    assert left[0] == left[1]
    assert left[0][:3] == ["0o41750", ("new", "0o100604", b"x"), ("old", "0o100644", b"new one")]


def test_links_are_followed_or_shown(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    ours, hadoops = (Disk(spark, name).status(tmp_path / "link") for name in (OURS, HADOOPS))
    assert ours == hadoops


def test_no_process_is_started(spark: Any, tmp_path: Path) -> None:
    def commands(name: str) -> list[str]:
        recording = spark._jvm.jdk.jfr.Recording()
        recording.enable("jdk.ProcessStart").withoutThreshold()
        disk = Disk(spark, name)
        recording.start()
        disk.write(tmp_path / "new", b"x")
        disk.rename(tmp_path / "new", tmp_path / "old")
        recording.stop()
        log = spark._jvm.java.io.File(str(tmp_path / "recorded.jfr")).toPath()
        recording.dump(log)
        recording.close()
        events = spark._jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(log)
        found = [str(event.getValue("command")) for event in events]
        return [one for one in found if str(tmp_path) in one]

    assert {one.split()[0] for one in commands(HADOOPS)} == {"chmod", "readlink"}, "it would be seen"
    assert commands(OURS) == []


def test_the_jar_is_what_its_source_says(spark: Any) -> None:
    assert (SOURCES / "tidegate.jar").read_bytes() == jar(SparkContext._gateway), "make jar"


@pytest.mark.parametrize("chosen", [OURS, "their.own.Disk"])
def test_a_jvm_that_takes_no_jar_uses_hadoops_class(spark: Any, chosen: str) -> None:
    thread, classes = spark._jvm.java.lang.Thread.currentThread(), spark._jvm.java.lang.ClassLoader
    usual = thread.getContextClassLoader()
    thread.setContextClassLoader(classes.getSystemClassLoader())
    try:
        wanted = SparkConf(loadDefaults=False).set(classic._DISK, chosen)
        classic._with_our_classes(wanted)
        assert wanted.get(classic._DISK) == (HADOOPS if chosen == OURS else chosen)
    finally:
        thread.setContextClassLoader(usual)


# -- Spark's Python processes ----------------------------------------------------------------------


def test_workers_import_the_pyspark_that_is_installed(spark: Any) -> None:
    def where(batches: Any) -> Any:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable], "pyspark": [pyspark.__file__]})

    [worker] = spark.range(1).mapInArrow(where, "python string, pyspark string").collect()
    assert worker.asDict() == {"python": sys.executable, "pyspark": pyspark.__file__}


@pytest.mark.parametrize("reason", ["a JVM runs", "a JVM started us", "not installed", "no right"])
def test_otherwise_they_run_the_interpreter_itself(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setenv("TIDEGATE_PYTHON", "")
    assert classic._interpreter() == str(classic._PYTHON)
    assert os.environ["TIDEGATE_PYTHON"] == sys.executable
    match reason:
        case "a JVM runs":
            monkeypatch.setattr(SparkContext, "_gateway", object())
        case "a JVM started us":
            monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
        case "not installed":
            monkeypatch.setattr(pyspark, "__file__", "/opt/spark/python/pyspark/__init__.py")
        case "no right":
            monkeypatch.setattr(classic, "_PYTHON", Path("/nowhere/python.sh"))
    assert classic._interpreter() == sys.executable
