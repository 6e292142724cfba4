"""Programs in SQL as real queries, each run straight through and with a stop and a resume."""

import os
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.golden import sql as golden
from tidegate.pipeline import start as starting
from tidegate.pipeline.load import Job, load
from tidegate.testing import table
from tidegate.testing.changelog import replay

Memory = dict[str, Any]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Sinks by name, filled by whatever connector a program declares."""
    kept: Memory = {}
    monkeypatch.setattr(starting, "sink_of", lambda sink: kept.setdefault(sink.name, tg.sinks.memory()))
    return kept


@pytest.mark.parametrize("stop_between", [False, True], ids=["straight", "resumed"])
@pytest.mark.parametrize("name", golden.accepted())
def test_programs_put_out_what_is_expected(spark, tmp_path, memory, name, stop_between):
    file = tmp_path / f"{name}.sql"
    file.write_text(golden.program(name), "utf-8")
    [job] = load(file)
    inputs = {Path(one.stream.options["path"]): one.stream.schema for one in job.insert.inputs}
    cut = {path: golden.batches(name, path.name, schema) for path, schema in inputs.items()}
    middle = max(map(len, cut.values())) // 2
    for batches in [slice(middle), slice(middle, None)] if stop_between else [slice(None)]:
        for path, texts in cut.items():
            write(path, texts, range(len(texts))[batches])
        starting.start(spark, job, once=True).await_termination()
    check_changes(job, memory["results"])
    shown = "\n".join(f"== {sink}\n{rows_of(kept)}" for sink, kept in sorted(memory.items())) + "\n"
    if os.environ.get("TIDEGATE_GOLDEN") == "write":
        golden.expected(name).write_text(shown, "utf-8")
    assert shown == golden.expected(name).read_text("utf-8")


def write(folder: Path, texts: list[str], numbers: range) -> None:
    """One file a micro-batch; Spark takes them in the order of their modification times."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        staged = folder / f"_{number}"
        staged.write_text(texts[number], "utf-8")
        os.utime(staged, (1_000_000_000 + number,) * 2)
        staged.rename(folder / f"{number}.json")


def rows_of(kept: Any) -> str:
    """All rows of a sink as a table, sorted: which batch a window closes in is not the program's."""
    header, *rows = table.text(kept.rows()).splitlines()
    return "\n".join([header, *sorted(rows)])


def check_changes(job: Job, kept: Any) -> None:
    """Changes can be applied one batch after the other, and none takes back what is not there."""
    if job.insert.plan is not None and job.insert.plan.retracts:
        batches = [kept.batches[number].to_pylist() for number in sorted(kept.batches)]
        assert replay(batches, job.insert.plan.keyed.keys)[-1]
