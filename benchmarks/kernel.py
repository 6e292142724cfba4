"""A plan's kernel without Spark: pack → step → unpack, batch after batch, in one thread.

`python -m benchmarks.kernel [WORKLOAD…]` says where its time goes, in milliseconds of CPU time for each
batch of a workload: of several runs the fastest, so that what else the machine does hardly counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.cases import Case, catalogue
from benchmarks.data import Dataset
from benchmarks.plans import plan_of
from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.dataflow.watermarks import WatermarkGenerator
from tidegate.kernels.contract import Clock
from tidegate.kernels.invalid_rows import INVALID_ROW
from tidegate.kernels.messages import Kind, Message
from tidegate.kernels.registry import kernels_of, unpack_of
from tidegate.optimize import optimize
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import AnyOperator
from tidegate.state.pages import BucketState, MemoryPages, Resident

#: As many as a session on two cores has.
BUCKETS = range(2)

#: One of each kind of kernel, and those whose results are many.
WORKLOADS = (
    "tumbling",
    "hopping-60-10",
    "hopping-60-1",
    "session",
    "sliding-10s",
    "sliding-ahead-10s",
    "dedupe",
    "join-tumbling",
    "admission-100k",
)

#: Rows of one input, by the partition that has read them.
Partitions = Sequence[pa.Table]


@dataclass(frozen=True)
class Spent:
    """Seconds of CPU time."""

    pack: float
    step: float
    unpack: float

    @property
    def parts(self) -> tuple[float, float, float]:
        return self.pack, self.step, self.unpack


def run(case: Case) -> list[dict[str, Any]]:
    """The progress of each batch, in the form of Spark's."""
    _on_one_core()
    host = OneThread(plan_of(case))
    return [_progress(host, rows) for rows in _batches(case.datasets)]


def profile(case: Case, rounds: int) -> Spent:
    """What a steady batch of a case spends, on average over its batches; the least of several rounds."""
    _on_one_core()
    batches = list(_batches(case.datasets))
    spent = [list(_round(case, batches)) for _ in range(rounds)]
    steady = [
        [min(parts) for parts in zip(*(each[number].parts for each in spent), strict=True)]
        for number, inputs in enumerate(batches)
        if number >= case.warmup and _rows(inputs) >= case.rows
    ]
    return Spent(*(statistics.fmean(parts) for parts in zip(*steady, strict=True)))


def _round(case: Case, batches: Sequence[Sequence[Partitions]]) -> Iterator[Spent]:
    host = OneThread(plan_of(case))
    for inputs in batches:
        gc.collect()
        host.batch(*inputs)
        yield host.spent


def _on_one_core() -> None:
    if os.environ.get("POLARS_MAX_THREADS") != "1":
        raise RuntimeError("a kernel is measured on one core: set POLARS_MAX_THREADS=1")
    pa.set_cpu_count(1)


def _progress(host: OneThread, inputs: Sequence[Partitions]) -> dict[str, Any]:
    begun = time.perf_counter()
    out = host.batch(*inputs)
    millis = (time.perf_counter() - begun) * 1000
    return {
        "numInputRows": _rows(inputs),
        "durationMs": {"triggerExecution": millis},
        "observedMetrics": {"emitted": {"rows": sum(table.num_rows for table in out)}},
        "stateOperators": [{"customMetrics": {"rocksdbSstFileSize": host.stored}}],
    }


def _rows(inputs: Sequence[Partitions]) -> int:
    return sum(rows.num_rows for partitions in inputs for rows in partitions)


def _batches(datasets: Sequence[Dataset]) -> Iterator[list[Partitions]]:
    """The rows of each input, batch after batch; a file is a partition."""
    for index in range(datasets[0].batches):
        yield [_partitions(dataset, index) for dataset in datasets]


def _partitions(dataset: Dataset, index: int) -> list[pa.Table]:
    files = sorted(data.folder(dataset).glob(f"b{index:04d}-*"))
    return [rows for file in files if (rows := _read(str(file))).num_rows]


