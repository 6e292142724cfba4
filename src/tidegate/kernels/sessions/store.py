"""SessionStore: the live sessions of a bucket, as entries of which the latest counts.

A batch appends entries for the sessions it changed. It rewrites nothing else, except when pages are
compacted. It looks through the keys and ends of all entries, which a worker remembers (a new one reads
every page once), and at the rest of an entry only where the batch touches it.

An entry is identified by key and start, or by whatever tells sessions apart. A session that another
absorbed gets an entry that says so. Entries need no clearing when sessions close: one that ended before
the horizon is over, and so is every earlier entry for it, because sessions only grow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from tidegate.kernels.changelog import latest
from tidegate.state.pages import KEY, BucketState

START, END = "__tidegate_start", "__tidegate_end"
_GONE = "__tidegate_gone"


@dataclass(frozen=True)
class SessionStore:
    """The sessions of one bucket."""

    state: BucketState
    table: str = "sessions"
    #: What entries of one session have in common.
    identity: tuple[str, ...] = (KEY, START)

    def of_keys(self, codes: np.ndarray, after: int) -> pl.DataFrame | None:
        """The sessions of these keys that end after a time."""
        pages = self.state.of_keys(self.state.load(self.table), codes)
        return self._current([page.filter(pl.col(END) > after) for page in pages])

    def where(self, condition: pl.Expr, after: int) -> pl.DataFrame | None:
        """The sessions that fulfil a condition and end after a time."""
        codes = [page.filter(condition)[KEY] for page in self.state.load(self.table)]
        if not any(map(len, codes)):
            return None
        found = self.of_keys(pl.concat(codes).to_numpy(), after)
        found = None if found is None else found.filter(condition)
        return found if found is not None and len(found) else None

    def upsert(self, sessions: pl.DataFrame, replaced: pl.DataFrame | None) -> None:
        """Keep sessions as they are now; the sessions they grew out of are gone."""
        entries = sessions.with_columns(pl.lit(False).alias(_GONE))
        if replaced is not None:
            absorbed = replaced.select(*self.identity, END).join(
                sessions, on=list(self.identity), how="anti"
            )
            gone = absorbed.with_columns(pl.lit(True).alias(_GONE))
            entries = pl.concat([entries, gone], how="diagonal")
        self.state.append(self.table, entries, END)

    def remove(self, sessions: pl.DataFrame) -> None:
        """Evict sessions."""
        self.upsert(sessions.clear(), sessions)

    def all(self) -> pl.DataFrame | None:
        """Every session that is kept, closed or not."""
        return self._current(self.state.load(self.table))

    def _current(self, pages: list[pl.DataFrame]) -> pl.DataFrame | None:
        entries = latest(pages, self.identity)
        current = None if entries is None else entries.filter(~pl.col(_GONE)).drop(_GONE)
        return current if current is not None and len(current) else None

    def replace(self, sessions: pl.DataFrame | None) -> None:
        """Keep these sessions and no others."""
        entries = None if sessions is None else sessions.with_columns(pl.lit(False).alias(_GONE))
        self.state.replace(self.table, entries, END)

    def expire(self, horizon: int) -> None:
        """Drop what ended up to the horizon, and compact pages."""

        def merge(pages: list[pl.DataFrame]) -> pl.DataFrame:
            entries = latest([page.filter(pl.col(END) > horizon) for page in pages], self.identity)
            assert entries is not None
            return entries

        self.state.drop_below(self.table, horizon + 1)
        self.state.compact(self.table, merge, END)

    def first_end(self, after: int) -> int | None:
        """A time after the given one before which no session ends."""
        ends: list[int] = []
        for page in self.state.pages(self.table):
            if page.low > after:
                ends.append(page.low)
            else:
                [rows] = self.state.read([page])
                ends.extend(rows[END].filter(rows[END] > after).bottom_k(1))
        return min(ends, default=None)

    def last_end_of_a_page(self) -> int | None:
        """The time at which the first page can be dropped."""
        return min((page.high for page in self.state.pages(self.table)), default=None)
