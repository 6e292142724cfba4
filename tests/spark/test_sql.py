"""Programs in SQL as real queries, each run straight through and with a stop and a resume."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.golden import sql as golden
from tests.unit.test_docs import FENCE, ROOT
from tidegate import sql
from tidegate.errors import SqlError
from tidegate.pipeline import start as starting
from tidegate.pipeline.load import load
from tidegate.spark.versions import ADMISSION_CONTROL
from tidegate.testing import table
from tidegate.testing.changelog import replay

EVERYTHING = slice(None)


@pytest.mark.parametrize("name", golden.accepted())
def test_programs_put_out_what_is_expected(spark, tmp_path, monkeypatch, name):
    straight, resumed = (Run(name, tmp_path / kind, spark) for kind in ("straight", "resumed"))
    # Both at once: most of a small micro-batch is waiting.
    queries = [
        straight.start(EVERYTHING, monkeypatch),
        resumed.start(slice(resumed.middle), monkeypatch),
    ]
    for query in queries:
        query.await_termination()
    resumed.start(slice(resumed.middle, None), monkeypatch).await_termination()
    if os.environ.get("TIDEGATE_GOLDEN") == "write":
        golden.expected(name).write_text(straight.shown(), "utf-8")
    assert straight.shown() == golden.expected(name).read_text("utf-8")
    assert resumed.shown() == straight.shown()
    straight.check_changes()
    resumed.check_changes()


def limited(program: str) -> str:
    """A program that takes a file a batch: on versions where only Spark's own source can, by that."""
    by_spark = "maxFilesPerTrigger = 1, latestFirst = 'false'"
    return program if ADMISSION_CONTROL.here else program.replace("maxFilesPerTrigger = 1", by_spark)


class Run:
    """A program in a folder of its own. Whatever its sinks are, their rows are kept in memory."""

    def __init__(self, name: str, folder: Path, spark: Any) -> None:
        folder.mkdir()
        file = folder / f"{name}.sql"
        file.write_text(limited(golden.program(name)), "utf-8")
        [job] = load(file, spark=spark)
        self.job = replace(job, name=f"{name} {folder.name}")  # Spark knows running queries by name
        self.spark = spark
        paths = {Path(one.stream.options["path"]): one.stream.schema for one in self.job.insert.inputs}
        self.batches = {path: golden.batches(name, path.name, schema) for path, schema in paths.items()}
        self.middle = max(map(len, self.batches.values())) // 2
        self.sinks: dict[str, Any] = {}

    def start(self, batches: slice, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Let the query take these of its micro-batches."""
        for path, texts in self.batches.items():
            write(path, texts, range(len(texts))[batches])
        monkeypatch.setattr(starting, "sink_of", self._sink)
        return starting.start(self.spark, self.job, once=True)

    def _sink(self, declared: sql.SinkTable) -> Any:
        return self.sinks.setdefault(declared.name, tg.sinks.memory())

    def shown(self) -> str:
        """What every sink got, sorted: which batch a window closes in is not the program's to say."""
        return "".join(
            f"== {sink}\n{_sorted(kept.rows())}\n" for sink, kept in sorted(self.sinks.items())
        )

    def check_changes(self) -> None:
        """Changes can be applied one batch after the other, and none takes back what is not there."""
        plan = self.job.insert.plan
        if plan is not None and plan.retracts:
            kept = self.sinks["results"].batches
            assert replay([kept[number].to_pylist() for number in sorted(kept)], plan.keyed.keys)[-1]


def write(folder: Path, texts: list[str], numbers: range) -> None:
    """One file a micro-batch, by name, and by time for Spark's own source of files."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        staged = folder / f"_{number}"
        staged.write_text(texts[number], "utf-8")
        os.utime(staged, (1_000_000_000 + number, 1_000_000_000 + number))
        staged.rename(folder / f"{number}.json")


def _sorted(rows: list[table.Row]) -> str:
    header, *body = table.text(rows).splitlines()
    return "\n".join([header, *sorted(body)])


CLICKS = """\
{"ts": "2026-01-01T12:00:01Z", "user": "ann", "price": 3.0}
{"ts": "2026-01-01T12:00:42Z", "user": "ann", "price": 4.5}
{"ts": "2026-01-01T12:08:00Z", "user": "bob", "price": 2.0}
{"ts": null, "user": "eve", "price": 1.0}
"""


@pytest.mark.versions("SQL")
def test_the_program_of_the_tour_runs_and_invalid_rows_have_a_sink(spark, tmp_path):
    blocks = FENCE.findall((ROOT / "docs" / "tour.md").read_text("utf-8"))
    text = "\n".join(code for language, code in blocks if language == "sql")
    (tmp_path / "spend.sql").write_text(text, "utf-8")
    write(tmp_path / "clicks", [CLICKS], range(1))
    [job] = load(tmp_path / "spend.sql", spark=spark)
    starting.start(spark, job, once=True).await_termination()
    spend = spark.read.json(str(tmp_path / "spend"))
    assert sorted(spend.columns) == ["clicks", "op", "spend", "user", "window_start"]
    assert {(row["user"], row["clicks"], row["spend"]) for row in spend.collect()} == {
        ("ann", 2, 7.5),
        ("bob", 1, 2.0),
    }
    [error] = spark.read.json(str(tmp_path / "errors")).collect()
    assert "eve" in error["row"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT TOP 3 user FROM s", "Spark says: Syntax error"),
        ("SELECT user FROM s WHERE frob(user)", "Spark says: Cannot resolve routine `frob`"),
        ("SELECT user FROM s WHERE user || ts", "a condition is true or false, and user || ts is"),
    ],
)
def test_what_spark_would_refuse_is_refused_before_anything_starts(spark, query, problem):
    stream = "CREATE STREAM s (ts TIMESTAMP, user STRING) WITH (connector = 'rate');"
    with pytest.raises(SqlError) as found:
        sql.compile(stream + query, spark=spark)
    assert problem in str(found.value)
