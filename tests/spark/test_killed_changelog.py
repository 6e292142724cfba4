"""Processes that write changelogs to PostgreSQL, killed again and again: the tables end right."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
from tests.spark.kills import Victim, commits, kills
from tidegate.testing.results import row_differences

#: How often each run is killed: 20 times in all.
KILLS = kills(20) // len(WINDOWS)
BATCHES, ROWS = 60, 500


@pytest.mark.kills
def test_tables_survive_every_kill(spark: Any, postgres: str, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", clicks(random.Random(5)))
    runs = [Run(tmp_path, postgres, window) for window in WINDOWS]
    # Side by side: a starting process keeps one core busy.
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(run.be_killed_and_finish) for run in runs]:
            done.result()
    source, rows = spark.read.parquet(str(tmp_path / "clicks")), pq.read_table(tmp_path / "clicks")
    for run in runs:
        plan = program(source, run.window).node
        oracle = Oracle(plan)
        oracle.batch(rows.to_pylist(), None)
        assert row_differences(plan, "main", oracle.results(), run.rows()) == [], run.window
        # The kills hit a run that was under way, and left it something to do.
        assert len(set(run.commits)) > KILLS / 3, run.commits
        assert run.commits[-1] < BATCHES, run.commits


def clicks(dice: random.Random) -> list[list[Click]]:
    """Clicks of a user come eight seconds apart on average, up to twelve late: sessions merge often."""
    users = [None, *(f"user-{number}" for number in range(1600))]
    rows: list[Click] = []
    for number in range(BATCHES * ROWS):
        delay = dice.randrange(48) / 4
        rows.append((number / 200 - delay, dice.choice(users), float(dice.randrange(100))))
    return [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]


@dataclass
class Run:
    """One query, run by process after process, each from where the one before was killed."""

    folder: Path
    dsn: str
    window: str
    #: How many batches Spark had committed at each kill.
    commits: list[int] = field(default_factory=list)

    def be_killed_and_finish(self) -> None:
        victim = Victim(killed_changelog.__name__, self.folder, (self.dsn, self.window))
        dice = random.Random(self.window)
        for _ in range(KILLS):
            victim.kill_at_a_random_moment(dice)
            self.commits.append(commits(self.folder / f"ckpt-{self.window}"))
        victim.finish()

    def rows(self) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            return connection.execute(f"SELECT * FROM {self.window}").fetchall()
