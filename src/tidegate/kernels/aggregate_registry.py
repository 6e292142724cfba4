"""Every aggregate by its names, with its parameters: what SQL, pipeline files and `tg` know of them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from tidegate.kernels import public_aggregates
from tidegate.plan.aggregates import Aggregate, SqlCall

#: By their public names.
AGGREGATES: dict[str, type[Aggregate]] = {
    name: kind for name, kind in vars(public_aggregates).items() if isinstance(kind, type)
}

#: By the names that SQL has for them.
SQL_CALLS: dict[str, tuple[type[Aggregate], SqlCall]] = {
    name: (kind, call) for kind in AGGREGATES.values() for call in kind.sql for name in call.names
}


@dataclass(frozen=True)
class Parameter:
    """What an aggregate takes beside its column."""

    name: str
    type: Any
    required: bool
    meaning: str


def parameters_of(kind: type[Aggregate]) -> list[Parameter]:
    """The parameters of an aggregate's constructor, but for the column."""
    _, *others = inspect.signature(kind, eval_str=True).parameters.values()
    return [
        Parameter(one.name, one.annotation, one.default is one.empty, kind.meanings[one.name])
        for one in others
    ]
