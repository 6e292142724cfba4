"""Broken rows as text. That Spark writes the same is seen in tests/spark/test_packed_reading.py."""

from datetime import UTC, datetime
from decimal import Decimal
from math import inf, nan
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tidegate.kernels.row_text import row_text, row_texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100.0, "100.0"),
        (-0.0, "-0.0"),
        (12345678.9, "1.23456789E7"),
        (-1e20, "-1.0E20"),
        (0.00012, "1.2E-4"),
        (nan, '"NaN"'),
        (-inf, '"-Infinity"'),
        (Decimal("1.50"), "1.50"),
        (b"ab", '"YWI="'),
        ('a "quote" ä', '"a \\"quote\\" ä"'),
        ([1, None, True], "[1,null,true]"),
        ({"x": 1, "y": None}, '{"x":1}'),
    ],
)
def test_values(value, text):
    assert row_text({"v": value}) == f'{{"v":{text}}}'


def test_times_are_those_of_the_zone():
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert row_text({"ts": noon}) == '{"ts":"2024-05-01T12:00:00.000000Z"}'
    assert row_text({"ts": noon}, ZoneInfo("Asia/Tokyo")) == '{"ts":"2024-05-01T21:00:00.000000+09:00"}'


def test_times_have_all_their_microseconds():
    last = datetime(2024, 5, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    assert row_text({"ts": last}) == '{"ts":"2024-05-01T23:59:59.999999Z"}'
    assert row_text({"ts": last.replace(tzinfo=None)}) == '{"ts":"2024-05-01T23:59:59.999999"}'


def test_short_numbers_stay_short():
    rows = pa.table({"f": pa.array([0.1, None], pa.float32()), "n": [1, 2]})
    assert row_texts(rows) == ['{"f":0.1,"n":1}', '{"n":2}']


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (
            pa.timestamp("us", "UTC"),
            1_700_000_000_000_000_000,
            "1700000000000000000 timestamp[us, tz=UTC]",
        ),
        (pa.date32(), 100_000_000, "100000000 date32[day]"),
    ],
)
def test_a_time_beyond_the_calendar_is_shown_as_its_number(kind, number, text):
    """Milliseconds taken for microseconds are the usual reason; such a row must not stop a query."""
    given = pa.array([number, 0, None], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    far, near, none = row_texts(pa.table({"at": given, "n": [1, 2, 3]}))
    assert far == f'{{"at":"{text}","n":1}}'
    assert near.startswith('{"at":"1970-01-01')
    assert none == '{"n":3}'


def test_the_first_day_of_the_calendar_has_no_zone_west_of_it():
    first = datetime(1, 1, 1, tzinfo=UTC)
    assert (
        row_text({"ts": first}, ZoneInfo("America/New_York")) == '{"ts":"0001-01-01T00:00:00.000000Z"}'
    )
