"""Rows as lines of JSON, column by column: as Spark's JSON writer has them, with whole microseconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.kernels.row_text import row_text

#: What stands in text as it is, and what JSON wants to be escaped.
_ESCAPED = r'["\\\x00-\x1f]'

#: The JSON text of each value; null where the value is.
Texts = Callable[[pa.Array], pa.Array]


def json_lines(rows: pa.Table, durations: Collection[str] = ()) -> bytes:
    """The rows as text, a line each. Fields that are null are left out; `durations` are seconds."""
    return b"".join(_lines(batch, durations) for batch in rows.to_batches())


def _lines(rows: pa.RecordBatch, durations: Collection[str]) -> bytes:
    names, columns = rows.schema.names, rows.columns
    fields = [_field(*named, named[0] in durations) for named in zip(names, columns, strict=True)]
    if not fields:
        return b"{}\n" * rows.num_rows
    joined = _joined(*fields, null_handling="replace", null_replacement="")
    # Each field that is there begins with a comma; the first one's makes room for the brace.
    return _bytes(_joined("{", pc.utf8_slice_codeunits(joined, 1), "}\n"))


def _field(name: str, column: pa.Array, is_duration: bool) -> pa.Array:
    label = f",{json.dumps(name, ensure_ascii=False)}:"
    return _joined(label, _seconds(column) if is_duration else _texts_of(column.type)(column))


def _joined(*parts: str | pa.Array, **options: str) -> pa.Array:
    """Texts side by side; null where one of them is, unless told otherwise."""
    return pc.binary_join_element_wise(*parts, "", **options)


def _texts_of(kind: pa.DataType) -> Texts:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return _plain
    if pa.types.is_floating(kind):
        return _numbers
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted
    if pa.types.is_timestamp(kind):
        return _instants
    if pa.types.is_date(kind):
        return _dates
    return _one_by_one


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _numbers(column: pa.Array) -> pa.Array:
    """JSON has no word for infinity: Spark reads these as text."""
    texts = column.cast(pa.string())
    named = texts
    for ours, sparks in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        named = pc.if_else(pc.equal(texts, ours), sparks, named)
    return named


def _quoted(column: pa.Array) -> pa.Array:
    quoted = _joined('"', column.cast(pa.string()), '"')
    special = pc.match_substring_regex(column, _ESCAPED)
    if not pc.any(special).as_py():
        return quoted
    escaped = [json.dumps(text, ensure_ascii=False) for text in column.filter(special).to_pylist()]
    return pc.replace_with_mask(quoted, special.fill_null(False), pa.array(escaped, pa.string()))


def _instants(column: pa.Array) -> pa.Array:
    """ISO 8601; in UTC where there is a zone."""
    in_utc = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None))
    distinct = in_utc.dictionary_encode()  # windows share their bounds, and each costs a microsecond
    texts = _quoted(pc.replace_substring(distinct.dictionary.cast(pa.string()), " ", "T"))
    return texts.take(distinct.indices)


def _dates(column: pa.Array) -> pa.Array:
    return _quoted(column.cast(pa.string()))


def _seconds(column: pa.Array) -> pa.Array:
    micros = column.cast(pa.duration("us")).cast(pa.int64())
    return _numbers(pc.divide(micros.cast(pa.float64()), 1e6))


def _one_by_one(column: pa.Array) -> pa.Array:
    """Types that are rare in results: nested ones, binary, intervals."""
    values = column.to_pylist(maps_as_pydicts="lossy")
    return pa.array([None if one is None else row_text(one) for one in values], pa.string())


def _bytes(lines: pa.Array) -> bytes:
    """The text of an array of strings without nulls."""
    _, offsets, content = lines.buffers()
    ends = np.frombuffer(offsets, np.int32)
    first, last = int(ends[lines.offset]), int(ends[lines.offset + len(lines)])
    return bytes(content.slice(first, last - first).to_pybytes())