def _read(file: str) -> pa.Table:
    rows = pq.read_table(file)
    return rows.append_column(INVALID_ROW, pa.nulls(rows.num_rows, pa.string())).combine_chunks()


class OneThread:
    """The only operator of a plan, its buckets one after the other."""

    def __init__(self, plan: AnyOperator) -> None:
        dataflow = compile(optimize(plan))
        kernels = kernels_of(dataflow)
        self._unpack = {name: unpack_of(dataflow, kernels, name) for name in dataflow.channels}
        [self._kernel] = kernels
        self._watermarks = [WatermarkGenerator(source.tolerance) for source in plan.sources]
        self._buckets = {bucket: (MemoryPages(), Resident()) for bucket in BUCKETS}
        #: What the last batch took.
        self.spent = Spent(0, 0, 0)

    def batch(self, *inputs: Partitions) -> list[pa.Table]:
        """The results, from the rows of each input; rows of other channels are unpacked as well."""
        begun = time.process_time()
        packed = list(self._pack(inputs))
        packed_at = time.process_time()
        sent = self._step(packed)
        stepped_at = time.process_time()
        out = [
            (message.name, self._unpack[message.name](ipc.decode(message.blob)))
            for message in sent
            if message.kind == Kind.OUTPUT
        ]
        unpacked_at = time.process_time()
        self.spent = Spent(packed_at - begun, stepped_at - packed_at, unpacked_at - stepped_at)
        for watermark, partitions in zip(self._watermarks, inputs, strict=True):
            watermark.observe(pc.max(rows["ts"].cast(pa.int64())).as_py() for rows in partitions)
        return [table for channel, table in out if channel == MAIN]

    @property
    def stored(self) -> int:
        """Bytes of state."""
        return sum(len(page) for pages, _ in self._buckets.values() for page in pages.values())

    def _pack(self, inputs: Sequence[Partitions]) -> Iterator[Message]:
        for one, partitions in zip(self._kernel.inputs, inputs, strict=True):
            for sender, rows in enumerate(partitions):
                for message in one.pack(rows, BUCKETS):
                    yield message._replace(sender=sender)

    def _step(self, packed: list[Message]) -> list[Message]:
        known = [generator.watermark for generator in self._watermarks]
        clock = Clock(None if None in known else min(known), 0)
        return [message for bucket in BUCKETS for message in self._step_of(bucket, packed, clock)]

    def _step_of(self, bucket: int, packed: list[Message], clock: Clock) -> list[Message]:
        own = [one for one in packed if one.bucket == bucket and one.kind == Kind.INPUT]
        pages, resident = self._buckets[bucket]
        state = BucketState(pages, "plan", resident)
        outcome = self._kernel.step(state, own, clock)
        state.commit()
        return list(outcome.messages(bucket, 0))


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    chosen = [_case(name, options.quick) for name in options.names or WORKLOADS]
    print("| workload | rows | pack, ms | step, ms | unpack, ms |\n|---|---|---|---|---|", flush=True)
    for case in chosen:
        spent = profile(case, options.rounds)
        millis = (f"{part * 1000:.1f}" for part in spent.parts)
        line = (f"`{case.workload}`", f"{case.rows:,}", *millis)
        print("| " + " | ".join(line) + " |", flush=True)
        if options.json is not None:
            with open(options.json, "a") as results:
                results.write(json.dumps({"workload": case.workload, **vars(spent)}) + "\n")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.kernel", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"workloads; {', '.join(WORKLOADS)} without")
    parser.add_argument("--rounds", type=int, default=5, help="runs, of which the fastest counts")
    parser.add_argument("--json", metavar="FILE", help="append the figures to a file, too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it works")
    return parser.parse_args(arguments)


def _case(name: str, quick: bool) -> Case:
    cases = catalogue(quick)
    case = cases.get(f"{name}/tidegate") or cases.get(f"{name}/kernel")
    if case is None:
        raise SystemExit(f"no workload is called {name}")
    return replace(case, engine="kernel")


if __name__ == "__main__":
    main()
