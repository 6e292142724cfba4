"""A plan as Spark DataFrames: pack → merge → unpack, the whole flow of a query in one place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.columnar import ipc
from tidegate.connectors import ArrowWrite, Sink
from tidegate.dataflow import Dataflow, compile
from tidegate.dataflow.identity import Identity, fingerprint, identity_of
from tidegate.errors import PlanError, ResultOverflow, did_you_mean
from tidegate.kernels.contract import Clock, Kernel, Outcome, Unpack
from tidegate.kernels.late import THE_END
from tidegate.kernels.messages import FACTS, Kind, Message, in_order, message_batch, messages_in
from tidegate.kernels.registry import kernels_of, unpack_of
from tidegate.kernels.routes import Route, Routes
from tidegate.optimize import optimize
from tidegate.plan.channels import ERROR_CHANNEL, MAIN
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.steps import Fusion
from tidegate.spark.checkpoint.ownership import Ownership
from tidegate.spark.delivery import Delivery, delivery_of
from tidegate.spark.executors import check_executors
from tidegate.spark.host import Work
from tidegate.spark.load_shedding import Decisions
from tidegate.spark.processor import KernelProcessor, PandasKernelProcessor
from tidegate.spark.python_stages import MESSAGE, ArrowMap, PythonStages
from tidegate.spark.schema import spark_schema
from tidegate.spark.session import is_ansi, prepare_session, shuffle_partitions
from tidegate.spark.sources.reading import Reading
from tidegate.spark.versions import state_api
from tidegate.state.pages import BucketState, MemoryPages, state_of

#: The name under which Spark's progress shows the counters.
OBSERVATION = "tidegate"

#: Messages, an operator, and what tells its state from that of other plans.
Merge = Callable[[DataFrame, Work, str], DataFrame]


@dataclass(frozen=True)
class TaskSettings:
    """What tasks of a running query look at beside its checkpoint."""

    #: The file that says how far each source has come, where one may be idle.
    progress: str | None = None
    #: How many rows must go, where load is shed.
    decisions: Decisions | None = None
    #: What is checked before state is committed.
    ownership: Ownership | None = None
    #: Is a result that overflows an error? So it is in Spark's ANSI mode; else it is null.
    ansi: bool = False
    #: What Spark calls the operators of the checkpoint, if it has any.
    stored_operator: str | None = None
    #: The sinks, by channel: tasks write into some of them.
    sinks: Mapping[str, Sink] | None = None


@dataclass(frozen=True)
class PhysicalPlan:
    """A dataflow as Spark runs it, made of values: it is shipped to where batches are written."""

    dataflow: Dataflow
    kernels: Sequence[Kernel]
    stages: PythonStages
    identity: Identity
    settings: TaskSettings

    def facts(self, packed: DataFrame, content_of: Collection[str] = ()) -> DataFrame:
        """What the messages say; of these channels with their content.

        Messages of channels without a sink have no content. So if all others are meant, they are taken
        as they are: to choose their fields, Spark would plan a query of its own in each batch.
        """
        if set(self.settings.sinks or ()) == set(content_of) != set():
            return packed
        content = F.when(is_output(*content_of), F.col("blob")) if content_of else F.lit(None)
        return packed.select(*FACTS, content.cast("binary").alias("blob"))

    def delivers(self, channel: str, write: object) -> bool:
        """Do the messages have all that a sink needs, rows or receipts?"""
        return isinstance(write, ArrowWrite) or channel in self.stages.delivery.channels

    def unpacked(self, channel: str, blobs: Iterable[bytes]) -> pa.Table:
        """Rows of a channel from the content of its messages."""
        unpack = unpack_of(self.dataflow, self.kernels, channel)
        schema = self.dataflow.channels[channel]
        tables = (unpack(ipc.decode(blob)).cast(schema) for blob in blobs)
        return pa.concat_tables([schema.empty_table(), *tables])

    def without_delivery(self) -> PhysicalPlan:
        """The same plan, whose rows all leave it as messages."""
        return replace(self, stages=replace(self.stages, delivery=Delivery()))

    def packed(self, frames: Sequence[DataFrame], *, counts_results: bool = True) -> DataFrame:
        """The messages of all channels. `frames` are the sources' rows.

        If some results are left out before they are written, whoever does that counts them.
        """
        batch = partial(merge_batch, strict=self.settings.ansi)
        merge = partial(_merge_stream, self.settings) if frames[0].isStreaming else batch
        reading = Reading(self.dataflow.sources, frames, self.stages, self.settings.progress)
        observed = _counter_columns(self.dataflow, results=counts_results)
        return through(self, reading.messages, merge).observe(OBSERVATION, *observed)

    def channel(self, name: str, packed: DataFrame) -> DataFrame:
        """The rows of one channel."""
        chosen = packed.filter(is_output(name))
        unpack, schema = unpack_of(self.dataflow, self.kernels, name), self.dataflow.channels[name]
        return chosen.select("blob").mapInArrow(_unpacker(unpack), spark_schema(schema))

    @property
    def fingerprints(self) -> list[str]:
        """What tells each operator's state from that of another plan."""
        return [fingerprint(self.identity.own(vertex.id)) for vertex in self.dataflow.vertices]

    @property
    def titles(self) -> list[str]:
        """What users call each operator."""
        return [self.identity.title(vertex.id) for vertex in self.dataflow.vertices]


