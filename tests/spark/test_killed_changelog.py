"""Processes that write changelogs to PostgreSQL, killed again and again: the tables end right."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg.rows import dict_row

from tests.spark.conftest import Click, write_batches
from tests.spark.killed_changelog import WINDOWS, program
from tests.spark.processes import kill_session
from tidegate.testing import Oracle
from tidegate.testing.results import row_differences

CHILD = Path(__file__).with_name("killed_changelog.py")

#: How often each run is killed: 20 times in all.
KILLS = 10
#: A third of the kills come within so many seconds of a process's start, which takes about as long.
START = 12.0
#: The others come soon after the process has begun or ended to write a batch, at one of so many times.
STEPS, SOON = 6, 0.15
BATCHES, ROWS = 60, 500


@pytest.mark.timeout(600)
def test_tables_survive_every_kill(spark: Any, postgres: str, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", clicks(random.Random(5)))
    runs = [Run(tmp_path, postgres, window) for window in WINDOWS]
    # Side by side: a starting process keeps one core busy.
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(run.be_killed_and_finish, KILLS) for run in runs]:
            done.result()
    source, rows = spark.read.parquet(str(tmp_path / "clicks")), pq.read_table(tmp_path / "clicks")
    for run in runs:
        plan = program(source, run.window).node
        oracle = Oracle(plan)
        oracle.batch(rows.to_pylist(), None)
        assert row_differences(plan, "main", oracle.results(), run.rows(run.window)) == [], run.window
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

    def be_killed_and_finish(self, kills: int) -> None:
        dice = random.Random(self.window)
        for _ in range(kills):
            with self._process() as process:
                self._wait_for_the_moment(process, dice)
                assert process.poll() is None, self._log()
            self.commits.append(len(list(self.folder.glob(f"ckpt-{self.window}/commits/[0-9]*"))))
        with self._process("finish") as process:
            process.communicate(timeout=200)
            assert process.returncode == 0, self._log()

    def _wait_for_the_moment(self, process: subprocess.Popen[str], dice: random.Random) -> None:
        assert process.stdout is not None
        if dice.random() < 1 / 3:
            time.sleep(dice.uniform(0, START))
            return
        for _ in range(dice.randint(1, STEPS)):
            assert process.stdout.readline().startswith(("writing", "written")), self._log()
        time.sleep(dice.expovariate(1 / SOON))

    def rows(self, table: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.dsn, row_factory=dict_row) as connection:
            return connection.execute(f"SELECT * FROM {table}").fetchall()

    @contextmanager
    def _process(self, *how: str) -> Iterator[subprocess.Popen[str]]:
        """A process that is gone at the end, with its JVM and its workers."""
        command = [sys.executable, str(CHILD), str(self.folder), self.dsn, self.window, *how]
        with (
            (self.folder / self.window).open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            ) as process,
        ):
            try:
                yield process
            finally:
                kill_session(process.pid)

    def _log(self) -> str:
        return (self.folder / self.window).read_text()[-4000:]
