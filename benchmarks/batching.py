"""How fast the rows are found with which batches take as long as they should, from far too many or few.

What the right number is depends on the machine. So the query runs twice, in one process: first to find
it, and then from where the case says, as far from it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks import data
from benchmarks.cases import Case, Paced
from benchmarks.engines import paced_results, rows_of

#: Batches that may be needed to get there, and those that are then looked at.
APPROACH, HELD = 10, 15
#: Where the search for the right number begins.
_SOMEWHERE = 50_000
#: How much of the target batches may be off.
NEAR = 0.2

Progress = dict[str, Any]


def run(case: Case, spark: SparkSession) -> list[Progress]:
    """The batches of the second run."""
    assert case.paced is not None
    right = statistics.median(rows_of(batch) for batch in _batches(case, spark, _SOMEWHERE)[-5:])
    return _batches(case, spark, round(right * case.paced.start))


def judge(paced: Paced, rows: list[int], millis: list[float]) -> dict[str, Any]:
    """After how many batches they took as long as they should, and how the later ones did.

    They do where a batch and the two after it are near, in the median: one alone may be by chance.
    `began` is how many times the rows of the later ones the first had, `off_at_first` how far off its
    target the second was: the first waits for processes to start.
    """

    def off(times: list[float]) -> float:
        return abs(statistics.median(times) / paced.target_ms - 1)

    near = (number for number in range(len(millis) - 2) if off(millis[number : number + 3]) <= NEAR)
    held = millis[APPROACH:]
    return {
        "reached": next(near, len(millis)) + 1,
        "off": off(held),
        "near": sum(off([one]) <= NEAR for one in held) / len(held),
        "began": rows[0] / statistics.median(rows[APPROACH:]),
        "off_at_first": off([millis[1]]),
    }


def _batches(case: Case, spark: SparkSession, start: int) -> list[Progress]:
    assert case.paced is not None
    pace = tg.pace(f"{case.paced.target_ms} ms", start=start, most=10_000_000)
    folder = data.folder(case.dataset)
    rows = tg.read_folder(spark, folder, schema=data.SCHEMA, format="parquet", pace=pace)
    with tempfile.TemporaryDirectory(dir=data.CACHE, ignore_cleanup_errors=True) as checkpoint:
        query = paced_results(case, rows).start(checkpoint=checkpoint, main=_nowhere)
        while query.is_active and len(filled := _filled(query)) < APPROACH + HELD:
            if sum(map(rows_of, filled)) >= case.dataset.events:
                raise RuntimeError(f"all rows were read in {len(filled)} batches: there are too few")
            time.sleep(0.2)
        query.stop()
        return _filled(query)[: APPROACH + HELD]


def _filled(query: Any) -> list[Progress]:
    batches = [json.loads(batch.json) for batch in query.spark.recentProgress]
    return [batch for batch in batches if rows_of(batch)]


def _nowhere(rows: DataFrame, _: int) -> None:
    rows.write.format("noop").mode("overwrite").save()
