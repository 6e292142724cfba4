"""A standalone Spark cluster of the tests' own: a master and two workers on loopback.

Nothing of the driver's machine is at hand for its workers but what lies on the shared file system: they
have another Python, another home, working directory and temporary folder. Where the tests may do so,
they also see the driver's temporary folder as an empty one.
"""

import os
import shutil
import socket
import subprocess
import sysconfig
import time
import venv
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import psutil
from pyspark import find_spark_home

import tidegate
from tests.spark.class_archive import java_options
from tests.spark.kills import kill_session
from tests.support.time_limits import HANG

#: Mounts an empty file system over a folder, which only the command behind it sees.
_HIDES = ["unshare", "--mount", "--", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class Cluster:
    """A master and two workers, in a folder for all that they write.

    They have room for a few applications: each should take one core of either.
    """

    def __init__(self, folder: Path, python: Path | None = None, hidden: Path | None = None) -> None:
        """`python` is what workers find as `python3`; `hidden` is a folder that they see empty."""
        self.folder, self._python, self._hidden = folder, python, hidden
        #: Do workers really not see the hidden folder?
        self.hides = hidden is not None and can_hide()
        self._running = ExitStack()
        self._workers: list[int] = []
        self.url = f"spark://127.0.0.1:{free_port()}"

    def __enter__(self) -> "Cluster":
        port = self.url.rpartition(":")[2]
        with self._running:
            self._start("master", "master.Master", "127.0.0.1", ["--port", port])
            for number in (1, 2):
                # Each has a name of its own: Spark speculates on another host.
                given = ["--cores", "4", "--memory", "4g", "--work-dir"]
                given += [str(self.folder / f"worker-{number}" / "work"), self.url]
                leader = self._start(f"worker-{number}", "worker.Worker", f"127.0.0.{number}", given)
                self._workers.append(leader)
            self._wait()
            self._running = self._running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def _start(self, name: str, main: str, host: str, given: list[str]) -> int:
        """A process of Spark in a session of its own; its id, which is also that of the session."""
        home = self.folder / name
        for folder in ("home", "tmp", "local"):
            (home / folder).mkdir(parents=True)
        command = [f"{find_spark_home._find_spark_home()}/bin/spark-class"]
        command += [f"org.apache.spark.deploy.{main}", "--host", host, "--webui-port", "0", *given]
        if self.hides:
            command = [*_HIDES, str(self._hidden), *command]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env=self._environment(home, host),
                start_new_session=True,
            )
        self._running.callback(process.wait)
        self._running.callback(kill_session, process.pid)
        return process.pid

    def _environment(self, home: Path, host: str) -> dict[str, str]:
        own = {
            "HOME": str(home / "home"),
            "TMPDIR": str(home / "tmp"),
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(),
        }
        if self._python is not None:
            own["PATH"] = os.pathsep.join([str(self._python.parent), os.environ["PATH"]])
        inherited = ("PYSPARK", "PYTHON", "SPARK", "TIDEGATE", "VIRTUAL_ENV")
        others = {name: text for name, text in os.environ.items() if not name.startswith(inherited)}
        return others | own

    def _wait(self) -> None:
        """Wait until both workers are known to the master."""
        until = time.monotonic() + HANG
        while time.monotonic() < until:
            logs = [(self.folder / f"worker-{n}.log").read_text() for n in (1, 2)]
            if all("Successfully registered with master" in log for log in logs):
                return
            assert all(map(psutil.pid_exists, self._workers)), logs
            time.sleep(0.1)
        raise TimeoutError("the workers do not reach their master")


def python_of_workers(folder: Path, *, installed: bool) -> Path:
    """An interpreter of its own that has every library of ours, with a copy of tidegate or without."""
    venv.create(folder, with_pip=False)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # Of a folder that is named so, Python takes the packages, and leaves the .pth files unread: among
    # them the one by which the checkout is installed.
    (own / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    if installed:
        copy_tidegate(own)
    python = folder / "bin" / "python3"
    tried = subprocess.run([python, "-c", "import pyarrow, tidegate"], capture_output=True, check=False)
    assert (b"No module named 'tidegate'" in tried.stderr) is not installed, tried
    return python


def copy_tidegate(folder: Path) -> None:
    """The package as an installation has it."""
    package = Path(tidegate.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@cache
def can_hide() -> bool:
    """May we give a process a file system that looks different? Without rights, and on macOS, not."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*_HIDES, "/mnt", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def executors_below(folder: str) -> list[psutil.Process]:
    """The executors that run now for the cluster whose workers write into the folder."""
    return [one for one in psutil.process_iter() if _is_executor(one, folder)]


def _is_executor(process: psutil.Process, folder: str) -> bool:
    try:
        return _EXECUTOR in process.cmdline() and process.cwd().startswith(f"{folder}/worker-")
    except psutil.Error:
        return False  # gone in the meantime, or somebody else's
