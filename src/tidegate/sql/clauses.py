"""EMIT, ALLOW LATENESS, LATE DATA TO and REASSIGN LATE WITHIN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp

from tidegate.errors import did_you_mean
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
from tidegate.sql.dialect import LateTo
from tidegate.sql.durations import duration
from tidegate.sql.program import SinkTable
from tidegate.sql.relations import match
from tidegate.sql.source import Text

_EMISSIONS: dict[str, Emission] = {
    "ON WATERMARK": OnWatermark(),
    "ON WINDOW CLOSE": OnWindowClose(),
    "ON UPDATE": Retracting(),
    "CHANGES": Retracting(first="+I", before="-D", after="+I"),
    "FINAL": OnWindowClose(final=True),
}

_SHOWN = {"emit": "EMIT", "lateness": "ALLOW LATENESS", "late": "what becomes of late rows"}


def emission(text: Text, select: exp.Select) -> Emission:
    clause = select.args.get("emit")
    if clause is None:
        return OnWatermark()
    if interval := clause.args.get("expression"):
        return Retracting(interval=duration(text, interval, "the interval of EMIT EVERY"))
    return _EMISSIONS[clause.this]


def lateness(text: Text, select: exp.Select) -> Micros:
    clause = select.args.get("lateness")
    return Micros(0) if clause is None else duration(text, clause.this, "ALLOW LATENESS", zero=True)


def late_policy(
    text: Text, select: exp.Select, sinks: Mapping[str, SinkTable]
) -> tuple[LatePolicy, dict[str, SinkTable]]:
    """What becomes of late rows, and the sink they go to; their channel is called as the sink is."""
    clause = select.args.get("late")
    if clause is None:
        return Drop(), {}
    if not isinstance(clause, LateTo):
        return Reassign(duration(text, clause.this, "REASSIGN LATE WITHIN")), {}
    name = match(clause.name, sinks)
    if name is None:
        raise text.refuse(clause.this, f"no sink {clause.name!r}; {did_you_mean(clause.name, sinks)}")
    return SideOutput(name), {name: sinks[name]}


def refuse_clauses(
    text: Text, select: exp.Select, problem: str, clauses: Iterable[str] = tuple(_SHOWN)
) -> None:
    for name in clauses:
        if clause := select.args.get(name):
            raise text.refuse(clause, f"{_SHOWN[name]} {problem}")
