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
from tidegate.api.events import at, events, processing_time
from tidegate.api.windows import hopping, session, sliding, tumbling
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.event_time import EVENT_TIME_TYPES as event_time_types
from tidegate.spark.session import local_spark

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "at",
    "collect",
    "count",
    "count_distinct",
    "emit",
    "errors",
    "event_time_types",
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
    "processing_time",
    "quantile",
    "session",
    "sinks",
    "sliding",
    "stddev",
    "sum",
    "tumbling",
    "var",
]
