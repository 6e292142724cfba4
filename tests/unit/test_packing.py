"""Rows that are packed where they are read, without Spark: which are invalid, and how they are shown."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.kernels.invalid_rows import INVALID_ROW, REASON_END
from tidegate.kernels.messages import Message, message_batch
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark.sources.invalid_rows import ArrowMarks, _zone
from tidegate.spark.sources.packing import HIGHEST_TIME, Packing

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
LATEST = NOON + timedelta(days=1)
ROWS = pa.schema(
    [("user", pa.string()), ("ts", TIMESTAMP), ("idle", pa.duration("us")), ("note", pa.string())]
)
SECOND = timedelta(seconds=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        ("ann", NOON, SECOND, "sound"),
        ("bob", None, SECOND, "no time"),
        ("cat", LATEST, SECOND, "as late as may be"),
        ("dan", LATEST + timedelta(microseconds=1), SECOND, "too far ahead"),
        ("eve", NOON, timedelta(0), "no gap"),
        ("fay", NOON, None, "no gap either"),
    ]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ROWS, strict=True)
    ]
    pq.write_table(pa.table(columns, schema=ROWS), tmp_path / "a.parquet", row_group_size=4)
    return tmp_path


class Packed:
    """Takes down what it is given, and sends two messages, one of which says how far time has come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def __call__(self, batches):
        table = pa.Table.from_batches(batches)
        self.rows = table.to_pylist()
        yield message_batch([])
        yield message_batch([Message.high_water_mark(0, 0, 7), Message.output(0, "main", 30, b"")])


def packed(folder: Path, gap: str | None = None) -> tuple[list[dict[str, object]], list[pa.RecordBatch]]:
    columns = pa.schema([ROWS.field(name) for name in ("ts", "user", "idle")])
    pack = Packed()
    packing = Packing(columns, ROWS, ArrowMarks(LATEST, "too far", gap, "Europe/Paris"), pack)
    sent = list(packing(folder.as_uri(), [("a.parquet", 0, 3), ("a.parquet", 3, 6)]))
    return pack.rows, sent


def test_rows_come_in_their_order_with_the_columns_that_are_read(folder):
    rows, _ = packed(folder)
    assert [row["user"] for row in rows] == ["ann", "bob", "cat", "dan", "eve", "fay"]
    assert list(rows[0]) == ["ts", "user", "idle", INVALID_ROW]


def test_rows_without_a_usable_time_are_shown_whole(folder):
    rows, _ = packed(folder)
    told = {row["user"]: row[INVALID_ROW] for row in rows if row[INVALID_ROW] is not None}
    idle = '"idle":"INTERVAL \'0 00:00:01\' DAY TO SECOND"'
    assert told == {
        "bob": f'{{"user":"bob",{idle},"note":"no time"}}',
        "dan": f'too far{REASON_END}{{"user":"dan","ts":"2024-05-02T14:00:00.000001+02:00",{idle},'
        '"note":"too far ahead"}',
    }
    assert [row["ts"] for row in rows] == [NOON, None, LATEST, None, NOON, NOON]


def test_rows_without_a_gap_of_their_own_are_invalid_where_it_counts(folder):
    rows, _ = packed(folder, gap="idle")
    invalid = [row for row in rows if row[INVALID_ROW] is not None]
    assert [row["user"] for row in invalid] == ["bob", "dan", "eve", "fay"]
    assert [row["ts"] for row in invalid] == [None, None, NOON, NOON], "their time is sound"


def test_each_message_says_how_far_time_has_come(folder):
    _, (first, second) = packed(folder)
    assert first.num_rows == 0
    highest = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=7)
    assert second.column(HIGHEST_TIME).to_pylist() == [highest] * 2


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("+02:00", 2),
        ("-0530", -5.5),
        ("GMT+2", 2),
        ("UTC", 0),
        ("Z", 0),
        ("Asia/Kolkata", 5.5),
        ("PST", 0),
    ],
)
def test_zones_are_known_as_spark_names_them(name, hours):
    assert datetime(2024, 5, 1, tzinfo=_zone(name)).utcoffset() == timedelta(hours=hours)
