"""Programs in SQL as real queries, each run straight through and with a stop and a resume."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.golden import sql as golden
from tidegate import sql
from tidegate.pipeline import start as starting
from tidegate.pipeline.load import load
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
    """One file a micro-batch, by name."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        staged = folder / f"_{number}"
        staged.write_text(texts[number], "utf-8")
        staged.rename(folder / f"{number}.json")


def _sorted(rows: list[table.Row]) -> str:
    header, *body = table.text(rows).splitlines()
    return "\n".join([header, *sorted(body)])
