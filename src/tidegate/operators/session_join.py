"""Joins of sessions: when two that meet have both closed, each row of one leaves with each of the other.

A row remembers the session it came to, and a session all sessions that went into it: so its rows are
found however often it has merged, also where it has grown back over times of one that had closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators.accumulators import TIME
from tidegate.operators.joining import ID, JoinKernel, JoinSide, Places, Rows, ranges_as_pairs
from tidegate.operators.keyed import ROWS, Turn
from tidegate.operators.late import NEVER
from tidegate.operators.ranges import running
from tidegate.operators.row_table import RowTable
from tidegate.operators.session_merge import (
    NUMBER,
    Joined,
    bounded,
    ends_of,
    ends_of_parts,
    join_live,
)
from tidegate.operators.session_store import END, START, SessionStore
from tidegate.operators.state import FIRST_POSITION, KEY, LAST_POSITION, BucketState
from tidegate.operators.timeline import Timeline
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import Join
from tidegate.plan.windowing import WindowBy
from tidegate.plan.windows import Session

#: The session a row came to, and of a session those that went into it.
_TAG, _TAGS = "__tidegate_tag", "__tidegate_tags"


#: Has a session just closed?
_NEW = "__tidegate_new"

_NOBODY: Places = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class Members:
    """The rows of some sessions, those of one session next to each other."""

    rows: pl.DataFrame
    first: np.ndarray
    count: np.ndarray


class SessionSide(JoinSide):
    """The sessions of one side and their rows."""

    def __init__(self, plan: Join, window: WindowBy, number: int) -> None:
        super().__init__(plan, window, SIDES[number], RowTable(SIDES[number], TIME))
        assert isinstance(window.window, Session)
        assert not isinstance(window.window.gap, str)
        self.gap, self.longest = window.window.gap, window.window.max_length

    def store(self, state: BucketState) -> SessionStore:
        return SessionStore(state, f"{self.name}.sessions", identity=(KEY, _TAG))

    # -- what comes ---------------------------------------------------------------------------

    def take_in(self, turn: Turn) -> None:
        """Rows go into the sessions they touch; what would be closed then is late."""
        store, horizon = self.store(turn.state), self.lateness.horizon(turn.watermark)
        parts = [arrival.states for arrival in turn.arrivals]
        joined = self._join(store, parts, horizon)
        if joined is not None and turn.watermark is not None and self.judges:
            too_late = joined.too_late(horizon)[joined.live_count :]
            closed = joined.bounds_of(parts)
            parts = self.part_late(turn, np.split(too_late, ends_of_parts(parts)), closed)
            joined = self._join(store, parts, horizon) if too_late.any() else joined
        if joined is not None:
            self._put(turn.state, pl.concat(parts), joined)

    def _join(self, store: SessionStore, parts: Sequence[pl.DataFrame], horizon: int) -> Joined | None:
        return join_live(store, [self._alone(part) for part in parts], horizon, self.longest)

    def _alone(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Each row as a session of its own."""
        end = pl.Series(END, ends_of(rows[TIME].to_numpy(), self.gap, self.longest))
        return rows.select(KEY, pl.col(TIME).alias(START), ROWS).with_columns(end)

    def _put(self, state: BucketState, came: pl.DataFrame, joined: Joined) -> None:
        """Keep rows, and the sessions they went into."""
        sessions = self._tagged(state, joined)
        tag_of = np.zeros(len(joined.swept), dtype=np.int64)
        tag_of[sessions[NUMBER].to_numpy()] = sessions[_TAG].to_numpy()
        tag = pl.Series(_TAG, tag_of[joined.swept.number[joined.live_count :]])
        self.rows.keep(state, self.numbered(state, came.with_columns(tag)), FIRST_POSITION)
        self.store(state).put(bounded(sessions, joined.swept).drop(NUMBER), joined.replaced())

    def _tagged(self, state: BucketState, joined: Joined) -> pl.DataFrame:
        """Sessions with all tags that went into them; those that nothing had come to get a new one."""
        number = np.flatnonzero(joined.touched)
        count = np.bincount(joined.swept.number, weights=joined.states[ROWS].to_numpy())[number]
        unused = np.arange(len(number)) + self._next_tag(state)
        sessions = pl.DataFrame({NUMBER: number, ROWS: count.astype(np.int64), _TAG: unused})
        own, merged = pl.concat_list(_TAG), joined.replaced()
        if merged is None:
            return sessions.with_columns(own.alias(_TAGS))
        tags = merged.group_by(NUMBER, maintain_order=True).agg(pl.col(_TAGS).explode())
        known = sessions.join(tags, on=NUMBER, how="left", maintain_order="left")
        known = known.with_columns(pl.coalesce(_TAGS, own).alias(_TAGS))
        return known.with_columns(pl.col(_TAGS).list.first().alias(_TAG))

    def _next_tag(self, state: BucketState) -> int:
        pages = self.rows.pages(state)
        return max((int(page[_TAG].to_numpy().max()) for page in pages), default=-1) + 1

    # -- what is kept -------------------------------------------------------------------------

    def sessions(self, state: BucketState) -> pl.DataFrame:
        """All that are kept, closed or not."""
        kept = self.store(state).all()
        if kept is not None:
            return kept
        numbers = dict.fromkeys((KEY, START, END, ROWS, _TAG), pl.Int64)
        return pl.DataFrame(schema={**numbers, _TAGS: pl.List(pl.Int64)})

    def closed(self, turn: Turn, sessions: pl.DataFrame) -> pl.DataFrame:
        """Those of these sessions that have closed, and whether that is new."""
        was, now = (self.lateness.horizon(time) for time in (turn.was, turn.watermark))
        return sessions.filter(pl.col(END) <= now).with_columns((pl.col(END) > was).alias(_NEW))

    def members(self, state: BucketState, sessions: pl.DataFrame) -> Members:
        """The rows of sessions, numbered as they are given."""
        low, high = sessions.select(pl.col(START).min(), pl.col(END).max()).row(0)
        rows = pl.concat(state.of_keys(self.rows.pages(state, low, high), sessions[KEY].to_numpy()))
        tags = sessions.select(_TAGS, START, END).with_row_index(NUMBER).explode(_TAGS)
        rows = rows.join(tags, left_on=_TAG, right_on=_TAGS).sort(NUMBER, maintain_order=True)
        count = np.bincount(rows[NUMBER].to_numpy(), minlength=len(sessions))
        return Members(rows, np.cumsum(count) - count, count)

    def let_go(self, state: BucketState, sessions: pl.DataFrame, kept: pl.DataFrame) -> None:
        """Forget sessions, and their rows once half of what is stored is forgotten."""
        stored = sum(page.rows for page in state.pages(self.rows.name))
        if 2 * int(kept[ROWS].sum()) <= stored:
            self._keep_only(state, kept)
        else:
            self.store(state).remove(sessions)

    def _keep_only(self, state: BucketState, kept: pl.DataFrame) -> None:
        tags = kept.select(pl.col(_TAGS).explode().alias(_TAG))
        rows = pl.concat(self.rows.pages(state)).join(tags, on=_TAG, how="semi")
        met = self.met.pages(state)
        if met:
            state.replace(self.met.name, pl.concat(met).join(rows, on=ID, how="semi"), TIME)
        state.replace(self.rows.name, rows, TIME)
        self.store(state).replace(kept)


