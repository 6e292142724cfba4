"""A kernel host that commits tasks by attempt, with a changelog for each, as Spark's state store does.

An executor keeps its own copy of the newest state it has seen, and goes on from it. Whoever has none
puts it together from changelogs on disk. In format 1 a changelog is known by its version, so of two
attempts the second overwrites the first. In format 2 it is known by its attempt, too, and the commit
log says whose counts.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tidegate.plan.nodes import Plan
from tidegate.state.pages import MemoryPages
from tidegate.testing.host import Bucket, KernelHost, Slot
from tidegate.testing.results import BatchResult
from tidegate.testing.table import Row

Format = Literal[1, 2]


class Pages(MemoryPages):
    """A MapState of Spark: to remove what is not there is no mistake to it."""

    def remove(self, name: str) -> None:
        self.pop(name, None)


@dataclass(frozen=True)
class Changelog:
    """What an attempt changed in a bucket, and whose state it went on from."""

    put: Mapping[str, bytes]
    removed: frozenset[str]
    due: int | None
    base: str

    @classmethod
    def between(cls, before: Bucket, after: Bucket, base: str) -> "Changelog":
        put = {name: page for name, page in after.pages.items() if before.pages.get(name) != page}
        return cls(put, frozenset(before.pages.keys() - after.pages.keys()), after.due, base)

    def applied_to(self, bucket: Bucket) -> Bucket:
        kept = {name: page for name, page in bucket.pages.items() if name not in self.removed}
        return Bucket(Pages(kept | dict(self.put)), self.due)


@dataclass(frozen=True)
class Attempt:
    """One run of a version's tasks on an executor; nothing of it is stored yet."""

    executor: int
    version: int
    result: BatchResult
    changelogs: Mapping[Slot, Changelog]
    buckets: Mapping[Slot, Bucket]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class Copy:
    """What an executor keeps of a bucket."""

    version: int
    attempt: str
    bucket: Bucket


class AttemptHost(KernelHost):
    """Runs batches by attempts. `version` is the newest that was committed."""

    def __init__(self, plan: Plan, state_format: Format, buckets: int = 2) -> None:
        super().__init__(plan, buckets=buckets)
        self.format = state_format
        self.version = 0
        self._slots = list(self._buckets)
        #: The commit log: whose changelog of which version counts; only format 2 reads it.
        self._counts: dict[tuple[Slot, int], str] = {}
        self._disk: dict[tuple[Slot, int, str], Changelog] = {}
        self._copies: dict[tuple[int, Slot], Copy] = {}

    def attempt(self, executor: int, *rows: Sequence[Row]) -> Attempt:
        """Run the next version on an executor, from the state as that executor sees it."""
        before = {slot: self._loaded(executor, slot) for slot in self._slots}
        self._buckets = {slot: Bucket(Pages(one.pages), one.due) for slot, one in before.items()}
        result = self._run(rows, self.watermark_micros, executor, 1)
        after = self._buckets
        changes = {
            slot: Changelog.between(
                before[slot], after[slot], self._counts.get((slot, self.version), "")
            )
            for slot in self._slots
        }
        return Attempt(executor, self.version + 1, result, changes, after)

    def store(self, attempt: Attempt, slots: Iterable[Slot] | None = None) -> None:
        """The attempt's tasks write their changelogs."""
        for slot in self._slots if slots is None else slots:
            own = attempt.id if self.format == 2 else ""
            self._disk[slot, attempt.version, own] = attempt.changelogs[slot]

    def keep(self, attempt: Attempt) -> None:
        """The attempt's executor goes on from what it has computed."""
        for slot in self._slots:
            copy = Copy(attempt.version, attempt.id, attempt.buckets[slot])
            self._copies[attempt.executor, slot] = copy

    def commit(self, counts: Mapping[Slot, Attempt], *rows: Sequence[Row]) -> None:
        """The driver says whose tasks were the ones; the watermark moves on."""
        self.version += 1
        self._counts |= {(slot, self.version): counts[slot].id for slot in self._slots}
        self.observe(*rows)

    def lose(self, executor: int) -> None:
        """An executor is gone, with its copies and its workers' memory."""
        self._copies = {place: copy for place, copy in self._copies.items() if place[0] != executor}
        self._residents = {k: v for k, v in self._residents.items() if k[0] != executor}

    @property
    def slots(self) -> list[Slot]:
        return self._slots

    def _loaded(self, executor: int, slot: Slot) -> Bucket:
        copy = self._copies.get((executor, slot))
        newest = self._counts.get((slot, self.version), "")
        if copy and copy.version == self.version and (self.format == 1 or copy.attempt == newest):
            return copy.bucket
        bucket = Bucket(Pages())
        for changelog in self._lineage(slot, newest):
            bucket = changelog.applied_to(bucket)
        return bucket

    def _lineage(self, slot: Slot, newest: str) -> list[Changelog]:
        """The changelogs that lead to the newest version, oldest first."""
        found: list[Changelog] = []
        for version in range(self.version, 0, -1):
            found.append(self._disk[slot, version, newest if self.format == 2 else ""])
            newest = found[-1].base
        return found[::-1]
