"""What a program's terminal shows: nothing of workers that do their work, and errors whole."""

import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tests.support.time_limits import HANG

ROOT = Path(tidegate.__file__).parents[2]

#: What Spark's processes write for tasks in which nothing is wrong.
NOISE = [
    "TransformWithStateInPandas Python worker",
    "State server port",
    "doesn't contain key",
    "No more data to read",
    "set handle state",
]

#: Written before the process has anything of ours; `local_spark` starts it by a script of ours.
FIRST_LINE = {
    "local": set(),
    "foreign": {"Starting Streaming TransformWithStateInPandas Python worker."},
}


@pytest.mark.parametrize("session", ["local", "foreign"])
def test_workers_write_nothing_to_the_terminal_but_errors(session, tmp_path):
    command = [sys.executable, "-m", "tests.spark.terminal_program", session, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG)
    assert done.stdout == "[1, 1]\n"
    assert done.returncode == 1
    assert (
        "thirteen is an unlucky number" in done.stderr.partition("Traceback (most recent call last)")[2]
    )
    shown = {line for line in done.stderr.splitlines() if any(noise in line for noise in NOISE)}
    assert shown <= FIRST_LINE[session]
    assert session != "local" or "BrokenPipeError" not in done.stderr  # of workers that Spark has left
