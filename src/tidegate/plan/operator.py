"""What every operator of a plan answers for itself, and how it is put over other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import MAIN
from tidegate.plan.identity import Values
from tidegate.plan.inputs import Input, SideChannel
from tidegate.plan.sources import Source, Upstream
from tidegate.plan.time import Micros
from tidegate.plan.windows import Window

if TYPE_CHECKING:
    from tidegate.plan.nodes import AnyOperator


class Operator:
    """The questions that an operator is asked, with what most of them answer."""

    #: What checkpoints call this kind of operator: it stays, wherever the class moves.
    kind: ClassVar[str]
    #: What checkpoints and messages call its inputs.
    input_names: ClassVar[tuple[str, ...]] = ("rows",)
    #: May operators be read by several? Only if there are several results.
    shares: ClassVar[bool] = False

    @property
    def inputs(self) -> tuple[Input, ...]:
        """How rows come in: two ways for a join, one for all others."""
        raise NotImplementedError

    def with_inputs(self, inputs: Sequence[Input]) -> Self:
        """The same operator over other rows, or with other late policies, checked again."""
        raise NotImplementedError

    def label(self) -> str:
        raise NotImplementedError

    def labels(self) -> list[str]:
        """What `explain()` calls the nodes it is made of, as rows pass them."""
        raise NotImplementedError

    def identity(self) -> Values:
        """What its stored state depends on."""
        raise NotImplementedError

    def settings(self) -> Values:
        """What may change between two starts."""
        return {"inputs": self.by_input(one.settings() for one in self.inputs)}

    def by_input(self, values: Iterable[Values]) -> dict[str, Values]:
        """What is said of each input, by the names of the inputs."""
        return dict(zip(self.input_names, values, strict=True))

    # -- what most operators answer ------------------------------------------------------------------

    @property
    def forwards(self) -> bool:
        """Does it forward rows in the batch they arrive in? Then its readers enforce lateness."""
        return False

    @property
    def retracts(self) -> bool:
        """Do results take others back?"""
        return False

    @property
    def final(self) -> bool:
        """Does each result leave once, without waiting for late rows?"""
        return False

    @property
    def windows(self) -> tuple[Window, ...]:
        return ()

    @property
    def aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        """The aggregates by the names of their results."""
        return ()

    @property
    def counters(self) -> tuple[str, ...]:
        return ()

    @property
    def gap_column(self) -> str | None:
        """The column with each row's own gap, where sessions have one."""
        return None

    @property
    def result_key(self) -> tuple[str, ...]:
        """The columns that tell results apart; none where each row stands for itself."""
        return ()

    @property
    def columns_read(self) -> set[str] | None:
        """The columns it reads; None if it emits rows with all their columns."""
        return None

    @property
    def tie_warning(self) -> str | None:
        """Why rows of the highest event time may be late, if so."""
        return None

    @property
    def side_outputs(self) -> Iterator[SideChannel]:
        """Where rows go that it, or a step before it, sets apart."""
        return (sent for one in self.inputs for sent in one.side_outputs)

    def watermark_delay(self, one: Input) -> Micros:
        """How far the watermark of an input lies behind that of the operator it reads."""
        return one.upstream.watermark_delay

    def only(self, columns: set[str]) -> Self:
        """The operator, if nobody reads other columns of its results."""
        return self

    # -- what lies below -----------------------------------------------------------------------------

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources at the bottom, from left to right."""
        return tuple(source for one in self.inputs for source in one.upstream.sources)

    @property
    def sheds(self) -> bool:
        """Have some of its rows gone because of the load?"""
        return any(one.upstream.sheds for one in self.inputs)

    def with_sources(self, change: Callable[[Source], Source]) -> Self:
        """The operator over other sources, which are changed from left to right."""
        return self.map_inputs(lambda one: one.through(one.upstream.with_sources(change)))

    def with_upstream(self, upstream: Upstream) -> Self:
        """The operator over other rows, the same on all sides."""
        return self.map_inputs(lambda one: one.through(upstream))

    def map_inputs(self, change: Callable[[Input], Input]) -> Self:
        return self.with_inputs([change(one) for one in self.inputs])

    # -- a plan of one operator ----------------------------------------------------------------------

    @property
    def outputs(self) -> dict[str, Self]:
        """The operators whose results leave the plan, by channel."""
        return {MAIN: self}

    def with_outputs(self, outputs: Mapping[str, AnyOperator]) -> AnyOperator:
        return outputs[MAIN]
