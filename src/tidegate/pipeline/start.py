"""Jobs as running queries: read, select, through the plan, select, write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.pipeline.load import Job
from tidegate.pipeline.sinks import Selected, select, sink_of
from tidegate.plan.nodes import MAIN
from tidegate.spark import query
from tidegate.spark.lower import to_df
from tidegate.spark.passing import PassingQuery, start_passing
from tidegate.spark.readers import read
from tidegate.spark.schema import spark_schema
from tidegate.sql.program import Input, Insert

if TYPE_CHECKING:
    from tidegate.spark.schema import DataFrame

Running = query.Query | PassingQuery


def start(spark: Any, job: Job, *, once: bool = False) -> Running:
    """Start a job's query; `once` takes what is there, and ends."""
    trigger = {"availableNow": True} if once else job.trigger
    insert, frames = job.insert, [_rows(spark, one) for one in job.insert.inputs]
    sinks = {channel: sink_of(table) for channel, table in insert.sinks.items()}
    if insert.plan is None:
        rows = select(frames[0], insert.having, insert.columns)
        return start_passing(rows, job.checkpoint, sinks[MAIN], trigger=trigger, name=job.name)
    if insert.having is not None or insert.columns is not None:
        results = spark.createDataFrame([], spark_schema(insert.plan.schema))
        sinks[MAIN] = Selected(sinks[MAIN], insert.having, insert.columns, results)
    return query.start(insert.plan, frames, job.checkpoint, sinks, trigger=trigger, name=job.name)


def answer(spark: Any, insert: Insert) -> DataFrame:
    """What a query says about the rows that are there now: nothing is late, every window closes."""
    frames = [_rows(spark, one, streaming=False) for one in insert.inputs]
    rows = frames[0] if insert.plan is None else to_df(insert.plan, frames)
    return select(rows, insert.having, insert.columns)


def _rows(spark: Any, given: Input, *, streaming: bool = True) -> DataFrame:
    stream = given.stream
    rows = read(spark, stream.connector, stream.schema, stream.options, streaming=streaming)
    return select(rows, given.where, given.columns)
