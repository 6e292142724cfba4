"""Lines of Spark's log that look like lost state and are none."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

#: What Spark warns of when a Python worker has all the state that it asked for.
_DONE = "No more data to read from the socket"


def keep_quiet(spark: SparkSession) -> None:
    """Leave out of the driver's log what Spark warns of at the end of each stateful task.

    The level of the log stays the user's. A session without a JVM of its own, or with another library
    for logs, keeps its lines.
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
