"""Plans as plain values, to compare them node for node. Aggregates are compared by what they compute."""

from dataclasses import fields, is_dataclass
from typing import Any

from tidegate.plan.aggregates import Aggregate


def facts(node: Any) -> Any:
    """A plan as plain values: equal if and only if the plans are."""
    if isinstance(node, Aggregate):
        return (type(node), node.column, node.parameters())
    if is_dataclass(node):
        return (type(node), [(field.name, facts(getattr(node, field.name))) for field in fields(node)])
    if isinstance(node, tuple):
        return tuple(facts(part) for part in node)
    return node
