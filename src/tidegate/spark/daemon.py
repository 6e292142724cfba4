"""Spark's Python daemon with the libraries of workers already loaded.

Spark forks one worker for each running stage of each task. Loaded here, once, the imports cost
nothing in any of them (Spark's own worker loads pandas, whether a task needs it or not). Frozen
here, they are also left out of the full garbage collection that Spark runs in each worker after
each task, which otherwise walks every object of every module.
"""

import gc
import socket
from collections.abc import Callable

import pandas
import polars
import pyarrow.compute
import pyarrow.pandas_compat
import pyspark.daemon
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.worker

import tidegate.spark.host
import tidegate.spark.lower

__all__ = ["pandas", "polars", "pyarrow", "pyspark", "tidegate"]

_BROKEN_OFF = 1

Serve = Callable[[socket.socket, bool], int]


def quietly(serve: Serve) -> Serve:
    """A worker that ends without a stack trace when Spark, which ends too, has closed its socket.

    Errors of tasks are sent to Spark, and are none of these.
    """

    def served(connection: socket.socket, authenticated: bool) -> int:
        try:
            return serve(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return _BROKEN_OFF

    return served


if __name__ == "__main__":
    vars(pyspark.daemon)["worker"] = quietly(pyspark.daemon.worker)
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
