"""A folder of files as a stream whose micro-batches have as many rows as they are asked to have."""

from __future__ import annotations

import atexit
import base64
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyarrow import fs
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import StructType

from tidegate.connectors import location
from tidegate.connectors.file_splits import (
    BEGINNING,
    FILE,
    LINE,
    Folder,
    Format,
    Lines,
    Offset,
    Order,
    Parquet,
    Piece,
    after_all,
)
from tidegate.errors import PlanError, StartError, did_you_mean
from tidegate.spark.driver import is_connect, on_driver
from tidegate.spark.rate_control import ControlFiles, Pace, Taken, mark, marked, now
from tidegate.spark.schema import arrow_schema, spark_schema
from tidegate.spark.sources.decoding import Decoder, struct_of
from tidegate.spark.sources.invalid_rows import has_origin, without_origin
from tidegate.spark.versions import ADMISSION_CONTROL, OffsetReader

if TYPE_CHECKING:
    from tidegate.spark.sources.packing import Packing

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


@dataclass(frozen=True)
class Files:
    """What the files of a folder are, in which order they are taken, and how they are read.

    With `strict` a field of text that is not of the declared type makes the whole row invalid.
    """

    format: str
    options: Mapping[str, str]
    order: Order = "name"
    strict: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise PlanError(
                f"read_folder(): no format {self.format!r}; {did_you_mean(self.format, FORMATS)}"
            )
        if self.order not in get_args(Order):
            known = did_you_mean(str(self.order), get_args(Order))
            raise PlanError(f"read_folder(order={self.order!r}): {known}")
        for option, value in self.options.items():
            if _is_sparks(self.format, option, value):
                raise PlanError(f"read_folder(): {option!r} is an option of Spark's own reader only")


@dataclass(frozen=True)
class Limits:
    """How much a batch has: so much at most, or what a pace asks for."""

    max_rows: int | None = None
    max_files: int | None = None
    pace: Pace | None = None

    def __post_init__(self) -> None:
        limits = (("max_rows", "row", self.max_rows), ("max_files", "file", self.max_files))
        for name, least, given in limits:
            if given is not None and self.pace is not None:
                raise PlanError("read_folder(): a pace has bounds of its own, as in tg.pace(…, most=…)")
            if given is not None and given < 1:
                raise PlanError(f"read_folder({name}={given}): a batch has one {least} at least")
        for name in (name for name, value in vars(self).items() if value is not None):
            ADMISSION_CONTROL.require(
                f"read_folder({name}=…)",
                "leave it out, and a batch has all files that are there; or read with spark.readStream, "
                "whose option maxFilesPerTrigger limits the files of a batch",
            )


def read_folder(
    spark: SparkSession, path: str, schema: Schema, files: Files, limits: Limits
) -> DataFrame:
    """The rows of the files in a folder, present and future."""
    settings = Settings(
        on_driver(spark, partial(_existing, path, location(path))),
        files.format,
        _header(files.format, files.options),
        _tasks(spark),
        limits.max_rows,
        limits.max_files,
        files.order,
    )
    columns = spark_schema(schema) if isinstance(schema, pa.Schema) else struct_of(schema)
    steering = None
    if limits.pace is not None:
        control = ControlFiles(_control_folder(spark))
        settings = replace(settings, control=control.folder)
        steering = mark(control, limits.pace)
    decoder = Decoder(columns, files.format, files.options, files.strict)
    rows = marked(_rows(spark, settings, decoder), steering)
    if files.format == "parquet":
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
    max_files: int | None = None
    order: Order = "name"
    control: str | None = None


@dataclass(frozen=True)
class AsRead:
    """A folder whose rows nothing has been done with yet."""

    spark: SparkSession
    settings: Settings

    @property
    def zone(self) -> str:
        return str(self.spark.conf.get("spark.sql.session.timeZone"))

    def packed(self, packing: Packing, schema: StructType) -> DataFrame:
        """Its rows as messages."""
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


def reads(path: str, format: str, options: Mapping[str, str]) -> bool:
    """Is it a folder on a disk, with no option that only Spark's own reader has?"""
    folder = _local(path)
    return folder is not None and not any(_is_sparks(format, *option) for option in options.items())


