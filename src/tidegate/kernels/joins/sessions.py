"""Joins of sessions: when two that touch have closed, each row of one is paired with each of the other.

A row remembers the session it went into, and a session all sessions that were merged into it: so its
rows are found however often it has merged, also where it has grown back over times of a closed one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar.ranges import running
from tidegate.columnar.timeline import Timeline
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import StepContext
from tidegate.kernels.inputs import ROWS, Arrival
from tidegate.kernels.joins.kernel import (
    ID,
    JoinSide,
    PairEmitter,
    Positions,
    Rows,
    ranges_as_pairs,
    side_layout,
)
from tidegate.kernels.late import NEVER
from tidegate.kernels.rows.row_table import RowTable
from tidegate.kernels.sessions.merge import (
    NUMBER,
    Merged,
    bounded,
    ends_of,
    ends_of_parts,
    merge_live,
)
from tidegate.kernels.sessions.store import END, START, SessionStore
from tidegate.plan.joins import SIDES, Side
from tidegate.plan.nodes import Join
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.plan.windows import Session
from tidegate.state.pages import FIRST_POSITION, KEY, LAST_POSITION, BucketState

#: The session a row went into, and of a session those that were merged into it.
_TAG, _TAGS = "__tidegate_tag", "__tidegate_tags"

#: Has a session just closed?
_NEW = "__tidegate_new"

_NO_PAIRS: Positions = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Members:
    """The rows of some sessions, those of one session next to each other."""

    rows: pl.DataFrame
    first: np.ndarray
    count: np.ndarray


class SessionSide:
    """One side: its sessions and their rows."""

    def __init__(self, plan: Join, window: WindowBy, number: int) -> None:
        assert isinstance(window.window, Session)
        assert not isinstance(window.window.gap, str)
        self.gap, self.longest = window.window.gap, window.window.max_length
        name, layout = SIDES[number], side_layout(plan, window)
        self.side = JoinSide(plan, window, name, RowTable(name, TIME), layout)

    def store(self, state: BucketState) -> SessionStore:
        return SessionStore(state, f"{self.side.name}.sessions", identity=(KEY, _TAG))

    def horizon(self, watermark: int | None) -> int:
        """What ends up to here is closed."""
        return self.side.lateness.horizon(watermark)

    # -- ingest -------------------------------------------------------------------------------

    def ingest(self, context: StepContext, arrivals: Sequence[Arrival]) -> None:
        """Rows go into the sessions they touch. If the merged session is closed, they are late."""
        store, horizon = self.store(context.state), self.horizon(context.watermark)
        parts, input = [arrival.states for arrival in arrivals], self.side.input
        merged = self._merge(store, parts, horizon)
        if merged is not None and context.watermark is not None and input.enforces_lateness:
            too_late = merged.too_late(horizon)[merged.live_count :]
            closed = merged.bounds_of(parts)
            split = np.split(too_late, ends_of_parts(parts))
            parts = input.route_late(context, arrivals, split, closed)
            merged = self._merge(store, parts, horizon) if too_late.any() else merged
        if merged is not None:
            self._keep(context.state, pl.concat(parts), merged)

    def _merge(self, store: SessionStore, parts: Sequence[pl.DataFrame], horizon: int) -> Merged | None:
        return merge_live(store, [self._alone(part) for part in parts], horizon, self.longest)

    def _alone(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row as a session of its own."""
        end = pl.Series(END, ends_of(rows[TIME].to_numpy(), self.gap, self.longest))
        return rows.select(KEY, pl.col(TIME).alias(START), ROWS).with_columns(end)

    def _keep(self, state: BucketState, came: pl.DataFrame, merged: Merged) -> None:
        """Keep rows, and the sessions they went into."""
        sessions = self._tagged(state, merged)
        tag_of = np.zeros(len(merged.swept), dtype=np.int64)
        tag_of[sessions[NUMBER].to_numpy()] = sessions[_TAG].to_numpy()
        tag = pl.Series(_TAG, tag_of[merged.swept.number[merged.live_count :]])
        rows = self.side.numbered(state, came.with_columns(tag))
        self.side.rows.keep(state, rows, FIRST_POSITION)
        self.store(state).upsert(bounded(sessions, merged.swept).drop(NUMBER), merged.replaced())

    def _tagged(self, state: BucketState, merged: Merged) -> pl.DataFrame:
        """Sessions with all tags that went into them; sessions that are new get a new one."""
        number = np.flatnonzero(merged.touched)
        count = np.bincount(merged.swept.number, weights=merged.states[ROWS].to_numpy())[number]
        unused = np.arange(len(number)) + self._next_tag(state)
        sessions = pl.DataFrame({NUMBER: number, ROWS: count.astype(np.int64), _TAG: unused})
        own, replaced = pl.concat_list(_TAG), merged.replaced()
        if replaced is None:
            return sessions.with_columns(own.alias(_TAGS))
        tags = replaced.group_by(NUMBER, maintain_order=True).agg(pl.col(_TAGS).explode())
        known = sessions.join(tags, on=NUMBER, how="left", maintain_order="left")
        known = known.with_columns(pl.coalesce(_TAGS, own).alias(_TAGS))
        return known.with_columns(pl.col(_TAGS).list.first().alias(_TAG))

    def _next_tag(self, state: BucketState) -> int:
        pages = self.side.rows.pages(state)
        return max((int(page[_TAG].to_numpy().max()) for page in pages), default=-1) + 1

    # -- what is kept -------------------------------------------------------------------------

    def sessions(self, state: BucketState) -> pl.DataFrame:
        """All that are kept, closed or not."""
        kept = self.store(state).all()
        if kept is not None:
            return kept
        numbers = dict.fromkeys((KEY, START, END, ROWS, _TAG), pl.Int64)
        return pl.DataFrame(schema={**numbers, _TAGS: pl.List(pl.Int64)})

    def closed(self, context: StepContext, sessions: pl.DataFrame) -> pl.DataFrame:
        """The sessions that have closed, and whether they just did."""
        previous, now = map(self.horizon, (context.previous_watermark, context.watermark))
        return sessions.filter(pl.col(END) <= now).with_columns((pl.col(END) > previous).alias(_NEW))

    def members(self, state: BucketState, sessions: pl.DataFrame) -> Members:
        """The rows of sessions, numbered as they are given."""
        low, high = sessions.select(pl.col(START).min(), pl.col(END).max()).row(0)
        pages = self.side.rows.pages(state, low, high)
        rows = pl.concat(state.of_keys(pages, sessions[KEY].to_numpy()))
        tags = sessions.select(_TAGS, START, END).with_row_index(NUMBER).explode(_TAGS)
        rows = rows.join(tags, left_on=_TAG, right_on=_TAGS).sort(NUMBER, maintain_order=True)
        count = np.bincount(rows[NUMBER].to_numpy(), minlength=len(sessions))
        return Members(rows, np.cumsum(count) - count, count)

    def evict(self, state: BucketState, sessions: pl.DataFrame, kept: pl.DataFrame) -> None:
        """Evict sessions, and their rows once half of what is stored is no longer needed."""
        stored = sum(page.rows for page in state.pages(self.side.rows.name))
        if 2 * int(kept[ROWS].sum()) <= stored:
            self._keep_only(state, kept)
        else:
            self.store(state).remove(sessions)

    def _keep_only(self, state: BucketState, kept: pl.DataFrame) -> None:
        tags = kept.select(pl.col(_TAGS).explode().alias(_TAG))
        rows = pl.concat(self.side.rows.pages(state)).join(tags, on=_TAG, how="semi")
        matched = self.side.matched.pages(state)
        if matched:
            still = pl.concat(matched).join(rows, on=ID, how="semi")
            state.replace(self.side.matched.name, still, TIME)
        state.replace(self.side.rows.name, rows, TIME)
        self.store(state).replace(kept)


