"""What is told of executors that lack something, and what is shipped to them under which name."""

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from tests.support.cluster import python_of_workers
from tidegate.errors import NotInstalled
from tidegate.spark import classic, executors
from tidegate.spark.executors import check_executors, missing_modules_told, warn_of_local_disk
from tidegate.spark.session import importable

OPENING = """\
Job aborted due to stage failure: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 163, in _read_with_length
    return self.loads(obj)
pyspark.serializers.SerializationError: Caused by Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 471, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'own_steps'
"""
CALLING = """\
Traceback (most recent call last):
  File "/home/me/steps.py", line 3, in step
ModuleNotFoundError: No module named 'requests'
"""


class Session:
    """As much of a session as is asked for its settings."""

    def __init__(self, **settings: str) -> None:
        self.conf = {f"spark.{name}": value for name, value in settings.items()}


def raised(text: str) -> str:
    with pytest.raises(NotInstalled) as told, missing_modules_told():
        raise PySparkException(text)
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__
    return str(told.value)


def test_a_module_that_executors_lack_is_told_in_one_line() -> None:
    assert raised(OPENING) == (
        "the executors lack a module (No module named 'own_steps'). Ship your own modules with "
        "`tidegate run --py-files`, spark.sparkContext.addPyFile(…) or spark.submit.pyFiles. Install "
        "libraries for their Python, or ship an environment that has them with spark.archives"
    )
    assert raised(OPENING.replace("own_steps", "tidegate")).startswith(
        "the executors have no tidegate (No module named 'tidegate'). Install it for their Python"
    )


def test_a_python_that_is_not_there_is_told() -> None:
    text = 'java.io.IOException: Cannot run program "./environment/bin/python": error=2'
    assert raised(text).startswith("the executors cannot start Python as './environment/bin/python'")


@pytest.mark.parametrize("text", [CALLING, "Division by zero"])
def test_other_errors_stay_as_they_are(text: str) -> None:
    with pytest.raises(PySparkException, match=r"Traceback|Division"), missing_modules_told():
        raise PySparkException(text)


def test_a_local_session_is_asked_nothing(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Session(master="local[2]")
    check_executors(session)  # it could not answer
    warn_of_local_disk(session, "file:///checkpoint")
    assert caplog.records == []


def test_a_cluster_with_a_checkpoint_on_a_local_disk_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session: Any = Session(master="spark://host:7077")
    warn_of_local_disk(session, "hdfs://host/checkpoint")
    assert caplog.records == []
    warn_of_local_disk(session, "file:///checkpoint")
    assert caplog.messages == [
        "the checkpoint file:///checkpoint is a folder of this machine, and the session runs on a "
        "cluster: every executor must see the same folder under this path. Otherwise give a URI, such "
        "as hdfs://…"
    ]


def test_the_question_needs_nothing_of_ours(tmp_path: Path) -> None:
    python = python_of_workers(tmp_path / "python", installed=False)
    asked = tmp_path / "asked"
    asked.write_bytes(cloudpickle.dumps(executors._lacks))
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb'))(0))"
    ran = subprocess.run([python, "-c", program, asked], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"No module named 'tidegate', in {python} on ")
    assert pickle.loads(asked.read_bytes())(0) is None  # here it is


def test_a_wheel_is_shipped_as_a_zip(tmp_path: Path) -> None:
    """Spark puts files on the path of Python by their names, and knows no wheels."""
    wheel, module = tmp_path / "own-1.0-py3-none-any.whl", tmp_path / "steps.py"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("own.py", "answer = 42\n")
    with importable([str(wheel), str(module)]) as files:
        assert [Path(file).name for file in files] == ["own-1.0-py3-none-any.zip", "steps.py"]
        assert files[1] == str(module)
        ran = subprocess.run(
            [sys.executable, "-c", "import own; print(own.answer)"],
            env=os.environ | {"PYTHONPATH": files[0]}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ran.stdout == "42\n"
    assert not Path(files[0]).exists()


def test_the_driver_of_a_cluster_finds_its_own_python_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin")
    classic._find_us_first()
    assert os.environ["PATH"] == os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin"])
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    classic._find_us_first()
    assert os.environ["PATH"] == "/usr/bin"


class Working(Session):
    """A session that runs a function over rows in Arrow, on the thread that asks for it."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self.ran: list[str] = []

    def range(self, *_: int) -> Any:
        return self

    def mapInArrow(self, function: Any, schema: str) -> Any:
        self.ran.append(schema)
        return self

    def collect(self) -> None:
        raise PySparkException("the session has been stopped meanwhile")


@pytest.mark.parametrize(("master", "started"), [("local[2]", 1), ("spark://host:7077", 0)])
def test_python_starts_early_once_and_only_where_the_session_is_its_own_executor(
    master: str, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtOnce:
        def __init__(self, target: Any, args: Any, daemon: bool) -> None:
            self.start = lambda: target(*args)

    monkeypatch.setattr(executors, "Thread", AtOnce)
    monkeypatch.setattr(executors, "_STARTED", set())
    session: Any = Working(**{"master": master, "app.id": "application-1"})
    for _ in range(2):
        executors.start_python_early(session)
    assert len(session.ran) == started
