"""Duplicates: Dedupe lets the first row of each id pass, and remembers the id for some time.

State is ids, as digests of 128 bits, with the event times of their first rows. A row goes on in the
batch it comes in, whether or not its time has come: what reads it judges it as it would a source's.

Ids come from producers, of whom one may want the rows of another to be taken for duplicates. So digests
have a secret. Each bucket has its own, in its state: whatever runs the kernel finds it there, in a
stream of any checkpoint as in a batch, and it never leaves the bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs
from tidegate.operators.accumulators import TIME
from tidegate.operators.hashing import digest_columns, keyed_hash
from tidegate.operators.keyed import Partials, Turn
from tidegate.operators.late import NEVER
from tidegate.operators.row_table import RowTable
from tidegate.operators.rows import OWN, RowKernel
from tidegate.operators.state import BucketState
from tidegate.plan.passages import Dedupe
from tidegate.plan.time import render

#: The halves of an id's digest.
DIGEST = ONE, TWO = "__tidegate_id_1", "__tidegate_id_2"

#: Finding ids in a page of so many costs next to no more than in a part of a larger one.
_LARGE = 1 << 16

#: Ids are looked for by their first bits, of which there are so many patterns for each.
_SPARSE = 16

#: Which bucket an id belongs to everybody may know.
_NO_SECRET = b""


class DedupeKernel(RowKernel):
    """Of the rows with one id the first to arrive.

    Ids are not keys: those are remembered by their values, and have codes, which is far more than it
    takes to know one again.
    """

    def __init__(self, plan: Dedupe) -> None:
        super().__init__(plan)
        self.ids, self.keys, self.known_keys = self.keys, (), ()
        self.within = plan.within
        # A page covers about a quarter of what is remembered, so that it goes soon after its ids do.
        self.table = RowTable("seen", TIME, max(1, plan.within // 4), _LARGE)

    def stages(self) -> list[str]:
        ids = ", ".join(self.ids)
        return [f"Dedupe[{ids} within {render(self.within)}, late={self.router.policy}]"]

    # -- pack ---------------------------------------------------------------------------------

    def homes(self, rows: pa.Table, packed: Partials, buckets: Sequence[int]) -> np.ndarray:
        place = keyed_hash(rows.select(self.ids), _NO_SECRET) % np.uint64(len(buckets))
        return np.asarray(buckets, dtype=np.int32)[place.astype(np.int64)]

    # -- step ---------------------------------------------------------------------------------

    def advance(self, turn: Turn) -> int | None:
        oldest = NEVER if turn.watermark is None else turn.watermark - self.within + 1
        fresh = self._first_of_each(turn, oldest)
        if fresh is not None:
            turn.put(self.restored(fresh))
            self.table.keep(turn.state, fresh.select(TIME, *DIGEST), oldest)
        turn.state.drop_below(self.table.name, oldest)
        last = self.table.last_of_a_page(turn.state)
        return None if last is None else last + self.within

    def _first_of_each(self, turn: Turn, oldest: int) -> pl.DataFrame | None:
        """The rows of ids that are not remembered, one of each.

        A known id makes a row a duplicate whatever its time: late is only what cannot be checked.
        """
        came = self.in_order(turn)
        if came is None:
            return None
        ids = Ids.of(*digest_columns(self._ids_of(came), turn.state.secret))
        time = came[TIME].to_numpy()
        late = time < oldest
        counts = ~late if turn.watermark is None else ~late | self.router.moves(time, turn.watermark)
        new = ~self._known(turn.state, ids, oldest)[ids.code]
        new &= _up_to_the_first(ids.code, counts & new, len(ids.one))
        turn.out.counts["duplicates_filtered"] += int(len(new) - new.sum())
        first = self.without_late(turn, came.filter(pl.Series(new)), late[new])
        # Of rows that were moved in time, too, these are the ids they arrived with.
        return None if first is None else first.with_columns(ids.columns(ids.code[new & counts]))

    def _ids_of(self, came: pl.DataFrame) -> pa.Table:
        columns = [TIME if name == self.time else OWN + name for name in self.ids]
        return blobs.to_arrow(came.select(columns))

    def _known(self, state: BucketState, ids: Ids, oldest: int) -> np.ndarray:
        """Which ids are remembered?"""
        known = np.zeros(len(ids.one), dtype=bool)
        for page in self.table.pages(state, low=oldest):
            near = page[ids.near(page[ONE].to_numpy())].filter(pl.col(TIME) >= oldest)
            known[ids.found(near[ONE].to_numpy(), near[TWO].to_numpy())] = True
        return known


@dataclass(frozen=True)
class Ids:
    """The ids of some rows, each once, by the order of their digests."""

    one: np.ndarray
    two: np.ndarray
    #: The place of each row's id.
    code: np.ndarray

    @classmethod
    def of(cls, one: np.ndarray, two: np.ndarray) -> Ids:
        """From the halves of each row's digest."""
        order = np.argsort(one)
        _order_ties(order, one, two)
        one, two = one[order], two[order]
        first = np.append(True, (one[1:] != one[:-1]) | (two[1:] != two[:-1]))
        code = np.empty(len(order), dtype=np.int64)
        code[order] = np.cumsum(first) - 1
        return cls(one[first], two[first], code)

    def columns(self, places: np.ndarray) -> list[pl.Series]:
        """The digests at these places, as they are kept."""
        return [pl.Series(ONE, self.one[places]), pl.Series(TWO, self.two[places])]

    def near(self, one: np.ndarray) -> np.ndarray:
        """Which of many first halves may be here: all that are, and a few others."""
        return np.flatnonzero(self._marks[one >> self._beyond])

    def found(self, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """The places of those digests that are here."""
        place, found = np.searchsorted(self.one, one), []
        for ahead in range(self._alike):
            at = np.minimum(place + ahead, len(self.one) - 1)
            found.append(at[(self.one[at] == one) & (self.two[at] == two)])
        return np.concatenate(found)

    @cached_property
    def _beyond(self) -> np.uint64:
        """How many bits follow after those that are looked for first."""
        return np.uint64(64 - (_SPARSE * len(self.one)).bit_length())

    @cached_property
    def _marks(self) -> np.ndarray:
        marks = np.zeros(1 << 64 - int(self._beyond), dtype=bool)
        marks[self.one >> self._beyond] = True
        return marks

    @cached_property
    def _alike(self) -> int:
        """How many ids have the same first half at most: one, but for an accident."""
        bounds = np.flatnonzero(np.append(True, self.one[1:] != self.one[:-1]))
        return int(np.diff(bounds, append=len(self.one)).max())


def _order_ties(order: np.ndarray, one: np.ndarray, two: np.ndarray) -> None:
    """Put rows with the same first half, which lie together in this order, in that of the second."""
    same = one[order[1:]] == one[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((two[rows], one[rows]))]


def _up_to_the_first(code: np.ndarray, counts: np.ndarray, ids: int) -> np.ndarray:
    """Which rows come before the first of their id that counts, or are it?"""
    first = np.full(ids, len(code), dtype=np.int64)
    places = np.flatnonzero(counts)[::-1]
    first[code[places]] = places  # of several the last to be written stays: the first to come
    return np.arange(len(code)) <= first[code]
