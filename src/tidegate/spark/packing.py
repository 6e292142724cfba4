"""Rows that are packed where they are read: those of a folder never pass Spark as rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructField, StructType, TimestampType

from tidegate.connectors.folder import Folder, Parquet, Piece
from tidegate.operators.keyed import BROKEN, REASON_END
from tidegate.operators.messages import Kind
from tidegate.operators.row_text import row_texts
from tidegate.plan.columns import TIMESTAMP
from tidegate.spark.crossing import MESSAGE, ArrowMap

#: The column beside messages that says how far event time has come: what Spark makes the watermark from.
HIGHEST_TIME = "highest"
PACKED = StructType([*MESSAGE, StructField(HIGHEST_TIME, TimestampType())])

_OFFSET = re.compile(r"(Z|(UTC|GMT|UT)?((?P<sign>[+-])(?P<hours>\d{1,2})(:?(?P<minutes>\d\d))?)?)")


@dataclass(frozen=True)
class Packing:
    """What is done with the rows of files of Parquet where they are read."""

    #: What the plan reads, the event time first.
    columns: pa.Schema
    #: Whole rows: those that are broken are shown as they are.
    rows: pa.Schema
    #: The last event time that can be used, and what is said of rows beyond it.
    latest: datetime
    too_far: str
    #: The column with each row's own gap, where sessions have one.
    gap: str | None
    #: The session's time zone.
    zone: str
    pack: ArrowMap

    def __call__(self, uri: str, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """The rows of some pieces of files as messages."""
        rows = (batch for piece in pieces for batch in self._read(uri, piece).to_batches())
        for messages in self.pack(rows):
            yield messages.append_column(HIGHEST_TIME, _highest(messages))

    def _read(self, uri: str, piece: Piece) -> pa.Table:
        rows = _table(uri, piece, self.columns)
        known, time = rows.append_column(BROKEN, pa.nulls(rows.num_rows, pa.string())), rows.column(0)
        sound = pc.less_equal(time, pa.scalar(self.latest, TIMESTAMP))
        if self.gap is not None:
            sound = pc.and_(sound, pc.greater(rows.column(self.gap), pa.scalar(timedelta(0))))
        sound = pc.fill_null(sound, False)
        if pc.all(sound).as_py():
            return known
        broken = pc.invert(sound)
        texts = self._texts(_table(uri, piece, self.rows).filter(broken), time.filter(broken))
        told = pc.replace_with_mask(
            known.column(BROKEN).combine_chunks(), broken.combine_chunks(), texts
        )
        usable = pc.if_else(pc.fill_null(pc.less_equal(time, self.latest), False), time, None)
        return rows.set_column(0, rows.field(0), usable).append_column(BROKEN, told)

    def _texts(self, broken: pa.Table, time: pa.ChunkedArray) -> pa.Array:
        """Rows as the errors channel shows them; a reason that no kernel can know stands before."""
        ahead = pc.fill_null(pc.greater(time, self.latest), False).to_pylist()
        texts = row_texts(broken, _zone(self.zone))
        told = (f"{self.too_far}{REASON_END}" if far else "" for far in ahead)
        return pa.array([reason + text for reason, text in zip(told, texts, strict=True)], pa.string())


def _zone(name: str) -> tzinfo:
    """A time zone as Spark names it: a region, or how far it is from UTC."""
    offset = _OFFSET.fullmatch(name)
    if offset is None:
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            return UTC  # Spark knows a few names more, such as PST; no row is lost for those
    sign, hours, minutes = offset["sign"], int(offset["hours"] or 0), int(offset["minutes"] or 0)
    return timezone((-1 if sign == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def _table(uri: str, piece: Piece, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(Folder(uri, Parquet(schema)).read([piece]), schema)


def _highest(messages: pa.RecordBatch) -> pa.Array:
    """The highest event time of a chunk beside each of its messages."""
    told = pc.equal(messages.column("kind"), Kind.HIGH_WATER_MARK)
    highest = pc.max(messages.column("time").filter(told)).as_py()
    return pa.array([highest] * messages.num_rows, pa.int64()).cast(TIMESTAMP)
