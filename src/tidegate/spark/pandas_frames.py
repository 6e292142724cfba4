"""Messages in frames of pandas, for versions of Spark whose stateful processors are given those.

On their way through pandas numbers that may be null are floats: whole ones up to 2**53 come out as they
went in. What operators take in is smaller, and so are counters and event times until the year 2255.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from tidegate.kernels.messages import KEPT, SCHEMA, Message

_ROW = Row(*Message._fields)


def rows_in(frame: pd.DataFrame) -> Iterator[Row]:
    """The messages of a frame. Its columns are known by their places: not every version names them."""
    columns = [frame.iloc[:, place].tolist() for place in range(len(SCHEMA))]
    typed = [_typed(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return (_ROW(*fields) for fields in zip(*typed, strict=True))


def frames_of(rows: Iterable[Row]) -> Iterator[pd.DataFrame]:
    """One frame with all rows; none if there are none."""
    columns = list(zip(*rows, strict=True))
    if columns:
        named = zip(SCHEMA.names, columns, strict=True)
        # As objects: pandas would make floats of numbers that may be null.
        yield pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in named})


def _typed(values: list[Any], kind: pa.DataType) -> list[Any]:
    if pa.types.is_integer(kind):
        return [_whole(value) for value in values]
    if pa.types.is_struct(kind):
        return [
            None if value is None else {name: _whole(value[name]) for name in KEPT} for value in values
        ]
    return values


def _whole(value: float | None) -> int | None:
    """A number that is null is no number in pandas, and does not equal itself."""
    return None if value is None or value != value else int(value)
