"""From what a program says about its events to the source node."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidegate.errors import PlanError, Term
from tidegate.plan.columns import TIMESTAMP, refuse_collisions
from tidegate.plan.event_time import EVENT_TIME, EVENT_TIME_TYPES, At, EventTime
from tidegate.plan.feeds import MAX_FUTURE, Source
from tidegate.plan.time import Duration, Micros, ProcessingTime, micros

#: A column, where each message has one, or the time rows come at.
Time = str | Mapping[str, str | At] | ProcessingTime

_ADDS = Term("events() adds", sql="the stream adds", yaml="the stream adds")


def declare_source(
    schema: pa.Schema,
    time: Time,
    time_type: str | None = None,
    tolerance: Duration = "0 s",
    max_future: Duration | None = None,
    idle_after: Duration | None = None,
) -> Source:
    """The source of rows of this schema; where they have no timestamp of their own they get one more."""
    declared = _declared(time, time_type)
    if isinstance(declared, EventTime):
        declared.validate(schema, EVENT_TIME_TYPES)
    own = isinstance(declared, EventTime) and declared.native
    if not own:
        refuse_collisions(schema.names, [EVENT_TIME], _ADDS)
        schema = schema.append(pa.field(EVENT_TIME, TIMESTAMP))
    return Source(
        schema,
        str(time) if own else EVENT_TIME,
        micros(tolerance, "tolerance", zero=True),
        declared=None if own else declared,
        max_future=_optional(max_future, "max_future") or MAX_FUTURE,
        idle_after=_optional(idle_after, "idle_after"),
    )


def _declared(time: Time, time_type: str | None) -> EventTime | ProcessingTime:
    if isinstance(time, str):
        return EventTime(((None, At(time, time_type or "timestamp")),))
    if time_type is not None:
        raise PlanError("time_type= goes with the name of a column; messages take tg.at(column, type)")
    if isinstance(time, ProcessingTime):
        return time
    if not isinstance(time, Mapping):
        raise PlanError(
            f"time= takes a column, a mapping of messages, or tg.processing_time(), got {time!r}"
        )
    return EventTime(tuple((m, t if isinstance(t, At) else At(t)) for m, t in time.items()))


def _optional(duration: Duration | None, what: str) -> Micros | None:
    return None if duration is None else micros(duration, what)
