"""What Spark says about expressions, for those who build plans without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidegate.errors import PlanError


@dataclass(frozen=True)
class Typed:
    """The type of an expression: Arrow's, if plans can have it, and what Spark calls it."""

    arrow: pa.DataType | None
    shown: str


class ExpressionRefused(PlanError):
    """Spark refuses an expression: `number` says which one of those that it was asked about."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number


class Analyzer(Protocol):
    """Spark's analyzer."""

    def types(
        self, schema: pa.Schema, alias: str | None, columns: Sequence[tuple[str, str]]
    ) -> list[Typed]:
        """The types of columns, each a name and an expression, over rows that are known as `alias`."""
        ...
