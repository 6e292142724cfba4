"""Who owns a checkpoint: the start that claimed it last. Whoever owned it before is fenced off.

A claim is a small file in the checkpoint, whose name has the number of the start and a random part.
The greatest name is the owner's. Names are only ever added, so of two starts at the same moment exactly
one has the greatest, and no clock, lease or lock is needed. Tasks look before they commit state, the
driver before it writes to sinks: a driver that was suspended finds out before it changes anything.
"""

from __future__ import annotations

import posixpath
import socket
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

import psutil
from pyarrow import fs

from tidegate.connectors.metadata_files import names_in, read_metadata, write_metadata
from tidegate.errors import CheckpointTaken, StateError

FOLDER = "tidegate.owners"
_SUFFIX = ".json"
#: How many claims are kept, to look at; only the greatest is needed.
_KEPT = 20


@dataclass(frozen=True)
class Owner:
    """A start that claimed a checkpoint: which process, on which machine, since when, and its sinks."""

    host: str
    pid: int
    #: When the process was started, in seconds: a number of a process is used again.
    process_started: float
    since: str
    sinks: Mapping[str, str] = field(default_factory=dict)
    #: Has the query ended? A process may live on without it, and a query end that nobody looks at.
    ended: bool = False

    @classmethod
    def this_process(cls, sinks: Mapping[str, str]) -> Owner:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        own = _driver_process()
        return cls(socket.gethostname(), own.pid, own.create_time(), now, dict(sinks))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def is_alive(self) -> bool | None:
        """Whether its query may still run; None where that cannot be known: on another machine."""
        if self.ended:
            return False
        if self.host != socket.gethostname():
            return None
        try:
            return psutil.Process(self.pid).create_time() == self.process_started
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True)
class Ownership:
    """One start's claim to a checkpoint; it travels to tasks."""

    folder: str
    name: str

    @classmethod
    def next(cls, checkpoint: str) -> Ownership:
        """The claim after all that are there. It holds once it is taken."""
        folder = posixpath.join(checkpoint, FOLDER)
        newest = max(_owners(folder), default="0-")
        number = int(newest.partition("-")[0]) + 1
        return cls(folder, f"{number:08d}-{uuid.uuid4().hex}{_SUFFIX}")

    def take(self, sinks: Mapping[str, str] | None = None) -> None:
        """Become the owner at once, whoever it was; or say who was faster."""
        write_metadata(posixpath.join(self.folder, self.name), asdict(Owner.this_process(sinks or {})))
        try:
            self.check()
        except CheckpointTaken:
            self.release()
            raise
        self._forget_old_ones()

    def check(self) -> None:
        """Raise `CheckpointTaken` if another start has become the owner: by one look into a folder."""
        if max(_owners(self.folder), default="") <= self.name:
            return
        newest = _newest(self.folder)
        if newest is not None and newest[0] > self.name:
            owner = newest[1]
            raise CheckpointTaken(
                f"the checkpoint {posixpath.dirname(self.folder)} has another owner: {owner} took it "
                f"over at {owner.since}. This query has ended, and has changed nothing since. If both "
                "are to run, give each a checkpoint of its own"
            )

    def end(self) -> None:
        """Write down that the query has ended. It stays the owner: there is no other."""
        place = posixpath.join(self.folder, self.name)
        owner = read_metadata(place, lambda stored: Owner(**stored), StateError)
        if owner is not None and not owner.ended:
            write_metadata(place, asdict(replace(owner, ended=True)))

    def release(self) -> None:
        """Take the claim back: whoever owned the checkpoint before owns it again."""
        filesystem, folder = fs.FileSystem.from_uri(self.folder)
        filesystem.delete_file(posixpath.join(folder, self.name))

    def _forget_old_ones(self) -> None:
        filesystem, folder = fs.FileSystem.from_uri(self.folder)
        for name in _owners(self.folder)[:-_KEPT]:
            with suppress(FileNotFoundError):  # another start does the same
                filesystem.delete_file(posixpath.join(folder, name))


def _driver_process() -> psutil.Process:
    """The process that a query lives and ends with: this one, or the JVM that has started it.

    On a Spark Connect server a start runs in a Python process that ends long before its query does.
    """
    own = psutil.Process()
    return next((one for one in own.parents() if one.name() == "java"), own)


def owner_of(checkpoint: str) -> Owner | None:
    """The start that claimed the checkpoint last, if any did."""
    newest = _newest(posixpath.join(checkpoint, FOLDER))
    return None if newest is None else newest[1]


def _newest(folder: str) -> tuple[str, Owner] | None:
    """The greatest claim, and what it says."""
    while name := max(_owners(folder), default=None):
        owner = read_metadata(posixpath.join(folder, name), lambda stored: Owner(**stored), StateError)
        if owner is not None:  # a claim that was released in the meantime is none
            return name, owner
    return None


def _owners(folder: str) -> list[str]:
    return [name for name in names_in(folder) if name.endswith(_SUFFIX)]