class SessionJoin:
    """Sessions with sessions."""

    def __init__(self, plan: Join) -> None:
        self.left, self.right = (
            SessionSide(plan, window, number) for number, window in enumerate(plan.sides)
        )
        sides = self.left.side, self.right.side
        self.pairs = PairEmitter(plan, sides, _bounds, travelling=(START, END))

    def advance(
        self, context: StepContext, left: Sequence[Arrival], right: Sequence[Arrival]
    ) -> int | None:
        kept_left, kept_right = (one.sessions(context.state) for one in (self.left, self.right))
        self._close(context, kept_left, kept_right)
        dues = [
            self._evict(context, self.left, kept_left, self.right, kept_right),
            self._evict(context, self.right, kept_right, self.left, kept_left),
        ]
        for one, arrivals in ((self.left, left), (self.right, right)):
            one.ingest(context, arrivals)
            store = one.store(context.state)
            store.expire(NEVER)
            ends = store.first_end(one.horizon(context.watermark))
            dues.append(None if ends is None else one.side.lateness.closes_at(ends))
        return min((due for due in dues if due is not None), default=None)

    def _close(self, context: StepContext, left: pl.DataFrame, right: pl.DataFrame) -> None:
        """Emit the pairs of sessions that touch, when the later one has closed."""
        state, closed = (
            context.state,
            (self.left.closed(context, left), self.right.closed(context, right)),
        )
        context.outcome.counts["windows_closed"] += sum(int(sessions[_NEW].sum()) for sessions in closed)
        closing = _closing(closed)
        left, right = (self.pairs.matchable(state, _of_keys(sessions, closing)) for sessions in closed)
        one, other = _touching(left, right)
        new = left[_NEW].to_numpy()[one] | right[_NEW].to_numpy()[other]
        if new.any():
            members = self.left.members(state, left), self.right.members(state, right)
            rows = Rows(members[0].rows, members[1].rows)
            every = _every_row(*members, one[new], other[new])
            self.pairs.emit_pairs(context, rows, every, FIRST_POSITION)

    def _evict(
        self,
        context: StepContext,
        one: SessionSide,
        kept: pl.DataFrame,
        other: SessionSide,
        others: pl.DataFrame,
    ) -> int | None:
        """Evict closed sessions that nothing can match any more; when the next may be evicted."""
        state, horizon, others_end = (
            context.state,
            one.horizon(context.watermark),
            other.horizon(context.watermark),
        )
        end, key = kept[END].to_numpy(), kept[KEY].to_numpy()
        still_open = self.pairs.matchable(state, others.filter(pl.col(END) > others_end))
        first_open = np.full(state.known_keys.num_rows, LAST_POSITION)
        np.minimum.at(first_open, still_open[KEY].to_numpy(), still_open[START].to_numpy())
        over = (end <= min(horizon, others_end - other.gap)) & (end < first_open[key])
        if over.any():
            gone, rest = kept.filter(pl.Series(over)), kept.filter(pl.Series(~over))
            if one.side.keeps_unmatched:
                self.pairs.emit_unmatched(context, one.side, one.members(state, gone).rows)
            one.evict(state, gone, rest)
        # A session that is past its due time is evicted when a session of the other side closes.
        due = end[end <= horizon] + other.gap + other.side.lateness.lateness
        _, now = context.watermarks
        later = due[due > now]
        return int(later.min()) if len(later) else None


