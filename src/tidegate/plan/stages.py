"""Stages: what every operator of a plan offers, and what can be said of a plan by that alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from tidegate.errors import PlanError
from tidegate.plan.channels import ERROR_CHANNEL, ERRORS, LATE_COLUMNS, SHED
from tidegate.plan.feeds import steps_of
from tidegate.plan.inlets import Inlet
from tidegate.plan.policies import SideOutput
from tidegate.plan.steps import Shed

#: A channel that an operator sends rows to beside its results, and their columns there.
Aside = tuple[str, list[pa.Field]]


class Stage(Protocol):
    """An operator, as far as plans care."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def inlets(self) -> tuple[Inlet, ...]: ...

    @property
    def aside(self) -> tuple[Aside, ...]: ...


def stages_below(stage: Stage) -> Iterator[Stage]:
    """The operators that feed one, each after those that feed it, and then itself."""
    for inlet in stage.inlets:
        if inlet.above is not None:
            yield from stages_below(inlet.above.input)
    yield stage


def channels_of(ends: Mapping[str, Stage]) -> dict[str, pa.Schema]:
    """Every channel rows can leave through, with the schema it has there; results by their names."""
    channels = {name: end.schema for name, end in ends.items()} | {ERROR_CHANNEL: ERRORS}
    stages = (stage for end in ends.values() for stage in stages_below(end))
    for name, columns in (sent for stage in stages for sent in _sent_aside(stage)):
        schema = pa.schema([field.with_nullable(True) for field in columns])
        if channels.setdefault(name, schema) != schema:
            raise PlanError(f"rows of other columns go to the channel {name!r} already: name another")
    return channels


def _sent_aside(stage: Stage) -> Iterator[Aside]:
    """Where rows go that an operator, or a step before it, sets apart."""
    yield from stage.aside
    for inlet in stage.inlets:
        for step in steps_of(inlet.feed):
            if isinstance(step, Shed):
                yield SHED, [*step.schema]
        if isinstance(inlet.late, SideOutput):
            yield inlet.late.channel, [*inlet.feed.schema, *LATE_COLUMNS]
