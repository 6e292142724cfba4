"""A plan as Spark DataFrames: pack → merge → unpack, the whole flow of a query in one place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.dataflow import Dataflow, compile
from tidegate.dataflow.identity import Identity, fingerprint, identity_of, stage_identities, title_of
from tidegate.errors import PlanError
from tidegate.operators import blobs
from tidegate.operators.kernel import COUNTER, Clock, Kernel, Parcel, Unpack, in_order
from tidegate.operators.kernels import kernels_of, unpack_of
from tidegate.operators.late import THE_END
from tidegate.operators.state import BucketState, MemoryPages, state_of
from tidegate.operators.ways import Way, Ways
from tidegate.optimize import optimize
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Output
from tidegate.plan.steps import Fusion
from tidegate.spark.buckets import bucket_labels
from tidegate.spark.crossing import ArrowMap, Crossings, parcel_batch
from tidegate.spark.hosting import Work
from tidegate.spark.load import Decisions
from tidegate.spark.ownership import Ownership
from tidegate.spark.processor import PARCEL, KernelProcessor
from tidegate.spark.schema import spark_schema
from tidegate.spark.session import prepare_session, shuffle_partitions
from tidegate.spark.sources import Reading

#: The name under which Spark's progress shows the counters.
OBSERVATION = "tidegate"

#: Channels whose name starts with this are stored pages, the rest is the page's name.
PAGE = "page:"

#: Packed rows, the kernel, what tells its state from that of other plans, and what users call it.
Merge = Callable[[DataFrame, Kernel, str, str], DataFrame]


@dataclass(frozen=True)
class Lowered:
    """A plan on Spark: packed rows of every channel, and how to get a channel's rows out of them."""

    packed: DataFrame
    kernels: Sequence[Kernel]
    crossings: Crossings
    identity: Identity
    dataflow: Dataflow

    def channel(self, name: str, packed: DataFrame | None = None) -> DataFrame:
        """The rows of one channel."""
        chosen = (self.packed if packed is None else packed).filter(F.col("channel") == name)
        unpack, schema = unpack_of(self.dataflow, self.kernels, name), self.dataflow.channels[name]
        return chosen.select("blob").mapInArrow(_unpacker(unpack), spark_schema(schema))

    @property
    def fingerprints(self) -> list[str]:
        """What tells each operator's state from that of another plan."""
        return [fingerprint(own) for own in self._operators]

    @property
    def titles(self) -> list[str]:
        """What users call each operator."""
        return [title_of(number, own) for number, own in enumerate(self._operators, 1)]

    @property
    def _operators(self) -> list[Identity]:
        return stage_identities(self.dataflow, self.identity)


def lower(
    dataflow: Dataflow,
    frames: Sequence[DataFrame],
    buckets: int | None = None,
    *,
    progress: str | None = None,
    decisions: Decisions | None = None,
    ownership: Ownership | None = None,
    all_leave: bool = True,
) -> Lowered:
    """The whole flow of a query: kernels → DataFrame.

    `frames` are the sources' rows. `progress` is the file that says how far each source has come,
    `decisions` are on how many rows must go under load, `ownership` is what tasks check before they
    commit state. Results that do not `all_leave` are counted by whoever writes those that do.
    """
    kernels = kernels_of(dataflow)
    if buckets is not None and buckets < 1:
        raise PlanError(f"buckets={buckets}: state needs one at least; leave it out for the session's")
    labels = bucket_labels(buckets or shuffle_partitions(frames[0]))
    identity = identity_of(dataflow, len(labels), blobs.VERSION)
    lowered = Lowered(frames[0], kernels, Crossings(labels, decisions), identity, dataflow)
    merge = partial(_merge_stream, ownership) if frames[0].isStreaming else merge_batch
    reading = Reading(dataflow.sources, frames, lowered.crossings, progress)
    packed = through(lowered, reading.parcels, merge)
    observed = _counter_columns(dataflow, results=all_leave)
    return replace(lowered, packed=packed.observe(OBSERVATION, *observed))


