"""Rows that are packed where they are read: those of a folder never pass Spark as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType, TimestampType

from tidegate.connectors.file_splits import Folder, Parquet, Piece
from tidegate.kernels.messages import Kind
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark.python_stages import MESSAGE, ArrowMap
from tidegate.spark.sources.invalid_rows import ArrowMarks

#: The column beside messages that says how far event time has come: what Spark makes the watermark from.
HIGHEST_TIME = "highest"
PACKED = StructType([*MESSAGE, StructField(HIGHEST_TIME, TimestampType())])


@dataclass(frozen=True)
class Packing:
    """What is done with the rows of files of Parquet where they are read."""

    #: What the plan reads, the event time first.
    columns: pa.Schema
    #: Whole rows: invalid ones are shown as they are.
    rows: pa.Schema
    marks: ArrowMarks
    pack: ArrowMap

    def __call__(self, uri: str, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of some pieces of files as messages."""
        rows = (batch for piece in pieces for batch in self._read(uri, piece).to_batches())
        for messages in self.pack(rows):
            yield messages.append_column(HIGHEST_TIME, _highest(messages))

    def _read(self, uri: str, piece: Piece) -> pa.Table:
        rows = _table(uri, piece, self.columns)
        return self.marks(rows, lambda: _table(uri, piece, self.rows))


def _table(uri: str, piece: Piece, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(Folder(uri, Parquet(schema)).read([piece]), schema)


def _highest(messages: pa.RecordBatch) -> pa.Array:
    """The highest event time of a chunk beside each of its messages."""
    told = pc.equal(messages.column("kind"), Kind.HIGH_WATER_MARK)
    highest = pc.max(messages.column("time").filter(told)).as_py()
    return pa.array([highest] * messages.num_rows, pa.int64()).cast(TIMESTAMP)
