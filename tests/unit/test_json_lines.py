"""Lines of JSON: what a JSON parser reads from them is what was in the rows."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.json_lines import json_lines

NOON = datetime(2024, 5, 1, 12, 0, 0, 999_999, UTC)


def read(table: pa.Table, *durations: str) -> list[dict[str, Any]]:
    text = json_lines(table, durations).decode()
    assert text.endswith("\n") or not text
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_fields_that_are_null_are_left_out() -> None:
    table = pa.table({"a": [None, 1], "b": ["x", None], "c": pa.nulls(2)})
    assert read(table) == [{"b": "x"}, {"a": 1}]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (NOON, pa.timestamp("us", "UTC"), "2024-05-01T12:00:00.999999Z"),
        (NOON, pa.timestamp("us", "Asia/Kolkata"), "2024-05-01T12:00:00.999999Z"),
        (datetime(1, 1, 1), pa.timestamp("us"), "0001-01-01T00:00:00.000000"),
        (date(2024, 5, 1), pa.date32(), "2024-05-01"),
        (float("nan"), pa.float64(), "NaN"),
        (float("-inf"), pa.float32(), "-Infinity"),
        (0.1, pa.float32(), 0.1),
        (1e300, pa.float64(), 1e300),
        (Decimal("12.50"), pa.decimal128(38, 2), 12.5),
        (True, pa.bool_(), True),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (b"\x00\xff", pa.binary(), "AP8="),
        ([{"x": None, "y": datetime(1, 1, 1)}],
         pa.list_(pa.struct([("x", pa.int8()), ("y", pa.timestamp("us"))])),
         [{"y": "0001-01-01T00:00:00.000000"}]),
        ([("k", 1)], pa.map_(pa.string(), pa.int64()), {"k": 1}),
        (timedelta(seconds=64), pa.duration("us"), "INTERVAL '0 00:01:04' DAY TO SECOND"),
    ],
)  # fmt: skip
def test_values_of_each_type(value: Any, kind: pa.DataType, shown: Any) -> None:
    assert read(pa.table({"v": pa.array([None, value], kind)})) == [{}, {"v": shown}]


def test_added_durations_are_seconds() -> None:
    late_by = pa.array([timedelta(seconds=64), timedelta(microseconds=-1), None], pa.duration("us"))
    assert read(pa.table({"late_by": late_by}), "late_by") == [{"late_by": 64.0}, {"late_by": -1e-6}, {}]


@given(st.lists(st.tuples(st.text(), st.none() | st.text())), st.text())
def test_any_text_comes_back(rows: list[tuple[str, str | None]], name: str) -> None:
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
    table = pa.Table.from_arrays(columns, names=[name, f"{name}2"])
    found = read(table)
    assert [(one[name], one.get(f"{name}2")) for one in found] == rows


def test_slices_and_chunks_and_rows_without_columns() -> None:
    table = pa.concat_tables([pa.table({"n": [1, 2, 3]}).slice(1), pa.table({"n": [4]})])
    assert read(table) == [{"n": 2}, {"n": 3}, {"n": 4}]
    assert read(table.slice(0, 0)) == []
