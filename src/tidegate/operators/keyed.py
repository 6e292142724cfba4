"""What all kernels share: packing rows for the bucket of their key, late rows, steps, unpacking."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.operators import blobs, invalid_rows, keys
from tidegate.operators.kernel import Clock, Outcome, Parcel, Port, count_parcels
from tidegate.operators.late import ClosedWindows, SideOutputRouter, as_arrived
from tidegate.operators.state import KEY, BucketState, own_keys
from tidegate.plan.channels import MAIN
from tidegate.plan.inlets import Inlet
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.windowing import Emit

#: How many rows a partial state stands for.
ROWS = "__tidegate_rows"

PARTIALS, _OWNER = "partials", "__tidegate_owner"

Put = Callable[["pl.DataFrame"], None]


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
    sender: int
    rows: pa.Table | None = None


@dataclass(frozen=True)
class Turn:
    """What a kernel has to work with in one step."""

    state: BucketState
    arrivals: Sequence[Arrival]
    #: The watermark at the bucket's last step and at this one, and the batch's own time.
    was: int | None
    watermark: int | None
    now: int
    out: Outcome = field(default_factory=Outcome)
    #: In the order they are to leave in.
    results: list[pl.DataFrame] = field(default_factory=list)

    @classmethod
    def begin(cls, state: BucketState, clock: Clock, arrivals: Sequence[Arrival] = ()) -> Turn:
        was = state.directory.watermark
        return cls(state, arrivals, was, was if clock.watermark is None else clock.watermark, clock.now)

    def put(self, rows: pl.DataFrame) -> None:
        self.results.append(rows)

    def end(self, due: int | None) -> Outcome:
        self.state.directory.watermark = self.watermark
        self.out.due = due
        if due is not None and self.watermark is not None:
            self.out.due = max(due, self.watermark + 1)
        return self.out


class KeyedInput(ABC):
    """An input of an operator whose state is kept by key: how rows are packed, and which are late."""

    #: The counter of its rows, where an operator has several inputs.
    counted_as: str | None = None

    def __init__(self, inlet: Inlet, name: str = PARTIALS) -> None:
        self.name = name
        self.time = inlet.feed.time
        self.keys = inlet.keyed.keys
        #: The names under which the operator knows them.
        self.known_keys = self.keys
        self.router = SideOutputRouter(inlet.late, self.time, inlet.lateness)
        self.row_schema = inlet.feed.schema
        #: Which rows are invalid here.
        self.invalid = [invalid_rows.needs_time(self.time)]

    @abstractmethod
    def preaggregate(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """A partial state for each key and place in time; `owners` asks which is whose."""

    def key_table(self, rows: pa.Table) -> pa.Table:
        """What rows are kept by."""
        return keys.key_table(as_arrived(rows, self.time), self.keys)

    @property
    def carries_rows(self) -> bool:
        """Do parcels have the rows beside their states? Only where the late policy needs them."""
        return self.router.needs_rows

    def known_as(self, operator: str) -> None:
        """Tell the input what its operator is called in the plan: late rows carry the name."""
        self.router = replace(self.router, operator=operator)

    # -- pack ---------------------------------------------------------------------------------

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterator[Parcel]:
        rows, errors = invalid_rows.separate(rows, self.invalid, buckets[0])
        yield from errors
        counts = Counter(errors=sum(parcel.rows for parcel in errors))
        if self.counted_as is not None:
            counts[self.counted_as] = rows.num_rows
        packed = self.preaggregate(rows, counts, owners=self.carries_rows)
        yield from count_parcels(buckets[0], counts)
        yield from self._parcels(rows, packed, buckets)

    def _parcels(self, rows: pa.Table, packed: Partials, buckets: Sequence[int]) -> Iterator[Parcel]:
        if not len(packed.states):
            return
        home = self.homes(rows, packed, buckets)
        for bucket in np.unique(home).tolist():
            here = home == bucket
            states = packed.states.filter(pl.Series(here))
            tables = list(own_keys(packed.keys, states))
            if packed.owner is not None:
                place = np.cumsum(here, dtype=np.int32) - 1
                carried = here[packed.owner] & (packed.owner >= 0)
                owner = pa.array(place[packed.owner[carried]])
                carried_rows = rows.select(self.row_schema.names).filter(pa.array(carried))
                tables.append(carried_rows.append_column(_OWNER, owner))
            yield Parcel(bucket, self.name, int(states[ROWS].sum()), blobs.encode(tables))

    def homes(self, rows: pa.Table, packed: Partials, buckets: Sequence[int]) -> np.ndarray:
        """The bucket of each state."""
        return keys.bucket_of(packed.keys, buckets)[packed.states[KEY].to_numpy()]

    # -- what came ----------------------------------------------------------------------------

    def arrivals(self, state: BucketState, inputs: Sequence[Parcel]) -> list[Arrival]:
        """What the input's parcels brought, in the order they came."""
        own = [(parcel, parcel.blob) for parcel in inputs if parcel.channel == self.name]
        sent = [blobs.decode(blob) for _, blob in own if blob is not None]
        states = state.recode([(known, partials) for known, partials, *_ in sent])
        return [
            Arrival(part, parcel.sender, *carried)
            for part, (parcel, _), (_, _, *carried) in zip(states, own, sent, strict=True)
        ]

    def part_late(
        self, turn: Turn, too_late: Sequence[np.ndarray], closed: ClosedWindows | None = None
    ) -> list[pl.DataFrame]:
        """The states in time, and those of rows that the late policy moves into the present.

        `closed` tells which windows late states would have belonged to, where there are windows.
        """
        assert turn.watermark is not None, "without a watermark nothing is late"
        judged = list(zip(turn.arrivals, too_late, strict=True))
        count = sum(int(arrival.states[ROWS].filter(gone).sum()) for arrival, gone in judged)
        if not count:
            return [arrival.states for arrival in turn.arrivals]
        rows, bounds = None, None
        if self.router.needs_rows:
            rows = pa.concat_tables(self.rows_of(turn.state, arrival, gone) for arrival, gone in judged)
            if closed is not None:
                places = (self.places_of(arrival, gone) for arrival, gone in judged)
                starts, ends = zip(*(closed(*late) for late in enumerate(places)), strict=True)
                bounds = np.concatenate(starts), np.concatenate(ends)
        moved_rows = self.router.route(count, rows, turn.watermark, turn.out, bounds)
        in_time = [arrival.states.filter(~pl.Series(gone)) for arrival, gone in judged]
        if moved_rows is not None and moved_rows.num_rows:
            moved = self.preaggregate(moved_rows, turn.out.counts, owners=False)
            in_time += turn.state.recode([(moved.keys, blobs.to_arrow(moved.states))])
        return in_time

    def rows_of(self, state: BucketState, arrival: Arrival, chosen: np.ndarray) -> pa.Table:
        """The rows behind some of the states that arrived."""
        assert arrival.rows is not None
        owned = pa.array(chosen[arrival.rows.column(_OWNER).to_numpy()])
        return arrival.rows.filter(owned).drop_columns(_OWNER)

    def places_of(self, arrival: Arrival, chosen: np.ndarray) -> np.ndarray:
        """The place of the state behind each of those rows, in their order."""
        assert arrival.rows is not None
        owner = arrival.rows.column(_OWNER).to_numpy()
        return owner[chosen[owner]]


