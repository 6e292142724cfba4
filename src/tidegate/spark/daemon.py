"""Spark's Python daemon with the libraries of the kernels already loaded.

Spark forks one worker for each running stage of each task. Loaded here, once, the imports cost
nothing in any of them. Frozen here, they are also left out of the full garbage collection that
Spark runs in each worker after each task, which otherwise walks every object of every module.
"""

import gc

import polars
import pyarrow.compute
from pyspark.daemon import manager

import tidegate.spark.lower

__all__ = ["manager", "polars", "pyarrow", "tidegate"]

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
