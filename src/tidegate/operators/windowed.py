"""What kernels of windows share: packing rows into partial states, the late policy, unpacking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators import blobs, keys, late
from tidegate.operators.accumulators import Accumulators
from tidegate.operators.kernel import Clock, Outcome, Parcel, count_parcels
from tidegate.operators.state import KEY, BucketState, own_keys
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, TIMESTAMP, Emit
from tidegate.plan.policies import Retracting, SideOutput

#: A broken row as JSON text, null for sound ones: what the errors channel shows.
BROKEN = "__tidegate_broken"

#: How many rows a partial state stands for.
ROWS = "__tidegate_rows"

#: Stands for a time, or a window, long before any data.
NEVER = -(1 << 60)

#: Due as soon as the watermark moves at all, or is known at all.
ANY_TIME = -(1 << 62)

_PARTIALS, _OWNER = "partials", "__tidegate_owner"

Put = Callable[[pl.DataFrame], None]

#: Why rows cannot be used, and which of them; a row is judged by the first that applies.
Fault = tuple[str, Callable[[pa.Table], pa.ChunkedArray]]


@dataclass(frozen=True)
class Partials:
    """Rows as partial states: a key table, states with codes of it, and each row's state."""

    keys: pa.Table
    states: pl.DataFrame
    #: Only where the late policy carries rows.
    owner: np.ndarray | None = None


@dataclass(frozen=True)
class Arrival:
    """What one parcel brought: states with the bucket's codes, and their rows if it carries them."""

    states: pl.DataFrame
    rows: pa.Table | None = None


@dataclass(frozen=True)
class Moment:
    """The watermark at a bucket's last step and at this one, and the batch's own time."""

    was: int | None
    watermark: int | None
    now: int


