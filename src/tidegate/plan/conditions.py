"""Conditions over single rows, as SQL text: what Polars reads, checked when a plan is built."""

import json
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from tidegate.errors import PlanError, TypeMismatch
from tidegate.plan.schema import refuse_collation

#: What makes an expression look at more than one row.
_OVER_ROWS = {
    "Agg", "Correlation", "Explode", "Len", "Over", "Quantile", "Rolling", "SubPlan", "Window",
}  # fmt: skip


def check_condition(text: str, schema: pa.Schema, name: str = "when") -> None:
    """Refuse what is not true or false of each row by itself."""
    given = f"{name}={text!r}"
    try:
        condition = pl.sql_expr(text)
        answer = pl.DataFrame(schema.empty_table()).select(condition).dtypes[0]
    except Exception as error:  # what Polars raises here depends on what is wrong
        columns = ", ".join(schema.names)
        raise PlanError(f"{given} is no condition over {columns}: {error}") from None
    for column in condition.meta.root_names():
        refuse_collation(schema.field(column), f"{given}: column")
    if answer != pl.Boolean:
        raise TypeMismatch(f"{given} is {answer}; a condition is true or false")
    if _OVER_ROWS & set(_words(json.loads(condition.meta.serialize(format="json")))):
        raise PlanError(f"{given} looks at several rows; a condition is about one")


def _words(tree: Any) -> Iterator[str]:
    """The kinds of nodes of an expression; names of columns are none."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list):
        yield from (word for part in tree for word in _words(part))
    elif isinstance(tree, dict):
        for kind, parts in tree.items():
            yield kind
            if kind not in ("Column", "Literal"):
                yield from _words(parts)
