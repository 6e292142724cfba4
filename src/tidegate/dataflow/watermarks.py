"""Watermarks by themselves: how one source makes them, how several align, how they pass a graph.

Spark keeps the watermark that queries run by. Running queries use generators and the aligner to report
where it stands, and the testing kit to make watermarks without Spark. The delay of each operator of a
query is known when its plan is compiled, by the rule of the propagator.

Times are datetimes, and watermarks are datetimes in UTC. Where lengths are given as numbers, times are
numbers too, microseconds since 1970: so queries count, since numbers never run out of calendar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeVar, overload

from tidegate.errors import DurationError, PlanError, WatermarkViolation
from tidegate.plan.time import Duration, Micros, micros

#: An instant: a datetime, or microseconds since 1970.
Time = TypeVar("Time", datetime, int)


class WatermarkGenerator(Generic[Time]):
    """The watermark of one source: the highest event time seen minus the tolerance, never going back.

    Times are datetimes; one without a zone is in UTC.

    >>> from datetime import UTC, datetime
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> clicks = tg.WatermarkGenerator(tolerance="5 seconds")
    >>> print(clicks.watermark)
    None
    >>> print(clicks.observe([noon, noon.replace(minute=1), noon.replace(second=30)]))
    2026-01-01 12:00:55+00:00
    >>> print(clicks.observe([noon]))
    2026-01-01 12:00:55+00:00
    """

    @overload
    def __init__(self: WatermarkGenerator[datetime], tolerance: Duration = ...) -> None: ...
    @overload
    def __init__(self: WatermarkGenerator[int], tolerance: int) -> None: ...

    def __init__(self, tolerance: Duration | int = "0 s") -> None:
        self._tolerance = _length(tolerance, "tolerance")
        self._highest: Time | None = None
        self._watermark: Time | None = None
        self._emitted = 0

    @property
    def watermark(self) -> Time | None:
        """The watermark; None before the first event."""
        return self._watermark

    @property
    def highest(self) -> Time | None:
        """The highest event time seen."""
        return self._highest

    @property
    def emitted(self) -> int:
        """How often the watermark has moved."""
        return self._emitted

    def observe(self, times: Iterable[Time]) -> Time | None:
        """Take in the times of events, in any order; the watermark that follows."""
        seen = max(map(_instant, times), default=None)
        if seen is None:
            return self._watermark
        self._highest = seen if self._highest is None else max(self._highest, seen)
        return self.advance(self._highest)

    def advance(self, time: Time) -> Time | None:
        """Move on as far as an event at that time would, without one: a heartbeat."""
        reached = self._reached(_instant(time))
        return self._watermark if reached is None else self.advance_to(reached)

    def advance_to(self, watermark: Time) -> Time | None:
        """Move on to a watermark that somebody else knows, such as the producer; it never goes back."""
        watermark = _instant(watermark)
        if self._watermark is None or watermark > self._watermark:
            self._watermark = watermark
            self._emitted += 1
        return self._watermark

    def _reached(self, time: Time) -> Time | None:
        reached: Time = time - self._tolerance
        return reached


class SparkWatermarkGenerator(WatermarkGenerator[int]):
    """As Spark makes it: in whole milliseconds, and none at or before 1970."""

    def _reached(self, time: int) -> int | None:
        reached: int = (time // 1000 + -self._tolerance // 1000) * 1000
        return reached if reached > 0 else None


class WatermarkAligner(Generic[Time]):
    """The watermark of several sources together: the lowest one. It never goes back.

    There is none until every source has one. A source that has nothing to send can be left out (`idle`)
    until it speaks again. Rows that it then sends from before the watermark are late.

    >>> from datetime import UTC, datetime
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> both = tg.WatermarkAligner(["clicks", "orders"])
    >>> print(both.update("clicks", noon))
    None
    >>> print(both.update("orders", noon.replace(hour=11)))
    2026-01-01 11:00:00+00:00
    >>> print(both.idle("orders"))
    2026-01-01 12:00:00+00:00
    """

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = tuple(sources)
        self._reached: dict[str, Time] = {}
        self._idle: set[str] = set()
        self._aligned: Time | None = None

    @property
    def watermark(self) -> Time | None:
        """The lowest watermark of the sources that are not idle; None while one of them has none."""
        counting = [source for source in self._sources if source not in self._idle]
        if counting and all(source in self._reached for source in counting):
            lowest = min(self._reached[source] for source in counting)
            self._aligned = lowest if self._aligned is None else max(self._aligned, lowest)
        return self._aligned

    def update(self, source: str, watermark: Time | None) -> Time | None:
        """Take in the watermark of a source, which is no longer idle; the aligned one that follows.

        A watermark that goes back is a `WatermarkViolation`, and changes nothing.
        """
        self._check(source)
        if watermark is not None:
            self._reached[source] = _risen(source, self._reached.get(source), _instant(watermark))
        self._idle.discard(source)
        return self.watermark

    def idle(self, source: str) -> Time | None:
        """Leave a source out until its next update; the aligned watermark that follows."""
        self._check(source)
        self._idle.add(source)
        return self.watermark

    def _check(self, source: str) -> None:
        if source not in self._sources:
            raise PlanError(f"no source {source!r}; there are {', '.join(self._sources) or 'none'}")


class WatermarkPropagator(Generic[Time]):
    """Watermarks through a graph of operators: each works by the lowest watermark of its inputs.

    `inputs` names what each operator reads; one that reads nothing is a source. An operator that emits
    results older than its watermark has a delay: its output watermark lies behind by that much.

    >>> from datetime import UTC, datetime
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> graph = tg.WatermarkPropagator(
    ...     {"clicks": [], "orders": [], "windows": ["clicks"], "join": ["windows", "orders"]},
    ...     delays={"windows": "1 minute"},
    ... )
    >>> after = graph.advance("clicks", noon)
    >>> print(after["windows"], graph.input_of("join"))
    2026-01-01 11:59:00+00:00 None
    >>> print(graph.advance("orders", noon)["join"])
    2026-01-01 11:59:00+00:00
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[str]],
        delays: Mapping[str, Duration | int] | None = None,
    ) -> None:
        for name, read in inputs.items():
            _check_inputs(name, read, inputs)
        for name in delays or ():
            if name not in inputs:
                raise PlanError(f"a delay for {name!r}, which does not exist")
        try:
            self._order = tuple(TopologicalSorter(inputs).static_order())
        except CycleError as error:
            circle = " ← ".join(error.args[1])
            raise PlanError(f"operators read each other in a circle: {circle}") from None
        self._inputs = {name: tuple(read) for name, read in inputs.items()}
        self._delays = {
            name: _length(delay, f"the delay of {name!r}") for name, delay in (delays or {}).items()
        }
        self._outputs: dict[str, Time] = {}

    def advance(self, source: str, watermark: Time) -> dict[str, Time]:
        """Take in the watermark of a source; the output watermarks of all operators that have one.

        A watermark that goes back is a `WatermarkViolation`, and changes nothing.
        """
        if self._read_by(source):
            raise WatermarkViolation(source, "it reads others, which give it its watermark")
        self._put_out(source, _instant(watermark))
        for name in self._order:
            entering = self.input_of(name)
            if entering is not None:
                self._put_out(name, entering)
        return dict(self._outputs)

    def input_of(self, operator: str) -> Time | None:
        """The watermark that an operator works by; None while one of its inputs has none."""
        return self._lowest(self._read_by(operator))

    def inputs(self) -> dict[str, Time | None]:
        """The watermark that each operator works by, upstream ones first."""
        return {name: self.input_of(name) for name in self._order if self._inputs[name]}

    @property
    def watermark(self) -> Time | None:
        """The watermark of the whole graph: the lowest output of the operators that nobody reads."""
        read = {name for inputs in self._inputs.values() for name in inputs}
        return self._lowest([name for name in self._inputs if name not in read])

    def _read_by(self, operator: str) -> tuple[str, ...]:
        if operator not in self._inputs:
            raise PlanError(f"no operator {operator!r}; there are {', '.join(self._inputs) or 'none'}")
        return self._inputs[operator]

    def _lowest(self, names: Sequence[str]) -> Time | None:
        known = [self._outputs[name] for name in names if name in self._outputs]
        return min(known) if known and len(known) == len(names) else None

    def _put_out(self, name: str, entering: Time) -> None:
        watermark = entering - self._delays[name] if name in self._delays else entering
        self._outputs[name] = _risen(name, self._outputs.get(name), watermark)


def _check_inputs(name: str, read: Sequence[str], known: Mapping[str, object]) -> None:
    if isinstance(read, str):
        raise PlanError(f"operator {name!r} reads a list of names, got {read!r}")
    for one in read:
        if one not in known:
            raise PlanError(f"operator {name!r} reads {one!r}, which does not exist")


def _risen(name: str, before: Time | None, after: Time) -> Time:
    if before is not None and after < before:
        raise WatermarkViolation(name, f"its watermark went back from {before} to {after}")
    return after


def _instant(time: Time) -> Time:
    """Datetimes are counted in UTC: in a zone with summer time, lengths are not what clocks show."""
    if isinstance(time, datetime):
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    return time


def _length(given: Duration | int, what: str) -> Any:
    """What is subtracted from a time: as long as it says, in the unit of the times."""
    if not isinstance(given, int):
        return timedelta(microseconds=micros(given, what, zero=True))
    if given < 0:
        raise DurationError(f"{what} must be zero or more, got {given!r}")
    return Micros(given)
