"""`tidegate validate FILE`: can it mean something? Nothing is started."""

from __future__ import annotations

from argparse import Namespace

from tidegate.cli.deferred import defer
from tidegate.cli.failures import OK


def run(arguments: Namespace) -> int:
    defer("polars", "pyarrow.compute")
    from tidegate.cli.notices import warn
    from tidegate.pipeline.load import load

    jobs = load(arguments.file)
    warn(jobs)
    print(f"{arguments.file}: ok, {', '.join(job.name for job in jobs)}")
    return OK
