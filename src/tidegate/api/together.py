"""Several results in one query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidegate.api.events import Runnable, Startable, of_one_kind
from tidegate.dataflow import compile
from tidegate.errors import PlanError
from tidegate.plan.nodes import AnyOperator, Together
from tidegate.plan.sources import Source

if TYPE_CHECKING:
    from tidegate.spark.schema import DataFrame


@dataclass(frozen=True)
class StatementSet(Startable):
    """Several results, in one query."""

    frames: tuple[DataFrame, ...]
    plan: Together

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.plan.label()}>"  # each result has its own columns

    @property
    def node(self) -> Together:
        return self.plan


def together(**results: Runnable) -> StatementSet:
    """Compute several results in one query, each with a channel of its name.

    Shared work is done once: everything that you build once and use several times, such as sources,
    `admit` and `dedupe`.

    >>> import tidegate as tg
    >>> clicks = tg.events(clicks_df, time="ts").dedupe(on=["user", "ts"], within="1 hour")
    >>> spend = clicks.key_by("user").agg(spend=tg.sum("price"))
    >>> visits = clicks.key_by("user").window(tg.session("30 minutes")).agg(clicks=tg.count())
    >>> tg.together(spend=spend, visits=visits).channels
    ('spend', 'visits', 'errors')
    """
    read: list[tuple[DataFrame, Source]] = []
    branches = []
    for name, result in results.items():
        if not isinstance(result, Runnable):
            raise PlanError(f"together({name}=…) takes results such as events.agg(…), got {result!r}")
        branches.append((name, _numbered(result, read)))
    frames = of_one_kind(*(frame for frame, _ in read), what="together()")
    plan = Together(tuple(branches))
    compile(plan)  # refuses channels that branches cannot share
    return StatementSet(frames, plan)


def _numbered(result: Runnable, read: list[tuple[DataFrame, Source]]) -> AnyOperator:
    """The plan with its sources numbered as in `read`; new ones are added there."""
    frames = iter(result.frames)
    return result.node.with_sources(
        lambda source: replace(source, number=_number(next(frames), source, read))
    )


def _number(frame: DataFrame, source: Source, read: list[tuple[DataFrame, Source]]) -> int:
    """The number of a source in `read`; a new one is added there."""
    for number, (other, known) in enumerate(read):
        if other is frame and known == source:
            return number
    read.append((frame, source))
    return len(read) - 1