def through(
    lowered: Lowered,
    read: Callable[[int, Sequence[Way]], DataFrame],
    merge: Merge,
    beside: Callable[[int, DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Rows of all sources through one operator after the other; `beside` may add to what each is given.

    Each takes what is for it, and lets the rest pass: so operators can be fed by several others, and
    feed several.
    """
    dataflow = lowered.dataflow
    ways = Ways.through(dataflow, lowered.kernels)
    flows: list[DataFrame] = []
    for number, kernel in enumerate(lowered.kernels):
        new = dataflow.first_read_by(dataflow.vertices[number])
        flows += (read(source, ways.of_sources[source]) for source in new)
        parcels = reduce(DataFrame.unionAll, flows)
        given = parcels if beside is None else beside(number, parcels)
        parcels = merge(given, kernel, lowered.fingerprints[number], lowered.titles[number])
        if onward := ways.of_operators.get(number):
            parcels = lowered.crossings.repack(parcels, kernel, onward)
        flows = [parcels]
    return flows[0]


def to_df(
    plan: Output,
    frames: Sequence[DataFrame],
    buckets: int | None = None,
    fusion: Fusion | None = None,
) -> DataFrame:
    """The main channel."""
    dataflow = compile(optimize(plan, fusion))
    if frames[0].isStreaming and dataflow.shedding is not None:
        raise PlanError("the load is watched by a running query: with shed() use start(), not to_df()")
    if dataflow.may_be_idle:
        raise PlanError("idle_after is watched by a running query: use start() instead of to_df()")
    if frames[0].isStreaming:
        prepare_session(frames[0])
    return lower(dataflow, frames, buckets).channel(MAIN)


def _merge_stream(
    ownership: Ownership | None, parcels: DataFrame, kernel: Kernel, plan: str, title: str
) -> DataFrame:
    processor = KernelProcessor(Work(kernel, title, ownership), uuid.uuid4().hex, plan)
    return parcels.groupBy("bucket").transformWithState(processor, PARCEL, "Append", "EventTime")


def merge_batch(parcels: DataFrame, kernel: Kernel, plan: str, title: str) -> DataFrame:
    """The same kernel over all rows at once, and over stored pages where there are any.

    Nothing is late, and at the end everything closes.
    """

    def merge(group: pa.Table) -> pa.Table:
        rows = [Parcel(**row) for row in group.to_pylist()]
        pages, others = _parted(rows, lambda row: row.channel.startswith(PAGE))
        own, out = _parted(others, lambda row: row.channel in kernel.channels)
        stored = MemoryPages({row.channel.removeprefix(PAGE): row.blob or b"" for row in pages})
        with state_of(title, rows[0].bucket):
            state = BucketState(stored, plan)
            for inputs, watermark in ((in_order(own), None), ([], THE_END)):
                if own or pages:  # a bucket may have nothing but counts that pass by
                    out += kernel.step(state, inputs, Clock(watermark, 0)).parcels(rows[0].bucket)
        return pa.Table.from_batches([parcel_batch(out)])

    return parcels.groupBy("bucket").applyInArrow(merge, PARCEL)


def _parted(rows: list[Parcel], chosen: Callable[[Parcel], bool]) -> tuple[list[Parcel], list[Parcel]]:
    return [row for row in rows if chosen(row)], [row for row in rows if not chosen(row)]


def _unpacker(unpack: Unpack) -> ArrowMap:
    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                yield from unpack(blobs.decode(blob.as_py())).to_batches()

    return unpacked


def counted_as(channel: str, rows: DataFrame) -> DataFrame:
    """How many rows each partition has, as parcels of a channel say it; no shuffle is needed for it."""
    schema = pa.schema([("bucket", pa.int32()), ("channel", pa.string()), ("rows", pa.int64())])

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pylist([{"bucket": 0, "channel": channel, "rows": found}], schema)

    return rows.select(F.lit(True)).mapInArrow(count, "bucket int, channel string, rows bigint")


def _counter_columns(dataflow: Dataflow, *, results: bool) -> list[Column]:
    channels = {name: [COUNTER + name] for name in dataflow.counters}
    channels |= {"rows_out": [*dataflow.outputs]} if results else {}
    return [
        F.coalesce(F.sum(F.when(F.col("channel").isin(among), F.col("rows"))), F.lit(0)).alias(name)
        for name, among in channels.items()
    ]
