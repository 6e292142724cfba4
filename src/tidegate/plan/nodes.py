"""Plans: one operator, or several whose results leave one query. Frozen, and valid by construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from tidegate.errors import PlanError
from tidegate.plan.channels import check_channel
from tidegate.plan.joins import Join
from tidegate.plan.pass_through import PassThrough
from tidegate.plan.sources import Node, Source
from tidegate.plan.windowed_aggregates import WindowedAggregate

#: What rows can leave a plan by.
AnyOperator = WindowedAggregate | PassThrough | Join


@dataclass(frozen=True)
class Together:
    """Several results of one query: what they share is read and computed once.

    The results of each leave through a channel of its name.
    """

    branches: tuple[tuple[str, AnyOperator], ...]

    shares: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.branches:
            raise PlanError("together() needs results by name, such as totals=…, sessions=…")
        for name, branch in self.branches:
            check_channel(name, f"together() cannot name results {name!r}")
            if [one for _, one in self.branches].count(branch) > 1:
                raise PlanError(f"together({name}=…): the same results are named twice")
        if len({source.processing_time for source in self.sources}) > 1:
            raise PlanError("together() of event time and processing time: they do not compare")

    @property
    def children(self) -> tuple[Node, ...]:
        return tuple(branch for _, branch in self.branches)

    @property
    def schema(self) -> pa.Schema:
        raise PlanError("results side by side have no schema in common")

    @property
    def sources(self) -> tuple[Source, ...]:
        """What branches read, in order; sources that several share once."""
        numbered = {one.number: one for _, branch in self.branches for one in branch.sources}
        return tuple(numbered[number] for number in sorted(numbered))

    @property
    def outputs(self) -> dict[str, AnyOperator]:
        return dict(self.branches)

    def with_outputs(self, outputs: Mapping[str, AnyOperator]) -> Together:
        return Together(tuple(outputs.items()))

    def label(self) -> str:
        return f"Together[{', '.join(name for name, _ in self.branches)}]"


#: What a query runs.
Plan = AnyOperator | Together
