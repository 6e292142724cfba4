"""What results add up to: counted by each engine where the rows are, and compared between engines.

Spark observes its rows on the way to its `noop` sink. A query of tidegate is given a sink that adds them
up in the tasks, and keeps none of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidegate.columnar import ipc
from tidegate.connectors import RowType, Stage

#: Columns of results that are added up, by the names of their sums; those that a case has.
COLUMNS = {
    "events": "n",
    "spend": "spend",
    "most": "most",
    "left_price": "price_left",
    "right_price": "price_right",
}
#: Cases whose results are rows have a digest of each: short, so that sums of many are exact.
_DIGEST = "(unix_micros(ts) * 31 + cast(price * 1000 as bigint) * 17) % 4294967291"
_OF_ROWS = {"ts", "user", "price"}


def observed(rows: DataFrame, observation: str) -> DataFrame:
    """The rows of another engine, added up by Spark."""
    sums = [F.sum(column).alias(name) for name, column in COLUMNS.items() if column in rows.columns]
    if set(rows.columns) == _OF_ROWS:
        sums.append(F.sum(F.expr(_DIGEST)).alias("digest"))
    return rows.observe(observation, F.count(F.lit(1)).alias("rows"), *sums)


class Adding:
    """Adds up the rows of a task; the receipt has the sums."""

    def write(self, tables: Iterable[pa.Table]) -> bytes:
        totals: Counter[str] = Counter()
        for table in tables:
            totals.update(_sums(table))
        return json.dumps(totals).encode()


@dataclass(frozen=True)
class Sums:
    """A sink that keeps what results add up to."""

    batches: dict[int, Counter[str]] = field(default_factory=dict)

    def __call__(self, rows: Any, batch_id: int) -> None:
        raise TypeError("tasks add up their rows")

    def stage(self, rows: RowType) -> Stage:
        return Adding()

    def commit(self, receipts: Sequence[bytes], batch_id: int) -> None:
        total: Counter[str] = Counter()
        for receipt in receipts:
            total.update(json.loads(receipt))
        self.batches[batch_id] = total

    def total(self) -> dict[str, float]:
        return dict(sum(self.batches.values(), Counter()))


def _sums(table: pa.Table) -> dict[str, float]:
    rows = ipc.to_polars(table)
    sign: Any = 1
    if "op" in rows.columns:  # what is taken back counts against what was put out
        sign = np.where(rows["op"].str.starts_with("-").to_numpy(), -1, 1)
    found: dict[str, float] = {"rows": len(rows)}
    for name, column in COLUMNS.items():
        if column in rows.columns:
            found[name] = (rows[column].to_numpy() * sign).sum().item()
    if set(rows.columns) == _OF_ROWS:
        instants, prices = rows["ts"].cast(pl.Int64).to_numpy(), rows["price"].to_numpy()
        found["digest"] = (
            ((instants * 31 + (prices * 1000).astype(np.int64) * 17) % 4294967291).sum().item()
        )
    return found
