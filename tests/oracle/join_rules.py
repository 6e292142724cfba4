"""Joins between windows: each side keeps a list of rows, and every row is held against every other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tests.oracle.rules import Intake, OperatorRules
from tests.oracle.window_rules import Sessions, Window
from tidegate.plan.channels import MAIN
from tidegate.plan.joins import SIDES, Side, keeps, window_names
from tidegate.plan.nodes import Join
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.plan.windows import Hopping, Session
from tidegate.testing.results import BatchResult, frozen
from tidegate.testing.table import Row, instant_of, to_arrow

#: A stretch of time, its end not included.
Span = tuple[int, int]

#: The values of a row's keys, as they compare to others.
Key = tuple[Hashable, ...]

#: A row, and the window that results show with it.
Shown = tuple[Row, Span]

_NEVER = -(1 << 62)


def join_rules_of(plan: Join) -> OperatorRules:
    left, right = plan.left.window, plan.right.window
    if isinstance(left, Session) and isinstance(right, Session):
        return SessionJoin(plan, SessionSide(plan.left, left), SessionSide(plan.right, right))
    assert isinstance(left, Hopping)
    assert isinstance(right, Hopping)
    return PaneJoin(plan, PaneSide(plan.left, left), PaneSide(plan.right, right))


class JoinRules(ABC):
    """What is the same for all windows: the order of a micro-batch, and what results look like."""

    def __init__(self, plan: Join, left: Intake, right: Intake) -> None:
        self.how = plan.how
        self.where = plan.where
        self.columns = plan.pair
        self.nulls_match = plan.nulls_match or (True,) * len(plan.keyed.keys)
        self.intakes: tuple[Intake, ...] = (left, right)

    def batch(
        self, rows_by_input: Sequence[Sequence[Row]], watermark: int | None, now: int
    ) -> BatchResult:
        """Let go what the watermark makes due, then judge the rows by it and take them in.

        What another operator emitted because of W came before W: it is taken in first.
        """
        result = BatchResult(watermark)
        out = self._take_in(rows_by_input, result, judged=False)
        for intake in self.intakes:
            intake.watermark = watermark
        out += self.close(result)
        out += self._take_in(rows_by_input, result, judged=True)
        result.put(MAIN, *out)
        return result

    @abstractmethod
    def close(self, result: BatchResult) -> list[Row]:
        """What leaves since the watermark is where it is."""

    @abstractmethod
    def put(self, left: Sequence[Row], right: Sequence[Row], result: BatchResult) -> list[Row]:
        """Keep rows of both sides, none of them late; what leaves with them at once."""

    def _take_in(
        self, rows_by_input: Sequence[Sequence[Row]], result: BatchResult, *, judged: bool
    ) -> list[Row]:
        """The rows of the sides that judge them, or of those that do not."""
        taken = []
        for side, intake, rows in zip(SIDES, self.intakes, rows_by_input, strict=True):
            # Copies: a row that is given twice is two rows.
            mine = [dict(row) for row in rows] if intake.judges == judged else []
            result.counts[f"{side}_rows"] += sum(intake.fault(row) is None for row in mine)
            taken.append(intake.admitted(mine, result))
        left, right = taken
        return self.put(left, right, result)

    def equal(self, one: Key, other: Key) -> bool:
        """Are keys equal? Null is to null, unless the plan says otherwise."""
        values = zip(one, self.nulls_match, strict=True)
        return one == other and all(value is not None or match for value, match in values)

    # -- results ----------------------------------------------------------------------------------

    def pair(self, left: Shown, right: Shown, result: BatchResult) -> Row | None:
        """Two rows that met as a result, unless the condition says that they are no pair."""
        both = self._result({"left": left, "right": right})
        if self.where is not None and not self._is_met(self.where, both):
            return None
        result.counts["joined_pairs"] += 1
        return both

    def alone(self, side: Side, shown: Shown) -> list[Row]:
        """What leaves of a row that met nothing."""
        return [self._result({side: shown})] if keeps(self.how, side) else []

    def _result(self, present: dict[Side, Shown]) -> Row:
        made: Row = dict.fromkeys(self.columns.schema.names)
        for side, (row, span) in present.items():
            made |= dict(zip(window_names(side), map(instant_of, span), strict=True))
            made |= {shown: row.get(name) for name, shown in self.columns.names[side].items()}
        return made

    def _is_met(self, condition: str, both: Row) -> bool:
        one = pl.DataFrame(pl.from_arrow(to_arrow([both], self.columns.schema)))
        return one.select(pl.sql_expr(condition)).item() is True


# -- windows of fixed length ----------------------------------------------------------------------


@dataclass(eq=False)
class Kept:
    """A row of one side, with all windows that hold it, the earliest first."""

    row: Row
    key: Key
    time: int
    windows: list[Span]
    met: bool = False


class PaneSide(Intake):
    """One side's rows."""

    def __init__(self, window: WindowBy, spec: Hopping) -> None:
        super().__init__(window.as_input)
        self.spec = spec
        self.kept: list[Kept] = []

    def has_room(self, time: int) -> bool:
        return bool(self.windows_at(time))

    def late(self, rows: Sequence[Row]) -> list[bool]:
        """A row is late if all its own windows have closed."""
        windows = [self.windows_at(self.instant(row)) for row in rows]
        return [all(self.passed(end + self.lateness) for _, end in held_by) for held_by in windows]

    def closed_window(self, row: Row) -> Span | None:
        return self.windows_at(self.instant(row))[-1]

    def made(self, row: Row) -> Kept:
        time = self.instant(row)
        return Kept(row, self.key(row), time, self.windows_at(time))

    def windows_at(self, time: int) -> list[Span]:
        """Every window that holds the time."""
        return self.windows_over((time, time + 1))

    def windows_over(self, span: Span) -> list[Span]:
        """Every window that has some of the span."""
        size, slide, offset = self.spec.size, self.spec.slide, self.spec.offset
        first, last = ((edge - offset) // slide for edge in span)
        starts = (k * slide + offset for k in range(first - size // slide - 1, last + 2))
        return [window for s in starts if _overlap(window := (s, s + size), span)]


class PaneJoin(JoinRules):
    """Tumbling and hopping windows: a pair leaves in the batch that completes it."""

    def __init__(self, plan: Join, left: PaneSide, right: PaneSide) -> None:
        super().__init__(plan, left, right)
        self.left, self.right = left, right
        #: With `within`, the side of which the row itself counts, and not its windows.
        self.point = None
        if plan.match == "within":
            self.point = right if left.spec.tumbling else left

    def put(self, left: Sequence[Row], right: Sequence[Row], result: BatchResult) -> list[Row]:
        new_left, new_right = map(self.left.made, left), map(self.right.made, right)
        lefts = [*((one, False) for one in self.left.kept), *((one, True) for one in new_left)]
        rights = [*((one, False) for one in self.right.kept), *((one, True) for one in new_right)]
        self.left.kept, self.right.kept = ([one for one, _ in ones] for ones in (lefts, rights))
        pairs = [
            self._pair(one, other, result)
            for one, is_new in lefts
            for other, other_is_new in rights
            if is_new or other_is_new
            if is_new or self._waits(self.left, one)
            if other_is_new or self._waits(self.right, other)
            if self.equal(one.key, other.key) and self._meet(one, other)
        ]
        return [pair for pair in pairs if pair is not None]

    def close(self, result: BatchResult) -> list[Row]:
        """Let go every row that is over."""
        out = []
        closed = set()
        for name, side in zip(SIDES, (self.left, self.right), strict=True):
            gone = [one for one in side.kept if side.passed(self._over(side, one))]
            side.kept = [one for one in side.kept if not side.passed(self._over(side, one))]
            closed |= {(one.key, self._over(side, one), one.windows[-1]) for one in gone}
            for one in gone:
                out += [] if one.met else self.alone(name, (one.row, one.windows[0]))
        result.counts["windows_closed"] += len(closed)
        return out

    def _over(self, side: PaneSide, one: Kept) -> int:
        """When a row is let go: it can meet nothing, and its own windows have closed."""
        return max(one.windows[-1][1] + side.lateness, self._held_until(side, one))

    def _waits(self, side: PaneSide, one: Kept) -> bool:
        return not side.passed(self._held_until(side, one))

    def _held_until(self, side: PaneSide, one: Kept) -> int:
        """When the last window of the other side that could meet the row closes."""
        other = self.right if side is self.left else self.left
        itself, stretch = (one.time, one.time + 1), (one.windows[0][0], one.windows[-1][1])
        could_meet = other.windows_over(itself if side is self.point else stretch)
        return max((end + other.lateness for _, end in could_meet), default=_NEVER)

    def _meet(self, left: Kept, right: Kept) -> bool:
        if self.point is None:
            return any(_overlap(one, other) for one in left.windows for other in right.windows)
        point, pane = (left, right) if self.point is self.left else (right, left)
        return any(start <= point.time < end for start, end in pane.windows)

    def _pair(self, left: Kept, right: Kept, result: BatchResult) -> Row | None:
        shown = (left.row, _earliest(left, right)), (right.row, _earliest(right, left))
        made = self.pair(*shown, result)
        if made is not None:
            left.met = right.met = True
        return made


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _earliest(one: Kept, other: Kept) -> Span:
    """The earliest window of a row that has some of a window of the other."""
    return next(w for w in one.windows if any(_overlap(w, window) for window in other.windows))


# -- sessions -------------------------------------------------------------------------------------


@dataclass(eq=False)
class ClosedSession:
    """A session that no row can join any more."""

    session: Window
    #: For each of its rows: was it in a pair?
    met: list[bool]
    new: bool = True

    @property
    def key(self) -> Key:
        return _key(self.session)

    def shown(self) -> Iterator[Shown]:
        for _, row in self.session.rows:
            yield row, (self.session.start, self.session.end)


class SessionSide(Intake):
    """One side's sessions: those that may still grow, and those that wait for others to meet."""

    def __init__(self, window: WindowBy, spec: Session) -> None:
        super().__init__(window.as_input)
        assert not isinstance(spec.gap, str)
        self.gap = spec.gap
        self.sessions = Sessions(window, spec, lambda end: self.passed(end + self.lateness))
        self.closed: list[ClosedSession] = []

    def late(self, rows: Sequence[Row]) -> list[bool]:
        return self.sessions.late(rows)

    def closed_window(self, row: Row) -> Span | None:
        return self.sessions.closed_window(row)


class SessionJoin(JoinRules):
    """Sessions: when the later of two that meet has closed, all pairs of their rows leave."""

    def __init__(self, plan: Join, left: SessionSide, right: SessionSide) -> None:
        super().__init__(plan, left, right)
        self.left, self.right = left, right

    def put(self, left: Sequence[Row], right: Sequence[Row], result: BatchResult) -> list[Row]:
        self.left.sessions.put(left)
        self.right.sessions.put(right)
        return []

    def close(self, result: BatchResult) -> list[Row]:
        for side in (self.left, self.right):
            closing = side.sessions.take_closed()
            result.counts["windows_closed"] += len(closing)
            side.closed += [ClosedSession(session, [False] * len(session.rows)) for session in closing]
        pairs = [
            pair
            for one in self.left.closed
            for other in self.right.closed
            if one.new or other.new
            if self.equal(one.key, other.key) and _touch(one.session, other.session)
            for pair in self._pairs(one, other, result)
        ]
        left = self._let_go("left", self.left, self.right)
        right = self._let_go("right", self.right, self.left)
        return [*pairs, *left, *right]

    def _pairs(self, left: ClosedSession, right: ClosedSession, result: BatchResult) -> Iterator[Row]:
        for i, one in enumerate(left.shown()):
            for j, other in enumerate(right.shown()):
                made = self.pair(one, other, result)
                if made is not None:
                    left.met[i] = right.met[j] = True
                    yield made

    def _let_go(self, name: Side, side: SessionSide, other: SessionSide) -> list[Row]:
        """Forget the sessions that can meet nothing any more."""
        gone = [one for one in side.closed if self._over(one, other)]
        side.closed = [one for one in side.closed if one not in gone]
        for one in side.closed:
            one.new = False
        rows = [(met, shown) for one in gone for met, shown in zip(one.met, one.shown(), strict=True)]
        return [row for met, shown in rows if not met for row in self.alone(name, shown)]

    def _over(self, closed: ClosedSession, other: SessionSide) -> bool:
        """No session of the other side that begins before its end is open, nor can one come."""
        end = closed.session.end
        begun = (one for one in other.sessions.open if self.equal(_key(one), closed.key))
        return other.passed(end + other.gap + other.lateness) and not any(
            one.start <= end for one in begun
        )


def _key(session: Window) -> Key:
    return tuple(map(frozen, session.key))


def _touch(one: Window, other: Window) -> bool:
    return one.start <= other.end and other.start <= one.end
