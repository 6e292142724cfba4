"""Jobs as running queries: read, select, through the plan, select, write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.connectors import SOURCES
from tidegate.errors import PlanError
from tidegate.pipeline.load import Job
from tidegate.pipeline.sinks import Selected, select, sink_of
from tidegate.plan.channels import MAIN
from tidegate.spark.lower import to_df
from tidegate.spark.query import Query, start_stateless
from tidegate.spark.query import start as start_plan
from tidegate.spark.rate_control import Pace, mark_of, marked
from tidegate.spark.schema import spark_schema
from tidegate.spark.sources.declared import Reading, pace_of, read
from tidegate.spark.sources.invalid_rows import INVALID, ORIGIN, has_origin, valid
from tidegate.spark.start_options import StartOptions
from tidegate.sql.program import Input, Insert, Projection

if TYPE_CHECKING:
    from tidegate.spark.schema import DataFrame


def start(spark: Any, job: Job, *, once: bool = False) -> Query:
    """Start a job's query; `once` takes what is there, and ends."""
    trigger = {"availableNow": True} if once else job.trigger
    insert = job.insert
    frames = [_rows(spark, one, checkpoint=job.checkpoint) for one in insert.inputs]
    pace = _watched(insert.inputs)
    sinks = {channel: sink_of(table) for channel, table in insert.sinks.items()}
    if insert.plan is not None and insert.steps:
        results = spark.createDataFrame([], spark_schema(insert.plan.schema))
        sinks[MAIN] = Selected(sinks[MAIN], insert.steps, insert.kept, results)
    options = StartOptions(job.checkpoint, sinks, trigger, job.name, pace=pace)
    if insert.plan is None:
        return start_stateless(frames[0], options)
    if _filters(insert):
        options = replace(options, selects=partial(select, steps=insert.steps))
    return start_plan(insert.plan, frames, options)


def _filters(insert: Insert) -> bool:
    """May SELECT leave some of the results out?"""
    return any(step.where is not None for step in insert.steps)


def answer(spark: Any, insert: Insert) -> DataFrame:
    """What a query says about the rows that are there now: nothing is late, every window closes."""
    frames = [_rows(spark, one, streaming=False) for one in insert.inputs]
    rows = valid(frames[0]) if insert.plan is None else to_df(insert.plan, frames)
    return select(rows, insert.steps)


def _rows(spark: Any, given: Input, *, streaming: bool = True, checkpoint: str = "") -> DataFrame:
    one = given.stream
    rows = read(Reading(spark, one.connector, one.schema, one.options, streaming, checkpoint))
    steps = [_with_origin(step) for step in given.steps] if has_origin(rows) else given.steps
    # Still marked as a reader's: none of the columns may be as it was read.
    return marked(select(rows, steps), mark_of(rows))


def _with_origin(step: Projection) -> Projection:
    """Rows that cannot be used go to the errors, whatever the condition: no value of theirs meets it."""
    where = None if step.where is None else f"({step.where}\n) OR {INVALID} IS NOT NULL"
    columns = None if step.columns is None else (*step.columns, (INVALID, INVALID), (ORIGIN, ORIGIN))
    return replace(step, where=where, columns=columns)


def _watched(inputs: Sequence[Input]) -> Pace | None:
    """The pace of sources that are not controlled while they run."""
    streams = [given.stream for given in inputs if not SOURCES[given.stream.connector].keeps_pace]
    paces = [pace for stream in streams if (pace := pace_of(stream.options))]
    if len(paces) > 1:
        raise PlanError("of the streams that a query reads from Kafka one can have a pace, not several")
    return paces[0] if paces else None