def _bounds(_side: Side, rows: pa.Table, _others: pa.Table | None) -> Sequence[pa.Array]:
    return rows.column(START), rows.column(END)


def _closing(closed: Sequence[pl.DataFrame]) -> np.ndarray:
    """The keys of sessions that have just closed."""
    return np.concatenate([sessions.filter(_NEW)[KEY].to_numpy() for sessions in closed])


def _of_keys(sessions: pl.DataFrame, key: np.ndarray) -> pl.DataFrame:
    return sessions.filter(pl.Series(np.isin(sessions[KEY].to_numpy(), key)))


def _touching(left: pl.DataFrame, right: pl.DataFrame) -> Positions:
    """Which sessions touch, ends included."""
    if not len(right):
        return _NO_PAIRS
    timeline = Timeline(right[KEY].to_numpy(), right[START].to_numpy())
    order = timeline.order
    key, end = timeline.key[order], right[END].to_numpy()[order]
    # Ends are in that order too, except where one has grown back over another: so the furthest so far.
    furthest = Timeline(key, running(end, key, np.maximum))
    begin, until = left[START].to_numpy(), left[END].to_numpy()
    first = furthest.first_from(left[KEY].to_numpy(), begin)
    last = timeline.last_until(left[KEY].to_numpy(), until)
    pairs = list(ranges_as_pairs(first, last))
    found = (np.concatenate(positions) for positions in zip(*pairs, strict=True))
    one, position = found if pairs else _NO_PAIRS
    touching = end[position] >= begin[one]
    return one[touching], order[position[touching]]


def _every_row(left: Members, right: Members, one: np.ndarray, other: np.ndarray) -> Iterator[Positions]:
    """All rows of one session with all rows of the other, for pairs of sessions."""
    first, count = left.first[one], left.count[one]
    for pair, position in ranges_as_pairs(first, first + count - 1):
        begin = right.first[other[pair]]
        for again, found in ranges_as_pairs(begin, begin + right.count[other[pair]] - 1):
            yield position[again], found
