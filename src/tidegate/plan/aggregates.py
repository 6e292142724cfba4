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
from collections.abc import Iterator

import polars as pl

from tidegate.errors import PlanError

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


#: What takes rows from the beginning. A slice that begins at the end is right.
_FROM_THE_START = (".first(", ".first_non_null(", ".item(", ".slice(")
_FROM_THE_END = ".slice(offset=dyn int: -"

#: What Polars may leave out, so that what is above and below it meet.
_TRANSPARENT = (".alias(", ".cast(", ".strict_cast(", ".name.")

#: What leaves a plain column plain: it is done row by row.
_ROW_BY_ROW = (
    *_TRANSPARENT, ".filter(", ".negate(", ".abs(", ".not(", ".is_not_null(", ".is_null(", ".is_finite(",
    ".is_nan(",
)  # fmt: skip


#: Aggregates that the tests look at: plans of them are made without loading Polars.
_OURS = "tidegate.kernels.aggregates"


def check_expressions(name: str, aggregate: Aggregate) -> None:
    """Refuse an aggregate of a user's whose results would be wrong."""
    if type(aggregate).__module__ != _OURS:
        check_every_expression(name, aggregate)


def check_every_expression(name: str, aggregate: Aggregate) -> None:
    partial = aggregate.partial(pl.col(aggregate.column or "value"), pl.col("time"))
    merged = aggregate.merge({part: pl.col(part) for part in partial})
    for method, parts in (("partial", partial), ("merge", merged)):
        _check(f"{name}={aggregate}: {method}()", parts)


def _check(where: str, parts: Mapping[str, pl.Expr]) -> None:
    for part, expression in parts.items():
        found = misread(expression)
        if found is not None:
            raise PlanError(
                f"{where} makes {part!r} by sort_by(…){found}…), which Polars gets wrong inside a group "
                "unless plain columns are sorted by plain columns; write "
                "sort_by(…).get(0, null_on_oob=True) instead of first(), and "
                "sort_by(…).implode().list.head(n) instead of head(n), limit(n) or slice(0, n)"
            )


def misread(expression: pl.Expr) -> str | None:
    """What takes the first rows of a sort that Polars gets wrong, if anything in an expression does."""
    if ".sort_by(" not in str(expression):
        return None
    for node in _nodes(expression):
        taken = _method(node)
        if taken.startswith(_FROM_THE_START) and not taken.startswith(_FROM_THE_END):
            below = node.meta.pop()[-1]
            while _method(below).startswith(_TRANSPARENT):
                below = below.meta.pop()[-1]
            if _method(below).startswith(".sort_by(") and not all(map(_is_plain, below.meta.pop())):
                return taken.partition("(")[0] + "("
    return None


def _nodes(expression: pl.Expr) -> Iterator[pl.Expr]:
    yield expression
    for part in expression.meta.pop():
        yield from _nodes(part)


def _method(node: pl.Expr) -> str:
    """What is called on the rest of an expression, as text: `.first()` of `col("a").first()`."""
    parts = node.meta.pop()
    text, rest = str(node), str(parts[-1]) if parts else ""
    return text[len(rest) :] if rest and text.startswith(rest) else ""


def _is_plain(node: pl.Expr) -> bool:
    """Is it made of columns and literals, row by row?"""
    parts = node.meta.pop()
    if not parts:
        return node.meta.is_column() or node.meta.is_literal()
    comparison = str(node).startswith("[(") and len(parts) == 2 and not _method(node)
    return (comparison or _method(node).startswith(_ROW_BY_ROW)) and all(map(_is_plain, parts))
