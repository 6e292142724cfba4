"""Two writers of one checkpoint, as processes: a driver that was suspended, and speculation."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from pyspark import find_spark_home

from tests.spark import held_windows
from tests.spark.conftest import write_batches
from tests.spark.kills import SOAK, Victim, kill_session
from tests.spark.test_restarts import expected
from tests.spark.test_two_writers import uri, written
from tests.spark.test_windows import FLUSH, disordered
from tidegate.spark.checkpoint.metadata import last_batch

BATCHES = disordered(900, 100)
#: The batch in which a driver is suspended.
SUSPENDED_IN = 2
#: As many files are read before there is a cluster: the first tasks of executors take long.
BEFORE = 3
#: `make test` tries what users have. Damage and its repair are in `test_two_writers.py`, too.
SUSPENDED = [("2", "fenced"), ("1", "open"), ("1", "fenced")][: None if SOAK else 1]


def wait_until(done: Callable[[], bool], process: subprocess.Popen[str], victim: Victim) -> None:
    while not done():
        assert process.poll() is None, victim.complaints()
        time.sleep(0.005)


def processes_of(leader: int) -> Iterator[psutil.Process]:
    """The processes of a session: the driver, its JVM, executors and Python workers."""
    for process in psutil.process_iter():
        try:
            # One that has ended and was not waited for has neither a command nor anything to suspend.
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                yield process
        except (ProcessLookupError, psutil.NoSuchProcess):
            pass  # gone in the meantime


def changelogs(folder: Path, held: int) -> dict[str, tuple[int, bytes]]:
    """The changelogs of the version that the held batch writes: which file, and what is in it."""
    found = (folder / "ckpt" / "state" / "0" / "0").glob(f"{held + 1}[._]*changelog")
    return {file.name: (file.stat().st_ino, file.read_bytes()) for file in found}


def repaired(folder: Path) -> str:
    command = [sys.executable, "-m", "tidegate", "repair", str(folder / "ckpt"), "--cores", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def finish_after_damage(victim: Victim, folder: Path, held: int) -> None:
    """A start says what is wrong, a repair goes back, and the next start makes everything good."""
    last = last_batch(uri(folder / "ckpt"))
    with victim.running("finish") as process:
        assert process.wait() != 0
    assert f"is damaged in version {last + 1}, after batch {last}" in victim.complaints()
    assert f"the last whole version is {held + 1}, after batch {held}" in victim.complaints()
    assert f"back to version {held + 1}, after batch {held}" in repaired(folder)
    victim.finish()


@pytest.mark.kills
@pytest.mark.parametrize(("state_format", "fence"), SUSPENDED)
def test_a_driver_that_was_suspended_does_no_harm(tmp_path: Path, state_format: str, fence: str) -> None:
    """It is stopped within a stateful task; another one goes on from the checkpoint, and is killed."""
    write_batches(tmp_path / "clicks", BATCHES + FLUSH)
    victim = Victim(held_windows.__name__, tmp_path, (state_format, fence))
    with victim.running("hold", str(SUSPENDED_IN)) as suspended:
        wait_until((tmp_path / "held-0").exists, suspended, victim)
        for process in processes_of(suspended.pid):
            process.suspend()
        with victim.running() as second:
            wait_until(lambda: last_batch(uri(tmp_path / "ckpt")) >= SUSPENDED_IN + 2, second, victim)
        before = changelogs(tmp_path, SUSPENDED_IN)
        (tmp_path / "go-0").touch()
        for process in processes_of(suspended.pid):
            process.resume()
        assert suspended.wait() != 0
    assert "has another owner: process" in victim.complaints()
    if fence == "fenced":
        assert changelogs(tmp_path, SUSPENDED_IN) == before
        victim.finish()
    else:
        assert changelogs(tmp_path, SUSPENDED_IN) != before
        finish_after_damage(victim, tmp_path, SUSPENDED_IN)
    assert written(tmp_path / "out") == expected(BATCHES)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A cluster of two workers, which have names of their own: Spark speculates on another host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    options = ["--webui-port", "0"]
    work = ["--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / "work"), address]
    commands = [
        ["master.Master", "--host", "127.0.0.1", "--port", str(port), *options],
        *(["worker.Worker", "--host", f"127.0.0.{n}", *options, *work] for n in (1, 2)),
    ]
    with ExitStack() as running, (tmp_path / "cluster.log").open("w") as log:
        for command, *given in commands:
            started = [f"{find_spark_home._find_spark_home()}/bin/spark-class"]
            started += [f"org.apache.spark.deploy.{command}", *given]
            process = subprocess.Popen(started, stdout=log, stderr=log, start_new_session=True)
            running.callback(process.wait)
            running.callback(kill_session, process.pid)
        yield address


@pytest.mark.kills
@pytest.mark.skipif(not SOAK, reason="takes minutes, and a cluster: make soak")
@pytest.mark.parametrize("state_format", ["2", "1"])
def test_two_attempts_of_a_task_that_both_commit_do_no_harm(
    tmp_path: Path, master: str, state_format: str
) -> None:
    write_batches(tmp_path / "clicks", BATCHES[:BEFORE])
    victim = Victim(held_windows.__name__, tmp_path, (state_format, "fenced"))
    victim.finish()
    held = last_batch(uri(tmp_path / "ckpt")) + 1
    write_batches(tmp_path / "clicks", (BATCHES + FLUSH)[BEFORE:], start=BEFORE)
    with victim.running("speculate", str(held), master) as process:
        wait_until((tmp_path / "held-0").exists, process, victim)
        wait_until((tmp_path / "held-1").exists, process, victim)
        # While the driver stands still, it cannot end the attempt that lost.
        everyone = processes_of(process.pid)
        [driver] = [one for one in everyone if "org.apache.spark.deploy.SparkSubmit" in one.cmdline()]
        driver.suspend()
        (tmp_path / "go-1").touch()
        wait_until(lambda: bool(changelogs(tmp_path, held)), process, victim)
        first = changelogs(tmp_path, held)
        (tmp_path / "go-0").touch()
        wait_until(lambda: changelogs(tmp_path, held) != first, process, victim)
        driver.resume()
        wait_until(lambda: last_batch(uri(tmp_path / "ckpt")) >= held + 2, process, victim)
    if state_format == "2":
        victim.finish()
    else:
        finish_after_damage(victim, tmp_path, held)
    assert written(tmp_path / "out") == expected(BATCHES)
