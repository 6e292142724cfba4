"""What kernels that keep rows share: rows travel and wait as columns beside their key and time."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, keys
from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import ROWS, Arrival, KeyedKernel, Partials, Turn
from tidegate.operators.late import instants
from tidegate.operators.state import FIRST_POSITION, KEY, LAST_POSITION, BucketState
from tidegate.plan.nodes import Derived, Output

_TABLE = "rows"

#: Before the names of rows' own columns, which may be anything.
_OWN = "__tidegate_row."


class RowKernel(KeyedKernel):
    """A kernel whose state is rows; each leaves when its time has come."""

    #: How many positions a page of rows covers.
    page_width: int

    def __init__(self, plan: Output) -> None:
        super().__init__(plan)
        self.own = [name for name in self.row_schema.names if name not in {*self.keys, self.time}]
        self.judges = not isinstance(plan.feed, Derived)

    @property
    def carries_rows(self) -> bool:
        return False  # states are the rows already

    @abstractmethod
    def states(self, rows: pa.Table, time: np.ndarray) -> pl.DataFrame:
        """What is kept of rows beside their key, time and own columns, one for each."""

    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A state for each row, in the order they came."""
        distinct, codes = keys.encode(keys.key_table(rows, self.keys))
        time = instants(rows, self.time)
        own = blobs.to_polars(rows.select(self.own).rename_columns([_OWN + name for name in self.own]))
        placed = pl.DataFrame({KEY: codes, TIME: time, ROWS: np.ones(len(time), dtype=np.int64)})
        return Partials(distinct, pl.concat([placed, self.states(rows, time), own], how="horizontal"))

    def rows_of(self, state: BucketState, arrival: Arrival, chosen: np.ndarray) -> pa.Table:
        rows = blobs.to_arrow(self.restored(arrival.states.filter(pl.Series(chosen))))
        return self.decoded(state.known_keys, rows, self.row_schema)

    def times(self, results: pa.Table) -> Mapping[str, np.ndarray]:
        return {self.time: results.column(TIME).to_numpy()}

    def restored(self, states: pl.DataFrame) -> pl.DataFrame:
        """Rows with their own columns under their own names."""
        own = [pl.col(_OWN + name).alias(name) for name in self.own]
        return states.select(KEY, TIME, *own)

    # -- state --------------------------------------------------------------------------------

    def in_time(self, turn: Turn) -> pl.DataFrame | None:
        """What came, in that order, without what came too late and is not moved to now."""
        parts = [arrival.states for arrival in turn.arrivals]
        places = _side_by_side(turn.arrivals)
        if turn.watermark is not None and self.judges:
            times = [part[TIME].to_numpy() for part in parts]
            too_late = [time <= turn.watermark for time in times]
            stayed = [place[~late] for place, late in zip(places, too_late, strict=True)]
            moved = [
                place[late & self.router.moves(time, turn.watermark)]
                for place, late, time in zip(places, too_late, times, strict=True)
            ]
            parts, places = self.part_late(turn, too_late), stayed + moved
        if not any(map(len, parts)):
            return None
        together = pl.concat([part for part in parts if len(part)])
        return (
            together[np.argsort(np.concatenate(places), kind="stable")] if len(parts) > 1 else together
        )

    def keep(self, state: BucketState, rows: pl.DataFrame, oldest: int) -> None:
        """Store rows; where pages are put together, those before `oldest` are left out."""
        state.append(_TABLE, rows, TIME, self.page_width)
        state.compact(
            _TABLE,
            lambda pages: pl.concat(pages).filter(pl.col(TIME) >= oldest),
            TIME,
            self.page_width,
        )

    def held(
        self, state: BucketState, low: int = FIRST_POSITION, high: int = LAST_POSITION
    ) -> list[pl.DataFrame]:
        """Pages of rows that have any between these times, both included, in the order they came."""
        return state.load(_TABLE, low, high)

    def held_between(self, state: BucketState, low: int, high: int) -> pl.DataFrame | None:
        """The rows between these times, both included, in the order they came."""
        inside = pl.col(TIME).is_between(low, high)
        found = [part for page in self.held(state, low, high) if len(part := page.filter(inside))]
        return pl.concat(found) if found else None

    def forget(self, turn: Turn, oldest: int) -> None:
        """Drop what lies wholly before a time, and say how much is left."""
        turn.state.drop_below(_TABLE, oldest)
        pages = turn.state.pages(_TABLE)
        mixed = turn.state.read([page for page in pages if page.low < oldest])
        left = sum(int((page[TIME] >= oldest).sum()) for page in mixed)
        turn.out.gauges["buffer_size"] = left + sum(page.rows for page in pages if page.low >= oldest)

    def next_after(self, state: BucketState, time: int) -> int | None:
        """The earliest time of a row after this one."""
        later = (page[TIME].to_numpy() for page in self.held(state, low=time + 1))
        found = (int(times[times > time].min()) for times in later if (times > time).any())
        return min(found, default=None)

    def last_of_a_page(self, state: BucketState) -> int | None:
        """The last time in the page that ends first."""
        return min((page.high for page in state.pages(_TABLE)), default=None)


def _side_by_side(arrivals: Sequence[Arrival]) -> list[np.ndarray]:
    """When the rows of each parcel arrived, between 0 and 1: those of several senders together.

    Senders are partitions, which are read next to each other. One after the other would send the
    time back to its beginning for each of them.
    """
    total, before = Counter[int](), Counter[int]()
    for arrival in arrivals:
        total[arrival.sender] += len(arrival.states)
    places = []
    for arrival in arrivals:
        here = before[arrival.sender] + np.arange(len(arrival.states)) + 0.5
        places.append(here / max(1, total[arrival.sender]))
        before[arrival.sender] += len(arrival.states)
    return places
