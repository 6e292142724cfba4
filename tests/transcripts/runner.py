"""The ways of running a transcript. Each returns how its results differ from the script."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import tidegate as tg
from tests.oracle import Oracle
from tests.spark.files import file_stream, write_files
from tests.support.python_stage_host import PythonStageHost
from tests.support.steps import FUSIONS, in_circles, with_steps
from tidegate.dataflow import compile
from tidegate.optimize import optimize
from tidegate.plan.nodes import Plan
from tidegate.spark import query as queries
from tidegate.spark.start_options import StartOptions
from tidegate.testing import BatchResult, KernelHost, Transcript, check, run
from tidegate.testing.table import micros_of, to_arrow

#: After steps nobody knows what this row was before: one of them may have changed its gap.
OWN_GAP_MISSING = "a row whose own gap is missing"


def on_kernels(transcript: Transcript, buckets: int = 1) -> list[str]:
    """On the kernels."""
    host = KernelHost(transcript.plan, buckets=buckets)
    return transcript.complaints(run(transcript, host))


def after_restarts(transcript: Transcript) -> list[str]:
    """On the kernels, which only have stored state after each batch."""
    host = KernelHost(transcript.plan, buckets=2)
    return transcript.complaints(run(transcript, host, between=host.restart))


def left_at_the_end(transcript: Transcript) -> list[str]:
    """The pages that are still stored when the input has ended."""
    host = KernelHost(transcript.plan, buckets=2)
    run(transcript, host)
    host.end()
    return [page for pages in host.stored.values() for page in pages]


def on_the_oracle(transcript: Transcript) -> list[str]:
    """On the oracle, which keeps every window by itself."""
    oracle, host = Oracle(transcript.plan), KernelHost(transcript.plan)
    results = []
    for step in transcript.steps:
        results.append(oracle.batch_of(step.rows, host.watermark_micros, step.now))
        host.observe(*step.rows)
    return transcript.complaints(results)


@dataclass(frozen=True)
class Planned:
    """A program of which there is only the plan."""

    node: Plan


def in_a_dry_run(transcript: Transcript) -> list[str]:
    """As users run their own transcripts, with watermarks in whole milliseconds, as Spark has them."""
    try:
        check(Planned(transcript.plan), transcript.script)
    except AssertionError as differs:
        return str(differs).splitlines()
    return []


def on_python_stages(transcript: Transcript) -> list[str]:
    """Through the Python stages of a Spark query, without Spark."""
    return transcript.complaints(run(transcript, PythonStageHost(transcript.plan)))


def with_idle_steps(transcript: Transcript) -> Transcript:
    """The transcript with steps before each operator that change nothing."""
    return replace(transcript, plan=with_steps(transcript.plan, in_circles))


def through_steps(transcript: Transcript, fusion: str) -> list[str]:
    """Through the Python stages, with steps before each operator that change nothing."""
    plan = optimize(with_idle_steps(transcript).plan, FUSIONS[fusion])
    found = transcript.complaints(run(transcript, PythonStageHost(plan, buckets=2)))
    if transcript.name.startswith(OWN_GAP_MISSING):
        return [line for line in found if "errors: " not in line]
    return found


def on_spark(transcript: Transcript, spark: Any, folder: Path, fusion: str = "fused") -> list[str]:
    """As a streaming query over files, one a micro-batch; an empty last batch is Spark's own."""
    streams = []
    for number, source in enumerate(transcript.plan.sources):
        given = (to_arrow(step.rows[number], source.row_schema) for step in transcript.steps)
        write_files(folder / str(number), (rows for rows in given if rows.num_rows))
        streams.append(file_stream(spark, folder / str(number), source.row_schema))
    sinks = {name: tg.sinks.memory() for name in compile(transcript.plan).channels}
    trigger = {"availableNow": True}
    options = StartOptions(str(folder / "checkpoint"), sinks, trigger, fusion=FUSIONS[fusion])
    query = queries.start(transcript.plan, streams, options)
    query.await_termination()
    progress = {entry.batchId: entry for entry in query.spark.recentProgress}
    results = []
    for batch in range(len(transcript.steps)):
        result = BatchResult(_watermark(progress[batch]))
        result.counts.update(progress[batch].observedMetrics["tidegate"].asDict())
        for name, sink in sinks.items():
            result.put(name, *(sink.batches[batch].to_pylist() if batch in sink.batches else []))
        results.append(result)
    return transcript.complaints(results)


def _watermark(progress: Any) -> int | None:
    reached = micros_of(datetime.fromisoformat(progress.eventTime["watermark"]))
    return reached or None  # Spark's zero means that there is none yet
