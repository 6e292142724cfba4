"""Files in a folder: the rows of a channel, each batch of them once.

The files of a batch are staged: written where nobody reads them, each under a name that no other attempt
has. They are moved into place, and then the folder's metadata file lists the batch. That file is the
commit: a batch that it lists is never touched again. If an attempt is killed before that, the next one
removes the files that it has moved.

Tasks stage the rows of operators themselves, as soon as they have them. Rows that Spark computes, for
a SELECT or in a query without operators, are staged by Spark.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidegate.connectors.declaration import Option, SinkConnector, SourceConnector, declare
from tidegate.connectors.json_lines import json_lines
from tidegate.connectors.metadata_files import read_metadata, write_metadata
from tidegate.connectors.sinks import RowType, Target, for_spark, location
from tidegate.connectors.text_options import INVALID_FIELDS, PACE
from tidegate.errors import SinkError
from tidegate.kernels.row_text import TO_THE_MICROSECOND

__all__ = ["json", "parquet"]

#: Which channel of which query fills the folder, and how far it has got. Readers skip such names.
METADATA = "_tidegate_batches"
#: Files on their way into the folder.
STAGING = "_staging"
#: The type of timestamps that Spark's writer of Parquet takes.
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
#: Under this name Spark's readers of Parquet find the schema in their own words.
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


@dataclass(frozen=True)
class FileSink:
    """A folder that a channel is written into, in one of Spark's formats."""

    path: str
    format: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", location(self.path))

    def stage(self, rows: RowType) -> FileStage:
        """Where tasks write such rows."""
        return FileStage(self.path, rows, self.format)

    def prepare(self, target: Target) -> Folder:
        """See that the folder is nobody else's."""
        folder = Folder(self.path, self.format, target)
        folder.last_batch()
        return folder


@dataclass(frozen=True)
class FileStage:
    """Writes the rows of a task into a file. The receipt is its path below `_staging`."""

    path: str
    rows: RowType
    format: str

    def write(self, tables: Iterable[pa.Table]) -> bytes:
        filesystem, folder = fs.FileSystem.from_uri(self.path)
        name = f"{uuid.uuid4().hex}.{self.format}"
        staging = posixpath.join(folder, STAGING)
        filesystem.create_dir(staging, recursive=True)
        with filesystem.open_output_stream(posixpath.join(staging, name), compression=None) as file:
            self._write(tables, file)
        return name.encode()

    def _write(self, tables: Iterable[pa.Table], file: pa.NativeFile) -> None:
        if self.format == "json":
            for table in tables:
                file.write(json_lines(table, self.rows.durations))
            return
        schema = self.rows.schema.with_metadata({_SPARK_SCHEMA: self.rows.spark})
        with pq.ParquetWriter(file, schema) as writer:
            for table in tables:
                writer.write_table(table.cast(schema))


@dataclass(frozen=True)
class Written:
    """What the metadata file says."""

    query: str
    channel: str
    batch_id: int


