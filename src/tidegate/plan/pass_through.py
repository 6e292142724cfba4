"""Operators that rows pass one by one: put in order, told apart from those seen before, admitted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, get_args

import pyarrow as pa

from tidegate.errors import PlanError, Sentence, TypeMismatch, did_you_mean
from tidegate.plan.channels import (
    ADMISSION_COUNTERS,
    DEDUPE_COUNTERS,
    LATE_AT_WATERMARK,
    REJECTED,
    REJECTED_COLUMNS,
)
from tidegate.plan.identity import Values, typed
from tidegate.plan.inputs import Input, KeyBy, SideChannel, check_late, refuse_moving_keys, tie_warning
from tidegate.plan.operator import Operator
from tidegate.plan.policies import Drop, LatePolicy
from tidegate.plan.schema import field_of, readable, refuse_collisions
from tidegate.plan.sla import Sla
from tidegate.plan.sources import Node, Upstream
from tidegate.plan.time import Micros, render

#: How Spark's own operators of these names treat ids and late rows.
SparkRule = Literal["drop_duplicates", "drop_duplicates_within_watermark"]


class PassThrough(Operator):
    """What operators share that emit the rows they ingest, by key."""

    input: KeyBy
    late: LatePolicy

    by_row: ClassVar[bool] = True
    forwards: ClassVar[bool] = True
    no_events: ClassVar[Sentence | None] = None

    @property
    def title(self) -> str:
        """What metrics, plans and messages call it."""
        return self.kind

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.input, self.late),)

    def with_inputs(self, inputs: Sequence[Input]) -> Self:
        [rows] = inputs
        return replace(self, input=rows.keyed, late=rows.late)  # type: ignore[type-var]

    def identity(self) -> Values:
        return {"kind": self.kind, "inputs": self.by_input(one.identity() for one in self.inputs)}

    @property
    def keyed(self) -> KeyBy:
        return self.input

    @property
    def upstream(self) -> Upstream:
        return self.input.input

    @property
    def times(self) -> dict[str, Micros]:
        """By its own time, without a delay: a row that is late for what follows was late before."""
        return {self.upstream.time: Micros(0)}

    @property
    def order(self) -> tuple[str, ...]:
        return (self.upstream.time,)

    def labels(self) -> list[str]:
        return [self.input.label(), self.label()]

    def _check_columns(self, name: str) -> None:
        for column in self.schema.names:
            readable(self.schema, column, f"{name}() keeps all columns")


@dataclass(frozen=True)
class Reorder(PassThrough):
    """Rows released in the order of event time, then arrival, as far as the watermark has come."""

    input: KeyBy
    late: LatePolicy = Drop()

    forwards: ClassVar[bool] = False
    kind: ClassVar[str] = "reorder"
    counters: ClassVar[tuple[str, ...]] = (LATE_AT_WATERMARK,)

    def __post_init__(self) -> None:
        check_late(self.late, self.upstream)
        refuse_moving_keys(self.input, self.late)
        self._check_columns("reorder")

    @property
    def times(self) -> dict[str, Micros]:
        return {self.upstream.time: Micros(1 if self.late.moves else 0)}

    @property
    def tie_warning(self) -> str | None:
        return tie_warning("reorder()", self.inputs[0])

    def identity(self) -> Values:
        rows = {"rows": typed(self.schema, self.schema.names)}
        inputs = self.by_input(one.identity() | rows for one in self.inputs)
        return {"kind": self.kind, "inputs": inputs}

    def label(self) -> str:
        return f"Reorder[late={self.late}]"


@dataclass(frozen=True)
class Dedupe(PassThrough):
    """Of the rows with one id the first to arrive, for as long as ids are remembered.

    The id is the key. It is remembered until the watermark has passed the row's event time by `within`;
    a row that lies that far back itself cannot be checked any more, and is late. By a rule of Spark's a
    row at or below the watermark is late.
    """

    input: KeyBy
    within: Micros
    late: LatePolicy = Drop()
    rule: SparkRule | None = None

    kind: ClassVar[str] = "dedupe"

    def __post_init__(self) -> None:
        if not self.input.keys:
            raise PlanError(
                "dedupe() needs the columns that tell rows apart, such as on=['producer', 'seq']"
            )
        if self.upstream.watermark_triggered:
            raise PlanError(
                "dedupe() of results of another operator: it puts each of them out once; "
                "dedupe the rows it reads"
            )
        check_late(self.late, self.upstream)
        self._check_columns("dedupe")

    @classmethod
    def by_rule(cls, keyed: KeyBy, rule: SparkRule, late: LatePolicy) -> Dedupe:
        """Ids are remembered as long as Spark does: until a row that repeats them would be late."""
        if rule not in get_args(SparkRule):
            raise PlanError(f"dedupe(rule={rule!r}): {did_you_mean(str(rule), get_args(SparkRule))}")
        if rule == "drop_duplicates" and keyed.input.time not in keyed.keys:
            raise PlanError(
                f"dedupe(rule={rule!r}) of {', '.join(keyed.keys)}: without the event time "
                f"{keyed.input.time!r} among the columns, ids would be remembered for ever; add it, or "
                "use rule='drop_duplicates_within_watermark' or within=…"
            )
        waits = max(source.tolerance for source in keyed.input.sources)
        return cls(keyed, Micros(0) if rule == "drop_duplicates" else waits, late, rule)

    @property
    def counters(self) -> tuple[str, ...]:
        return DEDUPE_COUNTERS if self.rule is None else (*DEDUPE_COUNTERS, LATE_AT_WATERMARK)

    @property
    def late_after(self) -> Micros:
        """How far the watermark may pass a row before it is late."""
        return self.within if self.rule is None else Micros(0)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self.input, self.late, self.late_after),)

    def only(self, columns: set[str]) -> Dedupe:
        """It needs the ids besides; late rows that leave do so with all columns."""
        if self.late.channel is not None:
            return self
        own = {self.upstream.time, *self.keyed.keys}
        return self.with_upstream(self.upstream.only(columns | own))

    def identity(self) -> Values:
        rule = {} if self.rule is None else {"rule": self.rule}
        return super().identity() | {"within": self.within, "ids": "keyed digests"} | rule

    def label(self) -> str:
        return f"Dedupe[{self.rule or f'within={render(self.within)}'}, late={self.late}]"


@dataclass(frozen=True)
class Admit(PassThrough):
    """Rows of each stream, which is the key, as far as its limits allow; the others are rejected."""

    input: KeyBy
    sla: Sla

    late: LatePolicy = field(default=Drop(), init=False, repr=False)

    kind: ClassVar[str] = "admit"
    counters: ClassVar[tuple[str, ...]] = ADMISSION_COUNTERS

    def with_inputs(self, inputs: Sequence[Input]) -> Self:
        [rows] = inputs
        return replace(self, input=rows.keyed)  # it drops nothing for being late

    def identity(self) -> Values:
        return super().identity() | {"shards": self.sla.shards}

    def settings(self) -> Values:
        return super().settings() | {"limits": self.sla.settings()}

    def __post_init__(self) -> None:
        if self.upstream.watermark_triggered:
            raise PlanError(
                "admit() of results of another operator: they come when the watermark lets them; "
                "admit the rows it reads"
            )
        if self.upstream.sheds:
            raise PlanError("admit() after shed(): rejecting comes first; write admit(…).shed(…)")
        if self.sla.arrival is not None:
            kind = field_of(self.schema, self.sla.arrival, "arrival time").type
            if not pa.types.is_timestamp(kind):
                raise TypeMismatch(
                    f"arrival time column {self.sla.arrival!r} has type {kind}; it must be a timestamp"
                )
        self._check_columns("admit")
        names = [field.name for field in REJECTED_COLUMNS]
        refuse_collisions(self.schema.names, names, f"the channel {REJECTED!r} adds")

    @property
    def side_outputs(self) -> Iterator[SideChannel]:
        yield REJECTED, [*self.schema, *REJECTED_COLUMNS]
        yield from super().side_outputs

    def label(self) -> str:
        return f"Admit[{self.sla}]"
