"""What joins share: two sides of rows, pairs of them, and rows that matched nothing.

Pairs travel as positions in two tables of rows, which hold each row once however many pairs it is in;
they are put together where they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.contract import Clock, Input, Outcome, StepContext, in_schema
from tidegate.kernels.inputs import Arrival, PreAggregate
from tidegate.kernels.late import AllowedLatenessTracker
from tidegate.kernels.messages import Message
from tidegate.kernels.rows.row_table import OWN, RowLayout, RowTable, row_input
from tidegate.plan.channels import MAIN
from tidegate.plan.joins import SIDES, Side, keeps, nulls_text, window_names
from tidegate.plan.nodes import Join
from tidegate.plan.windowed_aggregates import WindowBy
from tidegate.state.pages import KEY, BucketState, own_keys

#: Which row it is, where rows are told apart.
ID = "__tidegate_id"

#: Where the rows of pairs lie in the table of their side.
POSITIONS: Mapping[Side, str] = {"left": "__tidegate_left", "right": "__tidegate_right"}

#: Pairs are made this many at a time, so that memory has a bound however many a row is in.
MOST_PAIRS = 1 << 18

#: Pairs as the positions of their rows on the left and on the right.
Positions = tuple[np.ndarray, np.ndarray]

#: Start and end of the window of each of a side's rows, given the rows they are paired with.
PairBounds = Callable[[Side, pa.Table, "pa.Table | None"], Sequence[pa.Array]]


class JoinSide:
    """One side of a join: its input, the rows that are kept of it, and which of them have matched."""

    def __init__(
        self,
        plan: Join,
        window: WindowBy,
        name: Side,
        rows: RowTable,
        layout: RowLayout,
        preaggregate: PreAggregate | None = None,
    ) -> None:
        self.name = name
        self.layout = layout
        self.input = row_input(window.as_input, layout, preaggregate, name, counted_as=f"{name}_rows")
        self.lateness = AllowedLatenessTracker(window.lateness)
        #: Are rows that match nothing emitted alone? Then it is remembered which have matched.
        self.keeps_unmatched = keeps(plan.how, name)
        self.rows = rows
        self.matched = RowTable(f"{name}.matched", rows.position, rows.width)

    def numbered(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that just arrived, each with a number of its own among all that are remembered."""
        if not self.keeps_unmatched:
            return rows
        pages = [*self.rows.pages(state), *self.matched.pages(state)]
        first = max((int(page[ID].to_numpy().max()) for page in pages), default=-1) + 1
        return rows.with_columns(pl.Series(ID, np.arange(first, first + len(rows))))

    def remember_matched(self, state: BucketState, rows: pl.DataFrame, oldest: int) -> None:
        """Remember that rows have matched another."""
        if self.keeps_unmatched and len(rows):
            new = self.unmatched(state, rows.select(KEY, ID, self.rows.position))
            self.matched.keep(state, new, oldest)

    def unmatched(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that have matched nothing so far."""
        for page in self.matched.pages(state):
            rows = rows.join(page, on=ID, how="anti")
        return rows


def side_layout(plan: Join, window: WindowBy) -> RowLayout:
    """The rows of a side; both sides' keys go by the names that the left side has for them."""
    return RowLayout.of(window.as_input, plan.keyed.keys)


@dataclass(frozen=True)
class Rows:
    """Rows of both sides that pairs are made of."""

    left: pl.DataFrame
    right: pl.DataFrame

    def of(self, side: Side) -> pl.DataFrame:
        return self.left if side == "left" else self.right


class PairEmitter:
    """Emits the pairs of a join, and the rows that match nothing; and reads them where they leave."""

    def __init__(
        self,
        plan: Join,
        sides: tuple[JoinSide, JoinSide],
        bounds: PairBounds,
        travelling: Sequence[str] = (),
    ) -> None:
        """`travelling` are the columns of rows that `bounds` needs beside their time."""
        self.plan = plan
        self.sides = sides
        self.bounds = bounds
        self.travelling = travelling
        self.pair = plan.pair
        self.where = None if plan.where is None else pl.sql_expr(plan.where)
        self.strict_keys = plan.strict_keys

    def physical_operators(self) -> list[str]:
        left, right = (f"{side.window} late={side.late}" for side in self.plan.sides)
        keys = ", ".join(self.plan.keyed.keys) or "global"
        where = "" if self.plan.where is None else f", where={self.plan.where!r}"
        matching = f"match={self.plan.match}{nulls_text(self.plan.nulls_match)}"
        return [f"WindowJoin[{self.plan.how}, {keys}, {left} × {right}, {matching}{where}]"]

    def matchable(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows, or sessions, without those whose key equals no key: null in keys that are strict."""
        if not self.strict_keys or not len(rows):
            return rows
        complete = np.ones(state.known_keys.num_rows, dtype=bool)
        for name in self.strict_keys:
            complete &= state.known_keys.column(name).is_valid().to_numpy()
        return rows.filter(pl.Series(complete[rows[KEY].to_numpy()]))

    def emit_pairs(
        self, context: StepContext, rows: Rows, pairs: Iterable[Positions], oldest: int
    ) -> None:
        """Emit the pairs that meet the condition, and remember which rows have matched."""
        matched = {name: np.zeros(len(rows.of(name)), dtype=bool) for name in SIDES}
        for positions in pairs:
            chosen = positions if self.where is None else self._chosen(context, rows, positions)
            if len(chosen[0]):
                context.outcome.counts["joined_pairs"] += len(chosen[0])
                self._emit(context, rows, dict(zip(SIDES, chosen, strict=True)))
                for name, position in zip(SIDES, chosen, strict=True):
                    matched[name][position] = True
        for side in self.sides:
            found = rows.of(side.name).filter(pl.Series(matched[side.name]))
            side.remember_matched(context.state, found, oldest)

    def emit_unmatched(self, context: StepContext, side: JoinSide, rows: pl.DataFrame) -> None:
        """Emit the rows that have matched nothing, and never will, without a partner."""
        alone = side.unmatched(context.state, rows)
        if len(alone):
            self._emit(context, Rows(alone, alone), {side.name: np.arange(len(alone))})

    def _emit(self, context: StepContext, rows: Rows, positions: Mapping[Side, np.ndarray]) -> None:
        """Rows by their positions; each row that is used is sent once."""
        tables, pairs = [], {}
        for side in self.sides:
            if side.name in positions:
                own, position = rows.of(side.name), positions[side.name]
                used = np.zeros(len(own), dtype=bool)
                used[position] = True
                sent = own.select(self._travelling(side)).filter(pl.Series(used))
                tables.append(ipc.to_arrow(sent))
                pairs[POSITIONS[side.name]] = (np.cumsum(used, dtype=np.int32) - 1)[position]
                pairs[KEY] = own[KEY].to_numpy()[position]
        keys, coded = own_keys(context.state.known_keys, pl.DataFrame(pairs))
        context.outcome.emit(MAIN, keys, *tables, coded)

    def _travelling(self, side: JoinSide) -> list[str]:
        return [TIME, *self.travelling, *(OWN + name for name in side.layout.own)]

    def _chosen(self, context: StepContext, rows: Rows, positions: Positions) -> Positions:
        """The pairs that meet the condition."""
        assert self.where is not None
        named = self.where.meta.root_names()
        schema = pa.schema([field for field in self.plan.schema if field.name in named])
        taken = {
            side.name: ipc.to_arrow(rows.of(side.name).select(self._travelling(side))[position])
            for side, position in zip(self.sides, positions, strict=True)
        }
        keys = context.state.known_keys.take(pa.array(rows.left[KEY].to_numpy()[positions[0]]))
        judged = ipc.to_polars(self._put_together(schema, keys, taken))
        meets = judged.select(self.where.fill_null(False)).to_series().to_numpy()
        if len(meets) != len(positions[0]):  # a condition over no column at all has one answer
            meets = np.repeat(meets, len(positions[0]))
        return positions[0][meets], positions[1][meets]

    # -- unpack -------------------------------------------------------------------------------

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        keys, *rows, pairs = tables
        present = [side for side in SIDES if POSITIONS[side] in pairs.column_names]
        taken = {
            side: table.take(pairs.column(POSITIONS[side]))
            for side, table in zip(present, rows, strict=True)
        }
        return self._put_together(self.plan.schema, keys.take(pairs.column(KEY)), taken)

    def _put_together(
        self, schema: pa.Schema, keys: pa.Table, taken: Mapping[Side, pa.Table]
    ) -> pa.Table:
        columns = dict.fromkeys(schema.names, pa.nulls(keys.num_rows))
        for side, other in zip(self.sides, reversed(self.sides), strict=True):
            if side.name in taken:
                rows = taken[side.name]
                bounds = self.bounds(side.name, rows, taken.get(other.name))
                columns |= dict(zip(window_names(side.name), bounds, strict=True))
                for name, shown in self.pair.names[side.name].items():
                    columns[shown] = side.layout.column(name, keys, rows)
        return in_schema(schema, columns)


class WindowJoin(Protocol):
    """Which rows of two sides match, by their windows."""

    pairs: PairEmitter

    def advance(
        self, context: StepContext, left: Sequence[Arrival], right: Sequence[Arrival]
    ) -> int | None:
        """Evict what is over, ingest what arrived on each side, emit pairs; the time of the next due."""
        ...


class JoinKernel:
    """The kernel of a join: two inputs, pairs of their rows."""

    output_channel = MAIN

    def __init__(self, join: WindowJoin) -> None:
        self.join = join

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(side.input for side in self.join.pairs.sides)

    @property
    def channels(self) -> frozenset[str]:
        return frozenset(input.name for input in self.inputs)

    def step(self, state: BucketState, messages: Sequence[Message], clock: Clock) -> Outcome:
        context = StepContext.begin(state, clock)
        left, right = (side.input.arrivals(state, messages) for side in self.join.pairs.sides)
        return context.end(self.join.advance(context, left, right))

    def physical_operators(self) -> list[str]:
        return self.join.pairs.physical_operators()

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        return self.join.pairs.unpack(tables)


def ranges_as_pairs(first: np.ndarray, last: np.ndarray) -> Iterator[Positions]:
    """Each position with all positions of its range `first … last`, a bounded number at a time."""
    counts = np.maximum(last - first + 1, 0)
    asking = np.flatnonzero(counts)
    upto = np.cumsum(counts[asking])
    begin = 0
    while begin < len(asking):
        done = int(upto[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(upto, done + MOST_PAIRS, side="right")))
        some = asking[begin:end]
        count = counts[some]
        before = np.repeat(np.cumsum(count) - count, count)
        within = np.arange(len(before)) - before
        yield np.repeat(some, count), np.repeat(first[some], count) + within
        begin = end
