"""Duplicates: Dedupe lets the first row of each id pass, and remembers the id for some time.

State is ids, as digests of 128 bits, with the event times of their first rows. A row is forwarded in
the batch it arrives in: the operator behind enforces lateness on it, as it would on a source's row.

Ids come from producers, and one producer may want another's rows to be taken for duplicates. So digests
have a secret. Each bucket has its own, in its state: whatever runs the kernel finds it there, in a
stream of any checkpoint as in a batch, and it never leaves the bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.columnar.hashing import digest_columns, keyed_hash
from tidegate.columnar.sorting import search
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import KeyedKernel, StepContext
from tidegate.kernels.inputs import Arrival, Partials
from tidegate.kernels.late import NEVER
from tidegate.kernels.rows.row_table import (
    OWN,
    RowLayout,
    RowTable,
    in_arrival_order,
    row_input,
    without_late,
)
from tidegate.plan.channels import LATE_AT_WATERMARK
from tidegate.plan.pass_through import Dedupe
from tidegate.plan.time import render
from tidegate.state.pages import BucketState

#: The halves of an id's digest.
DIGEST = ONE, TWO = "__tidegate_id_1", "__tidegate_id_2"

#: Pages of this many ids are not compacted: finding ids in a larger page costs nearly as much.
_LARGE = 1 << 16

#: Ids are looked up by their first bits; there are this many bit patterns for each id.
_SPARSE = 16

#: Ids that Spark would remember are kept for as long as rows are on their way: about the tolerance.
_SECOND = 1_000_000

#: Everybody may know which bucket an id belongs to.
_NO_SECRET = b""


@dataclass(frozen=True)
class RowsById:
    """Rows as they are, sent to the bucket of their id.

    Ids are not keys: keys are remembered by their values, and have codes, which is far more than it
    takes to recognise an id.
    """

    layout: RowLayout
    ids: Sequence[str]

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        states = self.layout.states(rows, self.layout.key_table(rows))
        return replace(states, hashes=keyed_hash(rows.select(self.ids), _NO_SECRET))


class DedupeKernel(KeyedKernel):
    """Forwards the first row to arrive of each id."""

    def __init__(self, plan: Dedupe) -> None:
        [input] = plan.inputs
        self.ids = input.keyed.keys
        self.within = plan.within
        self.late_after = plan.late_after
        self.rule = plan.rule
        self.layout = RowLayout.without_keys(input)
        # A page covers about a quarter of the retention, so that it is dropped soon after its ids.
        width = max(1, plan.within // 4) if plan.rule is None else max(_SECOND, plan.within // 4)
        self.table = RowTable("seen", TIME, width, _LARGE)
        preaggregate = RowsById(self.layout, self.ids)
        super().__init__(plan, row_input(input, self.layout, preaggregate))

    def physical_operators(self) -> list[str]:
        known = self.rule or f"within {render(self.within)}"
        return [f"Dedupe[{', '.join(self.ids)} {known}, late={self.input.router.policy}]"]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        oldest = NEVER if context.watermark is None else context.watermark - self.within + 1
        fresh = self._first_of_each(context, arrivals, oldest)
        if fresh is not None:
            context.emit(self.layout.restored(fresh))
            self.table.keep(context.state, fresh.select(TIME, *DIGEST), oldest)
        context.state.drop_below(self.table.name, oldest)
        last = self.table.last_of_a_page(context.state)
        return None if last is None else last + self.within

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return self.layout.times(results)

    def _first_of_each(
        self, context: StepContext, arrivals: Sequence[Arrival], oldest: int
    ) -> pl.DataFrame | None:
        """The rows of ids that are not remembered, one row for each id.

        A known id makes a row a duplicate whatever its time: only a row that cannot be checked is late.
        By a rule of Spark's lateness comes first: no late row is looked up.
        """
        came = in_arrival_order(arrivals)
        if came is None:
            return None
        ids = Ids.of(*digest_columns(self._ids_of(came), context.state.secret))
        time = came[TIME].to_numpy()
        late = time <= (NEVER if context.watermark is None else context.watermark - self.late_after)
        moves = self.input.router.moves
        counts = ~late if context.watermark is None else ~late | moves(time, context.watermark)
        new = ~self._known(context.state, ids, oldest)[ids.code]
        new &= _up_to_the_first(ids.code, counts & new, len(ids.one))
        if self.rule is not None:
            new |= ~counts
        context.outcome.counts["duplicates_filtered"] += int(len(new) - new.sum())
        if self.rule is not None and context.watermark is not None:
            at_watermark = int((new & late & (time == context.watermark)).sum())
            context.outcome.counts[LATE_AT_WATERMARK] += at_watermark
        first = without_late(self.input, context, came.filter(pl.Series(new)), late[new])
        # Rows that were moved in time keep the ids they arrived with.
        return None if first is None else first.with_columns(ids.columns(ids.code[new & counts]))

    def _ids_of(self, came: pl.DataFrame) -> pa.Table:
        columns = [TIME if name == self.layout.time else OWN + name for name in self.ids]
        return ipc.to_arrow(came.select(columns))

    def _known(self, state: BucketState, ids: Ids, oldest: int) -> np.ndarray:
        """Which ids are remembered?"""
        known = np.zeros(len(ids.one), dtype=bool)
        for page in self.table.pages(state, low=oldest):
            one, two, time = (page[name].to_numpy() for name in (*DIGEST, TIME))
            near = ids.near(one, two)
            near = near[time[near] >= oldest]
            known[ids.found(one[near], two[near])] = True
        return known


@dataclass(frozen=True)
class Ids:
    """The distinct ids of some rows, sorted by their digests."""

    one: np.ndarray
    two: np.ndarray
    #: The position of each row's id.
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

    def columns(self, positions: np.ndarray) -> list[pl.Series]:
        """The digests at these positions, as they are kept."""
        return [pl.Series(ONE, self.one[positions]), pl.Series(TWO, self.two[positions])]

    def near(self, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """Positions of digests that may be among these ids: all that are, and a few others."""
        of_one, of_two = self._marks
        near = np.flatnonzero(of_one.take(self._first_bits(one)))
        return near[of_two.take(self._first_bits(two[near]))]

    def found(self, one: np.ndarray, two: np.ndarray) -> np.ndarray:
        """The positions here of the digests that are among these ids."""
        position, found = search(self.one, one), []
        for ahead in range(self._alike):
            at = np.minimum(position + ahead, len(self.one) - 1)
            found.append(at[(self.one[at] == one) & (self.two[at] == two)])
        return np.concatenate(found)

    @cached_property
    def _beyond(self) -> np.uint64:
        """The number of bits after those that are looked up first."""
        return np.uint64(64 - (_SPARSE * len(self.one)).bit_length())

    @cached_property
    def _marks(self) -> tuple[np.ndarray, np.ndarray]:
        """Which first bits the halves of these ids have; a strange half has them one time in sixteen."""
        one, two = (np.zeros(1 << 64 - int(self._beyond), dtype=bool) for _ in DIGEST)
        one[self._first_bits(self.one)] = two[self._first_bits(self.two)] = True
        return one, two

    def _first_bits(self, half: np.ndarray) -> np.ndarray:
        return (half >> self._beyond).view(np.int64)

    @cached_property
    def _alike(self) -> int:
        """How many ids have the same first half at most: one, except by accident."""
        bounds = np.flatnonzero(np.append(True, self.one[1:] != self.one[:-1]))
        return int(np.diff(bounds, append=len(self.one)).max())


def _order_ties(order: np.ndarray, one: np.ndarray, two: np.ndarray) -> None:
    """Sort rows with the same first half, which are neighbours in this order, by the second half."""
    same = one[order[1:]] == one[order[:-1]]
    if (two[order[1:][same]] == two[order[:-1][same]]).all():
        return  # only by accident do ids differ that share the first half
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((two[rows], one[rows]))]


def _up_to_the_first(code: np.ndarray, counts: np.ndarray, ids: int) -> np.ndarray:
    """Which rows come before the first row of their id that counts, or are that row?"""
    first = np.full(ids, len(code), dtype=np.int64)
    positions = np.flatnonzero(counts)[::-1]
    first[code[positions]] = positions  # of several the last to be written stays: the first to come
    return np.arange(len(code)) <= first[code]
