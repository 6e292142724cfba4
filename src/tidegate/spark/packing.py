"""Rows that are packed where they are read: those of a folder never pass Spark as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.folder import Folder, Parquet, Piece
from tidegate.operators.kernel import HIGHEST
from tidegate.plan.columns import TIMESTAMP
from tidegate.spark.crossing import ArrowMap
from tidegate.spark.invalid_rows import ArrowMarks
from tidegate.spark.processor import PARCEL

#: The column beside parcels that says how far event time has come: what Spark makes the watermark from.
HIGHEST_TIME = "highest"
PACKED = f"{PARCEL}, {HIGHEST_TIME} timestamp"


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
        """The rows of some pieces of files as parcels."""
        rows = (batch for piece in pieces for batch in self._read(uri, piece).to_batches())
        for parcels in self.pack(rows):
            yield parcels.append_column(HIGHEST_TIME, _highest(parcels))

    def _read(self, uri: str, piece: Piece) -> pa.Table:
        rows = _table(uri, piece, self.columns)
        return self.marks(rows, lambda: _table(uri, piece, self.rows))


def _table(uri: str, piece: Piece, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(Folder(uri, Parquet(schema)).read([piece]), schema)


def _highest(parcels: pa.RecordBatch) -> pa.Array:
    """The highest event time of a chunk beside each of its parcels."""
    told = pc.starts_with(parcels.column("channel"), HIGHEST)
    highest = pc.max(parcels.column("rows").filter(told)).as_py()
    return pa.array([highest] * parcels.num_rows, pa.int64()).cast(TIMESTAMP)
