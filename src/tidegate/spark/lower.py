"""A plan as Spark DataFrames: pack → merge → unpack, the whole flow of a query in one place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.errors import PlanError
from tidegate.operators import blobs
from tidegate.operators.kernel import COUNTER, Clock, Kernel, Parcel, Port
from tidegate.operators.kernels import counters_of, kernels_of
from tidegate.operators.state import BucketState, MemoryPages
from tidegate.optimize import optimize
from tidegate.plan.graph import Place, tree_of
from tidegate.plan.identity import Identity, fingerprint, identity_of, stage_identities
from tidegate.plan.nodes import MAIN, Output, sources_of
from tidegate.spark.buckets import bucket_labels
from tidegate.spark.processor import PARCEL, KernelProcessor
from tidegate.spark.schema import spark_schema
from tidegate.spark.session import prepare_session, shuffle_partitions
from tidegate.spark.sources import ArrowMap, Reading, parcel_batch, sender

#: The name under which Spark's progress shows the counters.
OBSERVATION = "tidegate"

#: Channels whose name starts with this are stored pages, the rest is the page's name.
PAGE = "page:"

_END_OF_TIME = 1 << 60

Merge = Callable[[DataFrame, Kernel, str], DataFrame]


@dataclass(frozen=True)
class Lowered:
    """A plan on Spark: packed rows of every channel, and how to get a channel's rows out of them."""

    packed: DataFrame
    kernels: Sequence[Kernel]
    labels: list[int]
    identity: Identity
    plan: Output

    def channel(self, name: str, packed: DataFrame | None = None) -> DataFrame:
        """The rows of one channel."""
        chosen = (self.packed if packed is None else packed).filter(F.col("channel") == name)
        schema = spark_schema(self.plan.channels[name])
        return chosen.select("blob").mapInArrow(_unpacker(self.kernels[-1], name), schema)

    @property
    def fingerprints(self) -> list[str]:
        """What tells each operator's state from that of another plan."""
        return [fingerprint(own) for own in stage_identities(self.plan, self.identity)]


def lower(
    plan: Output,
    frames: Sequence[DataFrame],
    buckets: int | None = None,
    progress: str | None = None,
) -> Lowered:
    """The whole flow: plan → optimized plan → kernels → DataFrame.

    `frames` are the sources' rows. `progress` is the file that says how far each source has come.
    """
    plan = optimize(plan)
    kernels = kernels_of(plan)
    labels = bucket_labels(buckets or shuffle_partitions(frames[0]))
    identity = identity_of(plan, len(labels), blobs.VERSION)
    lowered = Lowered(frames[0], kernels, labels, identity, plan)
    merge = _merge_stream if frames[0].isStreaming else merge_batch
    packed = through(lowered, Reading(sources_of(plan), frames, labels, progress).parcels, merge)
    return Lowered(packed.observe(OBSERVATION, *_counter_columns(plan)), kernels, labels, identity, plan)


def through(
    lowered: Lowered,
    read: Callable[[int, Output, Port], DataFrame],
    merge: Merge,
    beside: Callable[[int, DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Every operator over what feeds it; `beside` may add to what each is given."""
    kernels, fingerprints = lowered.kernels, lowered.fingerprints

    def put_out(place: Place) -> DataFrame:
        kernel, flows = kernels[place.number], []
        for feed, port in zip(place.feeds, kernel.ports, strict=True):
            if isinstance(feed, Place):
                repack = _repacker(kernels[feed.number], port, lowered.labels)
                flows.append(put_out(feed).mapInArrow(repack, PARCEL))
            else:
                flows += [read(number, place.stage, port) for number in feed]
        parcels = reduce(DataFrame.unionAll, flows)
        given = parcels if beside is None else beside(place.number, parcels)
        return merge(given, kernel, fingerprints[place.number])

    return put_out(tree_of(lowered.plan))


def to_df(plan: Output, frames: Sequence[DataFrame], buckets: int | None = None) -> DataFrame:
    """The main channel."""
    if any(source.idle_after is not None for source in sources_of(plan)):
        raise PlanError("idle_after is watched by a running query: use start() instead of to_df()")
    if frames[0].isStreaming:
        prepare_session(frames[0])
    return lower(plan, frames, buckets).channel(MAIN)


def _merge_stream(parcels: DataFrame, kernel: Kernel, plan: str) -> DataFrame:
    processor = KernelProcessor(kernel, uuid.uuid4().hex, plan)
    return parcels.groupBy("bucket").transformWithState(processor, PARCEL, "Append", "EventTime")


def merge_batch(parcels: DataFrame, kernel: Kernel, plan: str) -> DataFrame:
    """The same kernel over all rows at once, and over stored pages where there are any.

    Nothing is late, and at the end everything closes.
    """

    def merge(group: pa.Table) -> pa.Table:
        rows = [Parcel(**row) for row in group.to_pylist()]
        pages, others = _parted(rows, lambda row: row.channel.startswith(PAGE))
        own, out = _parted(others, lambda row: row.channel in kernel.inputs)
        stored = MemoryPages({row.channel.removeprefix(PAGE): row.blob or b"" for row in pages})
        state = BucketState(stored, plan)
        for inputs, watermark in ((own, None), ([], _END_OF_TIME)):
            out += kernel.step(state, inputs, Clock(watermark, 0)).parcels(rows[0].bucket)
        return pa.Table.from_batches([parcel_batch(out)])

    return parcels.groupBy("bucket").applyInArrow(merge, PARCEL)


def _parted(rows: list[Parcel], chosen: Callable[[Parcel], bool]) -> tuple[list[Parcel], list[Parcel]]:
    return [row for row in rows if chosen(row)], [row for row in rows if not chosen(row)]


def _repacker(above: Kernel, port: Port, labels: list[int]) -> ArrowMap:
    """What one operator put out, as the next one takes it; all else passes by."""

    def repack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        results: list[pa.Table] = []
        for batch in batches:
            is_result = pc.equal(batch.column("channel"), MAIN)
            sent = batch.column("blob").filter(is_result).to_pylist()
            results += (above.unpack(MAIN, blobs.decode(blob)) for blob in sent)
            yield batch.filter(pc.invert(is_result))
        if results:
            packed = port.pack(pa.concat_tables(results), labels)
            counted = COUNTER + "rows_in"  # by the first operator, which read them
            yield parcel_batch([sent for sent in packed if sent.channel != counted], sender())

    return repack


def _unpacker(kernel: Kernel, channel: str) -> ArrowMap:
    def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                yield from kernel.unpack(channel, blobs.decode(blob.as_py())).to_batches()

    return unpack


def _counter_columns(plan: Output) -> list[Column]:
    channels = {name: COUNTER + name for name in counters_of(plan)} | {"rows_out": MAIN}
    return [
        F.coalesce(F.sum(F.when(F.col("channel") == channel, F.col("rows"))), F.lit(0)).alias(name)
        for name, channel in channels.items()
    ]
