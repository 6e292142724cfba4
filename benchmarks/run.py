"""Run one case in this process and print what it measured as one line of JSON.

python -m benchmarks.run tumbling/spark [--quick]
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import tidegate as tg
from benchmarks import batching, data, kernel, pairs
from benchmarks.cases import Case, Join, catalogue
from benchmarks.engines import program, results, rows_of
from benchmarks.sums import COLUMNS, Sums, observed
from tidegate.plan.channels import MAIN

_EMITTED = "emitted"
_CONF = ("spark.sql.", "spark.python.", "spark.driver.memory", "spark.master")
#: Durations of a batch, in the order Spark runs through them.
PARTS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")

Progress = dict[str, Any]


def main(name: str, quick: bool) -> None:
    case = catalogue(quick)[name]
    result = _alone(case) if case.engine == "kernel" else _on_spark(case)
    print(json.dumps(result), flush=True)


def _alone(case: Case) -> dict[str, Any]:
    begun = time.perf_counter()
    result = measure(case, kernel.run(case))
    return result | {"total_s": time.perf_counter() - begun}


def _on_spark(case: Case) -> dict[str, Any]:
    begun = time.perf_counter()
    spark = tg.local_spark(cores=2, app="benchmark", **_settings(case))
    spark.sparkContext.setLogLevel("ERROR")
    query_begun = time.perf_counter()
    emitted: dict[str, float] | None = None
    if case.paced is not None:
        progress = batching.run(case, spark)
    elif case.engine == "tidegate":
        progress, emitted = run_program(case, spark)
    else:
        progress = _run(case, results(case, *_sources(case, spark)))
    ended = time.perf_counter()
    result = measure(case, progress)
    if emitted is not None:
        result["emitted"] = dict.fromkeys(result["emitted"], 0) | emitted
    if case.paced is not None:
        result["paced"] = batching.judge(case.paced, result["batch_rows"], result["batch_ms"])
    result |= {"total_s": ended - begun, "query_s": ended - query_begun, "conf": _conf(spark)}
    spark.stop()
    if isinstance(case.window, Join):
        result["wanted_pairs"] = pairs.wanted(case)
    return result


def measure(case: Case, progress: list[Progress]) -> dict[str, Any]:
    """What a query's progress says about a case."""
    with_input = [batch for batch in progress if rows_of(batch)]
    steady = [batch for batch in with_input[case.warmup :] if rows_of(batch) >= case.rows]
    times = [batch["durationMs"]["triggerExecution"] for batch in steady]
    mean = statistics.fmean(times)
    return {
        "case": case.name,
        "workload": case.workload,
        "engine": case.engine,
        "steady": {
            "batches": len(times),
            "mean_ms": mean,
            "median_ms": statistics.median(times),
            "events_per_s": case.rows / mean * 1000,
            "parts_ms": {part: _mean_part(steady, part) for part in PARTS},
        },
        "emitted": _emitted(progress),
        "state": _state(steady[-1]),
        "batch_state_bytes": [_state(batch).get("rocksdbSstFileSize", 0) for batch in with_input],
        "batch_ms": [batch["durationMs"]["triggerExecution"] for batch in progress],
        "batch_rows": [rows_of(batch) for batch in progress],
    }


def _settings(case: Case) -> dict[str, str]:
    return {"spark.sql.streaming.numRecentProgressUpdates": "1000"} | case.conf


def _sources(case: Case, spark: SparkSession) -> Iterator[DataFrame]:
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    for dataset in case.datasets:
        if case.reader == "folder":
            path, rows = data.folder(dataset), dataset.rows
            yield tg.read_folder(spark, path, schema=data.SCHEMA, format="parquet", max_rows=rows)
            continue
        files = reader.option("maxFilesPerTrigger", dataset.files)
        yield files.parquet(str(data.folder(dataset)))


def run_program(case: Case, spark: SparkSession) -> tuple[list[Progress], dict[str, float]]:
    """Everything there is, by a query as users start it, into a sink that adds it up."""
    startable, fusion = program(case, *_sources(case, spark))
    with tempfile.TemporaryDirectory(dir=data.CACHE, ignore_cleanup_errors=True) as checkpoint:
        sums = Sums()
        query = startable.start(
            checkpoint=checkpoint,
            trigger={"availableNow": True},
            name=case.name,
            fusion=fusion,
            sinks={name: sums if name == MAIN else tg.sinks.discard() for name in startable.channels},
        )
        query.await_termination()
        return [json.loads(batch.json) for batch in query.spark.recentProgress], sums.total()


def _run(case: Case, rows: DataFrame) -> list[Progress]:
    """Everything there is, to nowhere; the observation counts what arrives there."""
    writer = observed(rows, _EMITTED).writeStream.format("noop").outputMode("append")
    with tempfile.TemporaryDirectory(dir=data.CACHE, ignore_cleanup_errors=True) as checkpoint:
        writer = writer.option("checkpointLocation", checkpoint).queryName(case.name)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(batch.json) for batch in query.recentProgress]


def _mean_part(batches: list[Progress], part: str) -> float:
    return statistics.fmean(batch["durationMs"].get(part, 0) for batch in batches)


def _emitted(progress: list[Progress]) -> dict[str, float]:
    found = [batch.get("observedMetrics", {}).get(_EMITTED) or {} for batch in progress]
    names = ("rows", *COLUMNS, "digest")
    return {name: sum(one.get(name) or 0 for one in found) for name in names}


def _state(batch: Progress) -> dict[str, int]:
    """What the last steady batch says about the state it left."""
    operators = batch.get("stateOperators", [])
    sizes = {
        name: sum(operator.get(name, 0) for operator in operators)
        # Not `numRowsTotal`: sessions of the benchmark do not count rows, and it would read 0.
        for name in ("numRowsRemoved", "memoryUsedBytes", "commitTimeMs")
    }
    custom = [operator.get("customMetrics", {}) for operator in operators]
    names = sorted({name for metrics in custom for name in metrics if "Bytes" in name or "Size" in name})
    return sizes | {name: sum(metrics.get(name, 0) for metrics in custom) for name in names}


def _conf(spark: SparkSession) -> dict[str, str]:
    pairs = sorted(spark.sparkContext.getConf().getAll())
    return {name: value for name, value in pairs if name.startswith(_CONF) and "dir" not in name}


if __name__ == "__main__":
    main(sys.argv[1], "--quick" in sys.argv[2:])