class KeyedKernel(KeyedInput):
    """A kernel of one input whose state is kept by key, for one operator of a plan."""

    inputs = frozenset({PARTIALS})
    outlet = MAIN

    def __init__(self, plan: Emit | Reorder | Dedupe | Admit) -> None:
        [inlet] = plan.inlets
        super().__init__(inlet)
        self.schema = plan.schema

    @abstractmethod
    def advance(self, turn: Turn) -> int | None:
        """Close what is due, take in what came, forget what is over; when the next falls due."""

    @abstractmethod
    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""

    @abstractmethod
    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        """The columns of results that are instants and that results carry in another form."""

    @property
    def ports(self) -> tuple[Port, ...]:
        return (self,)

    def step(self, state: BucketState, inputs: Sequence[Parcel], clock: Clock) -> Outcome:
        turn = Turn.begin(state, clock, self.arrivals(state, inputs))
        due = self.advance(turn)
        self.put_out(turn)
        return turn.end(due)

    def put_out(self, turn: Turn) -> None:
        """Send results off, in the order they were made."""
        for rows in turn.results:
            if len(rows):
                turn.out.emit(MAIN, *own_keys(turn.state.known_keys, rows))

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        known_keys, rows = tables
        by_key = known_keys.take(rows.column(KEY))
        return in_schema(self.schema, columns_of(rows) | columns_of(by_key) | self.times(rows))


def columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def in_schema(schema: pa.Schema, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Rows of a schema from columns by name, times as numbers among them."""
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)