def refuse_folders_inside(path: str) -> None:
    """Files in folders of a folder are not read: better said than left out."""
    folder = _local(path)
    inside = sorted(each.name for each in folder.iterdir() if each.is_dir()) if folder else []
    if seen := [name for name in inside if not name.startswith(("_", "."))]:
        raise PlanError(
            f"{path} has folders in it, such as {seen[0]!r}, and only its own files are read; with the "
            "option recursiveFileLookup Spark's source of files reads all of them, by modification time"
        )


def _local(path: str) -> Path | None:
    """The folder, if it is one on a disk and Spark keeps no list of its files."""
    uri = urlsplit(location(path))
    folder = Path(unquote(uri.path))
    local = uri.scheme == "file" and folder.is_dir() and not (folder / "_spark_metadata").exists()
    return folder if local else None


def _is_sparks(format: str, option: str, value: str) -> bool:
    return format == "parquet" or option in _OF_SPARKS_READER or value.upper() == "DROPMALFORMED"


def _existing(path: str, uri: str) -> str:
    filesystem, folder = fs.FileSystem.from_uri(uri)
    if filesystem.get_file_info(folder).type != fs.FileType.Directory:
        raise PlanError(f"read_folder(): {path} is not a folder; patterns and files are not taken")
    return uri


def _header(format: str, options: Mapping[str, str]) -> bool:
    return format == "csv" and options.get("header", "false").lower() == "true"


def _tasks(spark: SparkSession) -> int:
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


def _control_folder(spark: SparkSession) -> str:
    """On the driver, where the query and the reader both run; executors never look into it."""
    folder = on_driver(spark, partial(tempfile.mkdtemp, prefix="tidegate-pace-"))
    if not is_connect(spark):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return location(folder)


class FolderReader(OffsetReader):
    """Lives in a process of its own beside the driver; `read` runs in the tasks."""

    def __init__(self, settings: Settings, format: Format, packing: str | None = None) -> None:
        self._settings = settings
        self._packing = packing
        self._folder = Folder(settings.folder, format, settings.order)
        self._control = ControlFiles(settings.control) if settings.control else None
        self._all_there_is: list[str] | None = None

    def initialOffset(self) -> Offset:
        return BEGINNING

    @property
    def limited(self) -> bool:
        settings = self._settings
        # How many rows a pace allows at the moment is asked for with each batch.
        return bool(self._control or settings.max_files or settings.max_rows)

    def stand_still(self) -> None:
        self._all_there_is = self._folder.names()

    def next_offset(self, start: Offset | None, *, everything: bool) -> Offset:
        begun = now()
        names = self._folder.names() if self._all_there_is is None else self._all_there_is
        if start is None:
            return after_all(names)
        _check_offset(start)
        shares = repeat(_MOST_OF_A_TASK) if everything else self._shares()
        end, taken = self._folder.take(start, names, shares, self._settings.max_files)
        if taken and self._control is not None:
            self._control.tell(Taken(taken, begun))
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        _check_offset(end)
        if start == end:
            return []
        batch = end["batch"]
        if batch is None:  # whoever chose the end did not know the start
            _check_offset(start)
            batch = self._folder.between(start, end, repeat(_MOST_OF_A_TASK))
        return [InputPartition(pieces) for pieces in batch]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if self._packing is None:
            yield from self._folder.read(partition.value)
        else:
            yield from _packing(self._packing)(self._settings.folder, partition.value)

    def _shares(self) -> Iterable[int]:
        """The rows of each task."""
        if self._control is None:
            most = self._settings.max_rows
            return repeat(_MOST_OF_A_TASK) if most is None else shares(most, self._settings.tasks)
        asked = self._control.asked()
        if asked is None:
            raise StartError(
                "read_folder(pace=…) is controlled by start(), and this query was started otherwise, or "
                "none of its columns is one of the folder's: leave pace out, or keep a column as it is"
            )
        return shares(asked, self._settings.tasks)


def _check_offset(offset: Offset) -> None:
    if offset.keys() != BEGINNING.keys():
        raise StartError(
            "the checkpoint was written by a query that read with Spark's own source of files, whose "
            "offsets are others: use a new checkpoint location. In pipeline files and SQL the option "
            "latestFirst = false keeps Spark's source"
        )


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
