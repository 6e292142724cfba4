"""Invalid rows on Spark: how decoders and sources mark them, and how marks travel to the operators.

A decoder adds two columns to its rows: why a row is invalid, and where it came from, with its payload.
A source marks every row that it cannot use: the `errors` channel then shows the whole row, or the origin
of a decoded one, as JSON.

    reason: field 'price' is not of type double: three
    row:    {"topic":"clicks","partition":0,"offset":7,"key":"ann","payload":"{\\"price\\":\\"three\\"}"}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from weakref import WeakKeyDictionary
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidegate.kernels.invalid_rows import INVALID_ROW, REASON_END
from tidegate.kernels.row_text import TO_THE_MICROSECOND, row_texts
from tidegate.plan.schema import TIMESTAMP, collation_of
from tidegate.plan.sources import Source

#: Why a decoded row is invalid, null where it is valid; and where it came from, as a struct.
INVALID, ORIGIN = "__tidegate_invalid", "__tidegate_origin"

TOMBSTONE = "the message is a tombstone: it has no value"
EMPTY = "the payload is empty"
NOT_UTF_8 = "the payload is not valid UTF-8"
NOT_JSON = "the payload is not a JSON object"

_OFFSET = re.compile(r"(Z|(UTC|GMT|UT)?((?P<sign>[+-])(?P<hours>\d{1,2})(:?(?P<minutes>\d\d))?)?)")


def row_json(row: Column) -> Column:
    """A row, or the origin of one, as JSON text that Spark's `from_json` reads back."""
    return F.to_json(row, TO_THE_MICROSECOND)


# -- decoded rows ---------------------------------------------------------------------------------

#: Decoded rows by the DataFrames that users have of them, which show nothing of their origin.
_DECODED: WeakKeyDictionary[DataFrame, DataFrame] = WeakKeyDictionary()


def without_origin(decoded: DataFrame) -> DataFrame:
    """The columns of the schema alone; `with_origin` finds the others again."""
    rows = decoded.drop(INVALID, ORIGIN)
    _DECODED[rows] = decoded
    return rows


def with_origin(rows: DataFrame) -> DataFrame:
    """The same rows with what is known of them; as they are, if that is nothing."""
    return _DECODED.get(rows, rows)


def has_origin(rows: DataFrame) -> bool:
    return INVALID in rows.columns


def is_invalid(rows: DataFrame) -> Column:
    return F.col(INVALID).isNotNull() if has_origin(rows) else F.lit(False)


def valid(rows: DataFrame) -> DataFrame:
    """The rows that can be used, without their origin."""
    return rows.where(F.col(INVALID).isNull()).drop(INVALID, ORIGIN) if has_origin(rows) else rows


def invalid(rows: DataFrame) -> DataFrame:
    """The others, as the errors channel has them."""
    reason, row = F.col(INVALID).alias("reason"), row_json(F.col(ORIGIN)).alias("row")
    return rows.where(F.col(INVALID).isNotNull()).select(reason, row)


# -- rows of sources ------------------------------------------------------------------------------


def carrier(source: Source) -> str:
    """The column that marks travel in: a text column that is read anyway, if there is one.

    One more column, null almost everywhere, would slow down the hand-over of every row.
    """
    texts = [
        f.name
        for f in source.schema
        # Spark does not mix text of one collation with text of another.
        if f.type == pa.string() and collation_of(f) is None and f.name != source.time
    ]
    return texts[0] if texts else INVALID_ROW


def mark(own: Column, valid: Column, reason: Column, whole: Column) -> Column:
    """The carrier: its own value in valid rows; in others the whole row, behind the reason if known."""
    # What is wrong is only looked into where something is.
    marked = F.when(reason.isNull(), whole).otherwise(F.concat(reason, F.lit(REASON_END), whole))
    return F.when(valid, own).otherwise(marked)


def take_marks(rows: pa.Table, carrier: str, *, only_invalid: bool) -> pa.Table:
    """Rows with the marks in a column of their own.

    Operators look at the marks of invalid rows alone, so those of valid rows only have to be null where
    rows take steps first, or go to several operators: `only_invalid`.
    """
    if carrier == INVALID_ROW:
        return rows
    text = rows.column(carrier)
    if only_invalid:
        text = pc.if_else(rows.column(0).is_null(), text, pa.scalar(None, text.type))
    return rows.append_column(INVALID_ROW, text)


@dataclass(frozen=True)
class ArrowMarks:
    """Marks for rows that never pass Spark as rows, the event time first among their columns."""

    #: The last event time that can be used, and what is said of rows beyond it.
    latest: datetime
    too_far_ahead: str
    #: The column with each row's own gap, where sessions have one.
    gap: str | None
    #: The session's time zone.
    zone: str

    def __call__(self, rows: pa.Table, whole_rows: Callable[[], pa.Table]) -> pa.Table:
        """Rows with their marks; `whole_rows` gives them with all their columns, if that is needed."""
        time, unmarked = rows.column(0), pa.nulls(rows.num_rows, pa.string())
        in_time = pc.fill_null(pc.less_equal(time, pa.scalar(self.latest, TIMESTAMP)), False)
        valid = in_time
        if self.gap is not None:
            has_gap = pc.greater(rows.column(self.gap), pa.scalar(timedelta(0)))
            valid = pc.and_(in_time, pc.fill_null(has_gap, False))
        if pc.all(valid).as_py():
            return rows.append_column(INVALID_ROW, unmarked)
        invalid = pc.invert(valid)
        texts = self._texts(whole_rows().filter(invalid), time.filter(invalid))
        marks = pc.replace_with_mask(unmarked, invalid.combine_chunks(), texts)
        usable = pc.if_else(in_time, time, None)
        return rows.set_column(0, rows.field(0), usable).append_column(INVALID_ROW, marks)

    def _texts(self, whole: pa.Table, time: pa.ChunkedArray) -> pa.Array:
        ahead = pc.fill_null(pc.greater(time, self.latest), False).to_pylist()
        reasons = (f"{self.too_far_ahead}{REASON_END}" if far else "" for far in ahead)
        texts = row_texts(whole, _zone(self.zone))
        return pa.array([one + text for one, text in zip(reasons, texts, strict=True)], pa.string())


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
