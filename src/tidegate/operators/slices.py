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

from tidegate.operators import blobs, keys, late
from tidegate.operators.accumulators import TIME, Accumulators
from tidegate.operators.kernel import Clock, Outcome, Parcel, count_parcels
from tidegate.operators.slice_store import SLICE, WINDOW, SliceStore
from tidegate.operators.slicing import Slicing
from tidegate.operators.state import KEY, BucketState, concat, own_keys
from tidegate.operators.window_emit import NEVER, Progress, window_emit
from tidegate.plan.nodes import ERROR_CHANNEL, MAIN, TIMESTAMP, Emit
from tidegate.plan.policies import SideOutput

#: A broken row as JSON text, null for sound ones: what the errors channel shows.
BROKEN = "__tidegate_broken"
_PARTIALS, _ROWS = "partials", "__rows"


class SliceKernel:
    """Windows over slices, for one logical plan."""

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
        frame = blobs.to_polars(rows)
        counts = Counter(rows_in=len(frame))
        if frame[self.time].null_count():
            broken = frame.filter(pl.col(self.time).is_null())
            frame = frame.filter(pl.col(self.time).is_not_null())
            counts["errors"] = len(broken)
            yield self._errors(broken, buckets[0])
        sliced = self._slice(frame, counts)
        yield from count_parcels(buckets[0], counts)
        if len(sliced):
            yield from self._partials(sliced, buckets)

    def _errors(self, broken: pl.DataFrame, bucket: int) -> Parcel:
        reason = pl.lit(f"event time {self.time!r} is null")
        table = broken.select(reason=reason, row=pl.col(BROKEN))
        return Parcel(bucket, ERROR_CHANNEL, len(broken), blobs.encode([blobs.to_arrow(table)]))

    def _slice(self, frame: pl.DataFrame, counts: Counter[str]) -> pl.DataFrame:
        """Rows with their slice; those in no window are counted and left out."""
        time = frame[self.time].to_physical().to_numpy()
        number, inside = self.slicing.slice_of(time)
        sliced = frame.with_columns(pl.Series(SLICE, number), pl.Series(TIME, time))
        if inside.all():
            return sliced
        counts["unassigned"] += int(len(inside) - inside.sum())
        return sliced.filter(pl.Series(inside))

    def _partials(self, sliced: pl.DataFrame, buckets: Sequence[int]) -> Iterator[Parcel]:
        distinct, coded = self._encode_keys(sliced)
        partials = self._preaggregate(coded)
        home = keys.bucket_of(distinct, buckets)
        for bucket in np.unique(home).tolist():
            part = _living_in(partials, home, bucket)
            tables = list(own_keys(distinct, part))
            if late.carries_rows(self.late):
                rows = _living_in(coded, home, bucket).select(*self.row_columns, SLICE)
                tables.append(blobs.to_arrow(rows))
            yield Parcel(bucket, _PARTIALS, int(part[_ROWS].sum()), blobs.encode(tables))

    def _encode_keys(self, sliced: pl.DataFrame) -> tuple[pa.Table, pl.DataFrame]:
        distinct, codes = keys.encode(keys.key_table(sliced, self.keys))
        return distinct, sliced.with_columns(pl.Series(KEY, codes))

    def _preaggregate(self, coded: pl.DataFrame) -> pl.DataFrame:
        """One partial state per key and slice, and how many rows it stands for."""
        return self.accumulators.partial(coded, [KEY, SLICE], pl.len().alias(_ROWS))

    # -- step ---------------------------------------------------------------------------------

    def step(self, state: BucketState, inputs: Sequence[Parcel], clock: Clock) -> Outcome:
        out = Outcome()
        watermark = state.directory.watermark if clock.watermark is None else clock.watermark
        store = SliceStore(state, self.slicing, self.accumulators)
        progress = self._progress(state.directory.watermark, watermark, clock.now)

        def put(results: pl.DataFrame) -> None:
            if len(results):
                out.emit(MAIN, *own_keys(state.known_keys, results))

        self.emit.before(store, progress, put)
        fresh = self._take_in(state, inputs, watermark, progress.closed, out)
        if fresh is not None:
            store.append(fresh)
        self.emit.after(store, fresh, progress, put)
        store.forget(progress.closed)
        state.directory.watermark = watermark
        out.due = self._due(store, progress, watermark)
        return out

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
        parts, raw = [], []
        for parcel in inputs:
            assert parcel.blob is not None
            sent_keys, partials, *rows = blobs.decode(parcel.blob)
            parts.append(_recode(state, sent_keys, blobs.to_polars(partials)))
            raw += [blobs.to_polars(table) for table in rows]
        too_late = pl.col(SLICE) // self.slicing.per_slide <= closed
        in_time = [part.filter(~too_late) for part in parts]
        if watermark is not None:
            late_parts = [part.filter(too_late) for part in parts]
            late_rows = [rows.filter(too_late).drop(SLICE) for rows in raw]
            in_time += self._handle_late(state, late_parts, late_rows, watermark, out)
        return self._merge_arrivals(in_time)

    def _merge_arrivals(self, parts: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        filled = [part for part in parts if len(part)]
        if len(filled) > 1:
            return self.accumulators.merge(pl.concat(filled), [KEY, SLICE])
        return filled[0].drop(_ROWS) if filled else None

    def _handle_late(
        self,
        state: BucketState,
        parts: Sequence[pl.DataFrame],
        rows: Sequence[pl.DataFrame],
        watermark: int,
        out: Outcome,
    ) -> list[pl.DataFrame]:
        """Count late rows and apply the policy; what it moves into the present comes back."""
        count = sum(int(part[_ROWS].sum()) for part in parts)
        if not count:
            return []
        fate = late.handle(self.late, count, concat(rows), self.time, watermark)
        out.counts += fate.counts
        if fate.sent is not None and isinstance(self.late, SideOutput):
            out.emit(self.late.channel, blobs.to_arrow(fate.sent))
        if fate.moved is None or not len(fate.moved):
            return []
        distinct, coded = self._encode_keys(self._slice(fate.moved, out.counts))
        return [_recode(state, distinct, self._preaggregate(coded))]

    def _due(self, store: SliceStore, progress: Progress, watermark: int | None) -> int | None:
        """When the next window falls due, or the first page can go; always after the watermark."""
        window, at_close = self.emit.next_window(store, progress)
        due = [] if window is None else [self.slicing.end(window) + self.lateness * at_close]
        last = store.last_window_of_a_page()
        if last is None:
            return None
        due.append(self.slicing.end(last) + self.lateness)
        return min(due) if watermark is None else max(min(due), watermark + 1)

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


def _living_in(rows: pl.DataFrame, home: np.ndarray, bucket: int) -> pl.DataFrame:
    """The rows whose key lives in the bucket."""
    here = home == bucket
    return rows if here.all() else rows.filter(pl.Series(here[rows[KEY].to_numpy()]))


def _recode(state: BucketState, sent_keys: pa.Table, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the bucket's codes instead of their own."""
    codes = state.encode_keys(sent_keys)
    return rows.with_columns(pl.Series(KEY, codes[rows[KEY].to_numpy()]))
