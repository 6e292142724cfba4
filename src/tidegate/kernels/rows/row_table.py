"""What kernels that keep rows share: how rows travel, in which order, and the table they wait in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc, key_index
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import StepContext, columns_of, in_schema
from tidegate.kernels.inputs import (
    PARTIALS,
    ROWS,
    Arrival,
    KeyColumns,
    KeyedInput,
    Partials,
    PreAggregate,
)
from tidegate.plan.channels import LATE_AT_WATERMARK
from tidegate.plan.inputs import Input
from tidegate.state.pages import FIRST_POSITION, KEY, LAST_POSITION, BucketState

#: Before the names of rows' own columns, which may be anything.
OWN = "__tidegate_row."


@dataclass(frozen=True)
class RowLayout:
    """Rows as states: their key, their time, and their own columns under names of ours."""

    schema: pa.Schema
    columns: KeyColumns
    #: The names under which the operator knows the keys.
    known_keys: tuple[str, ...]

    @classmethod
    def of(cls, plan: Input, known_keys: tuple[str, ...] | None = None) -> RowLayout:
        columns = KeyColumns.of(plan)
        return cls(plan.upstream.schema, columns, columns.keys if known_keys is None else known_keys)

    @classmethod
    def without_keys(cls, plan: Input) -> RowLayout:
        return cls(plan.upstream.schema, KeyColumns(plan.upstream.time, ()), ())

    @property
    def time(self) -> str:
        return self.columns.time

    @cached_property
    def own(self) -> list[str]:
        """The columns of a row that are neither its key nor its time."""
        placed = {*self.columns.keys, self.time}
        return [name for name in self.schema.names if name not in placed]

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        return self.states(rows, self.key_table(rows))

    def key_table(self, rows: pa.Table) -> pa.Table:
        """The keys of rows, under the names by which the operator knows them."""
        own = self.columns.table(rows)
        return own.rename_columns(self.known_keys) if self.known_keys else own

    def states(self, rows: pa.Table, own_keys: pa.Table, extra: pl.DataFrame | None = None) -> Partials:
        """A state for each row, in the order they came; `extra` is kept beside its columns."""
        distinct, codes = key_index.encode(own_keys)
        time = self.columns.times(rows)
        own = ipc.to_polars(rows.select(self.own).rename_columns([OWN + name for name in self.own]))
        placed = pl.DataFrame({KEY: codes, TIME: time, ROWS: np.ones(len(time), dtype=np.int64)})
        parts = [placed, own] if extra is None else [placed, extra, own]
        return Partials(distinct, pl.concat(parts, how="horizontal"))

    def rows_behind(self, arrival: Arrival, state: BucketState, chosen: np.ndarray) -> pa.Table:
        """The rows that the chosen states are, as they came."""
        rows = ipc.to_arrow(self.restored(arrival.states.filter(pl.Series(chosen))))
        by_key = state.known_keys.take(rows.column(KEY))
        pairs = zip(self.columns.keys, self.known_keys, strict=True)
        own_keys = {own: by_key.column(known) for own, known in pairs}
        return in_schema(self.schema, columns_of(rows) | own_keys | self.times(rows))

    def restored(self, states: pl.DataFrame) -> pl.DataFrame:
        """Rows with their own columns under their own names."""
        own = [pl.col(OWN + name).alias(name) for name in self.own]
        return states.select(KEY, TIME, *own)

    def times(self, rows: pa.Table) -> dict[str, pa.Array]:
        return {self.time: rows.column(TIME)}

    def column(self, name: str, known_keys: pa.Table, rows: pa.Table) -> pa.ChunkedArray:
        """A column of rows as they travel, beside their keys."""
        if name in self.columns.keys:
            return known_keys.column(self.known_keys[self.columns.keys.index(name)])
        return rows.column(TIME if name == self.time else OWN + name)


def row_input(
    plan: Input,
    layout: RowLayout,
    preaggregate: PreAggregate | None = None,
    name: str = PARTIALS,
    counted_as: str | None = None,
) -> KeyedInput:
    """An input whose states are rows in a layout; `preaggregate` may add to them."""
    return KeyedInput(
        plan,
        preaggregate or layout,
        name,
        rows_behind=layout.rows_behind,
        counted_as=counted_as,
    )


def in_time(input: KeyedInput, context: StepContext, arrivals: Sequence[Arrival]) -> pl.DataFrame | None:
    """The rows that arrived, in that order, without late ones that are not moved to the watermark."""
    came = in_arrival_order(arrivals)
    if came is None or context.watermark is None or not input.enforces_lateness:
        return came
    time = came[TIME].to_numpy()
    context.outcome.counts[LATE_AT_WATERMARK] += int((time == context.watermark).sum())
    return without_late(input, context, came, time <= context.watermark)


def without_late(
    input: KeyedInput, context: StepContext, came: pl.DataFrame, late: np.ndarray
) -> pl.DataFrame | None:
    """Rows in their order without the late ones, except for those that are moved to the watermark."""
    if not late.any():
        return came
    assert context.watermark is not None
    moved = late & input.router.moves(came[TIME].to_numpy(), context.watermark)
    positions = np.concatenate([np.flatnonzero(~late), np.flatnonzero(moved)])
    kept = pl.concat(input.route_late(context, [Arrival(came, 0)], [late]))
    return kept[np.argsort(positions)] if len(kept) else None


def in_arrival_order(arrivals: Sequence[Arrival]) -> pl.DataFrame | None:
    """The rows of all messages in the order they arrived."""
    parts = [arrival.states for arrival in arrivals if len(arrival.states)]
    if len(parts) <= 1:
        return parts[0] if parts else None
    return pl.concat(parts)[np.argsort(np.concatenate(_arrival_times(arrivals)), kind="stable")]


def _arrival_times(arrivals: Sequence[Arrival]) -> list[np.ndarray]:
    """When the rows of each message arrived, between 0 and 1; several senders send at the same time.

    Senders are partitions, which are read next to each other. One after the other would send the
    time back to its beginning for each of them.
    """
    total, before = Counter[int](), Counter[int]()
    for arrival in arrivals:
        total[arrival.sender] += len(arrival.states)
    times = []
    for arrival in arrivals:
        here = before[arrival.sender] + np.arange(len(arrival.states)) + 0.5
        times.append(here / max(1, total[arrival.sender]))
        before[arrival.sender] += len(arrival.states)
    return times


@dataclass(frozen=True)
class RowTable:
    """Rows that a bucket keeps, in pages by the time in the column `position`."""

    name: str
    position: str
    #: How many positions a page covers.
    width: int = LAST_POSITION
    #: What has more rows than this is not compacted any more.
    most: int = LAST_POSITION

    def keep(self, state: BucketState, rows: pl.DataFrame, oldest: int) -> None:
        """Store rows. Compaction leaves out those before `oldest`."""
        current = pl.col(self.position) >= oldest
        state.append(self.name, rows, self.position, self.width)
        state.compact(
            self.name,
            lambda pages: pl.concat(pages).filter(current),
            self.position,
            self.width,
            self.most,
        )

    def pages(
        self, state: BucketState, low: int = FIRST_POSITION, high: int = LAST_POSITION
    ) -> list[pl.DataFrame]:
        """Pages that have any rows between these times, both included, in the order they came."""
        return state.load(self.name, low, high)

    def between(self, state: BucketState, low: int, high: int) -> pl.DataFrame | None:
        """The rows between these times, both included, in the order they came."""
        inside = pl.col(self.position).is_between(low, high)
        found = [part for page in self.pages(state, low, high) if len(part := page.filter(inside))]
        return pl.concat(found) if found else None

    def drop_below(self, state: BucketState, oldest: int) -> int:
        """Drop pages that lie wholly before a time; the number of rows from it on."""
        state.drop_below(self.name, oldest)
        pages = state.pages(self.name)
        mixed = state.read([page for page in pages if page.low < oldest])
        left = sum(int((page[self.position] >= oldest).sum()) for page in mixed)
        return left + sum(page.rows for page in pages if page.low >= oldest)

    def expire(self, context: StepContext, oldest: int) -> None:
        """Drop pages that lie wholly before a time, and say how many rows are left."""
        context.outcome.gauges["buffer_size"] = self.drop_below(context.state, oldest)

    def next_after(self, state: BucketState, time: int) -> int | None:
        """The earliest time of a row after this one."""
        later = (page[self.position].to_numpy() for page in self.pages(state, low=time + 1))
        found = (int(times[times > time].min()) for times in later if (times > time).any())
        return min(found, default=None)

    def last_of_a_page(self, state: BucketState) -> int | None:
        """The last time in the page that ends first."""
        return min((page.high for page in state.pages(self.name)), default=None)
