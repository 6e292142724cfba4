"""Load shedding: how high the load is, which share of rows is shed, and which rows.

A hash of the row and the batch decides which rows are shed, and the share is decided once a batch: a
batch that is replayed sheds the same rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar.hashing import hash_columns, mix
from tidegate.plan.schema import is_flat_type
from tidegate.plan.steps import Policy

#: Each part of the score: its weight, and the value at which it counts in full.
PARTS = {"cpu": (0.35, 0.8), "memory": (0.35, 0.85), "queue": (0.2, 10_000.0), "latency": (0.1, 0.5)}

#: Above this score rows are shed.
OVERLOAD = 0.7

#: The load rises or falls if scores differ by more than this over three batches.
_TREND = 0.05
_RISING, _FALLING = 1.2, 0.8
_SMOOTHING = 0.1
_MOST = 0.95

#: The factor on the probability for each priority; rows of an unknown one count as `medium`.
PRIORITIES = {"low": 1.0, "medium": 0.6, "high": 0.3, "critical": 0.0}


@dataclass(frozen=True)
class Load:
    """The measured load: shares of CPU and memory, pending rows, and seconds that a batch took."""

    cpu: float = 0.0
    memory: float = 0.0
    queue: float = 0.0
    latency: float = 0.0

    def parts(self) -> dict[str, float]:
        """How much each measure adds to the score."""
        measured = asdict(self)
        return {name: weight * min(1.0, measured[name] / full) for name, (weight, full) in PARTS.items()}


@dataclass(frozen=True)
class Decision:
    """The decision for a batch: the score with its parts, and the probability that a row is shed."""

    batch: int
    score: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    #: For a row of low priority, or of none.
    probability: float = 0.0
    #: The share of rows that the source is asked for.
    throttle: float = 1.0


@dataclass
class LoadCoordinator:
    """Turns load into decisions, one a batch.

    Decisions are part of `metadata()`: who keeps them gets the same one for a batch that is run again
    after a restart.
    """

    policy: Policy = "strict"
    scores: tuple[float, ...] = ()
    smoothed: float = 0.0
    #: For the last two batches: the next one, and the one that may be replayed.
    decisions: tuple[Decision, ...] = ()

    def decide(self, batch: int, load: Load) -> Decision:
        """The decision for a batch; a batch that has one keeps it."""
        decided = self.on(batch)
        if decided is None:
            decided = Decision(batch) if self.policy == "bypass" else self._decision(batch, load)
            self.decisions = (*self.decisions, decided)[-2:]
        return decided

    def on(self, batch: int) -> Decision | None:
        """The decision for a batch, if it is one of the last two."""
        return next((one for one in self.decisions if one.batch == batch), None)

    def metadata(self) -> dict[str, Any]:
        """The whole state, as plain values."""
        return asdict(self)

    @classmethod
    def from_metadata(cls, note: dict[str, Any]) -> LoadCoordinator:
        """The coordinator whose state was written down."""
        decisions = tuple(Decision(**one) for one in note["decisions"])
        return cls(note["policy"], tuple(note["scores"]), note["smoothed"], decisions)

    def metrics(self) -> dict[str, float]:
        """The last score, its parts, and the decision."""
        if not self.decisions:
            return {}
        last = self.decisions[-1]
        named = {f"load_score.{name}": value for name, value in last.parts.items()}
        return {
            "load_score": last.score,
            **named,
            "shed_probability": last.probability,
            "throttle": last.throttle,
        }

    def _decision(self, batch: int, load: Load) -> Decision:
        parts = load.parts()
        score = sum(parts.values())
        self.scores = (*self.scores, score)[-3:]
        wanted = _probability(score) * _trend(self.scores)
        self.smoothed += _SMOOTHING * (wanted - self.smoothed)
        probability = min(self.smoothed, _MOST) if score > OVERLOAD else 0.0
        if self.policy == "prefer_throttle":
            return Decision(batch, score, parts, throttle=1 - probability)
        return Decision(batch, score, parts, probability)


def _probability(score: float) -> float:
    return max(0.0, (score - OVERLOAD) / (1 - OVERLOAD)) ** 2


def _trend(scores: tuple[float, ...]) -> float:
    if len(scores) < 3:
        return 1.0
    change = scores[-1] - scores[0]
    return _RISING if change > _TREND else _FALLING if change < -_TREND else 1.0


def shed(rows: pa.Table, decision: Decision, priority: str | None = None) -> np.ndarray:
    """Which rows of a batch are shed; `priority` is the column that says how important they are."""
    if not decision.probability:
        return np.zeros(rows.num_rows, dtype=bool)
    hashed = [field.name for field in rows.schema if is_flat_type(field.type)]
    batch = mix(np.array([decision.batch], dtype=np.uint64))
    chance = mix(hash_columns(rows.select(hashed)) ^ batch) >> np.uint64(11)
    share = np.ones(rows.num_rows) if priority is None else _shares(rows.column(priority))
    return chance * 2.0**-53 < decision.probability * share


def _shares(priorities: pa.ChunkedArray) -> np.ndarray:
    position = pc.index_in(pc.utf8_lower(priorities), pa.array(PRIORITIES))
    unknown = list(PRIORITIES).index("medium")
    return np.array(list(PRIORITIES.values()))[position.fill_null(unknown).to_numpy()]
