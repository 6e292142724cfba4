"""A Spark Connect server of the tests' own, on loopback, in a process that can be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyspark

import tidegate.spark
from tests.support.time_limits import HANG

#: What local sessions start their Python processes with: each is there in a quarter of the time.
_PYTHON = Path(tidegate.spark.__path__[0]) / "python.sh"
_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_CONF = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
}
#: Of a server that is its own executor: Python processes start as those of local sessions do.
_LOCAL = {"spark.python.daemon.module": "tidegate.spark.daemon"}
_LOCAL_ENVIRONMENT = {"PYSPARK_PYTHON": str(_PYTHON), "TIDEGATE_PYTHON": sys.executable}
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ConnectServer:
    """A server that is started by its first user, and can be killed and started again."""

    def __init__(
        self,
        folder: Path,
        master: str = "local[2]",
        conf: Mapping[str, str] = _NOTHING,
        **environment: str,
    ) -> None:
        """Executors of a `master` elsewhere run the Python that `environment` says."""
        self._folder, self._master = folder, master
        local = master.startswith("local")
        self._environment = {"POLARS_MAX_THREADS": "1"} | (_LOCAL_ENVIRONMENT if local else environment)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        port = {"spark.connect.grpc.binding.port": str(self.port)}
        self._conf = _CONF | port | (_LOCAL if local else {}) | dict(conf)

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--class", _CLASS]
        command += ["--master", self._master, "--driver-memory", "2g"]
        for name, value in self._conf.items():
            command += ["--conf", f"{name}={value}"]
        # A session in this process may have set what Python is run.
        inherited = {name: text for name, text in os.environ.items() if name != "PYSPARK_PYTHON"}
        environment = inherited | self._environment
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "spark-internal"],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait()

    def kill(self) -> None:
        """Kill the server with all its workers, at once."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(HANG)
            self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        until = time.monotonic() + HANG
        while time.monotonic() < until:
            assert self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise TimeoutError("the Connect server does not listen")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
