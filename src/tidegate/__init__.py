"""tidegate: the event-time toolkit that Spark Structured Streaming lacks."""

from tidegate import errors
from tidegate.api import emit, late, sinks
from tidegate.api.aggregates import (
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    median,
    min,
    quantile,
    stddev,
    sum,
    var,
)
from tidegate.api.events import events
from tidegate.api.windows import hopping, session, tumbling
from tidegate.plan.aggregate import Aggregate
from tidegate.spark.session import local_spark

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "collect",
    "count",
    "count_distinct",
    "emit",
    "errors",
    "events",
    "first",
    "hopping",
    "last",
    "late",
    "local_spark",
    "max",
    "mean",
    "median",
    "min",
    "quantile",
    "session",
    "sinks",
    "stddev",
    "sum",
    "tumbling",
    "var",
]
