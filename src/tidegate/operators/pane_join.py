"""Joins of windows of fixed length: a pair leaves in the batch that completes it.

What came is put in order; rows that are held, and those that came on the other side, look up the
stretch of it that they meet. So a batch costs what it brought and what is held of its keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators.accumulators import TIME
from tidegate.operators.joining import JoinKernel, JoinSide, Places, Rows, ranges_as_pairs
from tidegate.operators.keyed import Partials, Turn
from tidegate.operators.late import NEVER, Bounds, instants
from tidegate.operators.panes import Panes
from tidegate.operators.row_table import RowTable
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY
from tidegate.operators.timeline import Timeline
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import Join
from tidegate.plan.windowing import WindowBy
from tidegate.plan.windows import Hopping

#: Until when a row may be met, and when it is let go: its own windows have closed as well then.
_HELD, _OVER = "__tidegate_held", "__tidegate_over"


class PaneSide(JoinSide):
    """The rows of one side."""

    def __init__(self, plan: Join, window: WindowBy, number: int) -> None:
        assert isinstance(window.window, Hopping)
        name = SIDES[number]
        super().__init__(plan, window, name, RowTable(name, _OVER, window.window.size))
        self.panes = Panes(Slicing(window.window), points=_takes_points(plan, number))

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        _, inside = self.panes.slicing.slice_of(instants(rows, self.time))
        counts["unassigned"] += len(inside) - int(inside.sum())
        return super().preaggregate(rows.filter(pa.array(inside)), counts, owners=owners)

    def take_in(self, turn: Turn, other: PaneSide) -> pl.DataFrame | None:
        """What came in time, with the times until which it is held."""
        parts = [arrival.states for arrival in turn.arrivals]
        if turn.watermark is not None and self.judges:
            too_late = [self._closes(part) <= turn.watermark for part in parts]
            parts = self.part_late(turn, too_late, lambda n, late: self._last_windows(parts[n][late]))
        if not any(map(len, parts)):
            return None
        came = pl.concat(parts)
        held = other.lateness.closes_at(other.panes.last_meeting(*self.panes.stretch(_time(came))))
        times = pl.Series(_HELD, held), pl.Series(_OVER, np.maximum(held, self._closes(came)))
        return self.numbered(turn.state, came.with_columns(*times))

    def _last_windows(self, rows: pl.DataFrame) -> Bounds:
        """The window of each row that closes last."""
        end = self.panes.last_end(_time(rows))
        return end - self.panes.slicing.window.size, end

    def _closes(self, rows: pl.DataFrame) -> np.ndarray:
        """When the last window of each row closes."""
        return self.lateness.closes_at(self.panes.last_end(_time(rows)))


class PaneJoin(JoinKernel):
    """Tumbling windows with tumbling or hopping ones."""

    def __init__(self, plan: Join) -> None:
        left, right = (PaneSide(plan, window, number) for number, window in enumerate(plan.sides))
        super().__init__(plan, left, right)
        self.left, self.right = left, right

    def advance(self, turn: Turn, turns: Sequence[Turn]) -> int | None:
        was, now = (NEVER if time is None else time for time in (turn.was, turn.watermark))
        self._let_go(turn, was, now)
        left = self.left.take_in(turns[0], self.right)
        right = self.right.take_in(turns[1], self.left)
        one, other = self._matchable(turn, left), self._matchable(turn, right)
        for rows, pairs in self._meetings(turn, one, other, now):
            self.send_pairs(turn, rows, pairs, now + 1)
        for side, came in ((self.left, left), (self.right, right)):
            if came is not None:
                side.rows.keep(turn.state, came.filter(pl.col(_OVER) > now), now + 1)
        return self._forget(turn, now)

    def _let_go(self, turn: Turn, was: int, now: int) -> None:
        closed = []
        for side in (self.left, self.right):
            over = side.rows.between(turn.state, was + 1, now)
            if over is not None:
                end = pl.Series("end", side.panes.last_end(_time(over)))
                size = pl.lit(side.panes.slicing.window.size).alias("size")
                closed.append(over.select(KEY, _OVER, end, size))
                if side.keeps:
                    self.send_alone(turn, side, over)
        if closed:
            turn.out.counts["windows_closed"] += pl.concat(closed).n_unique()

    def _matchable(self, turn: Turn, came: pl.DataFrame | None) -> pl.DataFrame | None:
        found = None if came is None else self.matchable(turn.state, came)
        return None if found is None or not len(found) else found

    def _meetings(
        self, turn: Turn, left: pl.DataFrame | None, right: pl.DataFrame | None, now: int
    ) -> Iterator[tuple[Rows, Iterator[Places]]]:
        """Rows that just came with all they meet, each pair once."""
        if left is not None and right is not None:
            yield Rows(left, right), _meeting(self.left, left, self.right, right)
        if right is not None and (held := self._held(turn, self.left, right, now)) is not None:
            yield Rows(held, right), _meeting(self.left, held, self.right, right)
        if left is not None and (held := self._held(turn, self.right, left, now)) is not None:
            swapped = _meeting(self.right, held, self.left, left)
            yield Rows(left, held), ((came, stayed) for stayed, came in swapped)

    def _held(self, turn: Turn, side: PaneSide, came: pl.DataFrame, now: int) -> pl.DataFrame | None:
        """The rows that are held of the keys that came on the other side."""
        pages = turn.state.of_keys(side.rows.pages(turn.state, low=now + 1), came[KEY].to_numpy())
        held = [rows for page in pages if len(rows := page.filter(pl.col(_HELD) > now))]
        return pl.concat(held) if held else None

    def _forget(self, turn: Turn, now: int) -> int | None:
        """Drop what was let go; when there is more to let go."""
        dues = []
        for side in (self.left, self.right):
            side.rows.drop_below(turn.state, now + 1)
            side.met.drop_below(turn.state, now + 1)
            dues.append(side.rows.next_after(turn.state, now))
        return min((due for due in dues if due is not None), default=None)

    # -- unpack -------------------------------------------------------------------------------

    def sent_columns(self, side: JoinSide) -> list[str]:
        return []

    def bounds(self, side: JoinSide, rows: pa.Table, others: pa.Table | None) -> Sequence[pa.Array]:
        own, other = (self.left, self.right) if side is self.left else (self.right, self.left)
        time = rows.column(TIME).to_numpy()
        since = None if others is None else other.panes.first_start(others.column(TIME).to_numpy())
        window = own.panes.shown(time, since)
        return pa.array(own.panes.slicing.start(window)), pa.array(own.panes.slicing.end(window))


def _takes_points(plan: Join, number: int) -> bool:
    """Does the row itself count, not its windows? That of hopping windows, or that on the right."""
    if plan.match != "within":
        return False
    window = plan.sides[number].window
    other = plan.sides[1 - number].window
    assert isinstance(window, Hopping)
    assert isinstance(other, Hopping)
    return not window.tumbling or (other.tumbling and number == 1)


def _meeting(
    asking: PaneSide, rows: pl.DataFrame, asked: PaneSide, came: pl.DataFrame
) -> Iterator[Places]:
    """Each row with all of those that came that it meets."""
    timeline = Timeline(came[KEY].to_numpy(), _time(came))
    key = rows[KEY].to_numpy()
    first, last = asked.panes.times_meeting(*asking.panes.stretch(_time(rows)))
    ranges = ranges_as_pairs(timeline.first_from(key, first), timeline.last_until(key, last))
    return ((place, timeline.order[found]) for place, found in ranges)


def _time(rows: pl.DataFrame) -> np.ndarray:
    return rows[TIME].to_numpy()
