"""What an aggregate is: a partial, a merge and a finish, each a Polars expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa

from tidegate.plan.identity import Values, plain

if TYPE_CHECKING:
    import polars as pl

State = Mapping[str, "pl.Expr"]
Combine = Literal["sum", "min", "max"]


class Aggregate(ABC):
    """One aggregate over a column, computed from partial results that merge in any grouping.

    `partial` sees the rows of a group, `merge` sees partial states of a group (in the order they
    arrived), `finish` sees one merged state per row. Each returns Polars expressions; the names in
    the state are the aggregate's own business.
    """

    #: False refuses the aggregate when a plan is built: it cannot be computed from partials.
    mergeable: ClassVar[bool] = True

    #: Where each state column merges by itself, how. Empty: only `merge` knows. Overlapping
    #: windows over columns that merge by themselves cost one vector operation instead of a tree.
    columnwise: ClassVar[Mapping[str, Combine]] = {}

    def __init__(self, column: str | None) -> None:
        self.column = column

    @property
    def name(self) -> str:
        """What plans call it; checkpoints as well, so it must not change."""
        return type(self).__name__.lower()

    @abstractmethod
    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        """The result's type for a column of this type; raises `TypeError` if it has none."""

    @abstractmethod
    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        """The state of a group of rows."""

    @abstractmethod
    def merge(self, state: State) -> dict[str, pl.Expr]:
        """The state of a group of states."""

    @abstractmethod
    def finish(self, state: State) -> pl.Expr:
        """The result of one state."""

    def parameters(self) -> dict[str, object]:
        """What tells this aggregate from another of its class, apart from the column."""
        return {}

    @property
    def registered(self) -> str:
        """What checkpoints call it. A program's own is told from ours, whose names it may have."""
        ours = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        return self.name if ours else f"own {self.name}"

    def identity(self) -> Values:
        """The registered name, the column and the arguments: never where the class lies."""
        arguments = plain(self.parameters())
        return {"aggregate": self.registered, "column": self.column, "arguments": arguments}

    def __str__(self) -> str:
        shown = [self.column or "*", *(f"{k}={v}" for k, v in self.parameters().items())]
        return f"{self.name}({', '.join(shown)})"

    def __repr__(self) -> str:
        return str(self)
