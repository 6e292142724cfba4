"""Adaptive batching on Spark: the same results wherever batches are cut, and steered readers."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import tidegate as tg
from tests.spark import needs
from tests.spark.conftest import CLICKS, NOON
from tidegate.errors import PlanError, StartError
from tidegate.pipeline.load import load
from tidegate.pipeline.start import start
from tidegate.spark.schema import spark_schema

SCHEMA = "ts timestamp, user string, price double"
CHANCE = random.Random(5)
#: Twenty minutes of clicks, out of order by up to a minute.
ROWS = [
    (NOON // 1_000_000 + second - CHANCE.randrange(60), f"user {CHANCE.randrange(5)}", second % 7)
    for second in range(1200)
]


def line(row: tuple[int, str, int]) -> str:
    return json.dumps({"ts": row[0], "user": row[1], "price": row[2]}) + "\n"


def put(folder: Path, name: str, text: str, at: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    staged = folder / f"_{name}"
    staged.write_text(text)
    os.utime(staged, (at, at))
    staged.rename(folder / name)


@pytest.fixture(scope="module")
def clicks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of JSON lines; some lines are broken, some are empty."""
    folder = tmp_path_factory.mktemp("clicks")
    for number in range(5):
        lines = [line(row) for row in ROWS[number * 240 : (number + 1) * 240]]
        put(
            folder, f"{number}.json", "".join([*lines[:100], "{broken\n", "\n", *lines[100:]]), at=number
        )
    return folder


def paced(spark: Any, folder: Path, rows: int | None) -> Any:
    """The folder in batches of so many rows: a pace that has no choice."""
    pace = rows and tg.pace("1 s", least=rows, most=rows)
    return tg.read_folder(spark, folder, schema=SCHEMA, pace=pace or None)


def spend(df: Any) -> Any:
    timed = tg.events(df, time="ts", tolerance="1 minute").key_by("user")
    return timed.window(tg.tumbling("1 minute")).agg(clicks=tg.count(), spend=tg.sum("price"))


