"""Spark's Python daemon with the libraries of workers already loaded.

Spark forks one worker for each running stage of each task. Loaded here, once, the imports cost
nothing in any of them (Spark's own worker loads pandas, whether a task needs it or not). Frozen
here, they are also left out of the full garbage collection that Spark runs in each worker after
each task, which otherwise walks every object of every module.
"""

import gc

import pandas
import polars
import pyarrow.compute
import pyarrow.pandas_compat
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.worker
from pyspark.daemon import manager

import tidegate.spark.hosting
import tidegate.spark.lower

__all__ = ["manager", "pandas", "polars", "pyarrow", "pyspark", "tidegate"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
