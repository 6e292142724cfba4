"""A plan as Spark DataFrames: pack → merge → unpack, the whole flow of a query in one place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.operators import blobs
from tidegate.operators.kernel import COUNTER, COUNTERS, Clock, Kernel, Parcel
from tidegate.operators.kernels import kernel_of
from tidegate.operators.state import BucketState, MemoryPages
from tidegate.operators.windowed import BROKEN
from tidegate.optimize import optimize
from tidegate.plan.identity import Identity, fingerprint, identity_of
from tidegate.plan.nodes import MAIN, Emit, Source
from tidegate.spark.buckets import bucket_labels
from tidegate.spark.processor import PARCEL, KernelProcessor
from tidegate.spark.schema import spark_schema
from tidegate.spark.session import prepare_session, shuffle_partitions

#: The name under which Spark's progress shows the counters.
OBSERVATION = "tidegate"

#: Rows are pre-aggregated in chunks of about this size, so that memory has a bound.
_CHUNK_BYTES = 256 << 20
_END_OF_TIME = 1 << 60

ArrowMap = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_PARCEL_ARROW = pa.schema(
    [("bucket", pa.int32()), ("channel", pa.string()), ("rows", pa.int64()), ("blob", pa.binary())]
)


@dataclass(frozen=True)
class Lowered:
    """A plan on Spark: packed rows of every channel, and how to get a channel's rows out of them."""

    packed: DataFrame
    kernel: Kernel
    identity: Identity
    plan: Emit

    def channel(self, name: str, packed: DataFrame | None = None) -> DataFrame:
        """The rows of one channel."""
        chosen = (self.packed if packed is None else packed).filter(F.col("channel") == name)
        schema = spark_schema(self.plan.channels[name])
        return chosen.select("blob").mapInArrow(_unpacker(self.kernel, name), schema)


def lower(plan: Emit, df: DataFrame, buckets: int | None = None) -> Lowered:
    """The whole flow: plan → optimized plan → kernel → DataFrame."""
    plan = optimize(plan)
    kernel = kernel_of(plan)
    labels = bucket_labels(buckets or shuffle_partitions(df))
    identity = identity_of(plan, len(labels), blobs.VERSION)
    parcels = _pack(plan, df, kernel, labels)
    merged = _merge_stream if df.isStreaming else _merge_batch
    packed = merged(parcels, kernel, fingerprint(identity))
    return Lowered(packed.observe(OBSERVATION, *_counter_columns()), kernel, identity, plan)


def to_df(plan: Emit, df: DataFrame, buckets: int | None = None) -> DataFrame:
    """The main channel."""
    if df.isStreaming:
        prepare_session(df)
    return lower(plan, df, buckets).channel(MAIN)


def _pack(plan: Emit, df: DataFrame, kernel: Kernel, labels: list[int]) -> DataFrame:
    """The columns the plan reads, broken rows whole as text, packed under the watermark.

    A broken row travels as text in the place of a text column that is read anyway: one more column,
    null almost everywhere, would slow down the hand-over of every row. Columns are numbered on the
    way: PySpark stumbles over names with dots and backticks.
    """
    source = plan.input.input.input.input
    names = [source.time, *(name for name in source.schema.names if name != source.time)]
    columns = {name: df[_quoted(name)] for name in names}
    broken, whole = _is_broken(plan, columns), F.to_json(F.struct("*"))
    columns[source.time] = _instant(columns[source.time], source)
    texts = [name for name in names if source.schema.field(name).type == pa.string()]
    carrier = texts[0] if texts else BROKEN
    columns[carrier] = F.when(broken, whole).otherwise(columns.get(carrier))
    rows = df.select(*(column.alias(f"c{i}") for i, column in enumerate(columns.values())))
    if df.isStreaming:
        # Spark counts tolerance in milliseconds: rounding up never makes a row late.
        rows = rows.withWatermark("c0", f"{-(-source.tolerance // 1000)} milliseconds")
    return rows.mapInArrow(_packer(kernel, labels, list(columns), carrier), PARCEL)


def _is_broken(plan: Emit, columns: Mapping[str, Column]) -> Column:
    """Rows that the kernel will refuse: what it says of them is shown beside them, whole."""
    broken = columns[plan.input.input.input.input.time].isNull()
    gap_column = plan.input.input.gap_column
    if gap_column is not None:
        gap = columns[gap_column]
        broken = broken | gap.isNull() | (gap <= F.lit(timedelta(0)))
    return broken


def _instant(time: Column, source: Source) -> Column:
    """The event time as an instant; one without a zone counts as UTC, whatever the session's zone."""
    if source.row_schema.field(source.time).type.tz is None:
        time = F.convert_timezone(F.lit("UTC"), F.current_timezone(), time)
    return time.cast("timestamp")


def _merge_stream(parcels: DataFrame, kernel: Kernel, plan: str) -> DataFrame:
    processor = KernelProcessor(kernel, uuid.uuid4().hex, plan)
    return parcels.groupBy("bucket").transformWithState(processor, PARCEL, "Append", "EventTime")


def _merge_batch(parcels: DataFrame, kernel: Kernel, plan: str) -> DataFrame:
    """The same kernel over all rows at once: nothing is late, and at the end everything closes."""

    def merge(group: pa.Table) -> pa.Table:
        rows = [Parcel(**row) for row in group.to_pylist()]
        own = [row for row in rows if row.channel in kernel.inputs]
        out = [row for row in rows if row.channel not in kernel.inputs]
        state = BucketState(MemoryPages(), plan)
        for inputs, watermark in ((own, None), ([], _END_OF_TIME)):
            out += kernel.step(state, inputs, Clock(watermark, 0)).parcels(rows[0].bucket)
        return pa.Table.from_batches([_batch(out)])

    return parcels.groupBy("bucket").applyInArrow(merge, PARCEL)


def _packer(kernel: Kernel, labels: list[int], names: list[str], carrier: str) -> ArrowMap:
    def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for chunk in _chunks(batches):
            rows = chunk.rename_columns(names)
            if carrier != BROKEN:
                rows = rows.append_column(BROKEN, rows.column(carrier))
            yield _batch(list(kernel.pack(rows, labels)))

    return pack


def _unpacker(kernel: Kernel, channel: str) -> ArrowMap:
    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                yield from kernel.unpack(channel, blobs.decode(blob.as_py())).to_batches()

    return unpack


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _batch(parcels: list[Parcel]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([vars(parcel) for parcel in parcels], _PARCEL_ARROW)


def _counter_columns() -> list[Column]:
    channels = {name: COUNTER + name for name in COUNTERS} | {"rows_out": MAIN}
    return [
        F.coalesce(F.sum(F.when(F.col("channel") == channel, F.col("rows"))), F.lit(0)).alias(name)
        for name, channel in channels.items()
    ]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
