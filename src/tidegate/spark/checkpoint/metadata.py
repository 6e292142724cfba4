"""Metadata files of a checkpoint: the query's id, the plan of its state, its progress, its end."""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyarrow import fs

from tidegate.connectors import for_spark
from tidegate.connectors.metadata_files import (
    create_metadata,
    exists,
    numbers_in,
    read_metadata,
    write_metadata,
)
from tidegate.dataflow.identity import Identity, differences
from tidegate.errors import CheckpointDrained, CheckpointMismatch, StateError
from tidegate.observe.metrics import Metrics

if TYPE_CHECKING:  # a checkpoint can be looked at without Spark
    from pyspark.sql import DataFrame, SparkSession

METADATA = "tidegate.json"
#: The offsets of batches that are to be replayed.
HELD = "tidegate.replay"
#: What is there once a checkpoint is being drained.
DRAINED = "tidegate.drained.json"


@dataclass(frozen=True)
class QueryMetadata:
    """What is written down; the id is the query's own, and nothing is compared with it."""

    query: str
    identity: Identity


@dataclass(frozen=True)
class ProgressFile:
    """How far each source has come and when it last had rows, written down after each batch."""

    checkpoint: str

    @property
    def path(self) -> str:
        return posixpath.join(self.checkpoint, "tidegate.progress.json")

    def clear(self) -> None:
        """Begin anew: while a query is down its sources are not silent."""
        _remove(self.path)

    def write(self, progress: Mapping[str, Any]) -> None:
        write_metadata(self.path, progress)


@dataclass(frozen=True)
class MetricsFile:
    """The metrics of a query whose writer runs in another process than those who ask."""

    checkpoint: str

    @property
    def path(self) -> str:
        return posixpath.join(self.checkpoint, "tidegate.metrics.json")

    def clear(self) -> None:
        """Metrics count since the start."""
        _remove(self.path)

    def write(self, batch: int, totals: Mapping[str, float], metrics: Metrics) -> None:
        write_metadata(self.path, asdict(StoredMetrics.of(batch, totals, metrics)))

    def read(self) -> StoredMetrics:
        """What the newest batch left; nothing has been counted before the first."""
        return read_metadata(self.path, lambda stored: StoredMetrics(**stored)) or StoredMetrics()


@dataclass(frozen=True)
class StoredMetrics:
    """What the file says. Times are microseconds."""

    batch: int = -1
    totals: dict[str, float] = field(default_factory=dict)
    watermarks: dict[str, int | None] = field(default_factory=dict)
    reached: int | None = None
    rows_out: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: int, totals: Mapping[str, float], metrics: Metrics) -> StoredMetrics:
        marks = dict(metrics.watermarks())
        return cls(batch, dict(totals), marks, metrics.reached, metrics.rows_out_by_batch())


@dataclass(frozen=True)
class Drained:
    """The metadata file: the drain's number among batches, when it began, whether it is done."""

    batch: int
    began: str
    done: bool = False

    @classmethod
    def of(cls, checkpoint: str) -> Drained | None:
        """The drain of a checkpoint, if one has begun."""
        return read_metadata(posixpath.join(checkpoint, DRAINED), lambda stored: cls(**stored))

    @classmethod
    def begin(cls, checkpoint: str) -> Drained:
        """From here on no micro-batch follows; a drain that has begun before is continued as it is."""
        begun = cls.of(checkpoint)
        if begun is None:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            begun = cls(last_batch(checkpoint) + 1, now)
            write_metadata(posixpath.join(checkpoint, DRAINED), asdict(begun))
        return begun

    @property
    def now(self) -> int:
        """Its own time, in microseconds: the same whenever it is repeated."""
        since = datetime.fromisoformat(self.began) - datetime.fromtimestamp(0, UTC)
        return since // timedelta(microseconds=1)

    def end(self, checkpoint: str) -> None:
        """Everything is written."""
        write_metadata(posixpath.join(checkpoint, DRAINED), asdict(replace(self, done=True)))

    def refusal(self, checkpoint: str, what_now: str = "") -> CheckpointDrained:
        """Why no query continues from the checkpoint, and what to do."""
        read = f"its offsets are in {checkpoint}/offsets/{self.batch - 1}" if self.batch else "nothing"
        return CheckpointDrained(
            f"the checkpoint {checkpoint} was drained at {self.began}, with batch {self.batch}: it is "
            f"finished, and no query goes on from it.{what_now} Take a new checkpoint location. A query "
            "with a new checkpoint reads its sources from where their own options let it begin: give it "
            f"only what the drained query has not read ({read}). Folders and tables of results belong "
            "to the drained query, so the new one needs others; tables of plain rows can go on"
        )


def _remove(uri: str) -> None:
    if exists(uri):
        filesystem, path = fs.FileSystem.from_uri(uri)
        filesystem.delete_file(path)


def refuse_drained(checkpoint: str) -> None:
    """Refuse a start on a finished checkpoint. A drain that was interrupted is completed first."""
    drained = Drained.of(checkpoint)
    if drained is not None and drained.done:
        raise drained.refusal(checkpoint)


def is_readable(checkpoint: str) -> bool:
    """Spark keeps state in folders of any name, but its reader of state does not find all of them."""
    return not (checkpoint.startswith("file:") and "%" in checkpoint)


