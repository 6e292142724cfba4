"""Programs in SQL as real queries, each run straight through and with a stop and a resume."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlglot import parse_one

import tidegate as tg
from tests.golden import sql as golden
from tidegate import sql
from tidegate.pipeline import start as starting
from tidegate.pipeline.load import load
from tidegate.spark.schema import arrow_schema
from tidegate.sql.types import type_of
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


class Run:
    """A program in a folder of its own. Whatever its sinks are, their rows are kept in memory."""

    def __init__(self, name: str, folder: Path, spark: Any) -> None:
        folder.mkdir()
        file = folder / f"{name}.sql"
        file.write_text(golden.program(name), "utf-8")
        [job] = load(file)
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
    """One file a micro-batch, by name."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        staged = folder / f"_{number}"
        staged.write_text(texts[number], "utf-8")
        staged.rename(folder / f"{number}.json")


def _sorted(rows: list[table.Row]) -> str:
    header, *body = table.text(rows).splitlines()
    return "\n".join([header, *sorted(body)])


#: What queries compute before their windows; the plan has to know what comes of it.
COMPUTED = (
    "i + 1", "i + l", "l * d", "d / l", "i / 2", "i % 2", "-l", "d + f", "i > 1 AND b", "NOT b",
    "s || '!'", "upper(s)", "lower(s)", "trim(s)", "concat(s, 'x')", "substring(s, 1, 2)", "length(s)",
    "s LIKE 'a%'", "CASE WHEN b THEN 1 END", "CASE WHEN b THEN l END", "CASE WHEN b THEN d ELSE 0 END",
    "if(b, s, 'x')", "coalesce(d, 0.5D)", "coalesce(s, 'none')", "abs(d)", "round(d)", "floor(d)",
    "to_date(t)", "date_trunc('HOUR', t)", "year(t)", "hour(t)", "size(a)", "a[0]", "sqrt(d)", "ceil(d)",
    "CAST(s AS BIGINT)", "CAST(d AS DECIMAL(9, 2))", "CAST(i AS STRING)", "date_format(t, 'HH')",
    "i IN (1, 2)", "s IS NULL", "nullif(l, 0)", "greatest(i, 2)", "unix_timestamp(t)", "3", "'x'",
)  # fmt: skip
COLUMNS = "i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, s STRING, t TIMESTAMP, a ARRAY<INT>"


def test_types_are_told_as_spark_tells_them(spark):
    stream = f"CREATE STREAM s ({COLUMNS}) WITH (connector = 'rate')"
    schema = sql.compile(stream).streams["s"].schema
    columns = {field.name: field.type for field in schema}
    found = arrow_schema(spark.createDataFrame([], COLUMNS).selectExpr(*COMPUTED)).types
    told = [type_of(parse_one(text, dialect="spark"), columns) for text in COMPUTED]
    wrong = [
        (text, str(one), str(other))
        for text, one, other in zip(COMPUTED, told, found, strict=True)
        if one is not None and one != other
    ]
    assert wrong == []
    assert sum(one is not None for one in told) > len(COMPUTED) * 0.8
