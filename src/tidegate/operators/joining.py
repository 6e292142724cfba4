"""What joins share: two sides of rows, pairs of them, and rows that met nothing.

Pairs travel as places in two tables of rows, which hold each row once however many pairs it is in;
they are put together where they leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs
from tidegate.operators.accumulators import TIME
from tidegate.operators.kernel import Clock, Outcome, Port
from tidegate.operators.keyed import Turn, in_schema
from tidegate.operators.late import AllowedLatenessTracker
from tidegate.operators.messages import Message
from tidegate.operators.row_table import RowTable
from tidegate.operators.rows import OWN, RowInput
from tidegate.operators.state import KEY, BucketState, own_keys
from tidegate.plan.channels import MAIN
from tidegate.plan.joins import SIDES, Side, keeps, nulls_text, window_names
from tidegate.plan.nodes import Join
from tidegate.plan.windowing import WindowBy

#: Which row it is, where rows are told apart.
ID = "__tidegate_id"

#: Where the rows of pairs lie in the table of their side.
PLACES: Mapping[Side, str] = {"left": "__tidegate_left", "right": "__tidegate_right"}

#: Pairs are made this many at a time, so that memory has a bound however many a row is in.
MOST_PAIRS = 1 << 18

#: Pairs as the places of their rows on the left and on the right.
Places = tuple[np.ndarray, np.ndarray]


class JoinSide(RowInput):
    """The rows of one side, kept until nothing can meet them any more."""

    def __init__(self, plan: Join, window: WindowBy, name: Side, rows: RowTable) -> None:
        super().__init__(window.as_input, name)
        self.side = name
        self.known_keys = plan.keyed.keys
        self.counted_as = f"{name}_rows"
        self.lateness = AllowedLatenessTracker(window.lateness)
        self.judges = not window.as_input.feed.watermark_triggered
        #: Do rows that meet nothing leave alone? Then it is remembered which have met something.
        self.keeps = keeps(plan.how, name)
        self.rows = rows
        self.met = RowTable(f"{name}.met", rows.position, rows.width)

    def column(self, name: str, keys: pa.Table, rows: pa.Table) -> pa.ChunkedArray:
        """A column of rows as they are sent, beside their keys."""
        if name in self.keys:
            return keys.column(self.known_keys[self.keys.index(name)])
        return rows.column(TIME if name == self.time else OWN + name)

    def numbered(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows that just came, each with a number of its own among all that are remembered."""
        if not self.keeps:
            return rows
        pages = [*self.rows.pages(state), *self.met.pages(state)]
        first = max((int(page[ID].to_numpy().max()) for page in pages), default=-1) + 1
        return rows.with_columns(pl.Series(ID, np.arange(first, first + len(rows))))

    def remember(self, state: BucketState, rows: pl.DataFrame, oldest: int) -> None:
        """Note that rows have met another."""
        if self.keeps and len(rows):
            new = self.lonely(state, rows.select(KEY, ID, self.rows.position))
            self.met.keep(state, new, oldest)

    def lonely(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that have met nothing so far."""
        for page in self.met.pages(state):
            rows = rows.join(page, on=ID, how="anti")
        return rows


@dataclass(frozen=True)
class Rows:
    """Rows of both sides that pairs are made of."""

    left: pl.DataFrame
    right: pl.DataFrame

    def of(self, side: Side) -> pl.DataFrame:
        return self.left if side == "left" else self.right


class JoinKernel(ABC):
    """A join of two sides, for one operator of a plan."""

    outlet = MAIN

    def __init__(self, plan: Join, left: JoinSide, right: JoinSide) -> None:
        self.plan = plan
        self.sides = (left, right)
        self.pair = plan.pair
        self.where = None if plan.where is None else pl.sql_expr(plan.where)
        self.strict_keys = plan.strict_keys

    @abstractmethod
    def advance(self, turn: Turn, turns: Sequence[Turn]) -> int | None:
        """Let go what is over, take in what came on each side; when the next falls due."""

    @abstractmethod
    def bounds(self, side: JoinSide, rows: pa.Table, others: pa.Table | None) -> Sequence[pa.Array]:
        """Start and end of the window of each of a side's rows, beside the rows they have met."""

    @abstractmethod
    def sent_columns(self, side: JoinSide) -> list[str]:
        """What `bounds` needs to know of rows."""

    @property
    def ports(self) -> tuple[Port, ...]:
        return self.sides

    def stages(self) -> list[str]:
        left, right = (f"{side.window} late={side.late}" for side in self.plan.sides)
        keys = ", ".join(self.plan.keyed.keys) or "global"
        where = "" if self.plan.where is None else f", where={self.plan.where!r}"
        matching = f"match={self.plan.match}{nulls_text(self.plan.nulls_match)}"
        return [f"WindowJoin[{self.plan.how}, {keys}, {left} × {right}, {matching}{where}]"]

    # -- step ---------------------------------------------------------------------------------

    def step(self, state: BucketState, inputs: Sequence[Message], clock: Clock) -> Outcome:
        turn = Turn.begin(state, clock)
        turns = [replace(turn, arrivals=side.arrivals(state, inputs)) for side in self.sides]
        return turn.end(self.advance(turn, turns))

    def matchable(self, state: BucketState, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows, or sessions, without those whose key equals no key: null in keys that are strict."""
        if not self.strict_keys or not len(rows):
            return rows
        complete = np.ones(state.known_keys.num_rows, dtype=bool)
        for name in self.strict_keys:
            complete &= state.known_keys.column(name).is_valid().to_numpy()
        return rows.filter(pl.Series(complete[rows[KEY].to_numpy()]))

    def send_pairs(self, turn: Turn, rows: Rows, pairs: Iterable[Places], oldest: int) -> None:
        """Send pairs off, and remember who has met."""
        met = {name: np.zeros(len(rows.of(name)), dtype=bool) for name in SIDES}
        for places in pairs:
            chosen = places if self.where is None else self._chosen(turn, rows, places)
            if len(chosen[0]):
                turn.out.counts["joined_pairs"] += len(chosen[0])
                self._send(turn, rows, dict(zip(SIDES, chosen, strict=True)))
                for name, place in zip(SIDES, chosen, strict=True):
                    met[name][place] = True
        for side in self.sides:
            side.remember(turn.state, rows.of(side.side).filter(pl.Series(met[side.side])), oldest)

    def send_alone(self, turn: Turn, side: JoinSide, rows: pl.DataFrame) -> None:
        """Rows that met nothing, and never will, leave without a partner."""
        alone = side.lonely(turn.state, rows)
        if len(alone):
            self._send(turn, Rows(alone, alone), {side.side: np.arange(len(alone))})

    def _send(self, turn: Turn, rows: Rows, places: Mapping[Side, np.ndarray]) -> None:
        """Rows by their places; each row that is used is sent once."""
        tables, pairs = [], {}
        for side in self.sides:
            if side.side in places:
                own, place = rows.of(side.side), places[side.side]
                used = np.zeros(len(own), dtype=bool)
                used[place] = True
                tables.append(blobs.to_arrow(own.select(self._travelling(side)).filter(pl.Series(used))))
                pairs[PLACES[side.side]] = (np.cumsum(used, dtype=np.int32) - 1)[place]
                pairs[KEY] = own[KEY].to_numpy()[place]
        keys, coded = own_keys(turn.state.known_keys, pl.DataFrame(pairs))
        turn.out.emit(MAIN, keys, *tables, coded)

    def _travelling(self, side: JoinSide) -> list[str]:
        return [TIME, *self.sent_columns(side), *(OWN + name for name in side.own)]

    def _chosen(self, turn: Turn, rows: Rows, places: Places) -> Places:
        """The pairs that meet the condition."""
        assert self.where is not None
        named = self.where.meta.root_names()
        schema = pa.schema([field for field in self.plan.schema if field.name in named])
        taken = {
            side.side: blobs.to_arrow(rows.of(side.side).select(self._travelling(side))[place])
            for side, place in zip(self.sides, places, strict=True)
        }
        keys = turn.state.known_keys.take(pa.array(rows.left[KEY].to_numpy()[places[0]]))
        judged = blobs.to_polars(self._put_together(schema, keys, taken))
        meets = judged.select(self.where.fill_null(False)).to_series().to_numpy()
        if len(meets) != len(places[0]):  # a condition over no column at all has one answer
            meets = np.repeat(meets, len(places[0]))
        return places[0][meets], places[1][meets]

    # -- unpack -------------------------------------------------------------------------------

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        keys, *rows, pairs = tables
        present = [side for side in SIDES if PLACES[side] in pairs.column_names]
        taken = {
            side: table.take(pairs.column(PLACES[side]))
            for side, table in zip(present, rows, strict=True)
        }
        return self._put_together(self.plan.schema, keys.take(pairs.column(KEY)), taken)

    def _put_together(
        self, schema: pa.Schema, keys: pa.Table, taken: Mapping[Side, pa.Table]
    ) -> pa.Table:
        columns = dict.fromkeys(schema.names, pa.nulls(keys.num_rows))
        for side, other in zip(self.sides, reversed(self.sides), strict=True):
            if side.side in taken:
                rows = taken[side.side]
                bounds = self.bounds(side, rows, taken.get(other.side))
                columns |= dict(zip(window_names(side.side), bounds, strict=True))
                for name, shown in self.pair.names[side.side].items():
                    columns[shown] = side.column(name, keys, rows)
        return in_schema(schema, columns)


def ranges_as_pairs(first: np.ndarray, last: np.ndarray) -> Iterator[Places]:
    """Each place with all places of its range `first … last`, a bounded number at a time."""
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
