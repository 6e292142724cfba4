"""Steps: what is done with rows on their way to an operator, many of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from tidegate.errors import PlanError, TypeMismatch, did_you_mean
from tidegate.plan.channels import FILTERED, SHED, SHED_ROWS
from tidegate.plan.identity import Values
from tidegate.plan.schema import field_of

#: What functions are given and give back: `polars.DataFrame` or `pyarrow.Table`.
Frames = Literal["polars", "arrow"]

#: What becomes of rows that should go: they do; or the source is asked for less; or nobody asks.
Policy = Literal["strict", "prefer_throttle", "bypass"]


@dataclass(frozen=True)
class UserStep:
    """A function of the user's."""

    function: Callable[[Any], Any]
    frames: Frames
    #: Of the rows that come out.
    schema: pa.Schema

    kind: ClassVar[str]
    counters: ClassVar[tuple[str, ...]] = ()
    sheds: ClassVar[None] = None
    #: Where rows go that it leaves out, if they go anywhere.
    side_channel: ClassVar[None] = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise PlanError(f"{self.kind}() takes a function of a frame of rows, got {self.function!r}")

    @property
    def name(self) -> str:
        """What the function is called; where it is defined is nobody's business."""
        name: str = getattr(self.function, "__name__", type(self.function).__name__)
        return "λ" if name == "<lambda>" else name

    def identity(self) -> Values:
        return {"kind": self.kind, "function": self.name, "frames": self.frames}

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Map(UserStep):
    """Rows in, as many rows out, in the same order and with the same event times."""

    kind = "map"


class Filter(UserStep):
    """The rows for which a function says true."""

    kind = "filter"
    counters = (FILTERED,)


@dataclass(frozen=True)
class Shed:
    """Rows without those that the load of the query does not allow, by their priority."""

    policy: Policy
    priority: str | None
    schema: pa.Schema

    kind: ClassVar[str] = "filter"
    counters: ClassVar[tuple[str, ...]] = (SHED_ROWS,)
    side_channel: ClassVar[str] = SHED

    @property
    def sheds(self) -> Policy:
        return self.policy

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            known = get_args(Policy)
            raise PlanError(f"shed(policy={self.policy!r}): {did_you_mean(str(self.policy), known)}")
        if self.priority is None:
            return
        kind = field_of(self.schema, self.priority, "priority").type
        if not pa.types.is_string(kind):
            raise TypeMismatch(
                f"priority column {self.priority!r} has type {kind}; it must be text: "
                "'low', 'medium', 'high' or 'critical'"
            )

    def identity(self) -> Values:
        return {"kind": "shed", "policy": self.policy, "priority": self.priority}

    def __str__(self) -> str:
        priority = "" if self.priority is None else f" by {self.priority}"
        return f"shed {self.policy}{priority}"


Step = Map | Filter | Shed


@dataclass(frozen=True)
class Fusion:
    """Which steps share a Python stage. Each stage copies every row twice.

    `maps` and `filters` fuse steps of one kind, `across` fuses maps with filters, and `pack` fuses the
    last steps with the packing of rows. `max_depth` is the largest number of steps in one stage.

    >>> tg.fusion(across=False)
    Fusion(maps=True, filters=True, across=False, pack=True, read=True, max_depth=32)
    """

    #: Maps with maps, and filters with filters.
    maps: bool = True
    filters: bool = True
    #: One kind with the other.
    across: bool = True
    #: The last steps with the operator that reads them.
    pack: bool = True
    #: Packing, and the steps with it, with the reading of files, where `tg.read_folder` reads them.
    read: bool = True
    #: So many steps in one Python stage at most.
    max_depth: int = 32

    def __post_init__(self) -> None:
        if self.max_depth < 1:
            raise PlanError(f"fusion(max_depth={self.max_depth}): a Python stage has one step at least")

    def joins(self, done: tuple[Step, ...], step: Step) -> bool:
        """May a step run in the Python stage of those before it?"""
        if len(done) >= self.max_depth:
            return False
        if done[-1].kind != step.kind:
            return self.across
        return self.maps if step.kind == "map" else self.filters