class SessionJoin(JoinKernel):
    """Sessions with sessions."""

    def __init__(self, plan: Join) -> None:
        left, right = (SessionSide(plan, window, number) for number, window in enumerate(plan.sides))
        super().__init__(plan, left, right)
        self.left, self.right = left, right

    def advance(self, turn: Turn, turns: Sequence[Turn]) -> int | None:
        left, right = (side.sessions(turn.state) for side in (self.left, self.right))
        self._close(turn, left, right)
        dues = [
            self._let_go(turn, self.left, left, self.right, right),
            self._let_go(turn, self.right, right, self.left, left),
        ]
        for side, mine in zip((self.left, self.right), turns, strict=True):
            side.take_in(mine)
            store = side.store(turn.state)
            store.forget(NEVER)
            ends = store.first_end(side.lateness.horizon(turn.watermark))
            dues.append(None if ends is None else side.lateness.closes_at(ends))
        return min((due for due in dues if due is not None), default=None)

    def _close(self, turn: Turn, left: pl.DataFrame, right: pl.DataFrame) -> None:
        """Send off the pairs of sessions that meet, when the later one has closed."""
        closed = self.left.closed(turn, left), self.right.closed(turn, right)
        turn.out.counts["windows_closed"] += sum(int(sessions[_NEW].sum()) for sessions in closed)
        closing = _closing(closed)
        left, right = (self.matchable(turn.state, _of_keys(sessions, closing)) for sessions in closed)
        one, other = _meeting(left, right)
        new = left[_NEW].to_numpy()[one] | right[_NEW].to_numpy()[other]
        if new.any():
            members = self.left.members(turn.state, left), self.right.members(turn.state, right)
            rows = Rows(members[0].rows, members[1].rows)
            self.send_pairs(turn, rows, _every_row(*members, one[new], other[new]), FIRST_POSITION)

    def _let_go(
        self,
        turn: Turn,
        side: SessionSide,
        kept: pl.DataFrame,
        other: SessionSide,
        others: pl.DataFrame,
    ) -> int | None:
        """Forget closed sessions that nothing can meet any more; when the next may be."""
        horizon, others_end = (one.lateness.horizon(turn.watermark) for one in (side, other))
        end, key = kept[END].to_numpy(), kept[KEY].to_numpy()
        still_open = self.matchable(turn.state, others.filter(pl.col(END) > others_end))
        first_open = np.full(turn.state.known_keys.num_rows, LAST_POSITION)
        np.minimum.at(first_open, still_open[KEY].to_numpy(), still_open[START].to_numpy())
        over = (end <= min(horizon, others_end - other.gap)) & (end < first_open[key])
        if over.any():
            gone, rest = kept.filter(pl.Series(over)), kept.filter(pl.Series(~over))
            if side.keeps:
                self.send_alone(turn, side, side.members(turn.state, gone).rows)
            side.let_go(turn.state, gone, rest)
        # One that is passed already waits for a session of the other side to close.
        due = end[end <= horizon] + other.gap + other.lateness.lateness
        later = due[due > (NEVER if turn.watermark is None else turn.watermark)]
        return int(later.min()) if len(later) else None

    # -- unpack -------------------------------------------------------------------------------

    def sent_columns(self, side: JoinSide) -> list[str]:
        return [START, END]

    def bounds(self, side: JoinSide, rows: pa.Table, others: pa.Table | None) -> Sequence[pa.Array]:
        return rows.column(START), rows.column(END)


