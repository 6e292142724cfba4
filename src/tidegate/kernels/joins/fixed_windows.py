"""Joins of windows of fixed length: a pair is emitted in the batch that completes it.

What arrived is sorted; rows that are held, and those that arrived on the other side, look up the
stretch of it that they match. So a batch costs what it brought and what is held of its keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar.timeline import Timeline
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import StepContext
from tidegate.kernels.inputs import Arrival, Partials
from tidegate.kernels.joins.kernel import (
    JoinSide,
    PairEmitter,
    Positions,
    Rows,
    ranges_as_pairs,
    side_layout,
)
from tidegate.kernels.late import NEVER, Bounds
from tidegate.kernels.rows.row_table import RowLayout, RowTable
from tidegate.kernels.windows.slices import Slicing
from tidegate.plan.joins import SIDES, Side
from tidegate.plan.nodes import Join
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.plan.windows import Hopping
from tidegate.state.pages import KEY, BucketState

#: Until when a row may be matched, and when it is evicted: its own windows have closed as well then.
_HELD, _OVER = "__tidegate_held", "__tidegate_over"


@dataclass(frozen=True)
class FixedWindows:
    """The windows of one side.

    The windows that hold a row lie next to each other, so together they are one stretch of time. Rows
    of two sides match where their stretches overlap. As stretches move on with time, the rows that
    match a given one are all rows of their key between two times.
    """

    slicing: Slicing
    #: Does a row take up its own time only, not that of its windows?
    points: bool = False

    def first(self, time: np.ndarray) -> np.ndarray:
        """The number of the first window that holds each time."""
        return self.slicing.first_window(self.slicing.slice_of(time)[0])

    def first_start(self, time: np.ndarray) -> np.ndarray:
        """The start of the first window that holds each time."""
        return self.slicing.start(self.first(time))

    def last_end(self, time: np.ndarray) -> np.ndarray:
        """The end of the last window that holds each time."""
        return self.slicing.end(self.slicing.last_window(self.slicing.slice_of(time)[0]))

    def stretch(self, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From where up to where, without it, a row at each time takes up."""
        if self.points:
            return time, time + 1
        return self.first_start(time), self.last_end(time)

    def times_matching(self, start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Between which times, both included, rows of this side match `[start, end)`."""
        if self.points:
            return start, end - 1
        first = self.slicing.start(self.slicing.last_ended(start) + 1)
        return first, self._last_begun(end) - 1

    def last_matching(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """The end of the last window of this side that overlaps `[start, end)`, if there is one."""
        last = self._last_begun(end)
        return np.where(last > start, last, NEVER)

    def _last_begun(self, end: np.ndarray) -> np.ndarray:
        """The end of the last window that begins before `end`."""
        window = self.slicing.window
        return self.slicing.end((end - 1 - window.offset) // window.slide)

    def shown(self, time: np.ndarray, since: np.ndarray | None = None) -> np.ndarray:
        """The first window that holds each time and, if given, ends after `since`."""
        first = self.first(time)
        return first if since is None else np.maximum(first, self.slicing.last_ended(since) + 1)


@dataclass(frozen=True)
class RowsInWindows:
    """Rows as they are, without those that belong to no window."""

    layout: RowLayout
    slicing: Slicing

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        _, inside = self.slicing.slice_of(self.layout.columns.times(rows))
        counts["unassigned"] += len(inside) - int(inside.sum())
        return self.layout(rows.filter(pa.array(inside)), counts, owners=owners)


class FixedWindowSide:
    """One side: its rows, its windows, and when rows are late or over."""

    def __init__(self, plan: Join, window: WindowBy, number: int) -> None:
        assert isinstance(window.window, Hopping)
        slicing, rows = Slicing(window.window), RowTable(SIDES[number], _OVER, window.window.size)
        self.windows = FixedWindows(slicing, points=_takes_points(plan, number))
        layout = side_layout(plan, window)
        preaggregate = RowsInWindows(layout, slicing)
        self.side = JoinSide(plan, window, SIDES[number], rows, layout, preaggregate)

    def ingest(
        self, context: StepContext, arrivals: Sequence[Arrival], other: FixedWindowSide
    ) -> pl.DataFrame | None:
        """What arrived in time, with the times until which it is held."""
        parts = [arrival.states for arrival in arrivals]
        if context.watermark is not None and self.side.input.enforces_lateness:
            too_late = [self._closes(part) <= context.watermark for part in parts]
            parts = self.side.input.route_late(
                context, arrivals, too_late, lambda n, late: self._last_windows(parts[n][late])
            )
        if not any(map(len, parts)):
            return None
        came = pl.concat(parts)
        last = other.windows.last_matching(*self.windows.stretch(_time(came)))
        held = other.side.lateness.closes_at(last)
        times = pl.Series(_HELD, held), pl.Series(_OVER, np.maximum(held, self._closes(came)))
        return self.side.numbered(context.state, came.with_columns(*times))

    def _last_windows(self, rows: pl.DataFrame) -> Bounds:
        """The window of each row that closes last."""
        end = self.windows.last_end(_time(rows))
        return end - self.windows.slicing.window.size, end

    def _closes(self, rows: pl.DataFrame) -> np.ndarray:
        """When the last window of each row closes."""
        return self.side.lateness.closes_at(self.windows.last_end(_time(rows)))


class FixedWindowJoin:
    """Tumbling windows with tumbling or hopping ones."""

    def __init__(self, plan: Join) -> None:
        self.left, self.right = (
            FixedWindowSide(plan, window, number) for number, window in enumerate(plan.sides)
        )
        self.pairs = PairEmitter(plan, (self.left.side, self.right.side), self._bounds)

    def advance(
        self, context: StepContext, left: Sequence[Arrival], right: Sequence[Arrival]
    ) -> int | None:
        previous, now = context.watermarks
        self._evict(context, previous, now)
        came_left = self.left.ingest(context, left, self.right)
        came_right = self.right.ingest(context, right, self.left)
        for rows, pairs in self._matches(
            context, self._matchable(context, came_left), self._matchable(context, came_right), now
        ):
            self.pairs.emit_pairs(context, rows, pairs, now + 1)
        for side, came in ((self.left.side, came_left), (self.right.side, came_right)):
            if came is not None:
                side.rows.keep(context.state, came.filter(pl.col(_OVER) > now), now + 1)
        return self._expire(context.state, now)

    def _evict(self, context: StepContext, previous: int, now: int) -> None:
        """Count the windows that close, and emit rows that have matched nothing and never will."""
        closed = []
        for one in (self.left, self.right):
            over = one.side.rows.between(context.state, previous + 1, now)
            if over is not None:
                end = pl.Series("end", one.windows.last_end(_time(over)))
                size = pl.lit(one.windows.slicing.window.size).alias("size")
                closed.append(over.select(KEY, _OVER, end, size))
                if one.side.keeps_unmatched:
                    self.pairs.emit_unmatched(context, one.side, over)
        if closed:
            context.outcome.counts["windows_closed"] += pl.concat(closed).n_unique()

    def _matchable(self, context: StepContext, came: pl.DataFrame | None) -> pl.DataFrame | None:
        found = None if came is None else self.pairs.matchable(context.state, came)
        return None if found is None or not len(found) else found

    def _matches(
        self, context: StepContext, left: pl.DataFrame | None, right: pl.DataFrame | None, now: int
    ) -> Iterator[tuple[Rows, Iterator[Positions]]]:
        """Rows that just arrived with all they match, each pair once."""
        if left is not None and right is not None:
            yield Rows(left, right), _matching(self.left, left, self.right, right)
        if right is not None and (held := self._held(context, self.left, right, now)) is not None:
            yield Rows(held, right), _matching(self.left, held, self.right, right)
        if left is not None and (held := self._held(context, self.right, left, now)) is not None:
            swapped = _matching(self.right, held, self.left, left)
            yield Rows(left, held), ((came, stayed) for stayed, came in swapped)

    def _held(
        self, context: StepContext, one: FixedWindowSide, came: pl.DataFrame, now: int
    ) -> pl.DataFrame | None:
        """The rows that are held of the keys that arrived on the other side."""
        pages = one.side.rows.pages(context.state, low=now + 1)
        of_keys = context.state.of_keys(pages, came[KEY].to_numpy())
        held = [rows for page in of_keys if len(rows := page.filter(pl.col(_HELD) > now))]
        return pl.concat(held) if held else None

    def _expire(self, state: BucketState, now: int) -> int | None:
        """Drop what was evicted; when the next rows are."""
        dues = []
        for side in (self.left.side, self.right.side):
            side.rows.drop_below(state, now + 1)
            side.matched.drop_below(state, now + 1)
            dues.append(side.rows.next_after(state, now))
        return min((due for due in dues if due is not None), default=None)

    def _bounds(self, side: Side, rows: pa.Table, others: pa.Table | None) -> Sequence[pa.Array]:
        own, other = (self.left, self.right) if side == "left" else (self.right, self.left)
        time = rows.column(TIME).to_numpy()
        since = None if others is None else other.windows.first_start(others.column(TIME).to_numpy())
        window, slicing = own.windows.shown(time, since), own.windows.slicing
        return pa.array(slicing.start(window)), pa.array(slicing.end(window))


def _takes_points(plan: Join, number: int) -> bool:
    """Does the row itself count, not its windows? A row of hopping windows does, or one on the right."""
    if plan.match != "within":
        return False
    window = plan.sides[number].window
    other = plan.sides[1 - number].window
    assert isinstance(window, Hopping)
    assert isinstance(other, Hopping)
    return not window.tumbling or (other.tumbling and number == 1)


def _matching(
    asking: FixedWindowSide, rows: pl.DataFrame, asked: FixedWindowSide, came: pl.DataFrame
) -> Iterator[Positions]:
    """Each row with all of those that arrived that it matches."""
    timeline = Timeline(came[KEY].to_numpy(), _time(came))
    key = rows[KEY].to_numpy()
    first, last = asked.windows.times_matching(*asking.windows.stretch(_time(rows)))
    ranges = ranges_as_pairs(timeline.first_from(key, first), timeline.last_until(key, last))
    return ((position, timeline.order[found]) for position, found in ranges)


def _time(rows: pl.DataFrame) -> np.ndarray:
    return rows[TIME].to_numpy()
