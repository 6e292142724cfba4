"""Programs without operators: rows pass from their source to a sink as they are, batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.dataflow import Dataflow
from tidegate.dataflow.identity import Identity
from tidegate.kernels.messages import Kind
from tidegate.plan.channels import COUNTERS, ERROR_CHANNEL, ERRORS, MAIN, ROWS_IN
from tidegate.spark.lower import as_messages
from tidegate.spark.schema import arrow_schema
from tidegate.spark.sources.invalid_rows import invalid, is_invalid, valid


@dataclass(frozen=True)
class StatelessProgram:
    """How to get the rows of a channel out of those of a source: a physical plan without operators."""

    dataflow: Dataflow
    #: There is no state that could belong to another program.
    identity: ClassVar[Identity] = Identity(buckets=0, state_format=0, operators={})

    @classmethod
    def of(cls, rows: DataFrame) -> StatelessProgram:
        channels = {MAIN: arrow_schema(valid(rows)), ERROR_CHANNEL: ERRORS}
        return cls(Dataflow((), (), channels, COUNTERS))

    def delivers(self, channel: str, write: object) -> bool:
        """Rows come as they are, and never as messages."""
        return False

    def unpacked(self, channel: str, blobs: Iterable[bytes]) -> pa.Table:
        raise NotImplementedError("there are no messages")

    def channel(self, name: str, rows: DataFrame) -> DataFrame:
        """The valid rows, or the invalid ones as the errors channel has them."""
        return valid(rows) if name == MAIN else invalid(rows)

    def facts(self, rows: DataFrame, content_of: Collection[str] = ()) -> DataFrame:
        """How many rows each channel has, and how many came, as messages say it."""
        total, errors = F.count(F.lit(1)), F.count_if(is_invalid(rows))
        counted = rows.agg(total.alias("total"), errors.alias("errors"))
        facts = [
            _fact(Kind.OUTPUT, MAIN, rows=F.col("total") - F.col("errors")),
            _fact(Kind.OUTPUT, ERROR_CHANNEL, rows=F.col("errors")),
            _fact(Kind.COUNTER, ROWS_IN, value=F.col("total")),
            _fact(Kind.COUNTER, "errors", value=F.col("errors")),
        ]
        return as_messages(counted.select(F.inline(F.array(*facts))))


def _fact(kind: Kind, name: str, *, rows: Column | None = None, value: Column | None = None) -> Column:
    nothing = F.lit(None).cast("bigint")
    fields = {"bucket": F.lit(0), "kind": F.lit(kind), "name": F.lit(name), "rows": rows, "value": value}
    return F.struct(*((nothing if one is None else one).alias(field) for field, one in fields.items()))
