"""Duplicates and running folds on Spark: each message once, over restarts, into files and tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import tidegate as tg
from tests.spark.conftest import NOON, run, seconds, write_batches
from tests.spark.files import file_stream, write_files
from tests.spark.test_cli_processes import run as tidegate_command
from tidegate.plan.schema import TIMESTAMP

MESSAGES = pa.schema(
    [("ts", TIMESTAMP), ("producer", pa.string()), ("seq", pa.int64()), ("amount", pa.int64())]
)


def messages(*rows: tuple[float, str | None, int, int]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    times = pa.array([NOON + round(time * 1_000_000) for time in columns[0]]).cast(TIMESTAMP)
    others = [
        pa.array(column, field.type)
        for column, field in zip(columns[1:], list(MESSAGES)[1:], strict=True)
    ]
    return pa.table([times, *others], schema=MESSAGES)


#: The last of each batch come again, in the same one and in later ones.
FIRST = [
    messages((0, "a", 1, 10), (1, "a", 2, 20), (1, "a", 2, 20), (2, None, 1, 5)),
    messages((1, "a", 2, 20), (2, None, 1, 5), (12, "b", 1, 1)),
]
#: After a restart: known ones, new ones, and one that is too old to be checked.
SECOND = [
    messages((12, "b", 1, 1), (13, "a", 3, 30), (2, None, 1, 5), (14, "b", 2, 2)),
    messages((13, "a", 3, 30), (-60, "c", 1, 100), (15, None, 2, 6)),
]


@pytest.mark.versions("dedupe, folds, table sinks")
def test_messages_sent_again_are_folded_once_into_a_table(spark: Any, tmp_path: Path) -> None:
    def totals() -> Any:
        stream = file_stream(spark, tmp_path / "in", MESSAGES)
        distinct = tg.events(stream, time="ts", tolerance="5 s").dedupe(
            on=["producer", "seq"], within="30 s", late=tg.late.side_output("too_old")
        )
        return distinct.key_by("producer").agg(n=tg.count(), amount=tg.sum("amount"))

    late, shown = tg.sinks.memory(), tg.sinks.duckdb(tmp_path / "totals.duckdb", "totals")
    counters = {"rows_in": 0, "duplicates_filtered": 0, "late_rows": 0}
    for start, tables in ((0, FIRST), (len(FIRST), SECOND)):
        write_files(tmp_path / "in", tables, start)
        metrics = run(totals(), tmp_path / "checkpoint", main=shown, too_old=late).metrics
        counters = {name: counters[name] + metrics[name] for name in counters}
    assert rows_of(tmp_path / "totals.duckdb", "totals") == [(None, 2, 11), ("a", 3, 60), ("b", 2, 3)]
    assert counters == {"rows_in": 14, "duplicates_filtered": 6, "late_rows": 1}
    assert [(row["producer"], seconds(row["ts"])) for row in late.rows()] == [("c", -60)]


def rows_of(file: Path, table: str) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(file)) as connection:
        return connection.sql(f"SELECT * FROM {table} ORDER BY producer NULLS FIRST").fetchall()


def test_windows_behind_it_close_with_the_watermark_and_rows_leave_as_they_are(
    spark: Any, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", [*FIRST, *SECOND])
    stream = file_stream(spark, tmp_path / "in", MESSAGES)
    distinct = tg.events(stream, time="ts").dedupe(on=["producer", "seq"], within="1 hour")
    windows = distinct.window(tg.tumbling("10 s")).agg(amount=tg.sum("amount"))
    out = tg.sinks.memory()
    query = run(windows, tmp_path / "windows", main=out)
    assert [(seconds(row["window_start"]), row["amount"]) for row in out.rows()] == [(0, 35)]
    assert query.metrics["late_rows"] == 1  # -60 belongs to a window that has closed
    assert list(query.watermarks) == ["1 dedupe", "2 tumbling(10 seconds)"]
    run(distinct, tmp_path / "rows", main=tg.sinks.parquet(tmp_path / "out"))
    left = pl.read_parquet(str(tmp_path / "out" / "*.parquet"))
    assert sorted(left["amount"]) == [1, 2, 5, 6, 10, 20, 30, 100]


def test_a_drain_emits_what_waits_for_its_turn(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [[(1, "ann", 1.0)], [(-100, "ann", 2.0), (None, "ann", 9.0)]])
    reader = spark.readStream.schema("ts timestamp, user string, price double")
    stream = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    spend = tg.events(stream, time="ts").key_by("user").agg(spend=tg.sum("price"))
    out = tg.sinks.memory()
    query = run(spend.emit(tg.emit.periodic("1 hour")), tmp_path / "checkpoint", main=out)
    snapshot = query.snapshot()
    query.stop(drain=True)
    assert [(row["op"], row["spend"]) for row in out.rows()] == [("+I", 1), ("-U", 1), ("+U", 3)]
    assert query.snapshot() == snapshot, "the fold of a finished checkpoint can still be exported"


def test_equal_folds_have_equal_snapshots(spark: Any, tmp_path: Path) -> None:
    """Whatever the batches and the buckets were: of the running query, and of its checkpoint."""

    def totals(folder: str) -> Any:
        distinct = tg.events(file_stream(spark, tmp_path / folder, MESSAGES), time="ts").dedupe(
            on=["producer", "seq"], within="1 hour"
        )
        by = distinct.key_by("producer")
        return by.agg(n=tg.count(), amount=tg.sum("amount"), kinds=tg.count_distinct("amount"))

    write_files(tmp_path / "several", [*FIRST, *SECOND])
    write_files(tmp_path / "one", [pa.concat_tables([*SECOND, *FIRST])])
    snapshots = []
    for folder, buckets in (("several", 1), ("one", 3)):
        checkpoint = tmp_path / f"{folder}-checkpoint"
        query = totals(folder).start(checkpoint=checkpoint, buckets=buckets, main=tg.sinks.memory())
        query.process_all_available()
        snapshots.append(query.snapshot())
        assert query.is_active
        query.stop()
    exported = tidegate_command("state", checkpoint, "--export", tmp_path / "exported")
    assert exported.returncode == 0, exported.stderr
    snapshots.append((tmp_path / "exported").read_bytes())
    assert snapshots[0] == snapshots[1] == snapshots[2]
    read = tg.read_snapshot(snapshots[0])
    names = [name for name, _ in read.state]
    n, low, high = (names.index(part) for part in ("n.n", "amount.d0", "amount.d1"))
    assert [(key, (state[n], state[low] + (state[high] << 32))) for key, state in read.rows] == [
        (("a",), (3, 60)),
        (("b",), (2, 3)),
        (("c",), (1, 100)),
        ((None,), (2, 11)),
    ]


def test_a_snapshot_is_of_a_fold(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    windows = tg.events(click_stream([[(1, "ann", 1.0)]]), time="ts").window(tg.tumbling("1 s"))
    query = run(windows.agg(n=tg.count()), tmp_path / "checkpoint", main=tg.sinks.memory())
    with pytest.raises(tg.errors.StateError, match="holds no running fold"):
        query.snapshot()
