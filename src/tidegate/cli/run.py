"""`tidegate run FILE`: start its queries, show their batches, stop them in good order."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any

from rich.console import Console

from tidegate.cli.failures import INTERRUPTED, OK, QueryFailed, cause
from tidegate.cli.notices import warn
from tidegate.cli.progress import Reports
from tidegate.cli.session import deferred_session, end_on_sigterm, interruptions
from tidegate.cli.views import View, view
from tidegate.pipeline.load import Job, load
from tidegate.pipeline.path_checks import check_places

#: How often Spark is asked for news.
_PAUSE = 0.25


def run(arguments: Namespace) -> int:
    end_on_sigterm()
    with deferred_session(arguments) as spark:
        jobs = _jobs(arguments, spark)
        check_places(jobs)
        warn(jobs)
        console = Console(highlight=False, soft_wrap=True)
        if not arguments.json:
            console.print(f"{', '.join(job.name for job in jobs)}: starting Spark …")
        running = spark()
        jobs = _jobs(arguments, running)  # once more: now Spark is asked about every expression
        with interruptions() as asked:
            return _run(running, jobs, arguments, view(console, as_json=arguments.json), asked)


def _jobs(arguments: Namespace, spark: Any) -> list[Job]:
    jobs, elsewhere = load(arguments.file, spark=spark), arguments.checkpoint
    if elsewhere is None:
        return jobs
    alone = len(jobs) == 1
    return [
        replace(job, checkpoint=str(elsewhere if alone else elsewhere / Path(job.checkpoint).name))
        for job in jobs
    ]


def _run(spark: Any, jobs: list[Job], arguments: Namespace, shown: View, asked: Event) -> int:
    began = monotonic()
    with _started(spark, jobs, once=arguments.once) as reports:
        with shown:
            _follow(reports, shown, asked)
        failures = [(r.name, e) for r in reports if (e := r.query.spark.exception()) is not None]
        ended = "failed" if failures else "interrupted" if asked.is_set() else "done"
        shown.summary({r.name: r.query.metrics for r in reports}, monotonic() - began, ended)
    for name, error in failures:
        raise QueryFailed(f"{name} failed: {cause(error)}") from error
    return INTERRUPTED if asked.is_set() else OK


@contextmanager
def _started(spark: Any, jobs: Sequence[Job], *, once: bool) -> Iterator[list[Reports]]:
    """The queries of all jobs; none of them outlives the block."""
    from tidegate.pipeline.start import start

    reports: list[Reports] = []
    try:
        for job in jobs:  # one by one: those that run are stopped if the next one cannot start
            query = start(spark, job, once=once)
            reports.append(Reports(job.name, query))
        yield reports
    finally:
        for report in reports:
            report.query.stop()


def _follow(reports: Sequence[Reports], shown: View, asked: Event) -> None:
    """Show batches until all queries have ended, one has failed, or somebody asks for the end."""
    while True:
        states = [report.query.is_active for report in reports]  # before the last batches are read
        for report in reports:
            for batch in report.new():
                shown.show(batch)
        failed = any(report.query.spark.exception() is not None for report in reports)
        if failed or not any(states) or asked.wait(_PAUSE):
            break
    for report in reports:
        report.query.stop()
