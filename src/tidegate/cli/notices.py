"""Warnings as users see them: one line each on stderr, which changes nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tidegate.dataflow import compile
from tidegate.pipeline.load import Job


def warn(jobs: Iterable[Job]) -> None:
    """Say what the queries of a file may do that their author does not expect."""
    for job in jobs:
        operators = () if job.insert.plan is None else compile(job.insert.plan).operators
        for operator in operators:
            if operator.tie_warning is not None:
                print(f"tidegate: warning: {job.name}: {operator.tie_warning}", file=sys.stderr)
