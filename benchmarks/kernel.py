"""A plan's kernel without Spark: pack → step → unpack, batch after batch, in one thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.cases import Case
from benchmarks.data import Dataset
from benchmarks.engines import row_plan
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


def run(case: Case) -> list[dict[str, Any]]:
    """The progress of each batch, in the form of Spark's."""
    if os.environ.get("POLARS_MAX_THREADS") != "1":
        raise RuntimeError("a kernel is measured on one core: set POLARS_MAX_THREADS=1")
    pa.set_cpu_count(1)
    host = OneThread(row_plan(case))
    return [_progress(host, rows) for rows in _batches(case.dataset)]


def _progress(host: OneThread, rows: pa.Table) -> dict[str, Any]:
    begun = time.perf_counter()
    out = host.batch(rows)
    millis = (time.perf_counter() - begun) * 1000
    return {
        "numInputRows": rows.num_rows,
        "durationMs": {"triggerExecution": millis},
        "observedMetrics": {"emitted": {"rows": sum(table.num_rows for table in out)}},
        "stateOperators": [{"customMetrics": {"rocksdbSstFileSize": host.stored}}],
    }


def _batches(dataset: Dataset) -> Iterator[pa.Table]:
    folder = data.folder(dataset)
    for index in range(dataset.batches):
        rows = pa.concat_tables(pq.read_table(file) for file in sorted(folder.glob(f"b{index:04d}-*")))
        yield rows.append_column(INVALID_ROW, pa.nulls(rows.num_rows, pa.string())).combine_chunks()


class OneThread:
    """The only operator of a plan, its buckets one after the other."""

    def __init__(self, plan: AnyOperator) -> None:
        dataflow = compile(optimize(plan))
        kernels = kernels_of(dataflow)
        self._unpack = {name: unpack_of(dataflow, kernels, name) for name in dataflow.channels}
        [self._kernel] = kernels
        [source] = plan.sources
        self._watermarks = WatermarkGenerator(source.tolerance)
        self._buckets = {bucket: (MemoryPages(), Resident()) for bucket in BUCKETS}

    def batch(self, rows: pa.Table) -> list[pa.Table]:
        """The results; rows of other channels are unpacked as well."""
        [only] = self._kernel.inputs
        packed = list(only.pack(rows, BUCKETS))
        clock = Clock(self._watermarks.watermark, 0)
        sent = [message for bucket in BUCKETS for message in self._step(bucket, packed, clock)]
        out = [
            (message.name, self._unpack[message.name](ipc.decode(message.blob)))
            for message in sent
            if message.kind == Kind.OUTPUT
        ]
        self._watermarks.observe([pc.max(rows["ts"].cast(pa.int64())).as_py()])
        return [table for channel, table in out if channel == MAIN]

    @property
    def stored(self) -> int:
        """Bytes of state."""
        return sum(len(page) for pages, _ in self._buckets.values() for page in pages.values())

    def _step(self, bucket: int, packed: list[Message], clock: Clock) -> list[Message]:
        own = [one for one in packed if one.bucket == bucket and one.kind == Kind.INPUT]
        pages, resident = self._buckets[bucket]
        state = BucketState(pages, "plan", resident)
        outcome = self._kernel.step(state, own, clock)
        state.commit()
        return list(outcome.messages(bucket, 0))
