"""Stops and restarts: nothing lost, nothing doubled. `test_held_windows.py` kills the same windows."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import run, seconds, write_batches
from tests.spark.killed_windows import hopping
from tests.spark.test_windows import FLUSH, disordered, expected_windows


def windows(rows: list[dict[str, Any]]) -> Counter[Any]:
    """The rows of a result, each counted: one that is there twice shows."""
    return Counter(
        (r["user"], seconds(r["window_start"]), r["n"], r["spend"]) for r in rows if r["user"] != "flush"
    )


def expected(batches: Any) -> Counter[Any]:
    found = expected_windows(batches, 20, 10)
    return Counter((user, start, *value) for (user, start), value in found.items())


@pytest.mark.versions("restarts")
@pytest.mark.parametrize("emission", [tg.emit.on_watermark(), tg.emit.changelog()], ids=str)
def test_a_stop_in_the_middle_changes_nothing(spark: Any, tmp_path: Path, emission: Any) -> None:
    batches = disordered(600, 200)
    main = tg.sinks.memory()
    for end in (1, 2, 4):
        done = len(list((tmp_path / "clicks").glob("*.parquet")))
        write_batches(tmp_path / "clicks", (batches + FLUSH)[done:end], start=done)
        reader = spark.readStream.schema("ts timestamp, user string, price double")
        stream = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "clicks"))
        run(hopping(stream).emit(emission), tmp_path / "ckpt", main=main)
    assert consolidated(main.rows()) == expected(batches)


def consolidated(rows: list[dict[str, Any]]) -> Counter[Any]:
    """What is left when the rows that were taken back are gone."""
    taken_back = [row for row in rows if row.get("op", "+").startswith("-")]
    put_out = [row for row in rows if not row.get("op", "+").startswith("-")]
    left = windows(put_out)
    left.subtract(windows(taken_back))
    return +left if min(left.values()) >= 0 else left


def test_the_number_of_partitions_does_not_show(
    spark: Any, click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    batches = disordered(600, 300)
    for partitions in ("1", "5"):
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        try:
            main = tg.sinks.memory()
            stream = click_stream(batches + FLUSH, folder=f"in-{partitions}")
            run(hopping(stream), tmp_path / f"ckpt-{partitions}", main=main)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
        assert windows(main.rows()) == expected(batches)


def test_more_buckets_than_partitions(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    batches = disordered(300, 100)
    main = tg.sinks.memory()
    query = hopping(click_stream(batches + FLUSH)).start(
        checkpoint=tmp_path / "ckpt", main=main, buckets=7, trigger={"availableNow": True}
    )
    query.await_termination()
    assert windows(main.rows()) == expected(batches)
