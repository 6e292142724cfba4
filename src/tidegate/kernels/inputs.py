"""Inputs of operators that keep state by key: rows packed for their bucket, and arrivals there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc, key_index
from tidegate.columnar.sorting import stable_order
from tidegate.kernels import invalid_rows
from tidegate.kernels.contract import StepContext
from tidegate.kernels.invalid_rows import Rule, needs_time
from tidegate.kernels.late import ClosedWindows, SideOutputRouter, as_arrived, instants
from tidegate.kernels.messages import Message, count_messages
from tidegate.plan.inputs import Input
from tidegate.state.pages import KEY, BucketState, own_keys

#: How many rows a partial state stands for.
ROWS = "__tidegate_rows"

PARTIALS, _OWNER = "partials", "__tidegate_owner"


@dataclass(frozen=True)
class KeyColumns:
    """The columns of rows that say where they belong: their event time and their keys."""

    time: str
    keys: tuple[str, ...]

    @classmethod
    def of(cls, plan: Input) -> KeyColumns:
        return cls(plan.upstream.time, plan.keyed.keys)

    def __str__(self) -> str:
        return ", ".join(self.keys) or "global"

    def encode(self, rows: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The distinct keys of rows, and each row's code."""
        return key_index.encode(self.table(rows))

    def table(self, rows: pa.Table) -> pa.Table:
        """The keys of rows. A row that was moved in time keeps the key it arrived with."""
        return key_index.key_table(as_arrived(rows, self.time), self.keys)

    def times(self, rows: pa.Table) -> np.ndarray:
        """The event times of rows, as microseconds."""
        return instants(rows, self.time)


@dataclass(frozen=True)
class Partials:
    """Rows as partial states: a key table, states with codes of it, and each row's state."""

    keys: pa.Table
    states: pl.DataFrame
    #: Only where the late policy needs the rows, and they travel beside the states.
    owner: np.ndarray | None = None
    #: What decides the bucket of each state, where it is not the key.
    hashes: np.ndarray | None = None


class PreAggregate(Protocol):
    """Makes partial states of rows: one for each key and position in time, or for each row."""

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        """The states of rows; `owners` asks which state each row went into."""
        ...


@dataclass(frozen=True)
class Arrival:
    """What one message brought: states with the bucket's codes, and their rows if it carries them."""

    states: pl.DataFrame
    sender: int
    rows: pa.Table | None = None

    def positions(self, chosen: np.ndarray) -> np.ndarray:
        """The position of the state behind each row of the chosen states, in the order of rows."""
        if self.rows is None:
            return np.flatnonzero(chosen)  # states are the rows themselves
        owner = self.rows.column(_OWNER).to_numpy()
        return owner[chosen[owner]]

    def carried_rows(self, state: BucketState, chosen: np.ndarray) -> pa.Table:
        """The rows behind the chosen states, where the message carries them."""
        assert self.rows is not None
        owned = pa.array(chosen[self.rows.column(_OWNER).to_numpy()])
        return self.rows.filter(owned).drop_columns(_OWNER)


#: The rows behind some of the states that arrived.
RowsBehind = Callable[[Arrival, BucketState, np.ndarray], pa.Table]