def lower(dataflow: Dataflow, buckets: int, settings: TaskSettings | None = None) -> PhysicalPlan:
    """How a dataflow runs with its state in so many buckets."""
    if buckets < 1:
        raise PlanError(f"buckets={buckets}: state needs one at least; leave it out for the session's")
    labels, settings = bucket_labels(buckets), settings or TaskSettings()
    kernels, delivery = kernels_of(dataflow, ansi=settings.ansi), Delivery()
    if settings.sinks is not None:
        delivery = delivery_of(dataflow, kernels, settings.sinks)
    return PhysicalPlan(
        dataflow,
        kernels,
        PythonStages(labels, settings.decisions, delivery),
        identity_of(dataflow, len(labels), ipc.VERSION),
        settings,
    )


def through(
    physical: PhysicalPlan,
    read: Callable[[int, Sequence[Route]], DataFrame],
    merge: Merge,
    beside: Callable[[int, DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """Rows of all sources through one operator after the other; `beside` may add to what each is given.

    Each takes what is for it, and lets the rest pass: so operators can read several others, and
    be read by several.
    """
    dataflow = physical.dataflow
    routes = Routes.through(dataflow, physical.kernels)
    flows: list[DataFrame] = []
    for number, kernel in enumerate(physical.kernels):
        new = dataflow.first_read_by(dataflow.vertices[number])
        flows += (read(source, routes.of_sources[source]) for source in new)
        messages = reduce(DataFrame.unionAll, flows)
        given = messages if beside is None else beside(number, messages)
        onward, delivery = routes.of_operators.get(number), physical.stages.delivery
        here = delivery.without(kernel.output_channel) if onward else delivery
        work = Work(kernel, number, physical.titles[number], delivery=here)
        messages = merge(given, work, physical.fingerprints[number])
        if onward:
            messages = physical.stages.repack(messages, kernel, onward)
        flows = [messages]
    return flows[0]


def to_df(
    plan: AnyOperator,
    frames: Sequence[DataFrame],
    channel: str = MAIN,
    *,
    buckets: int | None = None,
    fusion: Fusion | None = None,
) -> DataFrame:
    """The rows of a channel: of a batch any, of a stream the main one."""
    dataflow = compile(optimize(plan, fusion))
    if channel not in dataflow.channels:
        raise PlanError(f"to_df(channel={channel!r}): {did_you_mean(channel, [*dataflow.channels])}")
    if frames[0].isStreaming and channel != MAIN:
        raise PlanError(
            f"to_df(channel={channel!r}) is for batch DataFrames: to write other channels of a stream "
            "than 'main', give each a sink with start()"
        )
    if frames[0].isStreaming and dataflow.shedding is not None:
        raise PlanError("the load is watched by a running query: with shed() use start(), not to_df()")
    if dataflow.may_be_idle:
        raise PlanError("idle_after is watched by a running query: use start() instead of to_df()")
    if frames[0].isStreaming:
        prepare_session(frames)
    check_executors(frames[0].sparkSession)
    settings = TaskSettings(ansi=is_ansi(frames[0].sparkSession))
    buckets = shuffle_partitions(frames[0]) if buckets is None else buckets
    physical = lower(dataflow, buckets, settings)
    return physical.channel(channel, physical.packed(frames))


def _merge_stream(settings: TaskSettings, messages: DataFrame, work: Work, plan: str) -> DataFrame:
    api = state_api(settings.stored_operator)
    kind = PandasKernelProcessor if api.in_pandas else KernelProcessor
    processor = kind(replace(work, ownership=settings.ownership), uuid.uuid4().hex, plan)
    return api.run(messages, "bucket", processor, MESSAGE)


def merge_batch(
    messages: DataFrame, work: Work, plan: str, *, now: int = 0, strict: bool = False
) -> DataFrame:
    """The same kernel over all rows at once, and over stored pages where there are any.

    Nothing is late, and at the end everything closes. `now` is the batch's own time. If it is `strict`,
    a result that overflows is an error: nobody reads the errors of a batch.
    """

    def merge(group: pa.Table) -> pa.Table:
        given = messages_in(group)
        bucket = given[0].bucket
        pages, others = _parted(given, lambda one: one.kind == Kind.PAGE)
        own, out = _parted(others, lambda one: one.is_for(work.vertex))
        stored = MemoryPages({page.name or "": page.blob or b"" for page in pages})
        with state_of(work.title, bucket):
            state = BucketState(stored, plan)
            for inputs, watermark in ((in_order(own), None), ([], THE_END)):
                if own or pages:  # a bucket may have nothing but counts that pass by
                    outcome = work.kernel.step(state, inputs, Clock(watermark, now))
                    if strict:
                        _refuse_overflow(outcome)
                    out += outcome.messages(bucket, work.vertex)
        return pa.Table.from_batches([message_batch(out)])

    return messages.groupBy("bucket").applyInArrow(merge, MESSAGE)


def _refuse_overflow(outcome: Outcome) -> None:
    for channel, tables in outcome.tables:
        if channel == ERROR_CHANNEL:
            reason, row = tables[-1].slice(0, 1).to_pylist()[0].values()
            raise ResultOverflow(
                f"{reason}, in the result {row}; cast the column to a wider type, or set "
                "spark.sql.ansi.enabled to false to have null"
            )


def page_messages(pages: DataFrame) -> DataFrame:
    """Stored pages, as `bucket`, `name` and `page`, for the operator whose state they are."""
    return as_messages(
        pages.select("bucket", F.lit(Kind.PAGE).alias("kind"), "name", F.col("page").alias("blob"))
    )


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows that have some of a message's fields, with all of them."""
    nothing, known = F.lit(None), set(rows.columns)
    return rows.select(
        *(
            (F.col(one.name) if one.name in known else nothing).cast(one.dataType).alias(one.name)
            for one in MESSAGE
        )
    )


def _parted(
    messages: list[Message], chosen: Callable[[Message], bool]
) -> tuple[list[Message], list[Message]]:
    return [one for one in messages if chosen(one)], [one for one in messages if not chosen(one)]


def _unpacker(unpack: Unpack) -> ArrowMap:
    def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                yield from unpack(ipc.decode(blob.as_py())).to_batches()

    return unpacked


def counted_as(channel: str, rows: DataFrame) -> DataFrame:
    """How many rows each partition has, as messages of a channel say it; no shuffle is needed for it."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = sum(batch.num_rows for batch in batches)
        yield message_batch([Message.output(0, channel, found, None)])

    return rows.select(F.lit(True)).mapInArrow(count, MESSAGE)


def is_output(*channels: str) -> Column:
    """Are messages rows of one of the channels?"""
    return (F.col("kind") == Kind.OUTPUT) & F.col("name").isin(*channels)


def _counter_columns(dataflow: Dataflow, *, results: bool) -> list[Column]:
    kind, name = F.col("kind"), F.col("name")
    columns = {
        counter: F.when((kind == Kind.COUNTER) & (name == counter), F.col("value"))
        for counter in dataflow.counters
    }
    if results:
        leaving = (kind == Kind.OUTPUT) & name.isin([*dataflow.outputs])
        columns["rows_out"] = F.when(leaving, F.col("rows"))
    return [F.coalesce(F.sum(column), F.lit(0)).alias(name) for name, column in columns.items()]


def bucket_labels(buckets: int) -> list[int]:
    """The first labels, in counting order, of which each of as many partitions gets one."""
    labels: dict[int, int] = {}
    label = 0
    while len(labels) < buckets:
        labels.setdefault(_murmur3(label) % buckets, label)
        label += 1
    return sorted(labels.values())


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's `hash()` of an int, as a signed 32-bit number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) & mask
    h = seed ^ (k * 0x1B873593 & mask)
    h = (h << 13 | h >> 19) & mask
    h = (h * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
