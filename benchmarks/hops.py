"""Where a steady batch spends its time: `python -m benchmarks.hops [NAME…]`, for cases of tidegate.

Spark's event log says when jobs and stages began and ended, and its progress what came before and
after them. Times are means over steady batches, in milliseconds. The table goes to the terminal.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tidegate as tg
from benchmarks.cases import Case, catalogue
from benchmarks.engines import rows_of
from benchmarks.run import run_program

#: What the columns of the table are, in the order of a batch.
HOPS = ("planning", "reading and packing", "state", "other stages", "driver", "logs", "batch")
DEFAULT = ("tumbling/tidegate", "hopping-60-1/tidegate", "session/tidegate", "sliding-10s/tidegate")


@dataclass
class Job:
    """The one job of a batch: when it ran, and for how long each of its stages."""

    begun: int
    ended: int = 0
    stages: list[int] = field(default_factory=list)


def main(names: Sequence[str]) -> None:
    cases = catalogue()
    print(f"| case | {' | '.join(HOPS)} |\n|---|{'---|' * len(HOPS)}", flush=True)
    for name in names or DEFAULT:
        shown = " | ".join(f"{value:,.0f}" for value in measured(cases[name]))
        print(f"| `{name}` | {shown} |", flush=True)


def measured(case: Case) -> list[float]:
    with tempfile.TemporaryDirectory() as log:
        settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": Path(log).as_uri()}
        plain = {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"}
        spark = tg.local_spark(cores=2, app="hops", **settings, **plain, **case.conf)
        progress, _ = run_program(case, spark)
        spark.stop()
        [file] = Path(log).iterdir()
        jobs = jobs_in(file.read_text().splitlines())
    with_input = [batch for batch in progress if rows_of(batch)]
    steady = [batch for batch in with_input[case.warmup :] if rows_of(batch) >= case.rows]
    parts = [hops(batch, jobs[batch["batchId"]]) for batch in steady]
    return [statistics.fmean(one[hop] for one in parts) for hop in HOPS]


def jobs_in(lines: Iterable[str]) -> dict[int, Job]:
    """The job of each batch, from the lines of an event log."""
    jobs: dict[int, Job] = {}
    batches: dict[int, int] = {}
    of_stages: dict[int, int] = {}
    for event in map(json.loads, lines):
        match event["Event"]:
            case "SparkListenerJobStart":
                batch = event.get("Properties", {}).get("streaming.sql.batchId")
                if batch is not None:
                    batches[event["Job ID"]] = int(batch)
                    jobs[int(batch)] = Job(event["Submission Time"])
                    of_stages |= dict.fromkeys(event["Stage IDs"], int(batch))
            case "SparkListenerJobEnd":
                if event["Job ID"] in batches:
                    jobs[batches[event["Job ID"]]].ended = event["Completion Time"]
            case "SparkListenerStageCompleted":
                stage = event["Stage Info"]
                if stage["Stage ID"] in of_stages:
                    took = stage["Completion Time"] - stage["Submission Time"]
                    jobs[of_stages[stage["Stage ID"]]].stages.append(took)
    return jobs


def hops(batch: dict[str, Any], job: Job) -> dict[str, float]:
    """What one batch spent where. The first stage reads and packs, and the last one has the state."""
    took = batch["durationMs"]
    first, *between, last = job.stages
    return {
        "planning": took["queryPlanning"],
        "reading and packing": first,
        "state": last,
        "other stages": sum(between),
        "driver": took["addBatch"] - sum(job.stages),
        "logs": took["walCommit"] + took["commitOffsets"],
        "batch": took["triggerExecution"],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
