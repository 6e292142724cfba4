"""What operators keep, written down beside the checkpoint after each batch: to be read without Spark.

The numbers travel with the data, a set for each bucket that a batch has looked at. A start goes on
from the file of the run before, so that it always has all buckets. It is of the batch that it names,
which was written, and may not be committed yet.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyarrow import fs

from tidegate.connectors.metadata_files import exists, read_metadata, write_metadata
from tidegate.dataflow.identity import Identity
from tidegate.errors import StateError
from tidegate.kernels.messages import Kept
from tidegate.observe.metrics import KeptByAll, Metrics
from tidegate.plan.identity import Values

_FILE = "tidegate.state.json"


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
class StateSummaryFile:
    """What the file says."""

    batch: int
    kept: KeptByAll

    @classmethod
    def read(cls, checkpoint: str) -> StateSummaryFile | None:
        def understand(stored: dict[str, object]) -> StateSummaryFile:
            kept = {
                int(vertex): {int(bucket): dict(held) for bucket, held in buckets.items()}
                for vertex, buckets in dict(stored["operators"]).items()  # type: ignore[call-overload]
            }
            return cls(int(stored["batch"]), kept)  # type: ignore[call-overload]

        return read_metadata(posixpath.join(checkpoint, _FILE), understand, StateError)

    def write(self, checkpoint: str) -> None:
        filled = {
            vertex: {bucket: held for bucket, held in buckets.items() if held["pages"]}
            for vertex, buckets in self.kept.items()
        }
        write_metadata(posixpath.join(checkpoint, _FILE), {"batch": self.batch, "operators": filled})


class StateSummary:
    """Keeps the file of a running query."""

    def __init__(self, checkpoint: str, metrics: Metrics) -> None:
        self._checkpoint = checkpoint
        self._metrics = metrics
        self._possible = True
        self._begun = False

    def begin(self, batch: int) -> None:
        """Go on from the file, before the first batch of a run; one that does not fit is removed."""
        if self._begun:
            return
        self._begun = True
        stored = StateSummaryFile.read(self._checkpoint)
        if stored is not None and stored.batch in (batch - 1, batch):
            self._metrics.restore(stored.kept)
        elif batch > 0:
            self._possible = False
            _remove(posixpath.join(self._checkpoint, _FILE))

    def write(self, batch: int) -> None:
        if self._possible:
            StateSummaryFile(batch, self._metrics.kept()).write(self._checkpoint)


def summary_of(checkpoint: str, identity: Identity, committed: int) -> list[OperatorState] | None:
    """The state of each operator, from the file; None if that does not have all of it."""
    stored = StateSummaryFile.read(checkpoint)
    if stored is None or stored.batch < committed:
        return None
    operators = enumerate(map(identity.own, identity.operators))
    states = [_total(own, stored.kept.get(vertex, {}), stored.batch) for vertex, own in operators]
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
