"""Aggregates of every kind, made by what they declare."""

from tidegate.kernels.aggregate_registry import parameters_of
from tidegate.plan.aggregates import Aggregate


def sample(kind: type[Aggregate], column: str) -> Aggregate:
    """An aggregate of this kind, with parameters that it takes."""
    arguments = {one.name: one.type(1) for one in parameters_of(kind) if one.required}
    return kind(column, **arguments)