@dataclass(frozen=True)
class Folder:
    """One folder, filled by one channel of one query."""

    path: str
    format: str
    target: Target

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Write a batch, once."""
        if self._is_new(batch_id):
            self._commit(self._staged(rows), batch_id)

    def commit(self, receipts: Sequence[bytes], batch_id: int) -> None:
        """Make files that tasks have staged those of a batch, once."""
        if self._is_new(batch_id):
            self._commit([receipt.decode() for receipt in receipts], batch_id)

    def _is_new(self, batch_id: int) -> bool:
        last = self.last_batch()
        if last is None or batch_id > last:
            return True
        if batch_id < last and batch_id > min(last, self.target.replayed):
            raise SinkError(
                f"folder {self.path}, batch {batch_id} of channel {self.target.channel!r}: out of "
                f"order, batch {last} has been written already. The checkpoint is older than the "
                "folder: start afresh with a new checkpoint location and a new folder"
            )
        return False

    def _staged(self, rows: Any) -> list[str]:
        """The files that Spark writes for a DataFrame."""
        # A folder for each attempt: what a killed process had under way may still be writing.
        attempt = uuid.uuid4().hex
        uri = posixpath.join(self.path, STAGING, attempt)
        self._write(rows, for_spark(uri))
        filesystem, folder = fs.FileSystem.from_uri(uri)
        written = filesystem.get_file_info(fs.FileSelector(folder))
        names = sorted(file.base_name for file in written if file.base_name.startswith("part-"))
        return [posixpath.join(attempt, name) for name in names]

    def _commit(self, staged: Sequence[str], batch_id: int) -> None:
        self._put_in_place(staged, batch_id)
        write_metadata(self._metadata, asdict(Written(self.target.query, self.target.channel, batch_id)))

    def _write(self, rows: Any, folder: str) -> None:
        if self.format == "json":
            self._with_seconds(rows).write.options(**TO_THE_MICROSECOND).json(folder)
        else:
            with _timestamps_in_microseconds(rows.sparkSession):
                rows.write.format(self.format).save(folder)

    def _with_seconds(self, rows: Any) -> Any:
        """Intervals of ours as numbers: JSON has none, and Spark would write SQL for them."""
        seconds = {
            name: rows[name].cast("interval second").cast("decimal(19,6)").cast("double")
            for name in self.target.durations
        }
        return rows.withColumns(seconds) if seconds else rows

    def last_batch(self) -> int | None:
        """The last batch that is there, or None before any."""
        written = read_metadata(self._metadata, lambda stored: Written(**stored), SinkError)
        if written is None:
            return None
        if (written.query, written.channel) != (self.target.query, self.target.channel):
            raise SinkError(
                f"folder {self.path} belongs to another query ({written.query}, channel "
                f"{written.channel!r}, written up to batch {written.batch_id}): choose another folder, "
                "or remove this one"
            )
        return written.batch_id

    def _put_in_place(self, staged: Sequence[str], batch_id: int) -> None:
        filesystem, folder = fs.FileSystem.from_uri(self.path)
        batch, waiting = (
            f"batch-{batch_id:08d}-",
            [posixpath.join(folder, STAGING, name) for name in staged],
        )
        # First a look: they are also gone if another start has taken the checkpoint over meanwhile. Then
        # the files of the batch are its, and must stay. A batch without rows is not written at all.
        found = filesystem.get_file_info(waiting)
        if not found or any(file.type == fs.FileType.NotFound for file in found):
            raise self._unseen(batch_id)
        for file in filesystem.get_file_info(fs.FileSelector(folder)):
            if file.base_name.startswith(batch):
                filesystem.delete_file(file.path)  # of an attempt that was killed on its way here
        for number, path in enumerate(waiting):
            placed = f"{batch}part-{number:05d}-{uuid.uuid4().hex}.{self.format}"
            filesystem.move(path, posixpath.join(folder, placed))
        # What is left there is of attempts that did not count.
        filesystem.delete_dir_contents(posixpath.join(folder, STAGING), missing_dir_ok=True)

    def _unseen(self, batch_id: int) -> SinkError:
        return SinkError(
            f"folder {self.path}, batch {batch_id} of channel {self.target.channel!r}: the driver does "
            "not see the files that executors wrote. The folder must be on a file system that the "
            "driver and all executors share"
        )

    @property
    def _metadata(self) -> str:
        return posixpath.join(self.path, METADATA)


@contextmanager
def _timestamps_in_microseconds(spark: Any) -> Iterator[None]:
    """Let Spark write timestamps as tasks do; by default it takes an old type."""
    before = spark.conf.get(_TIMESTAMPS)
    spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMESTAMPS, before)


def parquet(path: str | PathLike[str]) -> FileSink:
    """Write Parquet files to a folder, each row exactly once, also after a crash.

    >>> tg.sinks.parquet("/data/spend")
    FileSink(path='file:///data/spend', format='parquet')
    """
    return FileSink(fspath(path), "parquet")


def json(path: str | PathLike[str]) -> FileSink:
    """Write JSON lines to a folder, each row exactly once, also after a crash.

    >>> tg.sinks.json("/data/spend")
    FileSink(path='file:///data/spend', format='json')
    """
    return FileSink(fspath(path), "json")


declare(
    SinkConnector(
        name="files",
        meaning="Files in a folder, each row exactly once.",
        options=(
            Option("path", "The folder; it is made if there is none.", "path", required=True),
            Option("format", "How rows are written.", required=True, values=("parquet", "json")),
        ),
        make=FileSink,
    )
)

_option = partial(Option, of_spark=True)

declare(
    SourceConnector(
        name="files",
        meaning="Files of a folder, or those that a glob pattern finds.",
        options=(
            Option("path", "The folder, or a glob pattern.", "path", required=True),
            Option("format", "How rows are read.", required=True, values=("json", "csv", "parquet")),
            _option("maxFilesPerTrigger", "The most files of a batch.", "integer"),
            _option("maxBytesPerTrigger", "About the most bytes of a batch."),
            _option("latestFirst", "Are the newest files read first?", "boolean"),
            _option("fileNameOnly", "Is a file known by its name, whatever its folder?", "boolean"),
            _option("pathGlobFilter", "Only files whose names match this pattern are read."),
            _option("recursiveFileLookup", "Are folders inside the folder read too?", "boolean"),
            _option("header", "CSV: is the first line of a file a header?", "boolean"),
            _option("sep", "CSV: what separates fields; by default a comma."),
            _option("quote", "CSV: what stands around fields; by default a double quote."),
            _option("escape", "CSV: what stands before a quote in a field; by default a backslash."),
            _option("nullValue", "CSV: the text that means null."),
            _option("multiLine", "Can a row have several lines?", "boolean"),
            _option("encoding", "How text is encoded; by default UTF-8."),
            _option("mode", "What Spark does with rows that it cannot parse, such as `PERMISSIVE`."),
            _option("dateFormat", "How dates are written, such as `yyyy-MM-dd`."),
            _option("timestampFormat", "How timestamps are written."),
            PACE,
            INVALID_FIELDS,
        ),
        reader="tidegate.spark.sources.declared:read_files",
        keeps_pace=True,
    )
)
