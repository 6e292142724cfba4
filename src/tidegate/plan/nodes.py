"""Logical plan nodes: frozen, valid by construction, each with its `inputs` and its `schema`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa

from tidegate.errors import (
    ColumnNotFound,
    EmissionRefused,
    NotMergeable,
    PlanError,
    TypeMismatch,
    did_you_mean,
)
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.policies import Drop, Emission, LatePolicy, OnWatermark, Retracting, SideOutput
from tidegate.plan.time import Micros, render
from tidegate.plan.windows import Session, Window

TIMESTAMP = pa.timestamp("us", tz="UTC")
WINDOW_COLUMNS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))
OP = pa.field("op", pa.string())
ERRORS = pa.schema([("reason", pa.string()), ("row", pa.string())])
LATE_COLUMNS = (pa.field("late_by", pa.duration("us")), pa.field("watermark", TIMESTAMP))
MAIN, ERROR_CHANNEL = "main", "errors"

#: Kernels put columns of their own beside users' columns; these never meet.
RESERVED_PREFIX = "__tidegate"

#: Names that channels cannot have: they mean something else where sinks are given.
RESERVED_CHANNELS = (MAIN, ERROR_CHANNEL, "checkpoint", "trigger", "name", "buckets")


class Node(Protocol):
    """What every logical node offers."""

    @property
    def inputs(self) -> tuple[Node, ...]: ...

    @property
    def schema(self) -> pa.Schema: ...

    def label(self) -> str:
        """One line for `explain()`."""
        ...


@dataclass(frozen=True)
class Source:
    """Rows with an event time. `columns` is what the plan above reads; None is everything."""

    row_schema: pa.Schema
    time: str
    tolerance: Micros
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.row_schema.names:
            if name.startswith(RESERVED_PREFIX):
                raise PlanError(f"column {name!r}: names that start with {RESERVED_PREFIX!r} are ours")
        field = field_of(self.row_schema, self.time, "event time")
        if not pa.types.is_timestamp(field.type):
            raise TypeMismatch(
                f"event time column {self.time!r} has type {field.type}; it must be a timestamp "
                f"(for instance df.withColumn({self.time!r}, F.to_timestamp({self.time!r})))"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def schema(self) -> pa.Schema:
        if self.columns is None:
            return self.row_schema
        return pa.schema([self.row_schema.field(name) for name in self.columns])

    def label(self) -> str:
        columns = ", ".join(self.schema.names)
        return f"Events[time={self.time}, tolerance={render(self.tolerance)}, columns=({columns})]"


@dataclass(frozen=True)
class KeyBy:
    """The columns whose values get windows of their own; none makes the windows global."""

    input: Source
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        for key in self.keys:
            kind = field_of(self.input.schema, key, "key").type
            if not is_key_type(kind):
                raise TypeMismatch(
                    f"key column {key!r} has type {kind}; keys can be booleans, numbers, decimals, "
                    "text, binary, dates and timestamps (take a field of it, or turn it into text)"
                )
        if len(set(self.keys)) != len(self.keys):
            raise PlanError(f"key columns are named twice: {', '.join(self.keys)}")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    def label(self) -> str:
        return f"KeyBy[{', '.join(self.keys) or 'global'}]"


@dataclass(frozen=True)
class WindowBy:
    """The windows rows are assigned to, and what happens to rows that come too late for them."""

    input: KeyBy
    window: Window
    lateness: Micros = Micros(0)
    late: LatePolicy = Drop()

    def __post_init__(self) -> None:
        if self.gap_column is not None:
            self._check_gap(self.gap_column)
        if isinstance(self.late, SideOutput):
            if self.late.channel in RESERVED_CHANNELS or not self.late.channel.isidentifier():
                raise PlanError(
                    f"late rows cannot go to a channel named {self.late.channel!r}: take an "
                    f"identifier that is none of {', '.join(RESERVED_CHANNELS)}"
                )
            refuse_collisions(self.schema.names, [f.name for f in LATE_COLUMNS], "the late channel adds")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def gap_column(self) -> str | None:
        """The column with each row's own gap, where sessions have one."""
        gap = self.window.gap if isinstance(self.window, Session) else None
        return gap if isinstance(gap, str) else None

    def label(self) -> str:
        return f"Window[{self.window}, allowed_lateness={render(self.lateness)}, late={self.late}]"

    def _check_gap(self, column: str) -> None:
        kind = field_of(self.schema, column, "gap").type
        if not pa.types.is_duration(kind):
            shown = "a type that Arrow cannot hold" if pa.types.is_null(kind) else f"type {kind}"
            raise TypeMismatch(
                f"gap column {column!r} has {shown}; it must be a day-time interval (for instance, "
                f"from seconds, df.withColumn({column!r}, F.make_dt_interval(secs={column!r})))"
            )


