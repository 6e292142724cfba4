"""Tumbling and hopping windows: SlicePreAggregate → SliceMerge → SliceStore → WindowEmit.

State is slices, not windows: each row is merged into one slice, and a window is put together from
its slices when it is emitted. A tumbling window is one slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators import blobs, keys, late
from tidegate.operators.accumulators import TIME, Accumulators
from tidegate.operators.kernel import Clock, Outcome, Parcel, count_parcels
from tidegate.operators.slice_store import SLICE, WINDOW, SliceStore
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY, BucketState, own_keys
from tidegate.operators.window_emit import NEVER, Progress, window_emit
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, TIMESTAMP, Emit
from tidegate.plan.policies import Retracting, SideOutput

#: A broken row as JSON text, null for sound ones: what the errors channel shows.
BROKEN = "__tidegate_broken"
_PARTIALS, _ROWS = "partials", "__tidegate_rows"


class SliceKernel:
    """Windows over slices, for one logical plan."""

    inputs = frozenset({_PARTIALS})

    def __init__(self, plan: Emit) -> None:
        window = plan.input.input
        self.time = window.input.input.time
        self.keys = window.input.keys
        self.lateness: int = window.lateness
        self.late = window.late
        self.slicing = Slicing(window.window)
        self.accumulators = Accumulators(plan.input.aggregates)
        self.emission = plan.emission
        self.emit = window_emit(plan.emission)
        self.channels = plan.channels
        self.row_columns = window.schema.names

    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""
        by, slices = ", ".join(self.keys) or "global", self.slicing.per_window
        store = [f"SliceStore[{slices} slices a window]", "SliceMerge[by window]"]
        return [
            f"SlicePreAggregate[{by}]",
            f"SliceMerge[by slice, late={self.late}]",
            *(store if slices > 1 else []),
            f"WindowEmit[{self.emission}]",
        ]

    # -- pack ---------------------------------------------------------------------------------

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterator[Parcel]:
        counts = Counter(rows_in=rows.num_rows)
        if rows.column(self.time).null_count:
            broken = rows.filter(rows.column(self.time).is_null())
            rows = rows.filter(rows.column(self.time).is_valid())
            counts["errors"] = broken.num_rows
            yield self._errors(broken, buckets[0])
        rows, number = self._slice(rows, counts)
        yield from count_parcels(buckets[0], counts)
        if rows.num_rows:
            yield from self._partials(rows, number, buckets)

    def _errors(self, broken: pa.Table, bucket: int) -> Parcel:
        reason = pa.array([f"event time {self.time!r} is null"] * broken.num_rows)
        table = pa.table([reason, broken.column(BROKEN)], schema=self.channels[ERROR_CHANNEL])
        return Parcel(bucket, ERROR_CHANNEL, broken.num_rows, blobs.encode([table]))

    def _slice(self, rows: pa.Table, counts: Counter[str]) -> tuple[pa.Table, np.ndarray]:
        """Rows and their slices; those in no window are counted and left out."""
        number, inside = self.slicing.slice_of(late.instants(rows, self.time))
        if inside.all():
            return rows, number
        counts["unassigned"] += int(len(inside) - inside.sum())
        return rows.filter(pa.array(inside)), number[inside]

    def _partials(self, rows: pa.Table, number: np.ndarray, buckets: Sequence[int]) -> Iterator[Parcel]:
        distinct, codes, partials = self._preaggregate(rows, number)
        home = keys.bucket_of(distinct, buckets)
        for bucket in np.unique(home).tolist():
            part = partials.filter(pl.Series(home == bucket)[partials[KEY]])
            tables = list(own_keys(distinct, part))
            if late.carries_rows(self.late):
                here = rows.select(self.row_columns).append_column(SLICE, pa.array(number))
                tables.append(here.filter(pa.array(home[codes] == bucket)))
            yield Parcel(bucket, _PARTIALS, int(part[_ROWS].sum()), blobs.encode(tables))

    def _preaggregate(
        self, rows: pa.Table, number: np.ndarray
    ) -> tuple[pa.Table, np.ndarray, pl.DataFrame]:
        """The distinct keys, the rows' codes among them, and a partial state per key and slice."""
        distinct, codes = keys.encode(keys.key_table(rows, self.keys))
        coded = blobs.to_polars(rows.select(self.accumulators.columns)).with_columns(
            pl.Series(KEY, codes),
            pl.Series(SLICE, number),
            pl.Series(TIME, late.instants(rows, self.time)),
        )
        partials = self.accumulators.partial(coded, [KEY, SLICE], pl.len().alias(_ROWS))
        return distinct, codes, partials

    # -- step ---------------------------------------------------------------------------------

    def step(self, state: BucketState, inputs: Sequence[Parcel], clock: Clock) -> Outcome:
        out = Outcome()
        watermark = state.directory.watermark if clock.watermark is None else clock.watermark
        store = SliceStore(state, self.slicing, self.accumulators)
        progress = self._progress(state.directory.watermark, watermark, clock.now)

        results: list[pl.DataFrame] = []
        self.emit.close(store, progress, results.append)
        fresh = self._take_in(state, inputs, watermark, progress.closed, out)
        self.emit.take_in(store, fresh, progress, results.append)
        self._put_out(state, results, out)
        store.forget(progress.closed)
        state.directory.watermark = watermark
        out.due = self._due(store, progress, watermark)
        return out

    def _put_out(self, state: BucketState, results: list[pl.DataFrame], out: Outcome) -> None:
        filled = [rows for rows in results if len(rows)]
        if len(filled) > 1 and isinstance(self.emission, Retracting):
            # What closing takes back and what the batch takes back come before all insertions.
            together = pl.concat(filled)
            taken_back = pl.col("op") == self.emission.before
            filled = [together.filter(taken_back), together.filter(~taken_back)]
        for rows in filled:
            out.emit(MAIN, *own_keys(state.known_keys, rows))

    def _progress(self, was: int | None, watermark: int | None, now: int) -> Progress:
        def ended(time: int | None, lateness: int) -> int:
            return NEVER if time is None else self.slicing.last_ended(time - lateness)

        return Progress(
            closed=ended(watermark, self.lateness),
            ended=ended(watermark, 0),
            was_closed=ended(was, self.lateness),
            was_ended=ended(was, 0),
            now=now,
        )

    def _take_in(
        self,
        state: BucketState,
        inputs: Sequence[Parcel],
        watermark: int | None,
        closed: int,
        out: Outcome,
    ) -> pl.DataFrame | None:
        """The batch's partials, merged, without those that came too late."""
        sent = [blobs.decode(parcel.blob) for parcel in inputs if parcel.blob is not None]
        parts = state.recode([(own, partials) for own, partials, *_ in sent])
        raw = [rows for _, _, *carried in sent for rows in carried]
        if watermark is not None and closed > NEVER:
            parts = self._part_late(state, parts, raw, watermark, closed, out)
        return self._merge_arrivals(parts)

    def _merge_arrivals(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        filled = [part for part in parts if len(part)]
        if len(filled) > 1:
            return self.accumulators.merge(pl.concat(filled), [KEY, SLICE])
        return filled[0].drop(_ROWS) if filled else None

    def _part_late(
        self,
        state: BucketState,
        parts: list[pl.DataFrame],
        rows: Sequence[pa.Table],
        watermark: int,
        closed: int,
        out: Outcome,
    ) -> list[pl.DataFrame]:
        """What is in time, and what the late policy moves into the present."""
        last_late = self.slicing.first_slice(closed + 1) - 1
        too_late = pl.col(SLICE) <= last_late
        count = sum(int(part.filter(too_late)[_ROWS].sum()) for part in parts)
        if not count:
            return parts
        late_rows = [r.filter(pc.field(SLICE) <= last_late).drop_columns(SLICE) for r in rows]
        whole = pa.concat_tables(late_rows) if late_rows else None
        fate = late.handle(self.late, count, whole, self.time, watermark)
        out.counts += fate.counts
        if fate.sent is not None and isinstance(self.late, SideOutput):
            out.emit(self.late.channel, fate.sent)
        in_time = [part.filter(~too_late) for part in parts]
        if fate.moved is not None and fate.moved.num_rows:
            distinct, _, moved = self._preaggregate(*self._slice(fate.moved, out.counts))
            in_time += state.recode([(distinct, blobs.to_arrow(moved))])
        return in_time

    def _due(self, store: SliceStore, progress: Progress, watermark: int | None) -> int | None:
        """When the next window falls due, or the first page can go; always after the watermark."""
        last = store.last_window_of_a_page()
        if last is None:
            return None
        gone = self.slicing.end(last) + self.lateness
        due = self.emit.next_due(store, progress, self.lateness)
        soonest = gone if due is None else min(due, gone)
        return soonest if watermark is None else max(soonest, watermark + 1)

    # -- unpack -------------------------------------------------------------------------------

    def unpack(self, channel: str, tables: Sequence[pa.Table]) -> pa.Table:
        schema = self.channels[channel]
        if channel != MAIN:
            return tables[-1].cast(schema)
        sent_keys, rows = tables
        by_key = sent_keys.take(rows.column(KEY))
        number = rows.column(WINDOW).to_numpy()
        columns = {name: by_key.column(name) for name in self.keys}
        columns |= {name: rows.column(name) for name in rows.column_names}
        columns["window_start"] = pa.array(self.slicing.start(number)).cast(TIMESTAMP)
        columns["window_end"] = pa.array(self.slicing.end(number)).cast(TIMESTAMP)
        return pa.table(
            [columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema
        )
