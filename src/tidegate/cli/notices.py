"""Warnings as users see them: one line each on stderr, which changes nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tidegate.dataflow import compile
from tidegate.pipeline.load import Job
from tidegate.plan.ties import tie_warnings


def warn(jobs: Iterable[Job]) -> None:
    """Say what the queries of a file may do that their author does not expect."""
    for job in jobs:
        for warning in (
            [] if job.insert.plan is None else tie_warnings(compile(job.insert.plan).operators)
        ):
            print(f"tidegate: warning: {job.name}: {warning}", file=sys.stderr)
