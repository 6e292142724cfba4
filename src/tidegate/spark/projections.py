"""What a query level does to a DataFrame: a name for its rows, a condition, and other columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame


def projected(
    rows: DataFrame, alias: str | None, where: str | None, columns: Sequence[tuple[str, str]] | None
) -> DataFrame:
    """Rows that meet a condition, then columns, each a name and an expression of Spark SQL."""
    known = rows if alias is None else rows.alias(alias)
    kept = known if where is None else known.where(where)
    if columns is None:
        return kept
    # In parentheses half an expression does not become whole by what follows it.
    return kept.selectExpr(*(f"({expression}) AS {_quoted(name)}" for name, expression in columns))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
