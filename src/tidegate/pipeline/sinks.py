"""Declared sinks as sinks of the API, and what a SELECT does to rows on their way there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.api import sinks
from tidegate.connectors import Preparable, Sink, Target, Write
from tidegate.errors import SinkError
from tidegate.sql.program import Column, SinkTable

_MAKERS: Mapping[str, Callable[[Mapping[str, str]], Sink]] = {
    "files": lambda options: _FILES[options["format"]](options["path"]),
    "console": lambda options: sinks.console(int(options.get("limit", 20))),
    "duckdb": lambda options: sinks.duckdb(options["path"], options["table"]),
    "postgres": lambda options: sinks.postgres(options["dsn"], options["table"]),
    "discard": lambda _: sinks.discard(),
}
_FILES: Mapping[str, Callable[[str], Sink]] = {"parquet": sinks.parquet, "json": sinks.json}


def sink_of(table: SinkTable) -> Sink:
    """The sink that a declaration stands for."""
    return _MAKERS[table.connector](table.options)


def select(rows: Any, where: str | None, columns: tuple[Column, ...] | None) -> Any:
    """Rows of a DataFrame that meet a condition, then expressions over them; both are Spark SQL."""
    kept = rows if where is None else rows.where(where)
    if columns is None:
        return kept
    return kept.selectExpr(*(f"{expression} AS {_quoted(name)}" for name, expression in columns))


@dataclass(frozen=True)
class Selected:
    """A sink for what HAVING and SELECT leave of the results."""

    sink: Sink
    having: str | None
    columns: tuple[Column, ...] | None
    #: An empty DataFrame of the results: Spark itself tells what comes of them.
    results: Any

    def prepare(self, target: Target) -> Write:
        """The sink is told of the columns that are left, and by which of them rows are told apart."""
        write = self.sink
        if isinstance(self.sink, Preparable):
            write = self.sink.prepare(self._selected(target))
        assert callable(write)
        return lambda rows, batch_id: write(select(rows, self.having, self.columns), batch_id)

    def _selected(self, target: Target) -> Target:
        from tidegate.spark.schema import arrow_schema

        schema = arrow_schema(select(self.results, self.having, self.columns))
        if self.columns is None:
            return replace(target, schema=schema)
        names = {_unquoted(expression): name for name, expression in self.columns}
        missing = [column for column in target.identity if column not in names]
        if missing:
            raise SinkError(
                f"the SELECT leaves out {', '.join(map(repr, missing))}; a table tells results apart by "
                f"{', '.join(map(repr, target.identity))}: select all of them"
            )
        return replace(target, schema=schema, identity=tuple(names[c] for c in target.identity))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unquoted(expression: str) -> str:
    return expression[1:-1].replace("``", "`") if expression.startswith("`") else expression
