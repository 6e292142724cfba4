"""Processes that write changelogs to PostgreSQL, killed again and again: the tables end right."""

import random
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg.rows import dict_row

from tests.oracle import Oracle
from tests.spark import killed_changelog
from tests.spark.conftest import Click, write_batches
from tests.spark.killed_changelog import WINDOWS, program
from tests.spark.kills import SOAK, Victim, commits, kills
from tidegate.testing.results import row_differences

KILLS = kills(10)
BATCHES, ROWS = 60, 500


@pytest.mark.kills
@pytest.mark.skipif(not SOAK, reason="test_exactly_once kills changes into the same tables: make soak")
def test_tables_survive_every_kill(spark: Any, postgres: str, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", clicks(random.Random(5)))
    progress = be_killed_and_finish(tmp_path, postgres)
    source, rows = spark.read.parquet(str(tmp_path / "clicks")), pq.read_table(tmp_path / "clicks")
    for window in WINDOWS:
        plan = program(source, window).node
        oracle = Oracle(plan)
        oracle.batch(rows.to_pylist(), None)
        found = rows_of(postgres, window)
        assert row_differences(plan, "main", oracle.results(), found) == [], window
        # The kills hit a query that was under way, and left it something to do.
        assert len(set(progress[window])) > KILLS / 3, progress
        assert progress[window][-1] < BATCHES, progress


def clicks(dice: random.Random) -> list[list[Click]]:
    """Clicks of a user come eight seconds apart on average, up to twelve late: sessions merge often."""
    users = [None, *(f"user-{number}" for number in range(1600))]
    rows: list[Click] = []
    for number in range(BATCHES * ROWS):
        delay = dice.randrange(48) / 4
        rows.append((number / 200 - delay, dice.choice(users), float(dice.randrange(100))))
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]


def be_killed_and_finish(folder: Path, dsn: str) -> dict[str, list[int]]:
    """Process after process, each from where the last one was killed; how far each query was then."""
    victim = Victim(killed_changelog.__name__, folder, (dsn,))
    dice = random.Random(5)
    progress: dict[str, list[int]] = {window: [] for window in WINDOWS}
    for _ in range(KILLS):
        victim.kill_at_a_random_moment(dice)
        for window, committed in progress.items():
            committed.append(commits(folder / f"ckpt-{window}"))
    victim.finish()
    return progress


def rows_of(dsn: str, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
