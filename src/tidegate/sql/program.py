"""What SQL text compiles to: streams, sinks, and for each query a plan with what Spark does around it.

Texts of expressions and conditions are Spark SQL, as the query has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from tidegate.plan.nodes import AnyOperator
from tidegate.plan.schema import shortened
from tidegate.plan.sources import Source, declare_source
from tidegate.plan.time import Micros, ProcessingTime

#: A result column's name and the Spark SQL expression it is.
Column = tuple[str, str]


@dataclass(frozen=True)
class Stream:
    """A declared source, with the column of its event time.

    `time` is a column, processing time, or None. Windows refuse rows without a time.
    """

    name: str
    schema: pa.Schema
    connector: str
    options: Mapping[str, str] = field(default_factory=dict)
    time: str | ProcessingTime | None = None
    time_type: str | None = None
    tolerance: Micros = Micros(0)
    idle_after: Micros | None = None
    max_future: Micros | None = None

    def __repr__(self) -> str:
        return f"<Stream {self.name} ← {self.connector}: {shortened(self.schema.names)}>"

    def source(self, schema: pa.Schema | None = None, time: str | None = None) -> Source:
        """The source of a plan. A projection can change the columns and rename the time."""
        assert self.time is not None, "only windows ask, and they have refused such a stream"
        return declare_source(
            self.schema if schema is None else schema,
            time or self.time,
            self.time_type,
            tolerance=timedelta(microseconds=self.tolerance),
            max_future=_timedelta(self.max_future),
            idle_after=_timedelta(self.idle_after),
        )


def _timedelta(value: Micros | None) -> timedelta | None:
    return None if value is None else timedelta(microseconds=value)


@dataclass(frozen=True)
class SinkTable:
    """A declared sink."""

    name: str
    connector: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # secrets may be among them


@dataclass(frozen=True)
class Projection:
    """One query level on a DataFrame: its rows are known as `alias`; those that meet `where` stay.

    `columns` is everything that is left of them, in order; None is every column as it is.
    """

    alias: str | None = None
    where: str | None = None
    columns: tuple[Column, ...] | None = None


@dataclass(frozen=True)
class Input:
    """The steps that turn a stream's DataFrame into events, first to last.

    `kept` has the columns of the stream that the steps do not change, by their new names.
    """

    stream: Stream
    steps: tuple[Projection, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        wheres = "".join(f", where {step.where}" for step in self.steps if step.where is not None)
        chosen = [[name for name, _ in step.columns] for step in self.steps if step.columns is not None]
        columns = chosen[-1] if chosen else self.stream.schema.names
        return f"<Input {self.stream.name}{wheres}: {shortened(columns)}>"


@dataclass(frozen=True)
class Insert:
    """A query: `inputs` → `plan` → `steps` → the sinks.

    `inputs` are in the order of `plan.sources`. Without a plan there are no windows: the rows of
    the one input are the result. `steps` apply to the plan's main channel, and `kept` has the columns
    of the plan that they do not change, by their new names. A query whose result is only shown has no
    sinks.
    """

    plan: AnyOperator | None
    inputs: tuple[Input, ...]
    steps: tuple[Projection, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)

    def __repr__(self) -> str:
        read = ", ".join(dict.fromkeys(one.stream.name for one in self.inputs))
        plan = "rows as they are" if self.plan is None else self.plan.label()
        into = ", ".join(sink.name for sink in self.sinks.values())
        return f"<Insert {read} → {plan} → {into or 'shown'}>"


@dataclass(frozen=True)
class Program:
    """A program of several statements. Views are part of the queries that read them."""

    streams: Mapping[str, Stream] = field(default_factory=dict)
    sinks: Mapping[str, SinkTable] = field(default_factory=dict)
    inserts: tuple[Insert, ...] = ()
    #: The queries whose result is only shown.
    selects: tuple[Insert, ...] = ()

    def __repr__(self) -> str:
        named = {"streams": self.streams, "sinks": self.sinks}
        texts = [f"{kind} {', '.join(names)}" for kind, names in named.items() if names]
        texts += map(repr, (*self.inserts, *self.selects))
        return f"<Program: {'; '.join(texts)}>"
