"""Declared sinks as sinks of the API, and what a SELECT does to rows on their way there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.connectors import SINKS, Preparable, Sink, Target, Write
from tidegate.sql.program import Projection, SinkTable


def sink_of(table: SinkTable) -> Sink:
    """The sink that a declaration stands for."""
    return SINKS[table.connector].sink(table.options)


def select(rows: Any, steps: Iterable[Projection]) -> Any:
    """Rows of a DataFrame after the levels of a query; all texts are Spark SQL."""
    from tidegate.spark.projections import projected

    for step in steps:
        rows = projected(rows, step.alias, step.where, step.columns)
    return rows


@dataclass(frozen=True)
class Selected:
    """A sink for what HAVING and SELECT leave of the results."""

    sink: Sink
    steps: tuple[Projection, ...]
    #: The columns of the results that are left as they are, by the names they then have.
    kept: Mapping[str, str]
    #: An empty DataFrame of the results: Spark itself tells what comes of them.
    results: Any

    def prepare(self, target: Target) -> Write:
        """The sink is told of the columns that are left, and by which of them rows are told apart."""
        write = self.sink
        if isinstance(self.sink, Preparable):
            write = self.sink.prepare(self._selected(target))
        assert callable(write)
        return lambda rows, batch_id: write(select(rows, self.steps), batch_id)

    def _selected(self, target: Target) -> Target:
        from tidegate.spark.schema import arrow_schema

        schema = arrow_schema(select(self.results, self.steps))
        names = {column: name for name, column in self.kept.items()}
        # Tables need all of it, and have been refused without; to files it means nothing.
        whole = all(column in names for column in target.key)
        key = tuple(names[column] for column in target.key) if whole else ()
        return replace(target, schema=schema, key=key)
