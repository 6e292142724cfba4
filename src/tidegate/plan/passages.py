"""Operators that rows pass one by one: put in order, told apart from those seen before, admitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import pyarrow as pa

from tidegate.errors import PlanError, Sentence, TypeMismatch
from tidegate.plan.channels import MAIN, REJECTED, REJECTED_COLUMNS
from tidegate.plan.columns import field_of, readable, refuse_collisions
from tidegate.plan.counters import ADMISSION_COUNTERS, DEDUPE_COUNTERS, LATE_AT_WATERMARK
from tidegate.plan.feeds import Derived, Feed, Node, made_due, origin, steps_of
from tidegate.plan.inlets import Inlet, KeyBy, check_late, refuse_moving_keys
from tidegate.plan.policies import Drop, LatePolicy, Reassign
from tidegate.plan.sla import Sla
from tidegate.plan.stages import Aside, channels_of
from tidegate.plan.steps import Shed
from tidegate.plan.time import Micros, render
from tidegate.plan.windows import Window


class _Passage:
    """What operators have in common that put out the rows they take in, by key."""

    input: KeyBy
    late: LatePolicy

    retracts: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    #: Do rows go on in the batch they come in? Then whoever reads them judges them as a source's.
    passes: ClassVar[bool] = True
    no_events: ClassVar[Sentence | None] = None
    #: What metrics, plans and messages call it.
    title: ClassVar[str]
    counters: ClassVar[tuple[str, ...]] = ()
    windows: ClassVar[tuple[Window, ...]] = ()
    gap_column: ClassVar[None] = None
    result_key: ClassVar[tuple[str, ...]] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (Inlet(self.input, self.late),)

    def with_inlets(self, inlets: Sequence[Inlet]) -> Self:
        """The same operator over other rows, or with another late policy."""
        [inlet] = inlets
        return replace(self, input=inlet.keyed, late=inlet.late)  # type: ignore[type-var]

    @property
    def keyed(self) -> KeyBy:
        return self.input

    @property
    def feed(self) -> Feed:
        return self.input.input

    @property
    def aside(self) -> tuple[Aside, ...]:
        return ()

    @property
    def channels(self) -> dict[str, pa.Schema]:
        return channels_of({MAIN: self})

    @property
    def times(self) -> dict[str, Micros]:
        """By its own time, held back by nothing: a row that is late for what follows was late before."""
        return {self.feed.time: Micros(0)}

    @property
    def order(self) -> tuple[str, ...]:
        return (self.feed.time,)

    @property
    def stays(self) -> Micros | None:
        return max(self.times.values())

    def _check_columns(self, name: str) -> None:
        for column in self.schema.names:
            readable(self.schema, column, f"{name}() keeps all columns")


@dataclass(frozen=True)
class Reorder(_Passage):
    """Rows released in the order of event time, then arrival, as far as the watermark has come."""

    input: KeyBy
    late: LatePolicy = Drop()

    passes: ClassVar[bool] = False
    title: ClassVar[str] = "reorder"
    counters: ClassVar[tuple[str, ...]] = (LATE_AT_WATERMARK,)

    def __post_init__(self) -> None:
        check_late(self.late, self.feed)
        refuse_moving_keys(self.input, self.late)
        self._check_columns("reorder")

    @property
    def times(self) -> dict[str, Micros]:
        return {self.feed.time: Micros(1 if isinstance(self.late, Reassign) else 0)}

    def label(self) -> str:
        return f"Reorder[late={self.late}]"


@dataclass(frozen=True)
class Dedupe(_Passage):
    """Of the rows with one id the first to arrive, for as long as ids are remembered.

    The id is the key. It is remembered until the watermark has passed the row's event time by `within`;
    a row that lies that far back itself cannot be checked any more, and is late.
    """

    input: KeyBy
    within: Micros
    late: LatePolicy = Drop()

    title: ClassVar[str] = "dedupe"
    counters: ClassVar[tuple[str, ...]] = DEDUPE_COUNTERS

    def __post_init__(self) -> None:
        if not self.input.keys:
            raise PlanError(
                "dedupe() needs the columns that tell rows apart, such as on=['producer', 'seq']"
            )
        if made_due(self.feed):
            raise PlanError(
                "dedupe() of results of another operator: it puts each of them out once; "
                "dedupe the rows it reads"
            )
        check_late(self.late, self.feed)
        self._check_columns("dedupe")

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return (Inlet(self.input, self.late, self.within),)

    def label(self) -> str:
        return f"Dedupe[within={render(self.within)}, late={self.late}]"


@dataclass(frozen=True)
class Admit(_Passage):
    """Rows of each stream, which is the key, as far as its limits allow; the others are rejected."""

    input: KeyBy
    sla: Sla

    late: LatePolicy = field(default=Drop(), init=False, repr=False)

    title: ClassVar[str] = "admit"
    counters: ClassVar[tuple[str, ...]] = ADMISSION_COUNTERS

    def with_inlets(self, inlets: Sequence[Inlet]) -> Self:
        [inlet] = inlets
        return replace(self, input=inlet.keyed)  # it drops nothing for being late

    def __post_init__(self) -> None:
        if made_due(self.feed):
            raise PlanError(
                "admit() of results of another operator: they come when the watermark lets them; "
                "admit the rows it reads"
            )
        if _sheds(self.feed):
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
    def aside(self) -> tuple[Aside, ...]:
        return ((REJECTED, [*self.schema, *REJECTED_COLUMNS]),)

    def label(self) -> str:
        return f"Admit[{self.sla}]"


def _sheds(feed: Feed) -> bool:
    """Have some of the rows gone because of the load?"""
    below = origin(feed)
    above = [inlet.feed for inlet in below.input.inlets] if isinstance(below, Derived) else []
    return any(isinstance(step, Shed) for step in steps_of(feed)) or any(map(_sheds, above))
