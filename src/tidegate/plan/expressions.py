"""Expressions of aggregates that Polars gets wrong inside `group_by`, found before a query runs.

Polars 2.1.0: `values.sort_by(keys)` directly followed by `first()`, `head()`, `limit()` or `slice()`
reads other groups' rows, or memory that nobody wrote, unless values and keys are plain columns of the
group: it panics, returns anything, or ends the process. What can be seen to be plain is let through;
all else is refused, since there is a form that is always right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from tidegate.errors import PlanError
from tidegate.plan.aggregates import Aggregate

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
