"""Duplicates: Dedupe lets the first row of each id pass, and remembers the id for some time.

State is ids with the event times of their first rows. A row goes on in the batch it comes in, whether
or not its time has come: what reads it judges it as it would a source's.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from tidegate.operators.accumulators import TIME
from tidegate.operators.keyed import Turn
from tidegate.operators.late import NEVER
from tidegate.operators.row_table import RowTable
from tidegate.operators.rows import RowKernel
from tidegate.operators.state import KEY, BucketState
from tidegate.plan.nodes import Dedupe
from tidegate.plan.time import render


class DedupeKernel(RowKernel):
    """Of the rows with one id the first to arrive."""

    def __init__(self, plan: Dedupe) -> None:
        super().__init__(plan)
        self.within = plan.within
        # A page covers about a quarter of what is remembered, so that it goes soon after its ids do.
        self.table = RowTable("seen", TIME, max(1, plan.within // 4))

    def stages(self) -> list[str]:
        ids = ", ".join(self.keys)
        return [f"Dedupe[{ids} within {render(self.within)}, late={self.router.policy}]"]

    def advance(self, turn: Turn) -> int | None:
        oldest = NEVER if turn.watermark is None else turn.watermark - self.within + 1
        fresh = self._first_of_each(turn, oldest)
        if fresh is not None:
            turn.put(self.restored(fresh))
            self.table.keep(turn.state, fresh.select(KEY, TIME), oldest)
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
        codes, time = came[KEY].to_numpy(), came[TIME].to_numpy()
        late = time < oldest
        counts = ~late if turn.watermark is None else ~late | self.router.moves(time, turn.watermark)
        new = ~self._known(turn.state, codes, oldest)
        new &= _up_to_the_first(codes, counts & new, turn.state.known_keys.num_rows)
        turn.out.counts["duplicates_filtered"] += int(len(new) - new.sum())
        return self.without_late(turn, came.filter(pl.Series(new)), late[new])

    def _known(self, state: BucketState, codes: np.ndarray, oldest: int) -> np.ndarray:
        """Which rows have an id that is remembered?"""
        known = np.zeros(state.known_keys.num_rows, dtype=bool)
        for page in state.of_keys(self.table.pages(state, low=oldest), codes):
            known[page.filter(pl.col(TIME) >= oldest)[KEY].to_numpy()] = True
        return known[codes]


def _up_to_the_first(codes: np.ndarray, counts: np.ndarray, keys: int) -> np.ndarray:
    """Which rows come before the first of their key that counts, or are it?"""
    first = np.empty(keys, dtype=np.int64)  # only what the batch touches is ever looked at
    first[codes] = len(codes)
    places = np.flatnonzero(counts)[::-1]
    first[codes[places]] = places  # of several the last to be written stays: the first to come
    return np.arange(len(codes)) <= first[codes]
