"""Windows over rows, aggregates over windows, and when their results leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from tidegate.errors import EmissionRefused, NotMergeable, PlanError, Sentence, Term, TypeMismatch
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import LATE_AT_WATERMARK, OP, WINDOW_COLUMNS
from tidegate.plan.conditions import check_condition
from tidegate.plan.expressions import check_expressions
from tidegate.plan.identity import Values, typed
from tidegate.plan.inputs import Input, KeyBy, check_late, refuse_moving_keys, tie_warning
from tidegate.plan.operator import Operator
from tidegate.plan.policies import (
    Drop,
    Emission,
    LatePolicy,
    OnWatermark,
    OnWindowClose,
    Retracting,
)
from tidegate.plan.schema import (
    collation_of,
    field_of,
    readable,
    refuse_collation,
    refuse_collisions,
    refuse_unusable,
)
from tidegate.plan.sources import Node, Upstream
from tidegate.plan.time import Micros, render
from tidegate.plan.windows import Hopping, Window

_CHANGELOG = Term("tg.emit.changelog()", sql="EMIT CHANGES", yaml="'emit: changelog'")
_ON_WINDOW_CLOSE = Term(
    "tg.emit.on_window_close()", sql="EMIT ON WINDOW CLOSE", yaml="'emit: on_window_close'"
)
_MEDIAN = Term(
    "tg.quantile('column', 0.5)", sql="percentile(column, 0.5)", yaml="{quantile: column, q: 0.5}"
)
_NAMES = Term("agg() names", sql="the query selects", yaml="'aggregates' names")


def _allowed(lateness: Micros) -> Term:
    length = render(lateness)
    return Term(
        f"allowed_lateness={length}",
        sql=f"ALLOW LATENESS {length}",
        yaml=f"'allowed_lateness: {length}'",
    )


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
        if self.window.by_row and self.lateness:
            raise PlanError(
                f"{self.window} with ",
                _allowed(self.lateness),
                ": the window around a row is emitted once, and a row at or below the watermark is "
                "late; raise the tolerance",
            )
        if self.window.condition is not None:
            check_condition(self.window.condition, self.schema)
        check_late(self.late, self.input.input)
        refuse_moving_keys(self.input, self.late)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def as_input(self) -> Input:
        return Input(self.input, self.late, self.lateness)

    def over(self, rows: Input) -> WindowBy:
        """The windows over other rows, or with another late policy or lateness."""
        return replace(self, input=rows.keyed, late=rows.late, lateness=rows.lateness)

    def identity(self) -> Values:
        own = {"window": self.window.identity(), "allowed_lateness": self.lateness}
        return self.as_input.identity() | own

    @property
    def tie_warning(self) -> str | None:
        """Why rows of the highest event time may be late, if so."""
        return tie_warning(str(self.window), self.as_input) if self.window.by_row else None

    @property
    def gap_column(self) -> str | None:
        """The column with each row's own gap, where sessions have one."""
        return self.window.gap_column

    def label(self) -> str:
        if self.window.endless:
            return f"Window[{self.window}]"
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
        columns = [field.name for field in self._own_columns()]
        added = [] if self.by_row else [*(field.name for field in self.bounds), OP.name]
        refuse_collisions(columns, added, "results carry")
        refuse_collisions([*columns, *added], names, _NAMES)
        refuse_unusable(names)
        for name, aggregate in self.aggregates:
            self._result_field(name, aggregate)
            check_expressions(name, aggregate)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def by_row(self) -> bool:
        """Is there a result for each row, beside its own columns, rather than for each window?"""
        return self.input.window.by_row

    @property
    def folds(self) -> bool:
        """Is there one result per key, which never closes?"""
        return self.input.window.endless

    @property
    def bounds(self) -> tuple[pa.Field, ...]:
        """The columns that say which window a result is of."""
        if self.by_row or self.folds:
            return ()
        rows = self.input.input.input
        return tuple(bound.with_type(rows.schema.field(rows.time).type) for bound in WINDOW_COLUMNS)

    @property
    def schema(self) -> pa.Schema:
        results = [self._result_field(name, aggregate) for name, aggregate in self.aggregates]
        return pa.schema([*self._own_columns(), *self.bounds, *results])

    @property
    def computed(self) -> tuple[tuple[str, Aggregate], ...]:
        """The aggregates as they are computed over the types of their columns."""
        types = self.input.schema
        return tuple(
            (name, one.for_type(None if one.column is None else types.field(one.column).type))
            for name, one in self.aggregates
        )

    def _own_columns(self) -> list[pa.Field]:
        rows = self.input.schema
        if self.by_row:
            return [readable(rows, name, "a window around each row keeps it") for name in rows.names]
        return [rows.field(key) for key in self.input.input.keys]

    def identity(self) -> list[Values]:
        """The aggregates, each with the name and the type of its result, in order."""
        types = self.schema
        return [
            {"name": name, **aggregate.identity(), "type": str(types.field(name).type)}
            for name, aggregate in self.computed
        ]

    def label(self) -> str:
        return f"Aggregate[{', '.join(f'{name}={agg}' for name, agg in self.aggregates)}]"

    def _result_field(self, name: str, aggregate: Aggregate) -> pa.Field:
        if not isinstance(aggregate, Aggregate):
            raise PlanError(f"{name}={aggregate!r} is not an aggregate; write {name}=tg.sum('column')")
        if not aggregate.mergeable:
            raise NotMergeable(
                f"{name}={aggregate} cannot be computed from partial results, which windows are "
                "built of; use a mergeable one, such as ",
                _MEDIAN,
                " for a median",
            )
        column = aggregate.column
        if column is None:
            return pa.field(name, aggregate.output_type(None))
        field = readable(self.input.schema, column, str(aggregate))
        if aggregate.compares:
            refuse_collation(field, f"{name}={aggregate}: column")
        try:
            return _like(field, pa.field(name, aggregate.output_type(field.type)))
        except TypeError as error:
            raise TypeMismatch(
                f"{name}={aggregate}: column {column!r} is {field.type}; {error}"
            ) from None


