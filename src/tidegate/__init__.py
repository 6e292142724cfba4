"""tidegate: the event-time toolkit that Spark Structured Streaming lacks.

Names are imported when they are first used: a command that only reads a file does not wait for Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate import errors
    from tidegate.api import emit, late, sinks
    from tidegate.api.aggregates import *  # noqa: F403 - a name for each
    from tidegate.api.events import (
        Events,
        ForwardedEvents,
        KeyedEvents,
        Result,
        Rows,
        WindowedEvents,
        at,
        events,
        processing_time,
    )
    from tidegate.api.folders import pace, read_folder
    from tidegate.api.snapshots import read_snapshot
    from tidegate.api.together import StatementSet, together
    from tidegate.api.windows import hopping, session, sliding, tumbling
    from tidegate.dataflow.watermarks import WatermarkAligner, WatermarkGenerator, WatermarkPropagator
    from tidegate.plan.aggregates import Aggregate
    from tidegate.plan.event_time import EVENT_TIME_TYPES as event_time_types
    from tidegate.plan.sla import declare_sla as sla
    from tidegate.plan.steps import Fusion as fusion
    from tidegate.spark.classic import local_spark
    from tidegate.spark.query import Query
else:
    _MODULES = {
        "tidegate.api.events": (
            "Events", "ForwardedEvents", "KeyedEvents", "Result", "Rows", "WindowedEvents",
            "at", "events", "processing_time",
        ),
        "tidegate.api.folders": ("pace", "read_folder"),
        "tidegate.api.snapshots": ("read_snapshot",),
        "tidegate.api.together": ("StatementSet", "together"),
        "tidegate.api.windows": ("hopping", "session", "sliding", "tumbling"),
        "tidegate.dataflow.watermarks": (
            "WatermarkAligner", "WatermarkGenerator", "WatermarkPropagator",
        ),
        "tidegate.plan.aggregates": ("Aggregate",),
        "tidegate.spark.classic": ("local_spark",),
        "tidegate.spark.query": ("Query",),
    }  # fmt: skip
    _HOME = {name: (module, name) for module, names in _MODULES.items() for name in names}
    _HOME["event_time_types"] = ("tidegate.plan.event_time", "EVENT_TIME_TYPES")
    _HOME["fusion"] = ("tidegate.plan.steps", "Fusion")
    _HOME["sla"] = ("tidegate.plan.sla", "declare_sla")
    #: Names that are modules themselves.
    _HOME["errors"] = ("tidegate.errors", None)
    _HOME |= {name: (f"tidegate.api.{name}", None) for name in ("emit", "late", "sinks")}

    def _aggregates() -> dict[str, Any]:
        return import_module("tidegate.kernels.aggregate_registry").AGGREGATES

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            if name[0] != "_" and name in _aggregates():
                return _aggregates()[name]
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home, attribute = _HOME[name]
        module = import_module(home)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_aggregates()})


#: `import *` leaves the aggregates out: `sum`, `min` and `max` would hide those of Python.
__all__ = [
    "Aggregate",
    "Events",
    "ForwardedEvents",
    "KeyedEvents",
    "Query",
    "Result",
    "Rows",
    "StatementSet",
    "WatermarkAligner",
    "WatermarkGenerator",
    "WatermarkPropagator",
    "WindowedEvents",
    "at",
    "emit",
    "errors",
    "event_time_types",
    "events",
    "fusion",
    "hopping",
    "late",
    "local_spark",
    "pace",
    "processing_time",
    "read_folder",
    "read_snapshot",
    "session",
    "sinks",
    "sla",
    "sliding",
    "together",
    "tumbling",
]
