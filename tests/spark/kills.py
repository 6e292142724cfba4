"""Programs that tests kill, and run again from where they were.

A program is a module with a query in it. It says on its standard output when it begins and ends to
write a batch (`Announced`). Told to `finish`, it ends when there is nothing left to do; otherwise it
runs until it is killed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tidegate.connectors import ArrowWrite, StagedSink, StagedWrite

ROOT = Path(__file__).parents[2]

#: A third of the kills come within so many seconds of a process's start, which takes about as long.
START = 12.0
#: The others come soon after the process has begun or ended to write a batch, at one of so many times.
STEPS, SOON = 6, 0.15


def kills(most: int) -> int:
    """How often a test kills: once, or as often as `TIDEGATE_KILLS` says and the test has a use for."""
    return min(most, int(os.environ.get("TIDEGATE_KILLS", "1")))


#: Is there time for everything, as `make soak` has it?
SOAK = kills(2) > 1


class Announced:
    """A sink that says what it does; and that stops there, if it is told to, until it is killed."""

    def __init__(self, sink: Any, halt_at: str = "", name: str = "") -> None:
        self.sink = sink
        self.halt_at = halt_at
        self.name = name

    def stage(self, rows: Any) -> Any:
        return self.sink.stage(rows) if isinstance(self.sink, StagedSink) else None

    def prepare(self, target: Any) -> Any:
        write = self.sink.prepare(target)
        if isinstance(write, StagedWrite):
            return AnnouncedCommit(self, write)
        return (AnnouncedRows if isinstance(write, ArrowWrite) else AnnouncedWrite)(self, write)

    def say(self, what: str, batch_id: int) -> None:
        # One write: queries of a process share its output.
        sys.stdout.write(f"{what} {batch_id} {self.name}".rstrip() + "\n")
        sys.stdout.flush()
        if f"{what} {batch_id}" == self.halt_at:
            threading.Event().wait()


@dataclass
class AnnouncedWrite:
    """The rows of a batch, as Spark has them, on their way into a sink."""

    by: Announced
    write: Any

    def __call__(self, rows: Any, batch_id: int) -> None:
        self._announced(self.write, rows, batch_id)

    def _announced(self, write: Any, given: Any, batch_id: int) -> None:
        self.by.say("writing", batch_id)
        write(given, batch_id)
        self.by.say("written", batch_id)


class AnnouncedCommit(AnnouncedWrite):
    """The same for rows that tasks have written."""

    def commit(self, receipts: Any, batch_id: int) -> None:
        self._announced(self.write.commit, receipts, batch_id)


class AnnouncedRows(AnnouncedWrite):
    """The same for rows that are on the driver."""

    def write_rows(self, rows: Any, batch_id: int) -> None:
        self._announced(self.write.write_rows, rows, batch_id)


@dataclass
class Victim:
    """One program, run by process after process, each from where the one before was killed."""

    module: str
    folder: Path
    arguments: tuple[str, ...] = ()
    #: All that the processes have said, each as often as it was said.
    said: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def running(self, *how: str) -> Iterator[subprocess.Popen[str]]:
        """A process that is gone at the end, with its JVM and its workers."""
        command = [sys.executable, "-m", self.module, str(self.folder), *self.arguments, *how]
        with (
            self._log.open("a") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=ROOT
            ) as process,
        ):
            try:
                yield process
            finally:
                kill_session(process.pid)
                self.said.update(map(str.strip, process.stdout))

    def kill_at_a_random_moment(self, dice: random.Random) -> None:
        with self.running() as process:
            if dice.random() < 1 / 3:
                time.sleep(dice.uniform(0, START))
            else:
                for _ in range(dice.randint(1, STEPS)):
                    self.hear(process)
                time.sleep(dice.expovariate(1 / SOON))
            assert process.poll() is None, self.complaints()

    def hear(self, process: subprocess.Popen[str]) -> str:
        """What the process says next."""
        line = process.stdout.readline().strip()
        assert line.startswith(("writing ", "written ")), (line, self.complaints())
        self.said[line] += 1
        return line

    def finish(self) -> None:
        with self.running("finish") as process:
            self.said.update(map(str.strip, process.stdout))
            assert process.wait() == 0, self.complaints()

    def complaints(self) -> str:
        return self._log.read_text()[-4000:]

    @property
    def replays(self) -> int:
        """How often a batch was written that an earlier process had begun to write."""
        return sum(times - 1 for line, times in self.said.items() if line.startswith("writing "))

    @property
    def _log(self) -> Path:
        return self.folder / f"{'-'.join([self.module, *self.arguments[1:]])}.log"


def commits(checkpoint: Path) -> int:
    """How many batches Spark has committed."""
    return len(list((checkpoint / "commits").glob("[0-9]*")))


def kill_session(session: int) -> None:
    """SIGKILL for all processes of a session: Spark's workers are a process group of their own."""
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # gone in the meantime
