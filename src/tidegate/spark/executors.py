"""What executors must have: tidegate and its libraries, in the Python that they run.

A session on a cluster is asked before its first query starts. Executors may join later, and not all of
them may be the same: so a batch that fails for want of a module says so in the same words.

A local session is its own executor. Python loads its libraries there while the first query is planned.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidegate.errors import NotInstalled
from tidegate.spark.driver import is_connect

logger = logging.getLogger("tidegate")

#: Applications whose executors have been asked, and had everything.
_ASKED: set[str] = set()
#: Local sessions whose Python has been started.
_STARTED: set[str] = set()
#: More tasks than these are not started to ask: they need not reach every executor anyway.
_TASKS = 8

_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named '([\w.]+)')")
#: What Java says of a program that is not there.
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
#: Where Spark says that it opens what it was sent: functions of users are called later.
_OPENED = ("SerializationError", "cloudpickle.loads", "pickle.loads", "_read_with_length")


def check_executors(spark: SparkSession) -> None:
    """Refuse a session whose executors lack tidegate; those of a local session are this process."""
    application = _setting(spark, "spark.app.id")
    if application in _ASKED or is_local(spark):
        return
    with missing_modules_told():
        for said in _answers(spark):
            raise NotInstalled(_told(said.partition("'")[2].partition("'")[0], said))
    _ASKED.add(application)


def warn_of_local_disk(spark: SparkSession, checkpoint: str) -> None:
    """Say that a checkpoint without a scheme is a folder that every machine must have in common."""
    if checkpoint.startswith("file:") and not is_local(spark):
        logger.warning(
            "the checkpoint %s is a folder of this machine, and the session runs on a cluster: every "
            "executor must see the same folder under this path. Otherwise give a URI, such as hdfs://…",
            checkpoint,
        )


def start_python_early(spark: SparkSession) -> None:
    """Let the Python of a local session start while its first query is planned: it takes a second."""
    application = _setting(spark, "spark.app.id")
    if application in _STARTED or not is_local(spark) or is_connect(spark):
        return
    _STARTED.add(application)
    Thread(target=_start_python, args=(spark,), daemon=True).start()


def _start_python(spark: SparkSession) -> None:
    with suppress(Exception):  # what is wrong, the query says
        spark.range(0, 1, 1, 1).mapInArrow(iter, "id bigint").collect()


def is_local(spark: SparkSession) -> bool:
    """Are there no executors but the driver itself?"""
    master = _setting(spark, "spark.master")
    return master == "local" or master.startswith("local[")


def _setting(spark: SparkSession, name: str) -> str:
    try:
        return spark.conf.get(name, "") or ""
    except Exception:  # a managed session may not say, each in its own way
        return ""


def _answers(spark: SparkSession) -> list[str]:
    """What is wrong, of each executor that was asked and lacks something."""
    asked = F.udf(_lacks, "string", useArrow=False)
    rows = spark.range(0, _TASKS, 1, _TASKS).select(asked("id").alias("lacks")).distinct().collect()
    return sorted(row.lacks for row in rows if row.lacks is not None)


def _lacks(_: int) -> str | None:
    """Why this Python cannot run a query. It may name nothing outside itself: it is sent by value."""
    import socket
    import sys

    try:
        import tidegate.spark.lower  # noqa: F401
    except ImportError as error:
        return f"{error}, in {sys.executable} on {socket.gethostname()}"
    return None


# A function of a module is sent as the name of the module, which is just what may be missing.
_lacks.__module__ = "__main__"


@contextmanager
def missing_modules_told() -> Iterator[None]:
    """Raise `NotInstalled` where executors could not open what they were sent; other errors stay."""
    try:
        yield
    except Exception as error:  # Spark's own or Java's, as the version of Spark has it
        told = _reason(str(error))
        if told is None:
            raise
        # Not as its consequence: that would put two long stacks in front of one sentence.
        raise NotInstalled(told) from None


def _reason(text: str) -> str | None:
    if found := _NO_PYTHON.search(text):
        return (
            f"the executors cannot start Python as {found[1]!r}: set the environment variable "
            "PYSPARK_PYTHON to an interpreter that has this name on the driver and on every executor"
        )
    found = _NO_MODULE.search(text)
    if found is None or not any(sign in text for sign in _OPENED):
        return None
    return _told(found[2], found[1])


def _told(module: str, said: str) -> str:
    if module.partition(".")[0] == "tidegate":
        return (
            f"the executors have no tidegate ({said}). Install it for their Python, in the version that "
            "the driver has. A classic session can also ship it: its wheel with `tidegate run "
            "--py-files`, or the wheel renamed to .zip with spark.sparkContext.addPyFile(…) or "
            "spark.submit.pyFiles"
        )
    return (
        f"the executors lack a module ({said}). Ship your own modules with `tidegate run --py-files`, "
        "spark.sparkContext.addPyFile(…) or spark.submit.pyFiles. Install libraries for their Python, "
        "or ship an environment that has them with spark.archives"
    )
