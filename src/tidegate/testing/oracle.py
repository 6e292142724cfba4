"""The rules, written for reading: every window keeps a list of its own rows, and nothing is clever.

It shares no code with the kernels. Where a kernel and this page disagree, one of them is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidegate.operators import aggregates as a
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, Emit
from tidegate.plan.policies import Drop, OnWatermark, OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.testing.results import BatchResult, frozen, same
from tidegate.testing.table import Row, as_json, instant_of, micros_of

#: An aggregate's answer from its parameters and the (event time, value) pairs of a window, in the
#: order they arrived, nulls left out.
Answer = Callable[[Any, list[tuple[int, Any]]], Any]


@dataclass
class OpenWindow:
    """One window of one key, with every row that counts in it."""

    key: tuple[Any, ...]
    start: int
    end: int
    rows: list[tuple[int, Row]] = field(default_factory=list)
    #: The result that went out last.
    out: Row | None = None
    #: The processing time at which it did.
    spoke: int = 0
    #: Have rows come since?
    changed: bool = False


class Oracle:
    """What each micro-batch of a tumbling or hopping plan must put out."""

    def __init__(
        self,
        plan: Emit,
        answers: Mapping[type[Aggregate], Answer] | None = None,
        bucket_of: Callable[[Row], Hashable] = lambda _: None,
    ) -> None:
        window = plan.input.input
        self.plan = plan
        self.spec = window.window
        self.late = window.late
        self.lateness = 0 if plan.emission == OnWindowClose(final=True) else window.lateness
        self.keys = window.input.keys
        self.time = window.input.input.time
        self.columns = window.schema.names
        self.answers = {**ANSWERS, **(answers or {})}
        self.bucket_of = bucket_of
        self.windows: dict[tuple[Hashable, int], OpenWindow] = {}
        self.watermark: int | None = None

    # -- one micro-batch --------------------------------------------------------------------------

    def batch(self, rows: Sequence[Row], watermark: int | None, now: int = 0) -> BatchResult:
        """Close what the watermark makes due, then judge the rows by it and take them in."""
        result = BatchResult(watermark)
        moved = watermark != self.watermark
        self.watermark = watermark
        closing = [window for window in self.windows.values() if self._closed(window.end)]
        changes = [change for window in closing for change in self._at_close(window, now)]
        for window in closing:
            del self.windows[_identity(window)]
        touched, awake = self._take_in(rows, result)
        for window in self.windows.values():
            listens = moved or self.bucket_of(self._row_of(window)) in awake
            changes += self._while_open(window, _identity(window) in touched, listens, now)
        # The retractions of a batch come before its insertions.
        result.put(MAIN, *sorted(changes, key=lambda row: not row.get("op", "").startswith("-")))
        return result

    def end(self) -> BatchResult:
        """The end of a batch query: everything closes."""
        return self.batch([], 1 << 60)

    def results(self) -> list[Row]:
        """The current results of all open windows."""
        return [self._result(window) for window in self.windows.values()]

    # -- rows -------------------------------------------------------------------------------------

    def _take_in(self, rows: Sequence[Row], result: BatchResult) -> tuple[set[Any], set[Hashable]]:
        """Put rows into their windows; which windows have new rows, and which buckets had any rows."""
        touched: set[Any] = set()
        awake: set[Hashable] = set()
        for row in rows:
            result.counts["rows_in"] += 1
            if row.get(self.time) is None:
                result.counts["errors"] += 1
                reason = f"event time {self.time!r} is null"
                result.put(ERROR_CHANNEL, {"reason": reason, "row": as_json(row)})
            elif not self._windows_at(micros_of(row[self.time])):
                result.counts["unassigned"] += 1
            else:
                awake.add(self.bucket_of(row))
                touched |= self._place_or_refuse(row, result)
        return touched, awake

    def _place_or_refuse(self, row: Row, result: BatchResult) -> set[Any]:
        time = micros_of(row[self.time])
        if not all(self._closed(end) for _, end in self._windows_at(time)):
            return self._place(row)
        assert self.watermark is not None
        late_by = self.watermark - time
        result.counts["late_rows"] += 1
        if isinstance(self.late, SideOutput):
            unchanged = {name: row.get(name) for name in self.columns}
            extra = {"late_by": timedelta(microseconds=late_by), "watermark": instant_of(self.watermark)}
            result.put(self.late.channel, unchanged | extra)
        elif isinstance(self.late, Reassign) and late_by <= self.late.max_lateness:
            result.counts["late_reassigned"] += 1
            if not self._windows_at(self.watermark):
                result.counts["unassigned"] += 1
            return self._place(row | {self.time: instant_of(self.watermark)})
        else:
            assert isinstance(self.late, Drop | Reassign)
            result.counts["late_dropped"] += 1
        return set()

    def _place(self, row: Row) -> set[Any]:
        """Count the row in each of its windows that is open."""
        time = micros_of(row[self.time])
        touched = set()
        for start, end in self._windows_at(time):
            if not self._closed(end):
                key = tuple(row.get(name) for name in self.keys)
                window = OpenWindow(key, start, end)
                window = self.windows.setdefault(_identity(window), window)
                window.rows.append((time, row))
                window.changed = True
                touched.add(_identity(window))
        return touched

    def _windows_at(self, time: int) -> list[tuple[int, int]]:
        """Every window `[k·slide + offset, + size)` that holds the time."""
        size, slide, offset = self.spec.size, self.spec.slide, self.spec.offset
        latest = (time - offset) // slide
        starts = (k * slide + offset for k in range(latest - size // slide - 1, latest + 2))
        return [(start, start + size) for start in starts if start <= time < start + size]

    def _ended(self, end: int) -> bool:
        return self.watermark is not None and self.watermark >= end

    def _closed(self, end: int) -> bool:
        return self._ended(end + self.lateness)

    # -- emission ---------------------------------------------------------------------------------

    def _at_close(self, window: OpenWindow, now: int) -> Iterable[Row]:
        """What a window says when nothing can change it any more."""
        emission = self.plan.emission
        if isinstance(emission, OnWindowClose):
            return [self._result(window)]
        if isinstance(emission, OnWatermark):
            return [] if window.out else [self._result(window)]
        return self._change(window, emission, now) if window.changed else []

    def _while_open(self, window: OpenWindow, touched: bool, listens: bool, now: int) -> Iterable[Row]:
        """What a window says that may still change."""
        emission = self.plan.emission
        if isinstance(emission, OnWatermark):
            current = self._result(window)
            if self._ended(window.end) and not _equal(window.out, current):
                window.out = current
                return [current]
        elif isinstance(emission, Retracting) and emission.interval:
            its_turn = window.out is None or now >= window.spoke + emission.interval
            if window.changed and its_turn and (touched or listens):
                return self._change(window, emission, now)
        elif isinstance(emission, Retracting) and touched:
            return self._change(window, emission, now)
        return []

    def _change(self, window: OpenWindow, ops: Retracting, now: int) -> list[Row]:
        """Take back what is out and put out what is true."""
        before, after = window.out, self._result(window)
        window.out, window.spoke, window.changed = after, now, False
        if before is None:
            return [after | {"op": ops.first}]
        if _equal(before, after):
            return []
        return [before | {"op": ops.before}, after | {"op": ops.after}]

    def _result(self, window: OpenWindow) -> Row:
        bounds = {"window_start": instant_of(window.start), "window_end": instant_of(window.end)}
        results = {name: self._answer(agg, window.rows) for name, agg in self.plan.input.aggregates}
        return self._row_of(window) | bounds | results

    def _row_of(self, window: OpenWindow) -> Row:
        return dict(zip(self.keys, window.key, strict=True))

    def _answer(self, aggregate: Aggregate, rows: Sequence[tuple[int, Row]]) -> Any:
        if aggregate.column is None:
            return self.answers[type(aggregate)](aggregate, [(time, row) for time, row in rows])
        values = [(time, row.get(aggregate.column)) for time, row in rows]
        present = [(time, value) for time, value in values if value is not None]
        if not present and not isinstance(aggregate, _COUNTS):
            return None
        return self.answers[type(aggregate)](aggregate, present)


def _identity(window: OpenWindow) -> tuple[Hashable, int]:
    return tuple(map(frozen, window.key)), window.start


def _equal(one: Row | None, other: Row) -> bool:
    return one is not None and all(same(one[name], other[name]) for name in other)


# -- aggregates: from all rows of a window, by the textbook ---------------------------------------

_COUNTS = (a.Count, a.CountDistinct, a.ApproxCountDistinct)


def _values(pairs: Iterable[tuple[int, Any]]) -> list[Any]:
    return [value for _, value in pairs]


def _without_nan(pairs: Iterable[tuple[int, Any]]) -> list[Any]:
    """Values that have an order: NaN has none, and counts only where there is nothing else."""
    values = _values(pairs)
    return [value for value in values if value == value] or values


def _sum(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    values = _values(pairs)
    if isinstance(values[0], float):
        return _float_sum(values)
    total = sum(values)
    return (total + (1 << 63)) % (1 << 64) - (1 << 63) if isinstance(total, int) else total


def _float_sum(values: Sequence[float]) -> float:
    if all(map(math.isfinite, values)):
        return math.fsum(values)
    return sum(value for value in values if not math.isfinite(value))


def _mean(_: Aggregate, pairs: list[tuple[int, Any]]) -> float:
    return _float_sum([float(value) for value in _values(pairs)]) / len(pairs)


def _var(aggregate: a.Var, pairs: list[tuple[int, Any]]) -> float | None:
    values = [float(value) for value in _values(pairs)]
    degrees = len(values) - (0 if aggregate.population else 1)
    if degrees == 0:
        return None
    mean = _float_sum(values) / len(values)
    return _float_sum([(value - mean) ** 2 for value in values]) / degrees


def _stddev(aggregate: a.Stddev, pairs: list[tuple[int, Any]]) -> float | None:
    variance = _var(aggregate, pairs)
    return None if variance is None else math.sqrt(variance)


def _first(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    return min(pairs, key=lambda pair: pair[0])[1]  # of equal ones `min` takes the first


def _last(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    return max(reversed(pairs), key=lambda pair: pair[0])[1]


def _collect(_: Aggregate, pairs: list[tuple[int, Any]]) -> list[Any]:
    return _values(sorted(pairs, key=lambda pair: (pair[0], pair[1] != pair[1], pair[1])))


def _quantile(aggregate: a.Quantile, pairs: list[tuple[int, Any]]) -> float | None:
    values = sorted(float(value) for value in _values(pairs) if math.isfinite(value))
    return values[math.floor((len(values) - 1) * aggregate.q)] if values else None


ANSWERS: Mapping[type[Aggregate], Answer] = {
    a.Count: lambda _, pairs: len(pairs),
    a.Sum: _sum,
    a.Mean: _mean,
    a.Min: lambda _, pairs: min(_without_nan(pairs)),
    a.Max: lambda _, pairs: max(_without_nan(pairs)),
    a.Var: _var,
    a.Stddev: _stddev,
    a.First: _first,
    a.Last: _last,
    a.CountDistinct: lambda _, pairs: len(set(map(frozen, _values(pairs)))),
    a.ApproxCountDistinct: lambda _, pairs: len(set(map(frozen, _values(pairs)))),
    a.Collect: _collect,
    a.Quantile: _quantile,
}
