"""Draining: the last batch of a query, made of what its state still holds.

The state is read as Spark stored it with the last committed micro-batch, and the same kernels run over
it as over a batch: to them the stream is over. Their results have the number of the next micro-batch.
No micro-batch ever gets it: a metadata file, written before the first row, finishes the checkpoint.

From then on nothing changes the state. A drain that is repeated after a crash gives the same rows under
the same number, and sinks that know batches by number keep none of them twice. So the next start
completes a drain that was interrupted, and then refuses to go on, as every start after it does.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.plan.nodes import AnyOperator
from tidegate.spark.batch_writer import BatchWriter
from tidegate.spark.checkpoint.metadata import (
    Drained,
    check_state_is_readable,
    stored_format,
    stored_pages,
)
from tidegate.spark.lower import PhysicalPlan, merge_batch, page_messages, through
from tidegate.spark.python_stages import MESSAGE
from tidegate.spark.session import SAFE_FORMAT, state_format
from tidegate.spark.sources.event_time import quoted

_POSITION = "__tidegate_position"


def check_can_be_drained(writer: BatchWriter) -> None:
    """What is stored must be read for it."""
    if isinstance(writer.program, PhysicalPlan):
        check_state_is_readable(writer.checkpoint)


def drain(spark: SparkSession, writer: BatchWriter) -> None:
    """Write what the stopped query holds, and mark its checkpoint as finished."""
    program, checkpoint = writer.program, writer.checkpoint
    drained = Drained.begin(checkpoint)
    if drained.done:
        return
    # Programs that only pass rows hold none, and neither does a query that has not had a batch.
    if isinstance(program, PhysicalPlan) and drained.batch:
        outputs = program.dataflow.outputs

        def in_order(channel: str, packed: DataFrame) -> DataFrame:
            rows = program.channel(channel, packed)
            return in_event_time_order(rows, outputs[channel].operator) if channel in outputs else rows

        with state_format(spark, stored_format(checkpoint) or SAFE_FORMAT):
            packed = open_results(spark, program, checkpoint, drained.now)
            writer.write_channels(packed, drained.batch, in_order)
    drained.end(checkpoint)


def open_results(spark: SparkSession, physical: PhysicalPlan, checkpoint: str, now: int) -> DataFrame:
    """What would leave the query if its stream were over: each operator's state, run to its end."""
    # Spark numbers operators from the end of the query.
    last = len(physical.kernels) - 1

    def with_pages(number: int, messages: DataFrame) -> DataFrame:
        return messages.unionAll(page_messages(stored_pages(spark, checkpoint, last - number)))

    nothing = spark.createDataFrame([], MESSAGE)
    return through(
        physical.without_delivery(), lambda *_: nothing, partial(merge_batch, now=now), with_pages
    )


def in_event_time_order(rows: DataFrame, operator: AnyOperator) -> DataFrame:
    """Results by their time; those of one time stay as their bucket emitted them, retractions first."""
    # Each result has one of these times at least; running folds have none.
    times = [F.col(quoted(name)).cast("timestamp") for name in operator.order]
    time = F.coalesce(*times, F.lit(None).cast("timestamp"))
    numbered = rows.withColumn(_POSITION, F.monotonically_increasing_id())
    return numbered.orderBy(time, _POSITION).drop(_POSITION)
