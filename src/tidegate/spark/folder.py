"""A folder of files as a stream whose micro-batches have as many rows as they are asked to have."""

from __future__ import annotations

import atexit
import base64
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidegate.connectors import location
from tidegate.connectors.folder import (
    BEGINNING,
    FILE,
    LINE,
    Folder,
    Format,
    Lines,
    Offset,
    Parquet,
    Piece,
)
from tidegate.errors import PlanError, StartError, did_you_mean
from tidegate.spark.decoding import Decoder, has_origin, struct_of, without_origin
from tidegate.spark.pacing import Control, Pace, Taken, mark, marked, now
from tidegate.spark.schema import arrow_schema, spark_schema

if TYPE_CHECKING:
    from tidegate.spark.packing import Packing

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

Schema: TypeAlias = pa.Schema | StructType | str


def read_folder(
    spark: SparkSession,
    path: str,
    schema: Schema,
    format: str,
    pace: Pace | None,
    max_rows: int | None,
    options: Mapping[str, str],
    *,
    strict: bool = False,
) -> DataFrame:
    """The rows of the files in a folder, present and future.

    With `strict` a field of text that is not of the declared type makes the whole row invalid.
    """
    _check(format, options)
    _check_rows(pace, max_rows)
    header, tasks = _header(format, options), _tasks(spark)
    settings = Settings(_existing(path), format, header, tasks, max_rows)
    columns = spark_schema(schema) if isinstance(schema, pa.Schema) else struct_of(schema)
    steering = None
    if pace is not None:
        control = Control(_made_for_this_process())
        settings = replace(settings, control=control.folder)
        steering = mark(control, pace)
    rows = marked(_rows(spark, settings, Decoder(columns, format, options, strict)), steering)
    if format == "parquet":
        _AS_READ[rows] = AsRead(spark, settings)
    return without_origin(rows) if has_origin(rows) else rows


@dataclass(frozen=True)
class Settings:
    """The options of the source."""

    folder: str
    format: str
    header: bool
    tasks: int
    max_rows: int | None = None
    control: str | None = None


@dataclass(frozen=True)
class AsRead:
    """A folder whose rows nothing has been done with yet."""

    spark: SparkSession
    settings: Settings

    @property
    def zone(self) -> str:
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def packed(self, packing: Packing, schema: str) -> DataFrame:
        """Its rows as parcels."""
        code = base64.b64encode(cloudpickle.dumps(packing)).decode()  # type: ignore[no-untyped-call]
        stream = _stream(self.spark, self.settings).option("packing", code)
        return stream.schema(schema).load()


#: Folders by the DataFrames that have their rows; what is made of those has others.
_AS_READ: WeakKeyDictionary[DataFrame, AsRead] = WeakKeyDictionary()


def as_read(rows: DataFrame) -> AsRead | None:
    """The folder that a DataFrame has the rows of, if they can be packed where they are read."""
    return _AS_READ.get(rows)


def _stream(spark: SparkSession, settings: Settings) -> DataStreamReader:
    spark.dataSource.register(FolderSource)
    return spark.readStream.format(NAME).option("settings", json.dumps(asdict(settings)))


def _rows(spark: SparkSession, settings: Settings, decoder: Decoder) -> DataFrame:
    stream = _stream(spark, settings)
    if settings.format == "parquet":
        return stream.schema(decoder.schema).load()
    lines = stream.schema(f"{LINE} binary, {FILE} string").load()
    text = F.rtrim(F.col(LINE).cast("string"), F.lit("\r\n"))
    # Spark's own readers leave out empty lines, too.
    filled = lines.select(text.alias(LINE), FILE).where(F.trim(LINE) != "")
    return decoder.lines(filled, LINE, FILE)


def _check(format: str, options: Mapping[str, str]) -> None:
    if format not in FORMATS:
        raise PlanError(f"read_folder(): no format {format!r}; {did_you_mean(format, FORMATS)}")
    for option in options:
        if format == "parquet" or option in _OF_SPARKS_READER:
            raise PlanError(f"read_folder(): {option!r} is an option of Spark's own reader only")


def _check_rows(pace: Pace | None, max_rows: int | None) -> None:
    if max_rows is None:
        return
    if pace is not None:
        raise PlanError("read_folder(): a pace has bounds of its own, as in tg.pace(…, most=…)")
    if max_rows < 1:
        raise PlanError(f"read_folder(max_rows={max_rows}): a batch has one row at least")


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

    def __init__(self, settings: Settings, format: Format, packing: str | None = None) -> None:
        self._settings = settings
        self._packing = packing
        self._folder = Folder(settings.folder, format)
        self._control = Control(settings.control) if settings.control else None
        self._all_there_is: list[str] | None = None

    def initialOffset(self) -> Offset:
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:
        # How many rows it is at the moment is asked for with each batch.
        if self._control is not None:
            return ReadMaxRows(sys.maxsize)
        return ReadMaxRows(self._settings.max_rows) if self._settings.max_rows else ReadAllAvailable()

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
        if self._packing is None:
            yield from self._folder.read(partition.value)
        else:
            yield from _packing(self._packing)(self._settings.folder, partition.value)

    def _shares(self, limit: ReadLimit) -> Iterable[int]:
        """The rows of each task."""
        if isinstance(limit, ReadAllAvailable):
            return repeat(_MOST_OF_A_TASK)
        if self._control is None:
            assert self._settings.max_rows is not None
            return shares(self._settings.max_rows, self._settings.tasks)
        asked = self._control.asked()
        if asked is None:
            raise StartError(
                "read_folder(pace=…) is steered by start(), and this query was started otherwise, or "
                "none of its columns is one of the folder's: leave pace out, or keep a column as it is"
            )
        return shares(asked, self._settings.tasks)


@lru_cache(maxsize=8)
def _packing(code: str) -> Callable[[str, Sequence[Piece]], Iterator[pa.RecordBatch]]:
    """How rows are packed, made once in each process that reads."""
    return cloudpickle.loads(base64.b64decode(code))


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
            return FolderReader(settings, Parquet(arrow_schema(schema)), self.options.get("packing"))
        return FolderReader(settings, Lines(settings.header))
