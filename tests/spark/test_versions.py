"""What users meet on every version of Spark: the first program, and what a version does not have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import run, write_batches
from tests.spark.needs import refused_without
from tests.support.features_seen import REFUSED
from tests.unit.test_docs import FENCE, ROOT
from tidegate.spark.checkpoint.metadata import stored_format
from tidegate.spark.versions import ADMISSION_CONTROL, STATE_FORMAT_2

SCHEMA = "ts timestamp, user string, price double"
CLICKS = [[(1, "ann", 1.0), (2, "bob", 2.0)], [(3, "ann", 3.0), (4, "bob", 4.0)]]
Record = Callable[[str, object], None]


@pytest.mark.versions("the program of README")
def test_the_program_of_readme_prints_what_it_says(spark: Any, capsys: Any) -> None:
    blocks = FENCE.findall((ROOT / "README.md").read_text("utf-8"))
    [program] = [code for language, code in blocks if language == "python"]
    [printed] = [text for language, text in blocks if language == "text"]
    exec(program, {})
    assert capsys.readouterr().out.strip() == printed.strip()


def counted(rows: Any) -> Any:
    return tg.events(rows, time="ts").key_by("user").agg(n=tg.count())


def batches_of(result: Any, checkpoint: Path) -> list[int]:
    """The rows of each batch that has any."""
    query = result.start(checkpoint=checkpoint, trigger={"availableNow": True}, main=tg.sinks.discard())
    query.await_termination()
    rows = [batch.observedMetrics["tidegate"]["rows_in"] for batch in query.spark.recentProgress]
    return [number for number in rows if number]


@pytest.mark.versions("read_folder with max_rows, max_files or a pace")
@pytest.mark.parametrize(
    ("limit", "batches"),
    [
        ({"max_rows": 3}, [3, 1]),
        ({"max_files": 1}, [2, 2]),
        ({"pace": tg.pace("1 hour", least=1, start=3)}, None),
    ],
    ids=["max_rows", "max_files", "pace"],
)
def test_limits_of_batches(
    spark: Any, tmp_path: Path, record_property: Record, limit: dict[str, Any], batches: Any
) -> None:
    write_batches(tmp_path / "in", CLICKS)
    [name] = limit
    with refused_without(ADMISSION_CONTROL, f"read_folder({name}=…)", record_property):
        rows = tg.read_folder(spark, tmp_path / "in", schema=SCHEMA, format="parquet", **limit)
        found = batches_of(counted(rows), tmp_path / "checkpoint")
        assert sum(found) == 4
        assert batches is None or found == batches


@pytest.mark.versions("idle sources in a run over what is available now")
def test_idle_sources_in_a_run_over_what_is_available_now(
    spark: Any, tmp_path: Path, record_property: Record
) -> None:
    def source(name: str, **options: Any) -> Any:
        write_batches(tmp_path / name, CLICKS)
        rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / name))
        return tg.events(rows, time="ts", **options)

    both = source("one").union(source("two", idle_after="1 minute")).key_by("user")
    what = "idle_after with the trigger availableNow"
    with refused_without(ADMISSION_CONTROL, what, record_property):
        assert sum(batches_of(both.agg(n=tg.count()), tmp_path / "checkpoint")) == 8


@pytest.mark.versions("read_folder")
def test_a_folder_is_read_on_from_where_a_query_has_stopped(spark: Any, tmp_path: Path) -> None:
    main = tg.sinks.memory()
    for number, batch in enumerate([*CLICKS, [(5, "eve", 1.0)]]):
        write_batches(tmp_path / "in", [batch], start=number)
        rows = tg.read_folder(spark, tmp_path / "in", schema=SCHEMA, format="parquet")
        query = counted(rows).start(
            checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True}, main=main
        )
        query.await_termination()
        assert query.metrics["rows_in"] == len(batch)
    assert [(row["user"], row["n"]) for row in main.rows()][-1] == ("eve", 1)
    last = {row["user"]: row["n"] for row in main.rows() if not row.get("op", "+").startswith("-")}
    assert last == {"ann": 2, "bob": 2, "eve": 1}


@pytest.mark.versions("state that two writers cannot break (Spark's format 2)")
def test_new_checkpoints_have_the_best_format_that_spark_can_read_again(
    click_stream: Callable[..., Any], tmp_path: Path, record_property: Record
) -> None:
    query = run(counted(click_stream(CLICKS)), tmp_path / "checkpoint", main=tg.sinks.discard())
    if not STATE_FORMAT_2.here:
        record_property(REFUSED, f"needs {STATE_FORMAT_2.since}")
    assert stored_format((tmp_path / "checkpoint").as_uri()) == (2 if STATE_FORMAT_2.here else 1)
    assert [key for key, _ in tg.read_snapshot(query.snapshot()).rows] == [("ann",), ("bob",)]
