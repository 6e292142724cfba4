"""Declared streams as DataFrames. A connector names the function here, or elsewhere, that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

from tidegate.connectors import SOURCES
from tidegate.errors import PlanError
from tidegate.plan.time import micros
from tidegate.spark.rate_control import Pace
from tidegate.spark.schema import spark_schema
from tidegate.spark.sources.decoding import Decoder
from tidegate.spark.sources.folder import Files, Limits, read_folder, reads, refuse_folders_inside
from tidegate.spark.sources.invalid_rows import with_origin
from tidegate.spark.versions import ADMISSION_CONTROL

#: Spark's name for how many files a batch takes.
_MOST_FILES = "maxFilesPerTrigger"

#: What limits batches where our own reader cannot.
_SPARKS_OWN = (
    f"With the option latestFirst = false Spark's own source reads the files, by modification time, and "
    f"{_MOST_FILES} limits its batches"
)


@dataclass(frozen=True)
class Reading:
    """What a reader is asked for: the rows of a connector, as a stream or as what is there now."""

    spark: SparkSession
    connector: str
    schema: pa.Schema
    options: Mapping[str, str]
    streaming: bool = True
    #: Of the query that reads.
    checkpoint: str = ""

    @property
    def for_spark(self) -> dict[str, str]:
        """The options that Spark's reader gets as they are."""
        return SOURCES[self.connector].for_spark(self.options)

    @property
    def strict(self) -> bool:
        """Is a row invalid if a field is not of the declared type?"""
        return self.options.get("invalid_fields") == "errors"

    @property
    def pace(self) -> Pace | None:
        return pace_of(self.options) if self.streaming else None

    @property
    def reader(self) -> DataStreamReader | DataFrameReader:
        return self.spark.readStream if self.streaming else self.spark.read

    def decoder(self, options: Mapping[str, str]) -> Decoder:
        return Decoder(spark_schema(self.schema), self.options["format"], options, self.strict)


def read(reading: Reading) -> DataFrame:
    """The rows, by the reader of their connector. Rows decoded from text tell where they are from."""
    module, _, name = SOURCES[reading.connector].reader.partition(":")
    rows: DataFrame = getattr(import_module(module), name)(reading)
    return rows


def read_by_name(reading: Reading) -> DataFrame:
    """Rows with the connector's own columns, by the source of Spark that has its name."""
    return _loaded(reading, reading.for_spark)


def read_messages(reading: Reading) -> DataFrame:
    """Messages, or what is decoded from their values.

    The limit of a batch is fixed here, from what the query with this checkpoint chose last.
    """
    options = reading.for_spark
    if reading.pace is not None:
        options = {"maxOffsetsPerTrigger": str(reading.pace.rows(reading.checkpoint))} | options
    rows = _loaded(reading, options)
    return reading.decoder({}).messages(rows) if "format" in reading.options else rows


def read_files(reading: Reading) -> DataFrame:
    """Files of a folder by our own reader; what only Spark's own source of files can do is left to that.

    Our reader takes files in an order that a copy of the folder has as well, and can follow a `pace`.
    """
    rows = _folder(reading) if reading.streaming else None
    return _files(reading) if rows is None else rows


def _folder(reading: Reading) -> DataFrame | None:
    """Files by our own reader; None where only Spark's can read them."""
    path, format = reading.options["path"], reading.options["format"]
    spark, schema, options = reading.spark, reading.schema, reading.for_spark
    if reading.pace is not None:
        ADMISSION_CONTROL.require("a pace of files", f"leave it out. {_SPARKS_OWN}")
        controlled = Files(format, options, strict=reading.strict), Limits(pace=reading.pace)
        return with_origin(read_folder(spark, path, schema, *controlled))
    parsing = {name: value for name, value in options.items() if name != _MOST_FILES}
    if not reads(path, format, parsing):
        return None
    if _MOST_FILES in options:
        ADMISSION_CONTROL.require(f"{_MOST_FILES} of files by name", f"leave it out. {_SPARKS_OWN}")
    refuse_folders_inside(path)
    limits = Limits(max_files=_number_of_files(options.get(_MOST_FILES)))
    files = Files(format, parsing, strict=reading.strict)
    return with_origin(read_folder(spark, path, schema, files, limits))


def _loaded(reading: Reading, options: Mapping[str, str]) -> DataFrame:
    return reading.reader.options(**options).format(reading.connector).load()


def _number_of_files(given: str | None) -> int | None:
    if given is not None and not given.isdecimal():
        raise PlanError(f"{_MOST_FILES} = {given!r} is not a number of files")
    return None if given is None else int(given)


def pace_of(options: Mapping[str, str]) -> Pace | None:
    return Pace(micros(options["pace"], "pace")) if "pace" in options else None


def _files(reading: Reading) -> DataFrame:
    """Files by Spark's own reader; those of text tell which of their rows cannot be used."""
    decoder, reader, path = reading.decoder(reading.for_spark), reading.reader, reading.options["path"]
    if decoder.format == "parquet" or decoder.leaves_corrupt_text:
        return reader.schema(decoder.schema).options(**decoder.options).format(decoder.format).load(path)
    reader = reader.schema(decoder.reader_schema).options(**decoder.reader_options)
    return decoder.from_files(reader.format(decoder.format).load(path))