class KeyedInput:
    """One input of an operator: it packs rows, reads arrivals and routes the late ones."""

    def __init__(
        self,
        plan: Input,
        preaggregate: PreAggregate,
        name: str = PARTIALS,
        *,
        rows_behind: RowsBehind | None = None,
        invalid: Sequence[Rule] = (),
        counted_as: str | None = None,
    ) -> None:
        """`rows_behind` restores rows from states that are the rows; other states have them beside.

        `invalid` tells which rows cannot be used, besides those without an event time; `counted_as` is
        the counter of its rows, where an operator has several inputs.
        """
        self.name = name
        self.router = SideOutputRouter(plan.late, plan.upstream.time, plan.lateness)
        #: Can rows be late? What the watermark triggered upstream came before it.
        self.enforces_lateness = not plan.upstream.watermark_triggered
        self._time = plan.upstream.time
        self._schema = plan.upstream.schema
        self._preaggregate = preaggregate
        self._carries_rows = rows_behind is None and self.router.needs_rows
        self._rows_behind = rows_behind or Arrival.carried_rows
        self._invalid = [needs_time(plan.upstream.time), *invalid]
        self._counted_as = counted_as

    def connect(self, operator: str) -> None:
        """Say what the plan calls its operator: late rows carry the name."""
        self.router = replace(self.router, operator=operator)

    # -- pack ---------------------------------------------------------------------------------

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterator[Message]:
        """Messages with the states of rows for each bucket, and with the rows that are invalid."""
        rows, errors = invalid_rows.separate(rows, self._invalid, buckets[0])
        yield from errors
        counts = Counter(errors=sum(message.rows or 0 for message in errors))
        if self._counted_as is not None:
            counts[self._counted_as] = rows.num_rows
        packed = self._preaggregate(rows, counts, owners=self._carries_rows)
        yield from count_messages(buckets[0], counts)
        yield from self._messages(rows, packed, buckets)

    def _messages(self, rows: pa.Table, packed: Partials, buckets: Sequence[int]) -> Iterator[Message]:
        if not len(packed.states):
            return
        assigned = _bucket_assignment(packed, buckets)
        order, parts = _by_bucket(assigned)
        states = packed.states[order]
        carried = None
        if packed.owner is not None:
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            carried = self._carried_rows(rows, packed.owner, assigned, place)
        for bucket, here in parts.items():
            own = states[here]
            tables = list(own_keys(packed.keys, own))
            if carried is not None:
                tables.append(carried.of(bucket, here.start))
            yield Message.input(bucket, self.name, int(own[ROWS].sum()), ipc.encode(tables))

    def _carried_rows(
        self, rows: pa.Table, owner: np.ndarray, assigned: np.ndarray, place: np.ndarray
    ) -> _CarriedRows:
        """The rows behind states, bucket after bucket; those without a state are left out."""
        owned = np.flatnonzero(owner >= 0)
        order, parts = _by_bucket(assigned[owner[owned]])
        row = owned[order]
        return _CarriedRows(
            rows.select(self._schema.names).take(pa.array(row)), place[owner[row]], parts
        )

    # -- ingest -------------------------------------------------------------------------------

    def arrivals(self, state: BucketState, messages: Sequence[Message]) -> list[Arrival]:
        """What the input's messages brought, in the order they arrived."""
        own = [(message, message.blob) for message in messages if message.name == self.name]
        sent = [ipc.decode(blob) for _, blob in own if blob is not None]
        states = state.remap_codes([(known, partials) for known, partials, *_ in sent])
        return [
            Arrival(part, message.sender, *carried)
            for part, (message, _), (_, _, *carried) in zip(states, own, sent, strict=True)
        ]

    def route_late(
        self,
        context: StepContext,
        arrivals: Sequence[Arrival],
        too_late: Sequence[np.ndarray],
        closed: ClosedWindows | None = None,
    ) -> list[pl.DataFrame]:
        """The states in time, and those of late rows that the policy moves to the watermark.

        `closed` tells which windows late states would have belonged to, where there are windows.
        """
        assert context.watermark is not None, "without a watermark nothing is late"
        judged = list(zip(arrivals, too_late, strict=True))
        count = sum(int(arrival.states[ROWS].filter(late).sum()) for arrival, late in judged)
        if not count:
            return [arrival.states for arrival in arrivals]
        rows, bounds = None, None
        if self.router.needs_rows:
            rows = pa.concat_tables(self._rows_behind(one, context.state, late) for one, late in judged)
            if closed is not None:
                positions = (arrival.positions(late) for arrival, late in judged)
                starts, ends = zip(*(closed(*late) for late in enumerate(positions)), strict=True)
                bounds = np.concatenate(starts), np.concatenate(ends)
        moved_rows = self.router.route(count, rows, context.watermark, context.outcome, bounds)
        in_time = [arrival.states.filter(~pl.Series(late)) for arrival, late in judged]
        if moved_rows is not None and moved_rows.num_rows:
            moved = self._preaggregate(moved_rows, context.outcome.counts, owners=False)
            in_time += context.state.remap_codes([(moved.keys, ipc.to_arrow(moved.states))])
        return in_time


@dataclass(frozen=True)
class _CarriedRows:
    """Rows that travel beside their states, bucket after bucket."""

    rows: pa.Table
    #: Where the state of each row is.
    owner: np.ndarray
    parts: dict[int, slice]

    def of(self, bucket: int, first: int) -> pa.Table:
        """The rows of a bucket, each with the number of its state among those from `first` on."""
        here = self.parts[bucket]
        owner = pa.array((self.owner[here] - first).astype(np.int32))
        return self.rows.slice(here.start, here.stop - here.start).append_column(_OWNER, owner)


def _by_bucket(assigned: np.ndarray) -> tuple[np.ndarray, dict[int, slice]]:
    """The order of buckets, in which what is in one stays in its order; and where each one is."""
    order = stable_order(assigned - assigned.min(initial=0))
    buckets = assigned[order]
    begins = np.flatnonzero(np.append(True, buckets[1:] != buckets[:-1])[: len(buckets)])
    ends = np.append(begins[1:], len(buckets))[: len(begins)]
    bounds = zip(begins.tolist(), ends.tolist(), strict=True)
    return order, dict(zip(buckets[begins].tolist(), (slice(*pair) for pair in bounds), strict=True))


def _bucket_assignment(packed: Partials, buckets: Sequence[int]) -> np.ndarray:
    """The bucket of each state."""
    if packed.hashes is not None:
        return key_index.bucket_of_hash(packed.hashes, buckets)
    return key_index.bucket_of(packed.keys, buckets)[packed.states[KEY].to_numpy()]
