"""Intervals in the text as durations."""

from __future__ import annotations

from sqlglot import exp

from tidegate.plan.time import Micros, micros, signed_micros
from tidegate.sql.source import Text


def duration(text: Text, node: exp.Expr, what: str, *, zero: bool = False) -> Micros:
    """A positive length of time, or zero where that means something."""
    with text.at(node):
        return micros(_written(text, node, what), what, zero=zero)


def offset(text: Text, node: exp.Expr, what: str) -> Micros:
    """A length of time of either sign."""
    with text.at(node):
        return signed_micros(_written(text, node, what), what)


def _written(text: Text, node: exp.Expr, what: str) -> str:
    """The interval as `10 seconds`."""
    if isinstance(node, exp.Neg):
        return f"-{_written(text, node.this, what)}"
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        if unit is None:
            return str(node.name)
        if isinstance(unit, exp.Var):
            return f"{node.name} {unit.name}"
    raise text.refuse(
        node, f"{what} is an interval, such as INTERVAL '10' SECOND or INTERVAL '90 minutes'"
    )
