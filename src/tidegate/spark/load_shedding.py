"""The load of a query: sampled where its rows are. After each batch a decision for the next is stored.

The file lies beside the checkpoint and has the decisions on the last two batches: one that is run
again after a crash is told what it was told before.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
from pyspark import TaskContext

from tidegate.connectors.metadata_files import read_metadata, write_metadata
from tidegate.kernels.messages import Message
from tidegate.kernels.shedding import Decision, Load, LoadCoordinator
from tidegate.plan.steps import Policy

#: Shares travel as whole numbers.
_WHOLE = 10_000


@dataclass(frozen=True)
class Decisions:
    """What batches are told, read where their rows are."""

    checkpoint: str

    @property
    def path(self) -> str:
        return posixpath.join(self.checkpoint, "tidegate.load.json")

    def current(self) -> Decision | None:
        """The decision on the batch that this task is part of; none while nothing is known."""
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        known = self.read()
        return None if known is None or batch is None else known.on(int(batch))

    def read(self) -> LoadCoordinator | None:
        return read_metadata(self.path, LoadCoordinator.from_metadata)


class Sampler:
    """How busy a machine is while a task runs."""

    def __init__(self) -> None:
        self._begun = psutil.cpu_times()

    def messages(self, bucket: int) -> Iterator[Message]:
        """The load since the sampler was made."""
        cpu = _busy(self._begun, psutil.cpu_times())
        yield Message.load(bucket, "cpu", round(_WHOLE * cpu))
        memory = psutil.virtual_memory().percent / 100
        yield Message.load(bucket, "memory", round(_WHOLE * memory))


def _busy(begun: Any, now: Any) -> float:
    """What share of its time the CPU was not idle."""
    total = sum(now) - sum(begun)
    idle = sum(getattr(now, name, 0) - getattr(begun, name, 0) for name in ("idle", "iowait"))
    return min(1.0, max(0.0, 1 - idle / total)) if total > 0 else 0.0


@dataclass
class Shedding:
    """Decides, after each batch, what the next one is told."""

    decisions: Decisions
    coordinator: LoadCoordinator

    @classmethod
    def of(cls, policy: Policy, checkpoint: str) -> Shedding:
        """Go on from where an earlier run was."""
        decisions = Decisions(checkpoint)
        coordinator = decisions.read() or LoadCoordinator()
        coordinator.policy = policy
        return cls(decisions, coordinator)

    def after(self, batch: int, sampled: Mapping[str, int], rows: int, seconds: float) -> Decision:
        """A batch is done: how many rows had waited for it, and what it took."""
        shares = {name: share / _WHOLE for name, share in sampled.items()}
        load = Load(shares.get("cpu", 0.0), shares.get("memory", 0.0), rows, seconds)
        decision = self.coordinator.decide(batch + 1, load)
        write_metadata(self.decisions.path, self.coordinator.metadata())
        return decision
