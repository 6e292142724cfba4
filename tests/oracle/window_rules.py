"""Windows, sessions and running folds: each keeps a list of its own rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.oracle.answers import Answer, answers_of
from tests.oracle.rules import Rules
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.policies import OnWatermark, OnWindowClose, Retracting
from tidegate.plan.windowed_aggregates import WindowBy, WindowedAggregate
from tidegate.plan.windows import AllTime, Hopping, Session
from tidegate.testing.results import frozen, same
from tidegate.testing.table import Row, instant_of, micros_of

NO_TIME = timedelta(0)

#: After every event time, as at the end of a batch query.
END_OF_TIME = 1 << 60


@dataclass
class Window:
    """One window or session of one key, with every row that counts in it."""

    key: tuple[Any, ...]
    start: int
    end: int
    rows: list[tuple[int, Row]] = field(default_factory=list)
    #: The results that are out, the earliest first, each with the processing time it went out at.
    #: There are several only where sessions have merged and not yet spoken since.
    out: list[tuple[Row, int]] = field(default_factory=list)
    #: Have rows come that no result has told of?
    changed: bool = False


class WindowRules(Rules):
    """Results of windows, as the emission strategy has them."""

    def __init__(
        self,
        plan: WindowedAggregate,
        window: Hopping | Session | AllTime,
        answers: Mapping[type[Aggregate], Answer],
        bucket_of: Callable[[Row], Hashable],
    ) -> None:
        super().__init__(plan)
        self.emission = plan.emission
        self.aggregation = plan.input
        self.lateness = 0 if plan.emission == OnWindowClose(final=True) else plan.windowed.lateness
        self.bounds = [field.name for field in plan.input.bounds]
        self.gap = plan.windowed.gap_column
        self.answers = answers
        self.bucket_of = bucket_of
        self.windows = _open_windows(plan.windowed, window, self._closed)

    def close(self, now: int) -> list[Row]:
        closed = self.windows.take_closed()
        return [change for window in closed for change in self._at_close(window, now)]

    def put(self, rows: Sequence[Row]) -> list[Row]:
        self.windows.put(rows)
        return []

    def settle(self, now: int) -> list[Row]:
        awake = {self.bucket_of(row) for row in self.arrived}
        changes: list[Row] = []
        for window in self.windows.open:
            listens = self.moved or self.bucket_of(self._key_of(window)) in awake
            changes += self._while_open(window, listens, now)
        return changes

    def arranged(self, out: list[Row]) -> list[Row]:
        """The retractions of a batch come before its insertions."""
        retracts = isinstance(self.emission, Retracting)
        return sorted(out, key=lambda row: not row["op"].startswith("-")) if retracts else out

    def late(self, rows: Sequence[Row]) -> list[bool]:
        return self.windows.late(rows)

    def closed_window(self, row: Row) -> tuple[int, int] | None:
        return self.windows.closed_window(row)

    def has_room(self, time: int) -> bool:
        return self.windows.has_room(time)

    def fault(self, row: Row) -> str | None:
        if broken := super().fault(row):
            return broken
        if self.gap and row.get(self.gap) is None:
            return f"gap {self.gap!r} is null"
        if self.gap and row[self.gap] <= NO_TIME:
            return f"gap {self.gap!r} is not positive"
        return None

    def results(self) -> list[Row]:
        """The current results of all open windows."""
        return [self._result(window) for window in self.windows.open]

    def _closed(self, end: int) -> bool:
        return self.passed(end + self.lateness)

    # -- emission ---------------------------------------------------------------------------------

    def _at_close(self, window: Window, now: int) -> Iterable[Row]:
        """What a window says when nothing can change it any more."""
        emission = self.emission
        if isinstance(emission, OnWindowClose):
            return [self._result(window)]
        if isinstance(emission, OnWatermark):
            return [] if window.out else [self._result(window)]
        return self._change(window, emission, now) if window.changed else []

    def _while_open(self, window: Window, listens: bool, now: int) -> Iterable[Row]:
        """What a window says that may still change."""
        emission = self.emission
        if isinstance(emission, OnWatermark) and self.passed(window.end):
            current = self._result(window)
            if not any(_equal(row, current) for row, _ in window.out):
                window.out = [(current, now)]
                return [current]
        elif isinstance(emission, Retracting):
            spoke = max((at for _, at in window.out), default=None)
            its_turn = spoke is None or now >= spoke + emission.interval
            if window.changed and its_turn and listens:
                return self._change(window, emission, now)
        return []

    def _change(self, window: Window, ops: Retracting, now: int) -> list[Row]:
        """Take back what is out and put out what is true; the earliest goes on, others are absorbed."""
        before, after = [row for row, _ in window.out], self._result(window)
        window.out, window.changed = [(after, now)], False
        if not before:
            return [after | {"op": ops.first}]
        earliest, *absorbed = before
        if not absorbed and _equal(earliest, after):
            return []
        updated = [earliest | {"op": ops.before}, after | {"op": ops.after}]
        return updated + [row | {"op": "-D"} for row in absorbed]

    def _result(self, window: Window) -> Row:
        # Of folds, which have no bounds, the end lies beyond all instants.
        bounds = zip(self.bounds, map(instant_of, (window.start, window.end)), strict=False)
        results = answers_of(self.answers, self.aggregation, window.rows)
        return self._key_of(window) | dict(bounds) | results

    def _key_of(self, window: Window) -> Row:
        return dict(zip(self.keys, window.key, strict=True))


def _equal(one: Row, other: Row) -> bool:
    return all(same(one[name], other[name]) for name in other)


# -- which rows belong together -------------------------------------------------------------------


class OpenWindows(ABC):
    """The windows that rows can still change, of all keys."""

    def __init__(self, window: WindowBy, closed: Callable[[int], bool]) -> None:
        self.keys = window.input.keys
        self.time = window.input.input.time
        #: Has a window that ends there closed?
        self.closed = closed
        self.open: list[Window] = []

    def take_closed(self) -> list[Window]:
        """The windows that have closed; they are forgotten."""
        closing = [window for window in self.open if self.closed(window.end)]
        self.open = [window for window in self.open if not self.closed(window.end)]
        return closing

    def has_room(self, time: int) -> bool:
        """Can a row of that time belong to any window at all?"""
        return True

    @abstractmethod
    def late(self, rows: Sequence[Row]) -> list[bool]:
        """For each row of a batch: does it come too late for all its windows?"""

    @abstractmethod
    def closed_window(self, row: Row) -> tuple[int, int] | None:
        """Of the windows of a row that was just found late, the last."""

    @abstractmethod
    def put(self, rows: Sequence[Row]) -> None:
        """Count a batch's rows, none of them late, in their windows."""


