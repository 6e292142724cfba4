"""Spark sessions, classic and Connect: what a query needs of the session that it runs in."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import SessionError
from tidegate.spark.versions import SETTINGS

logger = logging.getLogger("tidegate")

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Spark's format of state. In 1 a version is one file, and of two writers the second overwrites it; in 2
#: each attempt has files of its own, and the commit log says whose count.
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
SAFE_FORMAT = 2
#: A session has one such setting, and each query it starts may need another value.
_SETTING_THE_FORMAT = RLock()
_SPECULATION = "spark.speculation"
_WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def spark_errors() -> tuple[type[Exception], ...]:
    """What calls of Spark raise: its own errors, and those of the JVM's that it has no class for."""
    if not has_jvm():
        return (PySparkException,)
    from tidegate.spark.classic import JvmError

    return (PySparkException, JvmError)


def has_jvm() -> bool:
    """Can this process talk to a JVM? A thin client of Spark Connect cannot."""
    return "py4j" in sys.modules


def connect_spark(url: str, py_files: Sequence[str] = (), **conf: str) -> SparkSession:
    """The session of a Spark Connect server, with code that is shipped to it."""
    builder = SparkSession.builder.remote(url)
    for name, value in (SETTINGS | conf).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if py_files:
        with importable(py_files) as files:
            spark.addArtifacts(*files, pyfile=True)
    return spark


@contextmanager
def importable(py_files: Sequence[str]) -> Iterator[list[str]]:
    """The files under names by which Spark puts them on the path of Python: a wheel is a zip to it."""
    with TemporaryDirectory(prefix="tidegate-wheels-") as folder:
        yield [_as_zip(Path(file), folder) if file.endswith(".whl") else file for file in py_files]


def _as_zip(wheel: Path, folder: str) -> str:
    return str(shutil.copy(wheel, Path(folder, f"{wheel.stem}.zip")))


def shuffle_partitions(df: DataFrame) -> int:
    return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)


def is_ansi(spark: SparkSession) -> bool:
    """Are results that overflow errors in this session?"""
    return spark.conf.get("spark.sql.ansi.enabled", "true") != "false"


def prepare_session(sources: Sequence[DataFrame]) -> None:
    """Make sure the session can keep the state; queries started before are not affected."""
    spark = sources[0].sparkSession
    if has_jvm():
        from tidegate.spark.classic import keep_quiet

        keep_quiet(spark)
    if len(sources) > 1:
        _refuse_highest_watermark(spark)
    conf = spark.conf
    for name, value in SETTINGS.items():
        if conf.get(name, None) != value:
            conf.set(name, value)
            logger.warning(
                "set %s to %s for this session: the trigger availableNow needs it", name, value
            )
    provider = conf.get(STATE_STORE, "") or ""
    if "RocksDB" in provider:
        return
    try:
        conf.set(STATE_STORE, ROCKSDB)
    except Exception as error:  # a managed session may forbid it, each in its own way
        raise SessionError(
            f"stateful queries need the RocksDB state store, but this session uses {provider!r} and "
            f"does not let it be set; start the session with {STATE_STORE}={ROCKSDB}"
        ) from error
    logger.warning("set %s to RocksDB for this session: stateful queries need it", STATE_STORE)


def _refuse_highest_watermark(spark: SparkSession) -> None:
    """By it Spark tells operators a watermark that some of their sources have not reached."""
    policy = (spark.conf.get(_WATERMARK_POLICY, None) or "min").lower()
    if policy != "min":
        raise SessionError(
            f"{_WATERMARK_POLICY}={policy}: rows of the slower sources would be late. Set it to min; "
            "give sources that may be silent an idle_after in tg.events(…)"
        )


def session_format(spark: SparkSession) -> int:
    """The format that the session asks for."""
    return int(spark.conf.get(CHECKPOINT_FORMAT, "1") or 1)


@contextmanager
def state_format(spark: SparkSession, wanted: int) -> Iterator[int]:
    """Let queries that are started meanwhile, and readers of state, use a format; gives the one in use.

    A query copies the settings of its session when it is started, so the session gets its own value
    back, and queries that run are not affected.
    """
    with _SETTING_THE_FORMAT:
        before = session_format(spark)
        if before == wanted or not _set_format(spark, wanted):
            yield before
            return
        try:
            yield wanted
        finally:
            spark.conf.set(CHECKPOINT_FORMAT, str(before))


def _set_format(spark: SparkSession, wanted: int) -> bool:
    try:
        spark.conf.set(CHECKPOINT_FORMAT, str(wanted))
    except Exception:  # a managed session may forbid it, each in its own way
        logger.warning(
            "this session does not let %s be set to %d: two writers of one checkpoint can break its "
            "state; `tidegate repair` goes back to a whole version",
            CHECKPOINT_FORMAT,
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
            f"a new checkpoint location in a session that lets {CHECKPOINT_FORMAT}={SAFE_FORMAT} be "
            "set; a checkpoint keeps its format"
        )
