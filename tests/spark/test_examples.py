"""The examples: each runs over its data, and leaves what its folder says it does."""

import json
import os
import shutil
from datetime import UTC
from pathlib import Path

import psycopg
import pytest

import tidegate
from tests.spark import needs
from tidegate.pipeline.load import load
from tidegate.pipeline.path_checks import check_places
from tidegate.pipeline.start import start

EXAMPLES = Path(tidegate.__file__).parents[2] / "examples"
FILE_EXAMPLES = ["ads-join", "clicks-to-sessions", "late-rows", "sensors-lookahead"]


#: How much older each file looks than the one before: a clone gives all one time, and a copy any.
BACKWARDS, ALIKE = 1, 0


def run_example(spark, name: str, folder: Path, *, older: int = BACKWARDS, **environment: str) -> Path:
    """Run a copy of the example over everything there is."""
    place = folder / name
    shutil.copytree(EXAMPLES / name, place, ignore=shutil.ignore_patterns("out", "*checkpoint*"))
    for data in place.rglob("[0-9].*"):
        os.utime(data, (1_000_000_000 - older * int(data.stem),) * 2)
    [file] = place.glob("pipeline.*")
    jobs = load(file, environment)
    check_places(jobs)
    for job in jobs:
        start(spark, job, once=True).await_termination()
    return place


def rows(files, place: str = "") -> list[dict]:
    """The rows of files, in which `{folder}` stands for the place of the example."""
    texts = (file.read_text("utf-8").replace("{folder}", place) for file in files)
    lines = (line for text in texts for line in text.splitlines())
    return sorted(map(json.loads, lines), key=repr)


@needs.admission_control
@pytest.mark.parametrize(
    ("name", "older"),
    [*((name, BACKWARDS) for name in FILE_EXAMPLES), ("sensors-lookahead", ALIKE)],
)
def test_an_example_leaves_what_it_promises(spark, tmp_path, name, older):
    place = run_example(spark, name, tmp_path, older=older)
    promised = sorted(file.stem for file in (place / "expected").iterdir())
    assert promised == sorted(folder.name for folder in (place / "out").iterdir())
    for channel in promised:
        expected = rows([place / "expected" / f"{channel}.jsonl"], str(place))
        assert rows((place / "out" / channel).glob("*.json")) == expected, channel


@needs.admission_control
def test_the_table_is_right_after_every_batch(spark, tmp_path, postgres):
    place = run_example(spark, "changelog-postgres", tmp_path, PG_DSN=postgres)
    with psycopg.connect(postgres) as connection:
        found = connection.execute('SELECT * FROM spend ORDER BY "user", window_start').fetchall()
        connection.execute("DROP TABLE spend")

    def text(value: object) -> object:
        if not hasattr(value, "astimezone"):
            return value
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

    expected = [tuple(row.values()) for row in rows([place / "expected" / "spend.jsonl"])]
    assert [tuple(map(text, row)) for row in found] == expected


def test_every_example_is_run_and_listed():
    folders = sorted(
        place.name for place in EXAMPLES.iterdir() if place.is_dir() and place.name[0] != "_"
    )
    assert folders == sorted([*FILE_EXAMPLES, "changelog-postgres"])
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    assert [name for name in folders if f"[{name}]({name}/pipeline." not in listed] == []
