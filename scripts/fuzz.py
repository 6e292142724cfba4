"""`make fuzz`: property tests on fresh cases, in a random order, until time is up or one fails.

Each round is a process of its own with a seed of its own. As a plugin of pytest (`-p scripts.fuzz`) this
module ends a round between two tests: a test that is looking for a smaller counterexample finishes.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

import pytest

ROOT = Path(__file__).parents[1]

#: Where property tests are.
TESTS = ("tests/property", "tests/unit")

#: When rounds end, in seconds since 1970.
UNTIL = "TIDEGATE_FUZZ_UNTIL"

_TIME_IS_UP = "time is up"


# -- in pytest ------------------------------------------------------------------------------------


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if time.time() >= float(os.environ[UNTIL]) and not item.session.testsfailed:
        item.session.shouldstop = _TIME_IS_UP


# -- around it ------------------------------------------------------------------------------------


@dataclass
class Search:
    """Rounds, several beside each other; the first that fails ends the others."""

    until: float
    arguments: Sequence[str]
    failed: Event = field(default_factory=Event)
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def rounds(self) -> None:
        """Round after round, one at least."""
        self._round(secrets.randbits(32))
        while time.time() < self.until and not self.failed.is_set():
            self._round(secrets.randbits(32))

    def _round(self, seed: int) -> None:
        with subprocess.Popen(
            [sys.executable, *self._command(seed)],
            cwd=ROOT,
            env=os.environ | {"TIDEGATE_PROFILE": "fuzz", UNTIL: str(self.until)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            with self._lock:
                self._running.add(process)
            said, _ = process.communicate()
        with self._lock:
            self._running.remove(process)
            if self.failed.is_set():
                return
            summary = said.rstrip().rpartition("\n")[2].strip("= ")
            print(f"seed {seed}: {summary}", flush=True)
            stopped = process.returncode == pytest.ExitCode.INTERRUPTED and _TIME_IS_UP in said
            if process.returncode and not stopped:
                self.failed.set()
                self._report(seed, said)

    def _command(self, seed: int) -> list[str]:
        options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-p", "scripts.fuzz"]
        seeds = [f"--randomly-seed={seed}", f"--hypothesis-seed={seed}"]
        return ["-m", "pytest", *options, "-m", "hypothesis", *seeds, *TESTS, *self.arguments]

    def _report(self, seed: int, said: str) -> None:
        for other in self._running:
            other.terminate()
        print(said)
        for test in re.findall(r"^FAILED (\S+)", said, re.MULTILINE):
            print(f"""
Again: TIDEGATE_PROFILE=fuzz .venv/bin/python -m pytest -n 0 --hypothesis-seed={seed} '{test}'
Until it is mended, the line with @reproduce_failure stands above the test, for whoever runs it.
Then the case shown above becomes a test of its own, with its rows written out, beside this one.""")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--minutes", type=float, default=10, help="how long to look")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="rounds at a time")
    known, arguments = parser.parse_known_args(words)
    search = Search(time.time() + 60 * known.minutes, arguments)
    with ThreadPoolExecutor(known.jobs) as pool:
        for done in [pool.submit(search.rounds) for _ in range(known.jobs)]:
            done.result()
    return int(search.failed.is_set())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
