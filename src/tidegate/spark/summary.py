"""What operators keep, written down beside the checkpoint after each batch: to be read without Spark.

The numbers travel with the data, a set for each bucket that a batch has looked at. A start goes on
from the note of the run before, so that it always has all buckets. It is of the batch that it names,
which was written, and may not be committed yet.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyarrow import fs

from tidegate.connectors.notes import exists, read_note, write_note
from tidegate.dataflow.identity import Identity
from tidegate.errors import StateError
from tidegate.observe.metrics import KeptByAll, Metrics
from tidegate.operators.messages import Kept
from tidegate.plan.identity import Values

_NOTE = "tidegate.state.json"


@dataclass
class OperatorState:
    """What one operator keeps."""

    #: What its state depends on, as it is written beside the checkpoint.
    identity: Values
    buckets: int = 0
    keys: int = 0
    #: Windows or sessions that are open, keys of running folds, ids that are remembered; rows where
    #: rows are kept: around each, in order, or to join.
    open: int = 0
    pages: int = 0
    bytes: int = 0
    #: The watermark it has worked by, and the one at which something falls due next.
    watermark: int | None = None
    next_due: int | None = None
    #: The batch after which this was so.
    batch: int = -1


@dataclass(frozen=True)
class StateNote:
    """What the note says."""

    batch: int
    kept: KeptByAll

    @classmethod
    def read(cls, checkpoint: str) -> StateNote | None:
        def understand(note: dict[str, object]) -> StateNote:
            kept = {
                int(vertex): {int(bucket): dict(held) for bucket, held in buckets.items()}
                for vertex, buckets in dict(note["operators"]).items()  # type: ignore[call-overload]
            }
            return cls(int(note["batch"]), kept)  # type: ignore[call-overload]

        return read_note(posixpath.join(checkpoint, _NOTE), understand, StateError)

    def write(self, checkpoint: str) -> None:
        filled = {
            vertex: {bucket: held for bucket, held in buckets.items() if held["pages"]}
            for vertex, buckets in self.kept.items()
        }
        write_note(posixpath.join(checkpoint, _NOTE), {"batch": self.batch, "operators": filled})


class StateSummary:
    """Keeps the note of a running query."""

    def __init__(self, checkpoint: str, metrics: Metrics) -> None:
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._possible = True
        self._begun = False

    def begin(self, batch: int) -> None:
        """Go on from the note, before the first batch of a run; one that does not fit is removed."""
        if self._begun:
            return
        self._begun = True
        note = StateNote.read(self._checkpoint)
        if note is not None and note.batch in (batch - 1, batch):
            self._metrics.restore(note.kept)
        elif batch > 0:
            self._possible = False
            _remove(posixpath.join(self._checkpoint, _NOTE))

    def write(self, batch: int) -> None:
        if self._possible:
            StateNote(batch, self._metrics.kept()).write(self._checkpoint)


def summary_of(checkpoint: str, identity: Identity, committed: int) -> list[OperatorState] | None:
    """The state of each operator, from the note; None if that does not have all of it."""
    note = StateNote.read(checkpoint)
    if note is None or note.batch < committed:
        return None
    operators = enumerate(map(identity.own, identity.operators))
    states = [_total(own, note.kept.get(vertex, {}), note.batch) for vertex, own in operators]
    return None if any(state is None for state in states) else [one for one in states if one]


def _total(own: Values, kept: Mapping[int, Kept], batch: int) -> OperatorState | None:
    held = list(kept.values())
    if any(None in (one["open"], one["keys"]) for one in held):
        return None  # a bucket was too large to be counted
    sums = {name: sum(_known(held, name)) for name in ("open", "keys", "pages", "bytes")}
    return OperatorState(
        own,
        buckets=len(held),
        watermark=max(_known(held, "watermark"), default=None),
        next_due=min(_known(held, "due"), default=None),
        batch=batch,
        **sums,
    )


def _known(held: Iterable[Kept], name: str) -> list[int]:
    return [value for one in held if (value := one[name]) is not None]


def _remove(uri: str) -> None:
    if exists(uri):
        filesystem, path = fs.FileSystem.from_uri(uri)
        filesystem.delete_file(path)