def check_state_is_readable(checkpoint: str) -> None:
    if not is_readable(checkpoint):
        raise StateError(
            f"{unquote(checkpoint)}: Spark cannot read the state of a checkpoint whose path has blanks "
            "or special characters, as draining and looking into it need; the query itself runs there. "
            "Stop it without drain, and rename the folder"
        )


def stored_pages(
    spark: SparkSession, checkpoint: str, operator: int, batch: int | None = None
) -> DataFrame:
    """What Spark's state store has of an operator: bucket, name of the page, page.

    That is as of the last committed batch, or of an earlier one. Spark's reader goes by the session's
    format of state: `state_format` sets it to the checkpoint's until the rows are read.
    """
    from tidegate.spark.versions import coordinate_state

    coordinate_state(spark)
    reader = (
        spark.read.format("statestore")
        .option("path", for_spark(checkpoint))
        .option("operatorId", operator)
        .option("stateVarName", "pages")
    )
    stored = (reader if batch is None else reader.option("batchId", batch)).load()
    return stored.selectExpr("key.bucket", "user_map_key.name", "unbase64(user_map_value.page) AS page")


def operators_in(checkpoint: str) -> list[int]:
    """The numbers that Spark gave to the stateful operators: the last one of the query comes first."""
    return numbers_in(posixpath.join(checkpoint, "state"))


def last_batch(checkpoint: str) -> int:
    """The last micro-batch that was committed, or -1."""
    return max(numbers_in(posixpath.join(checkpoint, "commits")), default=-1)


def last_begun(checkpoint: str) -> int:
    """The last micro-batch that Spark has begun, or -1: it may have been written, and not committed."""
    return max(numbers_in(posixpath.join(checkpoint, "offsets")), default=-1)


def has_unfinished_batch(checkpoint: str) -> bool:
    """Was a batch begun and not committed?"""
    return last_begun(checkpoint) > last_batch(checkpoint)


def batches_to_replay(checkpoint: str) -> list[int]:
    """The batches that are to be replayed after a repair, and not yet begun again."""
    return numbers_in(posixpath.join(checkpoint, HELD))


def stored_format(checkpoint: str) -> int | None:
    """Spark's format of the state, which a checkpoint keeps; None before the first commit."""
    last = last_batch(checkpoint)
    if last < 0:
        return None
    filesystem, path = fs.FileSystem.from_uri(posixpath.join(checkpoint, "commits", str(last)))
    with filesystem.open_input_stream(path) as stream:
        version = stream.read().decode().partition("\n")[0]
    # Commits from version 2 on list whose files of state count.
    return 1 if version.strip() == "v1" else 2


def stored_operator(checkpoint: str) -> str | None:
    """What Spark calls the stateful operators of a checkpoint; None if it has none yet."""
    folder = posixpath.join(checkpoint, "state", "0", "_metadata", "v2")
    if not (batches := numbers_in(folder)):
        return None
    filesystem, path = fs.FileSystem.from_uri(posixpath.join(folder, str(max(batches))))
    with filesystem.open_input_stream(path) as stream:
        _, _, content = stream.read().decode().partition("\n")
    return json.loads(content)["operatorInfo"]["operatorName"]


def stored_identity(checkpoint: str) -> Identity | None:
    """The identity that an earlier start wrote down, if there was one."""
    stored = _stored(checkpoint)
    return stored.identity if stored else None


def register_query(checkpoint: str, identity: Identity) -> str:
    """The query's id. The first start writes the metadata, later ones check what state depends on."""
    stored, begun = _stored(checkpoint), exists(posixpath.join(checkpoint, "offsets"))
    if stored is not None and stored.identity == identity:
        return stored.query
    if begun and stored is None:
        raise CheckpointMismatch(
            f"{checkpoint} is the checkpoint of a query that tidegate did not start: "
            "choose a new checkpoint location"
        )
    if begun and stored is not None:
        # Without a batch nothing can differ: an earlier start got no further than its sinks.
        check_same_state(checkpoint, stored.identity, identity)
    metadata = QueryMetadata(stored.query if stored else str(uuid.uuid4()), identity)
    if stored is not None:
        write_metadata(posixpath.join(checkpoint, METADATA), asdict(metadata))
    elif not create_metadata(posixpath.join(checkpoint, METADATA), asdict(metadata)):
        return register_query(checkpoint, identity)  # another start was faster: its id is the query's
    return metadata.query


def check_same_state(checkpoint: str, stored: Identity, identity: Identity) -> None:
    """Refuse a program that differs in what state depends on; what else differs is its own affair."""
    binding = [change for change in differences(stored, identity) if change.binds]
    if binding:
        raise CheckpointMismatch(
            "\n".join(
                [
                    f"the checkpoint {checkpoint} belongs to another program:",
                    *(f"  {change}" for change in binding),
                    "go back to the stored values, or start afresh with a new checkpoint location",
                ]
            )
        )


def _stored(checkpoint: str) -> QueryMetadata | None:
    def understand(content: dict[str, Any]) -> QueryMetadata:
        if content["identity"] and "operators" not in content["identity"]:
            raise CheckpointMismatch(
                f"an earlier version of tidegate wrote the checkpoint {checkpoint}, and this one does "
                "not read its state: start afresh with a new checkpoint location"
            )
        return QueryMetadata(content["query"], Identity(**content["identity"]))

    return read_metadata(posixpath.join(checkpoint, METADATA), understand)
