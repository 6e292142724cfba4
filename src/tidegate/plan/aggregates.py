"""What an aggregate is: a partial, a merge and a finish, each a Polars expression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from tidegate.plan.identity import Values, plain

if TYPE_CHECKING:
    import polars as pl

State = Mapping[str, "pl.Expr"]
Combine = Literal["sum", "min", "max"]


@dataclass(frozen=True)
class SqlCall:
    """How SQL calls an aggregate: by any of the names, of which messages show the first.

    `arguments` are the parameters that these names stand for: `var_pop` is `var` with `population=True`.
    """

    names: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Aggregate(ABC):
    """One aggregate over a column, computed from partial results that merge in any grouping.

    `partial` sees the rows of a group, `merge` sees partial states of a group (in the order they
    arrived), `finish` sees one merged state per row. Each returns Polars expressions. The
    aggregate chooses the names in its state.
    """

    #: False refuses the aggregate when a plan is built: it cannot be computed from partials.
    mergeable: ClassVar[bool] = True

    #: Where each state column merges by itself, how. Empty: only `merge` knows. Overlapping
    #: windows over columns that merge by themselves cost one vector operation instead of a tree.
    columnwise: ClassVar[Mapping[str, Combine]] = {}

    #: What SQL calls it.
    sql: ClassVar[tuple[SqlCall, ...]] = ()

    #: What each parameter beside the column is: `{"q": "a number between 0 and 1"}`.
    meanings: ClassVar[Mapping[str, str]] = {}

    #: Does it tell values apart, or put them in order? Then text with a collation is refused.
    compares: ClassVar[bool] = True

    def __init__(self, column: str | None) -> None:
        self.column = column

    @property
    def name(self) -> str:
        """Its name in plans and checkpoints; it must not change."""
        return type(self).__name__.lower()

    @abstractmethod
    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        """The type of the result for a column of this type; raises `TypeError` if there is none."""

    @abstractmethod
    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        """The state of a group of rows."""

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr] | None:
        """The state of each row by itself, as `partial` has it for a group of one. None: ask that."""
        return None

    @abstractmethod
    def merge(self, state: State) -> dict[str, pl.Expr]:
        """The state of a group of states."""

    @abstractmethod
    def finish(self, state: State) -> pl.Expr:
        """The result of one state."""

    def for_type(self, column_type: pa.DataType | None) -> Aggregate:
        """The aggregate as it is computed over a column of this type."""
        return self

    def overflow(self, state: State) -> pl.Expr | None:
        """Where the result is null since it does not fit its type; None if it always does."""
        return None

    def parameters(self) -> dict[str, object]:
        """The arguments, apart from the column."""
        return {}

    @property
    def registered(self) -> str:
        """Its name in checkpoints. User-defined aggregates may have the names of built-in ones."""
        ours = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        return self.name if ours else f"own {self.name}"

    def identity(self) -> Values:
        """The registered name, the column and the arguments; not the module of the class."""
        arguments = plain(self.parameters())
        return {"aggregate": self.registered, "column": self.column, "arguments": arguments}

    def __str__(self) -> str:
        shown = [self.column or "*", *(f"{k}={v}" for k, v in self.parameters().items())]
        return f"{self.name}({', '.join(shown)})"

    def __repr__(self) -> str:
        return str(self)
