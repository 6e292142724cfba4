"""Admission: Admit lets rows of a stream pass as far as its service level allows.

State is, for each stream, the level of its token bucket and when its last row arrived. Rows are
forwarded in the batch they arrive in: the operator behind enforces lateness on them, as it would on a
source's rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar.hashing import hash_columns
from tidegate.columnar.timeline import Timeline
from tidegate.kernels.accumulators import TIME
from tidegate.kernels.admission.token_buckets import inflow, spend
from tidegate.kernels.contract import KeyedKernel, StepContext
from tidegate.kernels.inputs import Arrival, Partials
from tidegate.kernels.late import NEVER
from tidegate.kernels.rows.row_table import RowLayout, in_arrival_order, row_input
from tidegate.kernels.sessions.store import END, SessionStore
from tidegate.plan.channels import REJECTED, REJECTED_COLUMNS
from tidegate.plan.pass_through import Admit
from tidegate.plan.schema import TIMESTAMP, is_flat_type
from tidegate.plan.sla import JITTER, LAG, RATE, REASONS, Budget, Sla
from tidegate.state.pages import KEY, BucketState

_ARRIVED, _LEVEL, _UNIT = "__tidegate_arrived", "__tidegate_level", "__tidegate_unit"

#: Which part of a stream a row belongs to, where streams are split.
SHARD = "__tidegate_shard"

ADMITTED = "admitted"
_VERDICTS = (ADMITTED, *REASONS)

#: A time that never comes.
_FOREVER = -NEVER


@dataclass(frozen=True)
class Queue:
    """The order in which rows are judged: by stream, then by arrival."""

    order: np.ndarray
    #: One entry for each stream.
    code: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @classmethod
    def of(cls, code: np.ndarray, now: np.ndarray) -> Queue:
        """From rows in arrival order, with the instants they arrived at."""
        order = Timeline(code, now).order
        start = np.flatnonzero(np.diff(code[order], prepend=-1))
        return cls(order, code[order[start]], start, np.append(start[1:], len(code)))


@dataclass(frozen=True)
class Streams:
    """The state of some streams: levels in units, and last arrivals, `NEVER` for new ones."""

    level: np.ndarray
    arrived: np.ndarray


@dataclass(frozen=True)
class Judged:
    """The verdict on each row, by its number, and the numbers behind it."""

    verdict: np.ndarray
    #: How long after its event time a row arrived, and after the row before it; -1 where that one is
    #: not there, or of no interest.
    lag: np.ndarray
    gap: np.ndarray
    #: What the bucket held, in units, where it was asked.
    held: np.ndarray
    #: Streams as they are after the rows.
    streams: Streams


def judge(
    sla: Sla, budget: Budget, queue: Queue, streams: Streams, time: np.ndarray, now: np.ndarray
) -> Judged:
    """Judge rows by their event times and by when they arrived.

    A stream's clock does not go back: a row that arrived before its predecessor counts as arriving with
    it.
    """
    order, start, last = queue.order, queue.start, queue.end - 1
    arrived = np.maximum(now[order], np.repeat(streams.arrived, queue.end - start))
    before = np.concatenate([[0], arrived[:-1]])
    before[start] = streams.arrived
    lag = now - time
    gap = np.full(len(time), -1)
    if sla.jitter_budget is not None:
        gap[order] = np.where(before == NEVER, -1, arrived - before)

    verdict = np.zeros(len(time), dtype=np.int8)
    verdict[_over(gap, sla.jitter_budget)] = _VERDICTS.index(JITTER)
    verdict[_over(lag, sla.max_lag)] = _VERDICTS.index(LAG)

    asks = verdict[order] == 0
    since = np.where(streams.arrived == NEVER, arrived[start], streams.arrived)
    asked = np.cumsum(asks)[last]
    asks = np.flatnonzero(asks)
    spent = spend(budget, arrived[asks], asked, streams.level, since)
    asking = order[asks]
    verdict[asking[np.flatnonzero(~spent.admitted)]] = _VERDICTS.index(RATE)
    held = np.zeros(len(time), dtype=np.int64)
    held[asking] = spent.held

    # The level is that of the last row that asked; what has flowed in since is part of it.
    any_asked = np.diff(asked, prepend=0) > 0
    at = since.copy()
    at[any_asked] = arrived[asks][asked[any_asked] - 1]
    level = np.minimum(spent.level + inflow(budget, arrived[last] - at), budget.capacity)
    return Judged(verdict, lag, gap, held, Streams(level, arrived[last]))


def _over(measured: np.ndarray, limit: int | None) -> np.ndarray:
    return np.zeros(len(measured), dtype=bool) if limit is None else measured > limit


@dataclass(frozen=True)
class RowsByStream:
    """Rows as they are, keyed by their stream, or by their shard of it."""

    layout: RowLayout
    sla: Sla

    def __call__(self, rows: pa.Table, counts: Counter[str], *, owners: bool) -> Partials:
        return self.layout.states(rows, self._streams(rows), self._arrived(rows))

    def _streams(self, rows: pa.Table) -> pa.Table:
        streams = self.layout.key_table(rows)
        if self.sla.shards == 1:
            return streams
        hashed = [field.name for field in self.layout.schema if is_flat_type(field.type)]
        shard = hash_columns(rows.select(hashed)) % np.uint64(self.sla.shards)
        return streams.append_column(SHARD, pa.array(shard.astype(np.int32)))

    def _arrived(self, rows: pa.Table) -> pl.DataFrame | None:
        if self.sla.arrival is None:
            return None
        arrived = rows.column(self.sla.arrival).cast(TIMESTAMP, safe=False).cast(pa.int64())
        return pl.DataFrame({_ARRIVED: pl.Series(arrived)})


class AdmissionKernel(KeyedKernel):
    """Forwards the rows that the limits allow, and rejects the others with a reason."""

    def __init__(self, plan: Admit) -> None:
        [input] = plan.inputs
        self.sla, self.budget = plan.sla, plan.sla.budget()
        #: A full bucket is as good as a new one, unless the last arrival matters for itself.
        self.expires = self.sla.jitter_budget is None and self.sla.arrival is None
        self.layout = RowLayout.of(input)
        preaggregate = RowsByStream(self.layout, self.sla)
        super().__init__(plan, row_input(input, self.layout, preaggregate))

    def physical_operators(self) -> list[str]:
        return [f"Admission[{self.layout.columns}, {self.sla}]"]

    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        came = in_arrival_order(arrivals)
        if came is None:
            return None
        store = SessionStore(context.state, "streams", identity=(KEY,))
        over = context.now if self.expires else NEVER
        known = store.of_keys(came[KEY].to_numpy(), over)
        time, now = came[TIME].to_numpy(), self._arrivals(came, context.now)
        queue = Queue.of(came[KEY].to_numpy(), now)
        judged = judge(self.sla, self.budget, queue, self._streams(queue.code, known), time, now)
        self._keep(store, queue.code, judged.streams, known)
        store.expire(over)
        self._emit(context, came, judged)
        return None

    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        return self.layout.times(results)

    def _arrivals(self, came: pl.DataFrame, now: int) -> np.ndarray:
        if self.sla.arrival is None:
            return np.full(len(came), now)
        return came[_ARRIVED].fill_null(now).to_numpy()

    def _streams(self, code: np.ndarray, known: pl.DataFrame | None) -> Streams:
        level = np.full(len(code), self.budget.capacity)
        arrived = np.full(len(code), NEVER)
        if known is not None:
            position = np.searchsorted(code, known[KEY].to_numpy())
            # Limits may have changed since: what is left are tokens, not units.
            wide = known.select(pl.col(_LEVEL).cast(pl.Int128) * self.budget.unit // pl.col(_UNIT))
            stored = wide.to_series().clip(0, self.budget.capacity).cast(pl.Int64)
            level[position], arrived[position] = stored.to_numpy(), known[_ARRIVED].to_numpy()
        return Streams(level, arrived)

    def _keep(
        self, store: SessionStore, code: np.ndarray, streams: Streams, known: pl.DataFrame | None
    ) -> None:
        missing = self.budget.capacity - streams.level
        full = streams.arrived - -missing // self.budget.refill
        if known is not None:
            # New limits may fill it earlier than planned; older entries must expire first.
            position = np.searchsorted(code, known[KEY].to_numpy())
            full[position] = np.maximum(full[position], known[END].to_numpy())
        entries = pl.DataFrame(
            {
                KEY: code,
                _LEVEL: streams.level,
                _UNIT: np.full(len(code), self.budget.unit),
                _ARRIVED: streams.arrived,
                END: full if self.expires else np.full(len(full), _FOREVER),
            }
        )
        store.upsert(entries, None)

    def _emit(self, context: StepContext, came: pl.DataFrame, judged: Judged) -> None:
        """Forward rows, or send them to the channel of rejected rows."""
        counts = np.bincount(judged.verdict, minlength=len(_VERDICTS)).tolist()
        context.outcome.counts[ADMITTED] += counts[0]
        for reason, count in zip(REASONS, counts[1:], strict=True):
            context.outcome.counts[f"rejected_{reason}"] += count
        admitted = judged.verdict == 0
        if not admitted.all():
            context.outcome.emit(REJECTED, self._rejected(context.state, came, judged, ~admitted))
        context.emit(self.layout.restored(came.filter(pl.Series(admitted))))

    def _rejected(
        self, state: BucketState, came: pl.DataFrame, judged: Judged, chosen: np.ndarray
    ) -> pa.Table:
        rows = self.layout.rows_behind(Arrival(came, 0), state, chosen)
        verdict, gap = judged.verdict[chosen], judged.gap[chosen]
        tokens = judged.held[chosen] / self.budget.unit
        columns = (
            pa.array(_VERDICTS).take(pa.array(verdict)),
            pa.array(judged.lag[chosen]),
            pa.array(gap, mask=gap < 0),
            pa.array(tokens, mask=verdict != _VERDICTS.index(RATE)),
        )
        for field, values in zip(REJECTED_COLUMNS, columns, strict=True):
            rows = rows.append_column(field, values.cast(field.type))
        return rows
