"""What a dry run takes: results of the Python API, and queries of SQL and of pipeline files.

A query of SQL is a plan with a SELECT before it, for each stream, and one behind it. Where these only
choose and rename columns, no Spark is needed. Spark evaluates conditions and expressions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidegate.dataflow import compile
from tidegate.errors import PlanError
from tidegate.optimize import optimize
from tidegate.plan.channels import ERROR_CHANNEL, ERRORS, MAIN
from tidegate.plan.event_time import EVENT_TIME, EventTime
from tidegate.plan.nodes import Plan
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import Source
from tidegate.sql import Input, Insert, Projection
from tidegate.sql import Program as SqlProgram
from tidegate.testing.table import Row, to_arrow


class Result(Protocol):
    """What the Python API gives: a result, or several in one query."""

    @property
    def node(self) -> Plan: ...


#: A result, a query of SQL, or a text of SQL that has one query.
Program = Result | Insert | SqlProgram

#: A Spark session.
Session = Any


def load(file: str | os.PathLike[str], *, spark: Session | None = None) -> list[Insert]:
    """The queries of a pipeline file, `.yaml` or `.sql`, for a dry run.

    `spark` is only needed if a plan depends on types that only Spark knows.
    """
    from tidegate.pipeline.load import load  # it takes its time, and other programs do without

    return [job.insert for job in load(Path(file), spark=spark)]


@dataclass(frozen=True)
class Selection:
    """A SELECT: rows of a schema through the levels of a query."""

    before: pa.Schema
    steps: tuple[Projection, ...] = ()
    #: The columns that leave the steps as they are, by the names they then have.
    kept: Mapping[str, str] = field(default_factory=dict)
    spark: Session | None = None

    def __post_init__(self) -> None:
        if self.computes is not None and self.spark is None:
            raise PlanError(
                f"Spark evaluates {self.computes!r}: give the dry run a session, as in "
                "DryRun(program, spark=spark) or check(program, script, spark=spark)"
            )

    @property
    def computes(self) -> str | None:
        """The first condition, or an expression that is more than the name of a column."""
        conditions = (step.where for step in self.steps if step.where is not None)
        computed = (text for name, text in self._columns or () if name not in self.kept)
        return next(conditions, None) or next(computed, None)

    @property
    def after(self) -> pa.Schema:
        """The columns that are left."""
        if self.computes is not None:
            return _in_utc(self._selected(self.before.empty_table()).schema)
        renamed = self._renamed.items()
        return pa.schema([self.before.field(column).with_name(name) for name, column in renamed])

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        if not self.steps:
            return list(rows)
        if self.computes is None:
            return [{name: row.get(column) for name, column in self._renamed.items()} for row in rows]
        found = self._selected(to_arrow(rows, self.before))
        selected: list[Row] = found.cast(_in_utc(found.schema)).to_pylist()
        return selected

    @property
    def _columns(self) -> Sequence[tuple[str, str]] | None:
        """What the last level selects; None if all columns stay."""
        chosen = [step.columns for step in self.steps if step.columns is not None]
        return chosen[-1] if chosen else None

    @property
    def _renamed(self) -> dict[str, str]:
        if self._columns is None:
            return {name: name for name in self.before.names}
        return {name: self.kept[name] for name, _ in self._columns}

    def _selected(self, rows: pa.Table) -> pa.Table:
        from tidegate.pipeline.sinks import select

        assert self.spark is not None
        found: pa.Table = select(self.spark.createDataFrame(rows), self.steps).toArrow()
        return found


@dataclass(frozen=True)
class Subject:
    """A program under test: the tables that a batch brings, the plan, and the SELECTs around it."""

    #: None if rows only pass.
    plan: Plan | None
    #: What a batch brings: the columns of each table, by name.
    tables: Mapping[str, pa.Schema]
    #: For each source of the plan, the table that it reads, and what of it.
    reads: tuple[tuple[str, Selection], ...]
    #: What is left of the main channel.
    main: Selection

    @classmethod
    def of(cls, program: Program, spark: Session | None) -> Subject:
        if isinstance(program, SqlProgram):
            program = _only(program)
        if isinstance(program, Insert):
            return _of_query(program, spark)
        if not hasattr(program, "node"):
            raise PlanError(
                "a dry run takes a result of the Python API, or what tidegate.sql.compile gives, "
                f"got {type(program).__name__}"
            )
        return _of_plan(program.node)

    @property
    def channels(self) -> dict[str, pa.Schema]:
        own = {ERROR_CHANNEL: ERRORS} if self.plan is None else dict(compile(self.plan).channels)
        return own | ({MAIN: self.main.after} if self.plan is None or MAIN in own else {})

    def rows_of_sources(self, tables: Mapping[str, Sequence[Row]]) -> list[list[Row]]:
        """The rows that each source of the plan has, of those that a batch brings."""
        return [selection(tables[name]) for name, selection in self.reads]


def _of_plan(node: Plan) -> Subject:
    plan = optimize(node)
    sources = compile(plan).sources
    tables = {str(number): source.row_schema for number, source in enumerate(sources, 1)}
    reads = tuple((name, Selection(schema)) for name, schema in tables.items())
    main = compile(plan).channels.get(MAIN, pa.schema([]))
    return Subject(plan, tables, reads, Selection(main))


def _of_query(query: Insert, spark: Session | None) -> Subject:
    plan = None if query.plan is None else optimize(query.plan)
    sources: Sequence[Source | None] = [None] if plan is None else compile(plan).sources
    tables: dict[str, pa.Schema] = {}
    reads = []
    for given, source in zip(query.inputs, sources, strict=True):
        name, (schema, selection) = given.stream.name, _table(given, source, spark)
        tables[name] = schema
        reads.append((name, selection))
    before = reads[0][1].after if plan is None else compile(plan).channels[MAIN]
    return Subject(plan, tables, tuple(reads), Selection(before, query.steps, query.kept, spark))


def _table(given: Input, source: Source | None, spark: Session | None) -> tuple[pa.Schema, Selection]:
    """The columns that a test writes down for a stream, and what the query takes of them.

    Where Spark reads the event time from numbers or text, tables have it as one more column.
    """
    schema, steps, kept = given.stream.schema, given.steps, given.kept
    if source is not None and isinstance(source.declared, EventTime):
        schema = schema.append(pa.field(EVENT_TIME, TIMESTAMP))
        kept = {**kept, EVENT_TIME: EVENT_TIME}
        steps = tuple(map(_with_event_time, steps))
    return schema, Selection(schema, steps, kept, spark)


def _with_event_time(step: Projection) -> Projection:
    columns = None if step.columns is None else (*step.columns, (EVENT_TIME, EVENT_TIME))
    return Projection(step.alias, step.where, columns)


def _only(program: SqlProgram) -> Insert:
    queries = (*program.inserts, *program.selects)
    if len(queries) != 1:
        raise PlanError(
            f"a dry run takes one query, the program has {len(queries)}: give one of "
            "program.inserts or program.selects"
        )
    return queries[0]


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """Instants in UTC, in whatever zone the session shows them."""
    return pa.schema([field.with_type(_type_in_utc(field.type)) for field in schema])


def _type_in_utc(kind: pa.DataType) -> pa.DataType:
    return TIMESTAMP if pa.types.is_timestamp(kind) and kind.tz is not None else kind