class Run:
    """A query's results, over one or several starts from one checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint, self.main, self.errors = folder, tg.sinks.memory(), tg.sinks.memory()

    def once(self, df: Any, **more: Any) -> Any:
        query = spend(df).start(
            checkpoint=self.checkpoint,
            trigger={"availableNow": True},
            main=self.main,
            errors=self.errors,
            **more,
        )
        query.await_termination()
        return query

    def results(self) -> tuple[list[Any], int]:
        columns = ("user", "window_start", "clicks", "spend")
        return sorted(tuple(row[c] for c in columns) for row in self.main.rows()), len(
            self.errors.rows()
        )


def sizes(query: Any) -> list[int]:
    return [batch.numInputRows for batch in query.spark.recentProgress if batch.numInputRows]


# -- the same results ---------------------------------------------------------------------------


@needs.admission_control
def test_results_are_those_of_sparks_own_reader_wherever_batches_are_cut(
    spark: Any, clicks: Path, tmp_path: Path
) -> None:
    own = Run(tmp_path / "own")
    own.once(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(clicks)))
    wanted = own.results()
    assert len(wanted[0]) > 80
    assert wanted[1] == 5
    for rows, cut in ((None, [1210]), (333, [333, 333, 333, 211])):
        run = Run(tmp_path / str(rows))
        query = run.once(paced(spark, clicks, rows))
        assert run.results() == wanted
        # Empty lines are lines of the file, and no rows.
        assert sum(sizes(query)) == 1210
        assert sizes(query) == cut


@needs.admission_control
def test_a_query_that_is_stopped_goes_on_at_another_pace(
    spark: Any, clicks: Path, tmp_path: Path
) -> None:
    whole, run, folder = Run(tmp_path / "whole"), Run(tmp_path / "parts"), tmp_path / "in"
    whole.once(paced(spark, clicks, 400))
    # What comes later has older times: it is new all the same.
    for at, files, rows in ((90, (0, 1), 350), (50, (2,), None), (10, (3, 4), 170)):
        for number in files:
            put(folder, f"{number}.json", (clicks / f"{number}.json").read_text(), at=at + number)
        run.once(paced(spark, folder, rows))
    assert run.results() == whole.results()


@needs.admission_control
def test_a_batch_that_failed_is_repeated_row_by_row(spark: Any, clicks: Path, tmp_path: Path) -> None:
    seen: dict[int, list[Any]] = {}
    fails = [True]

    def sink(rows: Any, batch_id: int) -> None:
        found = sorted(row.asDict()["price"] for row in rows.collect())
        assert seen.setdefault(batch_id, found) == found
        if batch_id == 1 and fails:
            fails.clear()
            raise RuntimeError("the sink fails")

    def run(rows: int) -> None:
        ids = tg.events(paced(spark, clicks, rows), time="ts").dedupe(on=["ts", "user"], within="1 hour")
        ids.start(
            checkpoint=tmp_path / "c", trigger={"availableNow": True}, main=sink
        ).await_termination()

    with pytest.raises(StreamingQueryException, match="the sink fails"):
        run(500)
    run(90)
    assert len(seen) > 3
    assert fails == []


@needs.admission_control
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_other_formats(spark: Any, tmp_path: Path, form: str) -> None:
    write_form(tmp_path / "in", form)
    options = {"header": "true", "sep": ";"} if form == "csv" else {}
    pace = tg.pace("1 s", least=250, most=250)
    run = Run(tmp_path / "checkpoint")
    query = run.once(
        tg.read_folder(spark, tmp_path / "in", schema=CLICKS, format=form, pace=pace, **options)
    )
    # Spark counts what it is handed, and rows of Parquet are packed before.
    rows = [batch.observedMetrics["tidegate"]["rows_in"] for batch in query.spark.recentProgress]
    assert [count for count in rows if count] == [250, 250, 250, 250, 200]
    wanted = Run(tmp_path / "wanted")
    reader = spark.readStream.schema(spark_schema(CLICKS)).options(**options)
    wanted.once(reader.format(form).load(str(tmp_path / "in")))
    assert run.results() == wanted.results()


def write_form(folder: Path, form: str) -> None:
    folder.mkdir()
    for number in range(3):
        rows = ROWS[number * 400 : (number + 1) * 400]
        columns = [[ts * 1_000_000 for ts, _, _ in rows], [u for _, u, _ in rows], [p for *_, p in rows]]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, CLICKS, strict=True)], CLICKS)
        if form == "parquet":
            pq.write_table(table, folder / f"{number}", row_group_size=150)
        else:
            lines = [f"{r['ts'].isoformat()};{r['user']};{r['price']}\r\n" for r in table.to_pylist()]
            (folder / f"{number}").write_text("".join(["ts;user;price\r\n", *lines]), newline="")


# -- a running query ----------------------------------------------------------------------------


@needs.admission_control
def test_a_running_query_takes_new_files_and_says_what_it_chose(
    spark: Any, clicks: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    put(folder, "0.json", (clicks / "0.json").read_text(), at=50)
    pace = tg.pace("10 min", least=100, most=150, start=120)
    df = tg.read_folder(spark, folder, schema=SCHEMA, pace=pace)
    main = tg.sinks.memory()
    query = spend(df).start(checkpoint=tmp_path / "checkpoint", main=main)
    try:
        query.process_all_available()
        assert sizes(query) == [120, 120, 2]
        put(folder, "1.json", (clicks / "1.json").read_text(), at=10)
        query.process_all_available()
        assert sizes(query)[3:] == [150, 92]
        assert query.metrics["rows_in"] == 482
        with pytest.raises(StartError, match="another active query reads the same read_folder"):
            spend(df).start(checkpoint=tmp_path / "other", main=main)
    finally:
        query.stop()
    spend(df).start(checkpoint=tmp_path / "other", main=main).stop()


@needs.admission_control
def test_the_choice_follows_the_time_of_batches_and_survives(
    spark: Any, clicks: Path, tmp_path: Path
) -> None:
    """No batch takes a minute, so that they grow; none takes a microsecond, so that they shrink."""

    def run(target: str, start: int) -> Any:
        pace = tg.pace(target, least=20, most=2_000, start=start)
        return Run(tmp_path / "checkpoint").once(
            tg.read_folder(spark, tmp_path / "in", schema=SCHEMA, pace=pace)
        )

    put(tmp_path / "in", "0.json", (clicks / "0.json").read_text())
    grown = run("1 minute", 40)
    assert sizes(grown) == [40, 40, 80, 82]
    names = {"batch_rows": 160, "batch_rows_least": 20, "batch_rows_most": 2000, "batch_points": 3}
    assert grown.metrics.items() >= (names | {"batch_target_seconds": 60}).items()
    put(tmp_path / "in", "1.json", (clicks / "1.json").read_text())
    shrunk = run("1 us", 2_000)
    assert sizes(shrunk) == [160, 82]
    put(tmp_path / "in", "2.json", (clicks / "2.json").read_text())
    assert sizes(run("1 us", 2_000)) == [80, 80, 40, 20, 20, 2]


def test_a_query_over_sparks_own_source_is_watched(spark: Any, clicks: Path, tmp_path: Path) -> None:
    pace = tg.pace("10 min", least=10, most=5_000, start=100)
    checkpoint = tmp_path / "checkpoint"
    assert pace.rows(checkpoint) == 100
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(clicks))
    query = Run(checkpoint).once(files, pace=pace)
    assert query.metrics["batch_rows"] == 400  # files of 241 rows filled 100 and 200
    assert pace.rows(checkpoint) == 400
    with pytest.raises(StartError, match="only watched, but this query reads a folder with a pace"):
        Run(tmp_path / "both").once(paced(spark, clicks, 10), pace=pace)


# -- what is refused ----------------------------------------------------------------------------


@needs.admission_control
@pytest.mark.parametrize(
    "without_a_column",
    [lambda df: df, lambda df: df.select(F.upper("user").alias("user"))],
    ids=["another writer", "no column as it was read"],
)
def test_a_pace_that_nobody_holds_is_an_error(
    spark: Any, clicks: Path, tmp_path: Path, without_a_column: Callable[[Any], Any]
) -> None:
    rows = without_a_column(paced(spark, clicks, 10))
    stream = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="is controlled by start"):
        query.awaitTermination()


def test_wrong_options_are_refused_at_once(spark: Any, clicks: Path) -> None:
    def refused(message: str, **given: Any) -> None:
        with pytest.raises(PlanError, match=message):
            tg.read_folder(spark, **{"path": clicks, "schema": SCHEMA} | given)

    refused("no format 'jsn'; did you mean 'json'", format="jsn")
    refused("nowhere is not a folder; patterns and files are not taken", path=clicks / "nowhere")
    refused(r"max_files=0\): a batch has one file at least", max_files=0)
    refused("a pace has bounds of its own", max_files=1, pace=tg.pace("1 s"))
    refused(r"order='modifed'\): did you mean 'modified'", order="modifed")
    refused("'multiLine' is an option of Spark's own reader only", multiLine="true")
    refused("'sep' is an option of Spark's own reader only", format="parquet", sep=";")


# -- pipeline files -----------------------------------------------------------------------------

PIPELINE = """
streams:
  clicks:
    connector: files
    format: json
    path: {clicks}
    pace: 10 minutes
    columns: {{ts: timestamp, user: string, price: double}}
    eventtime: {{column: ts, tolerance: 1 minute}}
sql: |
  SELECT upper(user) AS user, window_start, window_end, count(*) AS clicks
  FROM (SELECT ts, upper(user) AS user FROM clicks) GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)
sinks:
  main: {{connector: discard}}
checkpoint: {folder}/checkpoint
"""


@needs.admission_control
def test_a_stream_of_a_pipeline_file_has_a_pace(spark: Any, clicks: Path, tmp_path: Path) -> None:
    (tmp_path / "clicks.yaml").write_text(PIPELINE.format(clicks=clicks, folder=tmp_path))
    [job] = load(tmp_path / "clicks.yaml", spark=lambda: spark)
    query = start(spark, job, once=True)
    query.await_termination()
    assert sizes(query) == [1000, 210]
    assert query.metrics["batch_target_seconds"] == 600