class WindowKernel(ABC):
    """A kernel of keyed windows with aggregates, for one logical plan."""

    inputs = frozenset({_PARTIALS})

    def __init__(self, plan: Emit) -> None:
        window = plan.input.input
        self.time = window.input.input.time
        self.keys = window.input.keys
        self.lateness: int = window.lateness
        self.late = window.late
        self.accumulators = Accumulators(plan.input.aggregates)
        self.emission = plan.emission
        self.channels = plan.channels
        self.row_columns = window.schema.names
        self.faults: list[Fault] = [(f"event time {self.time!r} is null", self._without_time)]

    @abstractmethod
    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A partial state for each key and place in time; `owners` asks which is whose."""

    @abstractmethod
    def advance(
        self,
        state: BucketState,
        arrivals: Sequence[Arrival],
        moment: Moment,
        out: Outcome,
        put: Put,
    ) -> int | None:
        """Close what is due, take in what came, forget what is over; when the next falls due."""

    @abstractmethod
    def bounds(self, results: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """The start and the end of each result's window."""

    # -- pack ---------------------------------------------------------------------------------

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterator[Parcel]:
        counts = Counter(rows_in=rows.num_rows)
        for reason, find in self.faults:
            hit = find(rows)
            if pc.any(hit).as_py():
                broken, rows = rows.filter(hit), rows.filter(pc.invert(hit))
                counts["errors"] += broken.num_rows
                yield self._errors(reason, broken, buckets[0])
        packed = self.preaggregate(rows, counts, owners=late.carries_rows(self.late))
        yield from count_parcels(buckets[0], counts)
        yield from self._parcels(rows, packed, buckets)

    def _without_time(self, rows: pa.Table) -> pa.ChunkedArray:
        return rows.column(self.time).is_null()

    def _errors(self, reason: str, broken: pa.Table, bucket: int) -> Parcel:
        reasons = pa.array([reason] * broken.num_rows)
        table = pa.table([reasons, broken.column(BROKEN)], schema=self.channels[ERROR_CHANNEL])
        return Parcel(bucket, ERROR_CHANNEL, broken.num_rows, blobs.encode([table]))

    def _parcels(self, rows: pa.Table, packed: Partials, buckets: Sequence[int]) -> Iterator[Parcel]:
        if not len(packed.states):
            return
        home = keys.bucket_of(packed.keys, buckets)[packed.states[KEY].to_numpy()]
        for bucket in np.unique(home).tolist():
            here = home == bucket
            states = packed.states.filter(pl.Series(here))
            tables = list(own_keys(packed.keys, states))
            if packed.owner is not None:
                place = np.cumsum(here, dtype=np.int32) - 1
                carried = here[packed.owner] & (packed.owner >= 0)
                owner = pa.array(place[packed.owner[carried]])
                carried_rows = rows.select(self.row_columns).filter(pa.array(carried))
                tables.append(carried_rows.append_column(_OWNER, owner))
            yield Parcel(bucket, _PARTIALS, int(states[ROWS].sum()), blobs.encode(tables))

    # -- step ---------------------------------------------------------------------------------

    def step(self, state: BucketState, inputs: Sequence[Parcel], clock: Clock) -> Outcome:
        out = Outcome()
        was = state.directory.watermark
        watermark = was if clock.watermark is None else clock.watermark
        results: list[pl.DataFrame] = []
        arrivals = self._arrivals(state, inputs)
        due = self.advance(state, arrivals, Moment(was, watermark, clock.now), out, results.append)
        self._put_out(state, results, out)
        state.directory.watermark = watermark
        out.due = due if due is None or watermark is None else max(due, watermark + 1)
        return out

    def _arrivals(self, state: BucketState, inputs: Sequence[Parcel]) -> list[Arrival]:
        """What the parcels brought, in the order they came."""
        sent = [blobs.decode(parcel.blob) for parcel in inputs if parcel.blob is not None]
        states = state.recode([(own, partials) for own, partials, *_ in sent])
        return [Arrival(part, *carried) for part, (_, _, *carried) in zip(states, sent, strict=True)]

    def part_late(
        self,
        state: BucketState,
        arrivals: Sequence[Arrival],
        too_late: Sequence[np.ndarray],
        watermark: int,
        out: Outcome,
    ) -> list[pl.DataFrame]:
        """The states in time, and those of rows that the late policy moves into the present."""
        judged = list(zip(arrivals, too_late, strict=True))
        count = sum(int(arrival.states[ROWS].filter(gone).sum()) for arrival, gone in judged)
        if not count:
            return [arrival.states for arrival in arrivals]
        rows = [
            arrival.rows.filter(pa.array(gone[arrival.rows.column(_OWNER).to_numpy()]))
            for arrival, gone in judged
            if arrival.rows is not None
        ]
        whole = pa.concat_tables(rows).drop_columns(_OWNER) if rows else None
        fate = late.handle(self.late, count, whole, self.time, watermark)
        out.counts += fate.counts
        if fate.sent is not None and isinstance(self.late, SideOutput):
            out.emit(self.late.channel, fate.sent)
        in_time = [arrival.states.filter(~pl.Series(gone)) for arrival, gone in judged]
        if fate.moved is not None and fate.moved.num_rows:
            moved = self.preaggregate(fate.moved, out.counts, owners=False)
            in_time += state.recode([(moved.keys, blobs.to_arrow(moved.states))])
        return in_time

    def _put_out(self, state: BucketState, results: Sequence[pl.DataFrame], out: Outcome) -> None:
        """Send results off; what is taken back comes before what is put out."""
        filled = [rows for rows in results if len(rows)]
        if len(filled) > 1 and isinstance(self.emission, Retracting):
            together = pl.concat(filled)
            taken_back = pl.col("op").str.starts_with("-")
            filled = [together.filter(taken_back), together.filter(~taken_back)]
        for rows in filled:
            out.emit(MAIN, *own_keys(state.known_keys, rows))

    # -- unpack -------------------------------------------------------------------------------

    def unpack(self, channel: str, tables: Sequence[pa.Table]) -> pa.Table:
        schema = self.channels[channel]
        if channel != MAIN:
            return tables[-1].cast(schema)
        sent_keys, rows = tables
        by_key = sent_keys.take(rows.column(KEY))
        columns = {name: by_key.column(name) for name in self.keys}
        columns |= {name: rows.column(name) for name in rows.column_names}
        for name, times in zip(("window_start", "window_end"), self.bounds(rows), strict=True):
            columns[name] = pa.array(times).cast(TIMESTAMP)
        return pa.table(
            [columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema
        )
