"""Files in a folder: the rows of a channel, each batch of them once.

Spark writes the files of a batch into a folder of their own. They are moved into place, and then the
folder's metadata file lists the batch. That file is the commit: a batch that it lists is never touched
again. If an attempt is killed before that, the next one removes the files that it has moved.
"""

from __future__ import annotations

import posixpath
import uuid
from dataclasses import asdict, dataclass
from functools import partial
from os import PathLike, fspath
from typing import Any

from pyarrow import fs

from tidegate.connectors.declaration import Option, SinkConnector, SourceConnector, declare
from tidegate.connectors.metadata_files import read_metadata, write_metadata
from tidegate.connectors.sinks import Target, for_spark, location
from tidegate.connectors.text_options import INVALID_FIELDS, PACE
from tidegate.errors import SinkError
from tidegate.kernels.row_text import TO_THE_MICROSECOND

__all__ = ["json", "parquet"]

#: Which channel of which query fills the folder, and how far it has got. Readers skip such names.
METADATA = "_tidegate_batches"
#: Files on their way into the folder.
STAGING = "_staging"


@dataclass(frozen=True)
class FileSink:
    """A folder that a channel is written into, in one of Spark's formats."""

    path: str
    format: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", location(self.path))

    def prepare(self, target: Target) -> Folder:
        """See that the folder is nobody else's."""
        folder = Folder(self.path, self.format, target)
        folder.last_batch()
        return folder


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
        last = self.last_batch()
        if last is not None and batch_id <= min(last, self.target.replayed):
            return
        if last is not None and batch_id < last:
            raise SinkError(
                f"folder {self.path}, batch {batch_id} of channel {self.target.channel!r}: out of "
                f"order, batch {last} has been written already. The checkpoint is older than the "
                "folder: start afresh with a new checkpoint location and a new folder"
            )
        if batch_id == last:
            return
        # A folder for each attempt: what a killed process had under way may still be writing.
        attempt = posixpath.join(STAGING, str(batch_id), uuid.uuid4().hex)
        self._write(rows, for_spark(posixpath.join(self.path, attempt)))
        self._put_in_place(attempt, batch_id)
        write_metadata(self._metadata, asdict(Written(self.target.query, self.target.channel, batch_id)))

    def _write(self, rows: Any, folder: str) -> None:
        if self.format == "json":
            self._with_seconds(rows).write.options(**TO_THE_MICROSECOND).json(folder)
        else:
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

    def _put_in_place(self, attempt: str, batch_id: int) -> None:
        filesystem, folder = fs.FileSystem.from_uri(self.path)
        batch = f"batch-{batch_id:08d}-"
        for file in filesystem.get_file_info(fs.FileSelector(folder)):
            if file.base_name.startswith(batch):
                filesystem.delete_file(file.path)  # of an attempt that was killed on its way here
        for file in filesystem.get_file_info(fs.FileSelector(posixpath.join(folder, attempt))):
            if file.base_name.startswith("part-"):
                filesystem.move(file.path, posixpath.join(folder, batch + file.base_name))
        filesystem.delete_dir(posixpath.join(folder, STAGING, str(batch_id)))

    @property
    def _metadata(self) -> str:
        return posixpath.join(self.path, METADATA)


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
