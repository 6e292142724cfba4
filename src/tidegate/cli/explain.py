"""`tidegate explain FILE`: the plan as text, as JSON or as a diagram."""

from __future__ import annotations

import json
from argparse import Namespace

from tidegate.cli.deferred import defer
from tidegate.cli.failures import OK
from tidegate.cli.session import deferred_session


def run(arguments: Namespace) -> int:
    defer("polars", "pyarrow.compute")
    from tidegate.cli.notices import warn
    from tidegate.pipeline.explain import as_json, as_mermaid, as_text
    from tidegate.pipeline.load import load

    with deferred_session(arguments) as spark:
        jobs = load(arguments.file, spark=spark)
    warn(jobs)
    match arguments.format:
        case "json":
            print(json.dumps([as_json(job) for job in jobs], indent=2))
        case "mermaid":
            print(as_mermaid(jobs))
        case _:
            print("\n\n".join(as_text(job) for job in jobs))
    return OK
