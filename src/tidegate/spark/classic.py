"""Classic sessions, and the JVM behind them, of which no other module knows. `local_spark` makes one."""

from __future__ import annotations

import atexit
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError as JvmError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tidegate.spark.class_archive import use_archive
from tidegate.spark.session import CHECKPOINT_FORMAT, ROCKSDB, STATE_STORE, importable
from tidegate.spark.versions import SETTINGS, STATE_FORMAT

#: The class that Spark writes checkpoints on a local disk with; jvm/LocalFiles.java says why it is ours.
_DISK, _OUR_DISK = "spark.hadoop.fs.AbstractFileSystem.file.impl", "tidegate.LocalFiles"
_JAR = Path(__file__).parent / "jvm" / "tidegate.jar"
_PYTHON = Path(__file__).parent / "python.sh"

#: What Spark warns of when a Python worker has all the state that it asked for.
_DONE = "No more data to read from the socket"

#: What makes small batches cheap and packing fast, wherever executors are. All of it is optional.
_SHARED = {
    STATE_STORE: ROCKSDB,
    CHECKPOINT_FORMAT: str(STATE_FORMAT),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.session.timeZone": "UTC",
}

#: The same for a session on one machine.
_TUNED = _SHARED | {
    _DISK: _OUR_DISK,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "tidegate.spark.daemon",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    # On few cores the collector should not run beside the work.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def local_spark(cores: int = 2, app: str = "tidegate", **conf: str) -> SparkSession:
    """Create a local session with good settings for tidegate; any other session works too.

    >>> spark = tg.local_spark(cores=2)
    >>> spark.range(3).count()
    3
    """
    os.environ.setdefault("PYSPARK_PYTHON", _interpreter())
    # A worker is one task: threads inside it would only fight the other task for the cores.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    settings = _TUNED | SETTINGS | {"spark.sql.shuffle.partitions": str(cores)} | conf
    wanted = (
        SparkConf(loadDefaults=False)
        .setMaster(f"local[{cores}]")
        .setAppName(app)
        .setAll(list(settings.items()))
    )
    use_archive()
    _with_our_classes(wanted)
    spark = SparkSession.builder.config(conf=wanted).getOrCreate()
    keep_quiet(spark)
    return spark


def end_java(spark: SparkSession) -> None:
    """Stop a session of ours with the JVM behind it, and wait until that has ended."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def cluster_spark(master: str, py_files: Sequence[str] = (), **conf: str) -> SparkSession:
    """A session on a cluster, with code that is shipped to its executors."""
    _find_us_first()
    threads = {"spark.executorEnv.POLARS_MAX_THREADS": "1"}
    wanted = SparkConf(loadDefaults=False).setMaster(master).setAppName("tidegate")
    wanted.setAll(list((_SHARED | SETTINGS | threads | conf).items()))
    spark = SparkSession.builder.config(conf=wanted).getOrCreate()
    # Executors fetch the files when they have work for them: they stay until this process ends.
    kept = ExitStack()
    atexit.register(kept.close)
    for file in kept.enter_context(importable(py_files)):
        spark.sparkContext.addPyFile(file)
    keep_quiet(spark)
    return spark


def _find_us_first() -> None:
    """Let `python3`, which Spark runs on the driver as on executors, be this interpreter on the driver.

    What executors find by that name is up to them. `PYSPARK_PYTHON` would be one name for all.
    """
    if "PYSPARK_PYTHON" not in os.environ and Path(sys.executable).with_name("python3").exists():
        path = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
        os.environ["PATH"] = os.pathsep.join(path)


def _interpreter() -> str:
    """What workers, and the helper process of stateful queries, run: this very interpreter.

    It starts more quickly through `python.sh`, which needs a pyspark that is installed, and a JVM that
    is yet to start and will know our environment.
    """
    installed = str(Path(pyspark.__file__).parents[1]) in sysconfig.get_paths().values()
    started = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    if started or not installed or not os.access(_PYTHON, os.X_OK):
        return sys.executable
    os.environ["TIDEGATE_PYTHON"] = sys.executable
    return str(_PYTHON)


def _with_our_classes(wanted: SparkConf) -> None:
    """Let the JVM, which starts if none runs, find our jar before a session reads its settings.

    A setting for the class path would take the place of the user's own.
    """
    SparkContext._ensure_initialized(conf=wanted)
    jvm: Any = SparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.addURL(jvm.java.io.File(str(_JAR)).toURI().toURL())
    except JvmError:  # a JVM that somebody else started may load classes in its own way
        if wanted.get(_DISK) == _OUR_DISK:
            wanted.set(_DISK, "org.apache.hadoop.fs.local.RawLocalFs")


def set_log_level(spark: SparkSession, level: str) -> None:
    """What the log of a session of ours shows: `OFF`, `ERROR`, `INFO` …"""
    spark.sparkContext.setLogLevel(level)


def keep_quiet(spark: SparkSession) -> None:
    """Leave out of the driver's log what Spark warns of at the end of each stateful task.

    It looks like lost state, and is none. The level of the log stays the user's. A session without a
    JVM of its own, or with another library for logs, keeps its lines.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    try:
        _deny(jvm.org.apache.logging.log4j, _DONE)
    except (JvmError, TypeError):
        return


def _deny(log4j: Any, text: str) -> None:
    # At the root: a logger with settings of its own would show all its levels in an interactive Spark.
    root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    if text in str(root.getFilter()):
        return
    result = log4j.core.Filter.Result
    root.addFilter(
        log4j.core.filter.RegexFilter.createFilter(text, None, False, result.DENY, result.NEUTRAL)
    )


@contextmanager
def stderr_into(log: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their standard error into a file.

    Spark's launcher, the JVM and the Python workers inherit it, so their start-up lines do not run
    through the display. Our own standard error is given back: an error message still shows up.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