class HoppingWindows(OpenWindows):
    """Windows `[k·slide + offset, + size)`."""

    def __init__(self, window: WindowBy, spec: Hopping, closed: Callable[[int], bool]) -> None:
        super().__init__(window, closed)
        self.spec = spec

    def has_room(self, time: int) -> bool:
        return bool(self._windows_at(time))

    def late(self, rows: Sequence[Row]) -> list[bool]:
        times = [micros_of(row[self.time]) for row in rows]
        return [all(self.closed(end) for _, end in self._windows_at(time)) for time in times]

    def closed_window(self, row: Row) -> tuple[int, int] | None:
        return self._windows_at(micros_of(row[self.time]))[-1]

    def put(self, rows: Sequence[Row]) -> None:
        known = {_identity(window): window for window in self.open}
        for row in rows:
            time = micros_of(row[self.time])
            for start, end in self._windows_at(time):
                if not self.closed(end):
                    window = Window(tuple(row.get(name) for name in self.keys), start, end)
                    window = known.setdefault(_identity(window), window)
                    window.rows.append((time, row))
                    window.changed = True
        self.open = list(known.values())

    def _windows_at(self, time: int) -> list[tuple[int, int]]:
        """Every window that holds the time."""
        size, slide, offset = self.spec.size, self.spec.slide, self.spec.offset
        latest = (time - offset) // slide
        starts = (k * slide + offset for k in range(latest - size // slide - 1, latest + 2))
        return [(start, start + size) for start in starts if start <= time < start + size]


def _identity(window: Window) -> Hashable:
    return tuple(map(frozen, window.key)), window.start


class Sessions(OpenWindows):
    """Rows of a key that reach each other, each up to its gap after its time, ends included."""

    def __init__(self, window: WindowBy, spec: Session, closed: Callable[[int], bool]) -> None:
        super().__init__(window, closed)
        self.spec = spec
        #: The sessions that the late rows of a batch would have formed.
        self.gone: dict[int, tuple[int, int]] = {}

    def late(self, rows: Sequence[Row]) -> list[bool]:
        """A row is late if all that it is tied to, in state and in its batch, has closed."""
        together = self._joined([*self.open, *map(self._alone, rows)])
        closed = [window for window in together if self.closed(window.end)]
        self.gone = {id(row): (one.start, one.end) for one in closed for _, row in one.rows}
        return [id(row) in self.gone for row in rows]

    def closed_window(self, row: Row) -> tuple[int, int] | None:
        return self.gone[id(row)]

    def put(self, rows: Sequence[Row]) -> None:
        self.open = self._joined([*self.open, *map(self._alone, rows)])

    def _alone(self, row: Row) -> Window:
        """The session of a single row."""
        time = micros_of(row[self.time])
        end = time + self._gap(row)
        if self.spec.max_length:
            end = min(end, (self._cell(time) + 1) * self.spec.max_length)
        key = tuple(row.get(name) for name in self.keys)
        return Window(key, time, end, [(time, row)], changed=True)

    def _gap(self, row: Row) -> int:
        if isinstance(self.spec.gap, str):
            return row[self.spec.gap] // timedelta(microseconds=1)
        return self.spec.gap

    def _joined(self, pieces: Sequence[Window]) -> list[Window]:
        """Sort by time, and split where one begins after the end of what came before."""
        joined: list[Window] = []
        last: dict[Hashable, Window] = {}
        for piece in sorted(pieces, key=lambda piece: piece.start):  # of equal ones the oldest first
            place = (tuple(map(frozen, piece.key)), self._cell(piece.start))
            before = last.get(place)
            if before and piece.start <= before.end:
                _absorb(before, piece)
            else:
                last[place] = replace(piece, rows=[*piece.rows], out=[*piece.out])
                joined.append(last[place])
        return joined

    def _cell(self, time: int) -> int:
        """Sessions of limited length never reach over a multiple of it."""
        return time // self.spec.max_length if self.spec.max_length else 0


class Lifetimes(OpenWindows):
    """One window for each key, which ends with time."""

    def late(self, rows: Sequence[Row]) -> list[bool]:
        return [False] * len(rows)

    def closed_window(self, row: Row) -> tuple[int, int] | None:
        return None

    def put(self, rows: Sequence[Row]) -> None:
        known = {_identity(window): window for window in self.open}
        for row in rows:
            window = Window(tuple(row.get(name) for name in self.keys), 0, END_OF_TIME)
            window = known.setdefault(_identity(window), window)
            window.rows.append((micros_of(row[self.time]), row))
            window.changed = True
        self.open = list(known.values())


def _absorb(window: Window, later: Window) -> None:
    window.end = max(window.end, later.end)
    window.rows += later.rows
    window.out += later.out
    window.changed |= later.changed


def _open_windows(
    window: WindowBy, spec: Hopping | Session | AllTime, closed: Callable[[int], bool]
) -> OpenWindows:
    if isinstance(spec, AllTime):
        return Lifetimes(window, closed)
    if isinstance(spec, Session):
        return Sessions(window, spec, closed)
    return HoppingWindows(window, spec, closed)