@dataclass(frozen=True)
class Aggregation:
    """Named aggregates over each window."""

    input: WindowBy
    aggregates: tuple[tuple[str, Aggregate], ...]

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise PlanError("agg() needs at least one aggregate, such as rows=tg.count()")
        names = [name for name, _ in self.aggregates]
        if len(set(names)) != len(names):
            raise PlanError(f"agg() names an aggregate twice: {', '.join(names)}")
        keys = self.input.input.keys
        added = [*(f.name for f in WINDOW_COLUMNS), OP.name]
        refuse_collisions(keys, added, "results carry")
        refuse_collisions([*keys, *added], names, "agg() names")
        for name, aggregate in self.aggregates:
            self._result_field(name, aggregate)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        keys = [self.input.schema.field(key) for key in self.input.input.keys]
        results = [self._result_field(name, aggregate) for name, aggregate in self.aggregates]
        return pa.schema([*keys, *WINDOW_COLUMNS, *results])

    def label(self) -> str:
        return f"Aggregate[{', '.join(f'{name}={agg}' for name, agg in self.aggregates)}]"

    def _result_field(self, name: str, aggregate: Aggregate) -> pa.Field:
        if not isinstance(aggregate, Aggregate):
            raise PlanError(f"{name}={aggregate!r} is not an aggregate; write {name}=tg.sum('column')")
        if not aggregate.mergeable:
            raise NotMergeable(
                f"{name}={aggregate} cannot be computed from partial results, which windows are "
                "built of; use a mergeable one, such as tg.quantile('column', 0.5) for a median"
            )
        column = aggregate.column
        given = None if column is None else readable(self.input.schema, column, str(aggregate)).type
        try:
            return pa.field(name, aggregate.output_type(given))
        except TypeError as error:
            raise TypeMismatch(f"{name}={aggregate}: column {column!r} is {given}; {error}") from None


@dataclass(frozen=True)
class Emit:
    """When results leave, and in which form."""

    input: Aggregation
    emission: Emission = OnWatermark()

    def __post_init__(self) -> None:
        window = self.input.input
        merges_late = isinstance(window.window, Session) and window.lateness > 0
        if merges_late and isinstance(self.emission, OnWatermark):
            raise EmissionRefused(
                f"on_watermark() with allowed_lateness={render(window.lateness)}: late rows can merge "
                "sessions that have been emitted, and plain rows cannot take them back; use "
                "tg.emit.changelog(), or tg.emit.on_window_close() for one row a session"
            )

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        retracts = isinstance(self.emission, Retracting)
        return self.input.schema.append(OP) if retracts else self.input.schema

    @property
    def channels(self) -> dict[str, pa.Schema]:
        """Every channel rows can leave through, with the schema it has there."""
        window = self.input.input
        late = window.late
        channels = {MAIN: self.schema, ERROR_CHANNEL: ERRORS}
        if isinstance(late, SideOutput):
            channels[late.channel] = pa.schema([*window.schema, *LATE_COLUMNS])
        return channels

    def label(self) -> str:
        return f"Emit[{self.emission}]"


N = TypeVar("N", bound=Node)


def with_input(node: N, child: Node) -> N:
    """The node over another input, checked again."""
    return replace(node, input=child)  # type: ignore[type-var]


def field_of(schema: pa.Schema, name: object, what: str) -> pa.Field:
    """The field, or an error that says what was looked for and what there is."""
    if not isinstance(name, str):
        raise PlanError(f"{what}: a column is given by its name, not {name!r}")
    if name not in schema.names:
        raise ColumnNotFound(f"{what}: no column {name!r}; {did_you_mean(name, schema.names)}")
    return schema.field(name)


def readable(schema: pa.Schema, name: str, what: str) -> pa.Field:
    """The field, refused where its type has no Arrow counterpart (it then shows as null)."""
    field = field_of(schema, name, what)
    if pa.types.is_null(field.type):
        raise TypeMismatch(f"{what}: column {name!r} has a type that Arrow cannot hold; drop or cast it")
    return field


def refuse_collisions(taken: Iterable[str], added: Iterable[str], what: str) -> None:
    """Two columns of one name would make the result ambiguous."""
    twice = sorted(set(taken) & set(added))
    if twice:
        raise PlanError(f"{what} {', '.join(map(repr, twice))}, which is a column already")


def is_key_type(kind: pa.DataType) -> bool:
    checks = (
        pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal,
        pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
        pa.types.is_date, pa.types.is_timestamp,
    )  # fmt: skip
    return any(check(kind) for check in checks)