def _closing(closed: Sequence[pl.DataFrame]) -> np.ndarray:
    """The keys of sessions that have just closed."""
    return np.concatenate([sessions.filter(_NEW)[KEY].to_numpy() for sessions in closed])


def _of_keys(sessions: pl.DataFrame, key: np.ndarray) -> pl.DataFrame:
    return sessions.filter(pl.Series(np.isin(sessions[KEY].to_numpy(), key)))


def _meeting(left: pl.DataFrame, right: pl.DataFrame) -> Places:
    """Which sessions meet, ends included."""
    if not len(right):
        return _NOBODY
    timeline = Timeline(right[KEY].to_numpy(), right[START].to_numpy())
    order = timeline.order
    key, end = timeline.key[order], right[END].to_numpy()[order]
    # Ends are in that order too, but where one has grown back over another: so the furthest so far.
    furthest = Timeline(key, running(end, key, np.maximum))
    begin, until = left[START].to_numpy(), left[END].to_numpy()
    first = furthest.first_from(left[KEY].to_numpy(), begin)
    last = timeline.last_until(left[KEY].to_numpy(), until)
    pairs = list(ranges_as_pairs(first, last))
    one, place = (np.concatenate(places) for places in zip(*pairs, strict=True)) if pairs else _NOBODY
    touching = end[place] >= begin[one]
    return one[touching], order[place[touching]]


def _every_row(left: Members, right: Members, one: np.ndarray, other: np.ndarray) -> Iterator[Places]:
    """All rows of one session with all rows of the other, for pairs of sessions."""
    first, count = left.first[one], left.count[one]
    for pair, place in ranges_as_pairs(first, first + count - 1):
        begin = right.first[other[pair]]
        for again, found in ranges_as_pairs(begin, begin + right.count[other[pair]] - 1):
            yield place[again], found
