"""EMIT, ALLOW LATENESS, LATE DATA TO, REASSIGN LATE WITHIN and ERRORS TO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.errors import did_you_mean
from tidegate.plan.channels import ERROR_CHANNEL
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Reassign,
    Retracting,
    SideOutput,
)
from tidegate.plan.time import Micros
from tidegate.sql.columns import match
from tidegate.sql.durations import duration
from tidegate.sql.program import SinkTable
from tidegate.sql.source import Text
from tidegate.sql.syntax import Clauses, ToSink
from tidegate.sql.tokens import Token

_EMISSIONS: dict[str, Emission] = {
    "ON WATERMARK": OnWatermark(),
    "ON WINDOW CLOSE": OnWindowClose(),
    "ON UPDATE": Retracting(),
    "CHANGES": Retracting(first="+I", before="-D", after="+I"),
    "FINAL": OnWindowClose(final=True),
}

_SHOWN = {
    "emit": "EMIT",
    "lateness": "ALLOW LATENESS",
    "late": "what becomes of late rows",
    "errors": "ERRORS TO",
}

Sinks = Mapping[str, SinkTable]


def emission(text: Text, clauses: Clauses) -> Emission:
    clause = clauses.emit
    if clause is None:
        return OnWatermark()
    if clause.every is not None:
        return Retracting(interval=duration(text, clause.every, "the interval of EMIT EVERY"))
    return _EMISSIONS[clause.words]


def lateness(text: Text, clauses: Clauses) -> Micros:
    clause = clauses.lateness
    return Micros(0) if clause is None else duration(text, clause.interval, "ALLOW LATENESS", zero=True)


def late_policy(text: Text, clauses: Clauses, sinks: Sinks) -> LatePolicy:
    """What becomes of late rows; their channel is called as the sink is that they go to."""
    clause = clauses.late
    if clause is None:
        return Drop()
    if not isinstance(clause, ToSink):
        return Reassign(duration(text, clause.interval, "REASSIGN LATE WITHIN"))
    return SideOutput(sink_named(text, clause.sink, sinks).name)


def channel_sinks(text: Text, clauses: Clauses, sinks: Sinks, before: Sinks) -> Sinks:
    """The sinks by channel, beside that of the results; `before` are those of operators further up."""
    found = dict(before)
    if isinstance(clauses.late, ToSink):
        late = sink_named(text, clauses.late.sink, sinks)
        found[late.name] = late
    if clauses.errors is not None:
        errors = sink_named(text, clauses.errors.sink, sinks)
        if found.get(ERROR_CHANNEL, errors) != errors:
            raise text.refuse(
                clauses.errors.place,
                "a query has one sink for invalid rows: a view names another",
            )
        if errors.name in found:
            raise text.refuse(
                clauses.errors.sink,
                f"sink {errors.name!r} takes the late rows: invalid ones need another",
            )
        found[ERROR_CHANNEL] = errors
    return found


def sink_named(text: Text, name: Token, sinks: Sinks) -> SinkTable:
    found = match(name.name, sinks)
    if found is None:
        raise text.refuse(name, f"no sink {name.name!r}; {did_you_mean(name.name, sinks)}")
    return sinks[found]


def refuse_clauses(
    text: Text, clauses: Clauses, problem: str, names: Iterable[str] = tuple(_SHOWN)
) -> None:
    for name in names:
        if clause := getattr(clauses, name):
            raise text.refuse(clause.place, f"{_SHOWN[name]} {problem}")
