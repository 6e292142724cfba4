"""Spark sessions: one set up for tidegate, and what is asked of a foreign one.

The only module that knows of the JVM behind a classic session.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import SessionError
from tidegate.spark.versions import SETTINGS, STATE_FORMAT

#: What calls of Spark raise: its own errors, and those of the JVM's that it has no class for.
SPARK_ERRORS = (PySparkException, Py4JError)

logger = logging.getLogger("tidegate")

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Spark's format of state. In 1 a version is one file, and of two writers the second overwrites it; in 2
#: each attempt has files of its own, and the commit log says whose count.
_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SAFE_FORMAT = 2
#: A session has one such setting, and each query it starts may need another value.
_SETTING_THE_FORMAT = RLock()
_SPECULATION = "spark.speculation"

#: The class that Spark writes checkpoints on a local disk with; jvm/LocalFiles.java says why it is ours.
_DISK, _OUR_DISK = "spark.hadoop.fs.AbstractFileSystem.file.impl", "tidegate.LocalFiles"
_JAR = Path(__file__).parent / "jvm" / "tidegate.jar"
_PYTHON = Path(__file__).parent / "python.sh"

#: What Spark warns of when a Python worker has all the state that it asked for.
_DONE = "No more data to read from the socket"

#: What makes small batches cheap and packing fast. All of it is optional.
_TUNED = {
    _PROVIDER: _ROCKSDB,
    _FORMAT: str(STATE_FORMAT),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    _DISK: _OUR_DISK,
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "tidegate.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    # On few cores the collector should not run beside the work.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}


def local_spark(cores: int = 2, app: str = "tidegate", **conf: str) -> SparkSession:
    """A local session set up for tidegate; any other session works as well.

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
    _with_our_classes(wanted)
    spark = SparkSession.builder.config(conf=wanted).getOrCreate()
    keep_quiet(spark)
    return spark


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
    except Py4JError:  # a JVM that somebody else started may load classes in its own way
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
    except (Py4JError, TypeError):
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


def shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def prepare_session(df: DataFrame) -> None:
    """Make sure the session can keep the state; queries started before are not affected."""
    keep_quiet(df.sparkSession)
    conf = df.sparkSession.conf
    for name, value in SETTINGS.items():
        if conf.get(name, None) != value:
            conf.set(name, value)
            logger.warning(
                "set %s to %s for this session: the trigger availableNow needs it", name, value
            )
    provider = conf.get(_PROVIDER, "") or ""
    if "RocksDB" in provider:
        return
    try:
        conf.set(_PROVIDER, _ROCKSDB)
    except Exception as error:  # a managed session may forbid it, each in its own way
        raise SessionError(
            f"stateful queries need the RocksDB state store, but this session uses {provider!r} and "
            f"does not let it be set; start the session with {_PROVIDER}={_ROCKSDB}"
        ) from error
    logger.warning("set %s to RocksDB for this session: stateful queries need it", _PROVIDER)


@contextmanager
def state_format(spark: SparkSession, wanted: int) -> Iterator[int]:
    """Let queries that are started meanwhile, and readers of state, use a format; gives the one in use.

    A query copies the settings of its session when it is started, so the session gets its own value
    back, and queries that run are not affected.
    """
    with _SETTING_THE_FORMAT:
        before = int(spark.conf.get(_FORMAT, "1") or 1)
        if before == wanted or not _set_format(spark, wanted):
            yield before
            return
        try:
            yield wanted
        finally:
            spark.conf.set(_FORMAT, str(before))


def _set_format(spark: SparkSession, wanted: int) -> bool:
    try:
        spark.conf.set(_FORMAT, str(wanted))
    except Exception:  # a managed session may forbid it, each in its own way
        logger.warning(
            "this session does not let %s be set to %d: two writers of one checkpoint can break its "
            "state; `tidegate repair` goes back to a whole version",
            _FORMAT,
            wanted,
        )
        return False
    return True


def refuse_speculation(spark: SparkSession, checkpoint: str, used: int) -> None:
    """Two attempts of one task may both commit: in format 1 that breaks the state."""
    speculates = (spark.conf.get(_SPECULATION, "false") or "").lower() == "true"
    if speculates and used < SAFE_FORMAT:
        raise SessionError(
            f"{_SPECULATION}=true, but the state of {checkpoint} is in Spark's format {used}, which "
            f"two attempts of one task can break. Start the session with {_SPECULATION}=false, or take "
            f"a new checkpoint location in a session that lets {_FORMAT}={SAFE_FORMAT} be set; a "
            "checkpoint keeps its format"
        )