def _like(column: pa.Field, result: pa.Field) -> pa.Field:
    """The field of a result; one that holds values of a column, or lists of them, has its collation."""
    if collation_of(column) is None:
        return result
    if result.type == column.type:
        return column.with_name(result.name).with_nullable(True)
    if pa.types.is_list(result.type) and result.type.value_type == column.type:
        return result.with_type(pa.list_(column.with_name("element").with_nullable(True)))
    return result


@dataclass(frozen=True)
class WindowedAggregate(Operator):
    """When results leave, and in which form."""

    input: Aggregation
    emission: Emission = OnWatermark()

    kind: ClassVar[str] = "aggregate"

    def __post_init__(self) -> None:
        window = self.windowed
        if self.input.folds and not self.retracts:
            raise EmissionRefused(
                f"{self.emission} without a window: a running fold never closes, so it has no last "
                "result to wait for; use tg.emit.on_update(), changelog() or periodic(…)"
            )
        if self.input.by_row and self.emission != OnWatermark():
            raise EmissionRefused(
                f"{self.emission} over {window.window}: each row has one result, which is final; leave ",
                Term(python="emit()", sql="EMIT", yaml="'emit'"),
                " out",
            )
        merges_late = window.window.merges and window.lateness > 0
        if merges_late and isinstance(self.emission, OnWatermark):
            raise EmissionRefused(
                "on_watermark() with ",
                _allowed(window.lateness),
                ": late rows can merge sessions that have been emitted, and plain rows cannot take them "
                "back; use ",
                _CHANGELOG,
                ", or ",
                _ON_WINDOW_CLOSE,
                " for one row a session",
            )

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(OP) if self.retracts else self.input.schema

    @property
    def retracts(self) -> bool:
        return isinstance(self.emission, Retracting)

    @property
    def final(self) -> bool:
        return self.emission == OnWindowClose(final=True)

    @property
    def by_row(self) -> bool:
        return self.input.by_row

    @property
    def aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        return self.input.aggregates

    @property
    def columns_read(self) -> set[str] | None:
        if self.by_row or self.late.channel is not None:
            return None
        columns = [self.gap_column, *(aggregate.column for _, aggregate in self.aggregates)]
        return {self.upstream.time, *self.keyed.keys, *(name for name in columns if name is not None)}

    @property
    def tie_warning(self) -> str | None:
        return self.windowed.tie_warning

    @property
    def result_key(self) -> tuple[str, ...]:
        return () if self.by_row else (*self.keyed.keys, *(field.name for field in self.input.bounds))

    @property
    def counters(self) -> tuple[str, ...]:
        return (LATE_AT_WATERMARK,) if self.by_row else ()

    @property
    def title(self) -> str:
        """What metrics, plans and messages call it."""
        return "fold" if self.input.folds else str(self.windowed.window)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.windowed.as_input,)

    def with_inputs(self, inputs: Sequence[Input]) -> WindowedAggregate:
        [rows] = inputs
        return replace(self, input=replace(self.input, input=self.windowed.over(rows)))

    def identity(self) -> Values:
        rows = self.upstream.schema
        kept = {"rows": typed(rows, rows.names)} if self.by_row else {}
        return {
            "kind": self.kind,
            "inputs": self.by_input([self.windowed.identity() | kept]),
            "aggregates": self.input.identity(),
            "emission": self.emission.identity(),
        }

    @property
    def windowed(self) -> WindowBy:
        return self.input.input

    @property
    def windows(self) -> tuple[Window, ...]:
        return (self.windowed.window,)

    @property
    def gap_column(self) -> str | None:
        return self.windowed.gap_column

    @property
    def keyed(self) -> KeyBy:
        return self.windowed.input

    @property
    def upstream(self) -> Upstream:
        return self.keyed.input

    @property
    def late(self) -> LatePolicy:
        return self.windowed.late

    @property
    def no_events(self) -> Sentence | None:
        """Why results cannot be events of another operator, if so."""
        if not self.retracts:
            return None
        told = f"results of {self.emission} take others back, and cannot go on as events; "
        return (told, "give the fold a window") if self.input.folds else (told, "use ", _ON_WINDOW_CLOSE)

    @property
    def times(self) -> dict[str, Micros]:
        """The columns that can be the event time of results, each with its watermark delay.

        A result leaves when the watermark has passed the window and its lateness: so its end lies at
        most the lateness behind, its start the length of the window more.
        """
        window = self.windowed.window
        if window.endless:
            return {}
        if window.by_row:
            # A row that is moved to the watermark lies at it, not behind it.
            moved = 1 if self.late.moves else 0
            return {self.upstream.time: Micros(window.reach + moved)}
        lateness = Micros(0) if self.final else self.windowed.lateness
        times = {"window_end": lateness}
        if window.length is None:
            return times
        return times | {"window_start": Micros(lateness + window.length)}

    def watermark_delay(self, one: Input) -> Micros:
        """Windows that read others by their start wait for the last that begins before their end."""
        upstream, reader = one.upstream, self.windowed.window
        above = upstream.operator if upstream.time == "window_start" else None
        read = above.windowed.window if isinstance(above, WindowedAggregate) else None
        if above is None or not isinstance(read, Hopping) or not isinstance(reader, Hopping):
            return upstream.watermark_delay
        longest = max(0, read.size - read.last_start_before_ends(reader))
        return Micros(above.times["window_end"] + longest)

    @property
    def order(self) -> tuple[str, ...]:
        """The times that results are in the order of: of each the first that it has."""
        if self.input.folds:
            return ()
        return (self.upstream.time if self.by_row else "window_end",)

    def label(self) -> str:
        return f"Emit[{self.emission}]"

    def labels(self) -> list[str]:
        return [node.label() for node in (self.keyed, self.windowed, self.input, self)]
