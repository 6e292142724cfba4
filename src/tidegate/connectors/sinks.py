"""Sinks: where a channel's rows go, batch by batch. Each is a callable `(rows, batch_id)`, or makes one.

That takes a DataFrame, whose rows Spark computes in a job of its own. Two kinds of sinks do without it.
An `ArrowWrite` also takes the rows as an Arrow table on the driver. A `StagedWrite` also lets the tasks
that have the rows write them, and commits on the driver what they wrote.

A batch that is replayed after a crash has the same id and the same rows, and a sink must not keep
them twice: folders and tables note the last one, memory is keyed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote

import pyarrow as pa

#: `(DataFrame of one batch, batch id) → None`. Any function of this form is a sink.
Write = Callable[[Any, int], None]


@dataclass(frozen=True)
class Target:
    """What a sink is to be filled with: the rows of one channel of one query."""

    #: The query's id: made by its first start, the same after every restart.
    query: str
    channel: str
    #: The columns of the rows, `op` among them if they are changes.
    schema: pa.Schema
    #: The columns that tell rows apart; none where every row stands for itself.
    key: tuple[str, ...] = ()
    #: Do rows carry `op`, so that some take back others?
    changes: bool = False
    #: The day-time intervals that tidegate adds to rows: numbers of seconds where a format has no such
    #: type.
    durations: tuple[str, ...] = ()
    #: Batches up to this number are replayed after a repair: a target that has later ones has them.
    replayed: int = -1


@dataclass(frozen=True)
class RowType:
    """What the rows of a channel are made of, for those who write them in tasks."""

    schema: pa.Schema
    #: The same in Spark's words, as JSON: Spark's readers of Parquet go by it.
    spark: str
    #: The day-time intervals that tidegate adds to rows: see `Target`.
    durations: tuple[str, ...] = ()


class Stage(Protocol):
    """Where tasks leave rows until the driver commits them. It is shipped to the tasks."""

    def write(self, tables: Iterable[pa.Table]) -> bytes | None:
        """Write rows where nobody reads them yet. The receipt; None if there is nothing to commit."""
        ...


@runtime_checkable
class StagedSink(Protocol):
    """A sink whose rows can be written by the tasks that have them. It prepares a `StagedWrite`."""

    def stage(self, rows: RowType) -> Stage | None:
        """Where tasks write such rows; None if they cannot."""
        ...


@runtime_checkable
class StagedWrite(Protocol):
    """Commits rows that tasks have written."""

    def commit(self, receipts: Sequence[bytes], batch_id: int) -> None:
        """Make what the receipts stand for part of the sink, once."""
        ...


@runtime_checkable
class ArrowWrite(Protocol):
    """Takes the rows of a batch as an Arrow table."""

    def write_rows(self, rows: pa.Table, batch_id: int) -> None: ...


@runtime_checkable
class Preparable(Protocol):
    """A sink that wants to know what it will be given, before the query starts."""

    def prepare(self, target: Target) -> Write:
        """Check that the rows can be taken, and say what takes them."""
        ...


Sink = Write | Preparable


def shows_rows_in_process(sink: Sink) -> bool:
    """Are rows shown by the process that writes them? Over Spark Connect the user has another one."""
    return getattr(sink, "in_process", False)


def location(path: str) -> str:
    """The path as a URI, as Arrow reads it; one without a scheme is on the local disk."""
    return path if "://" in path else Path(path).absolute().as_uri()


def for_spark(uri: str) -> str:
    """The same place for Spark, which takes a path as it stands: `%20` is no blank to it."""
    scheme, _, path = uri.partition("://")
    return f"{scheme}://{unquote(path)}" if scheme == "file" else uri
