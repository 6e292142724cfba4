"""A folder of files as a stream whose micro-batches have as many rows as they are asked to have."""

from __future__ import annotations

import atexit
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import TypeAlias

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidegate.connectors import location
from tidegate.connectors.folder import BEGINNING, Folder, Format, Lines, Offset, Parquet
from tidegate.errors import PlanError, StartError, did_you_mean
from tidegate.spark.pacing import Control, Pace, Taken, mark, marked, now
from tidegate.spark.schema import arrow_schema, spark_schema

NAME = "tidegate_folder"

FORMATS = ("json", "csv", "parquet")

#: Options that say which files are read, or that a row is not a line.
_OF_SPARKS_READER = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "pathGlobFilter",
    "recursiveFileLookup", "multiLine", "encoding",
)  # fmt: skip

#: Fewer rows than these are not worth another task.
_LEAST_OF_A_TASK = 10_000

#: Without a pace a batch is everything there is, in as many tasks as it takes.
_MOST_OF_A_TASK = 100_000

_LINE = "value"

Schema: TypeAlias = pa.Schema | StructType | str


def read_folder(
    spark: SparkSession,
    path: str,
    schema: Schema,
    format: str,
    pace: Pace | None,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of the files in a folder, present and future."""
    _check(format, options)
    settings = Settings(_existing(path), format, _header(format, options), _tasks(spark))
    columns = spark_schema(schema) if isinstance(schema, pa.Schema) else schema
    if pace is None:
        return _rows(spark, settings, columns, options)
    control = Control(_made_for_this_process())
    settings = Settings(**asdict(settings) | {"control": control.folder})
    return marked(_rows(spark, settings, columns, options), mark(control, pace))


@dataclass(frozen=True)
class Settings:
    """The options of the source."""

    folder: str
    format: str
    header: bool
    tasks: int
    control: str | None = None


def _rows(
    spark: SparkSession, settings: Settings, schema: StructType | str, options: Mapping[str, str]
) -> DataFrame:
    spark.dataSource.register(FolderSource)
    stream = spark.readStream.format(NAME).option("settings", json.dumps(asdict(settings)))
    if settings.format == "parquet":
        return stream.schema(schema).load()
    text = F.rtrim(F.col(_LINE).cast("string"), F.lit("\r\n"))
    lines = stream.schema(f"{_LINE} binary").load().select(text.alias(_LINE))
    # Spark's own readers leave out empty lines, and take broken ones for rows of nulls, too.
    parsed = _parsed(settings.format, schema, options).alias("row")
    return lines.where(F.trim(_LINE) != "").select(parsed).select("row.*")


def _parsed(format: str, schema: StructType | str, options: Mapping[str, str]) -> Column:
    if format == "json":
        return F.from_json(_LINE, schema, dict(options))
    ddl = schema if isinstance(schema, str) else schema.toDDL()
    return F.from_csv(_LINE, ddl, dict(options))


def _check(format: str, options: Mapping[str, str]) -> None:
    if format not in FORMATS:
        raise PlanError(f"read_folder(): no format {format!r}; {did_you_mean(format, FORMATS)}")
    for option in options:
        if format == "parquet" or option in _OF_SPARKS_READER:
            raise PlanError(f"read_folder(): {option!r} is an option of Spark's own reader only")


def _existing(path: str) -> str:
    uri = location(path)
    filesystem, folder = fs.FileSystem.from_uri(uri)
    if filesystem.get_file_info(folder).type != fs.FileType.Directory:
        raise PlanError(f"read_folder(): {path} is not a folder; patterns and files are not taken")
    return uri


def _header(format: str, options: Mapping[str, str]) -> bool:
    return format == "csv" and options.get("header", "false").lower() == "true"


def _tasks(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def _made_for_this_process() -> str:
    folder = tempfile.mkdtemp(prefix="tidegate-pace-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return location(folder)


class FolderReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own beside the driver; `read` runs in the tasks."""

    def __init__(self, settings: Settings, format: Format) -> None:
        self._settings = settings
        self._folder = Folder(settings.folder, format)
        self._control = Control(settings.control) if settings.control else None
        self._all_there_is: list[str] | None = None

    def initialOffset(self) -> Offset:
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:
        # How many rows it is at the moment is asked for with each batch.
        return ReadAllAvailable() if self._control is None else ReadMaxRows(sys.maxsize)

    def prepareForTriggerAvailableNow(self) -> None:
        self._all_there_is = self._folder.names()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        begun = now()
        names = self._folder.names() if self._all_there_is is None else self._all_there_is
        end, taken = self._folder.take(start, names, self._shares(limit))
        if taken and self._control is not None:
            self._control.tell(Taken(taken, begun))
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [] if start == end else [InputPartition(pieces) for pieces in end["batch"]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._folder.read(partition.value)

    def _shares(self, limit: ReadLimit) -> Iterable[int]:
        """The rows of each task."""
        if self._control is None or isinstance(limit, ReadAllAvailable):
            return repeat(_MOST_OF_A_TASK)
        asked = self._control.asked()
        if asked is None:
            raise StartError(
                "read_folder(pace=…) is steered by start(), and this query was started otherwise, or "
                "none of its columns is one of the folder's: leave pace out, or keep a column as it is"
            )
        return shares(asked, self._settings.tasks)


def shares(rows: int, most: int) -> list[int]:
    """Rows spread evenly over tasks, of which there are at most so many."""
    tasks = min(most, math.ceil(rows / _LEAST_OF_A_TASK))
    return [rows // tasks + (task < rows % tasks) for task in range(tasks)]


class FolderSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> FolderReader:
        settings = Settings(**json.loads(self.options["settings"]))
        if settings.format == "parquet":
            return FolderReader(settings, Parquet(arrow_schema(schema)))
        return FolderReader(settings, Lines(settings.header))
