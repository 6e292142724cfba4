"""Watermarks as pieces: how one source makes them, how several align, how they pass a graph.

Spark keeps the watermark that queries run by. Running queries use generators and the aligner to report
where it stands, and the testing kit to make watermarks without Spark. The delay of each operator is
known when a plan is compiled; the propagator is the same rule for any graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from tidegate.errors import PlanError, WatermarkViolation


@dataclass
class WatermarkGenerator:
    """The highest event time seen minus the tolerance, never going back."""

    tolerance: int
    #: Spark counts whole milliseconds, and knows no watermark at or before 1970.
    as_spark: bool = False
    highest: int | None = None
    watermark: int | None = None
    #: How often the watermark has moved.
    emitted: int = 0

    def observe(self, times: Iterable[int]) -> int | None:
        """Take in event times; the watermark that follows."""
        seen = max(times, default=None)
        if seen is None:
            return self.watermark
        self.highest = seen if self.highest is None else max(self.highest, seen)
        return self.advance(self.highest)

    def advance(self, time: int) -> int | None:
        """Move on as far as a row at that time would, without one."""
        reached = self._reached(time)
        if reached is not None and (self.watermark is None or reached > self.watermark):
            self.watermark = reached
            self.emitted += 1
        return self.watermark

    def _reached(self, time: int) -> int | None:
        if not self.as_spark:
            return time - self.tolerance
        reached = (time // 1000 + -self.tolerance // 1000) * 1000
        return reached if reached > 0 else None


@dataclass
class WatermarkAligner:
    """The lowest watermark of several sources: none while one that counts has not spoken."""

    sources: tuple[str, ...]
    _reached: dict[str, int] = field(default_factory=dict)
    _idle: set[str] = field(default_factory=set)
    _aligned: int | None = None

    def update(self, source: str, watermark: int | None) -> int | None:
        """A source's watermark; it is no longer idle. The aligned one that follows."""
        self._known(source)
        self._idle.discard(source)
        if watermark is not None:
            before = self._reached.get(source)
            if before is not None and watermark < before:
                raise WatermarkViolation(source, f"its watermark went back from {before} to {watermark}")
            self._reached[source] = watermark
        return self.watermark

    def idle(self, source: str) -> int | None:
        """Leave a source out until it speaks again."""
        self._known(source)
        self._idle.add(source)
        return self.watermark

    @property
    def watermark(self) -> int | None:
        counting = [source for source in self.sources if source not in self._idle]
        if counting and all(source in self._reached for source in counting):
            lowest = min(self._reached[source] for source in counting)
            self._aligned = lowest if self._aligned is None else max(self._aligned, lowest)
        return self._aligned

    def _known(self, source: str) -> None:
        if source not in self.sources:
            raise PlanError(f"no source {source!r}; there are {', '.join(self.sources) or 'none'}")


@dataclass(frozen=True)
class Operator:
    """A place in the graph: what it reads, and by how much it holds its output watermark back."""

    inputs: tuple[str, ...] = ()
    hold_back: int = 0


class WatermarkPropagator:
    """Watermarks through a graph of operators: the lowest of the inputs, minus the hold-back."""

    def __init__(self, operators: Mapping[str, Operator]) -> None:
        for name, operator in operators.items():
            for read in operator.inputs:
                if read not in operators:
                    raise PlanError(f"operator {name!r} reads {read!r}, which does not exist")
        try:
            self._order = tuple(
                TopologicalSorter({n: o.inputs for n, o in operators.items()}).static_order()
            )
        except CycleError as error:
            circle = " ← ".join(error.args[1])
            raise PlanError(f"operators feed each other in a circle: {circle}") from None
        self._operators = dict(operators)
        self._outputs: dict[str, int] = {}

    def advance(self, source: str, watermark: int) -> dict[str, int]:
        """A source's new watermark; the output watermarks of all operators that have one."""
        if self._operators[source].inputs:
            raise WatermarkViolation(source, "it is fed by others, which give it its watermark")
        self._put_out(source, watermark)
        for name in self._order:
            entering = self.input_of(name)
            if self._operators[name].inputs and entering is not None:
                self._put_out(name, entering)
        return dict(self._outputs)

    def input_of(self, operator: str) -> int | None:
        """The watermark an operator works by: none while one of its inputs has none."""
        reached = [self._outputs.get(name) for name in self._operators[operator].inputs]
        known = [watermark for watermark in reached if watermark is not None]
        return min(known) if known and len(known) == len(reached) else None

    def inputs(self) -> dict[str, int | None]:
        """The watermark each operator works by, in the order they feed each other."""
        return {name: self.input_of(name) for name in self._order if self._operators[name].inputs}

    @property
    def watermark(self) -> int | None:
        """That of the whole graph: the lowest of the operators nobody reads."""
        read = {name for operator in self._operators.values() for name in operator.inputs}
        ends = [self._outputs.get(name) for name in self._operators if name not in read]
        known = [watermark for watermark in ends if watermark is not None]
        return min(known) if known and len(known) == len(ends) else None

    def _put_out(self, name: str, entering: int) -> None:
        watermark = entering - self._operators[name].hold_back
        before = self._outputs.get(name)
        if before is not None and watermark < before:
            raise WatermarkViolation(name, f"its watermark went back from {before} to {watermark}")
        self._outputs[name] = watermark
