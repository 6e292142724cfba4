"""Declared streams as DataFrames, by connector."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

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

#: The option that says what becomes of fields that are not of the declared type.
INVALID_FIELDS = "invalid_fields"

#: Options that are not those of Spark's readers.
_OURS = ("path", "format", "pace", INVALID_FIELDS)


def read(
    spark: SparkSession,
    connector: str,
    schema: pa.Schema,
    options: Mapping[str, str],
    *,
    streaming: bool = True,
    checkpoint: str = "",
) -> DataFrame:
    """The rows of a connector, as a stream or as what is there now.

    Files of a folder are read by our own reader, in an order that a copy of the folder has as well, and
    which can be steered by a `pace`; what only Spark's own source of files can do is left to that.
    Kafka has a limit that is fixed here, from what the query with this checkpoint chose last. Rows that
    are decoded from text have their origin beside them.
    """
    others = {name: value for name, value in options.items() if name not in _OURS}
    strict = options.get(INVALID_FIELDS) == "errors"
    pace = pace_of(options) if streaming else None
    if connector == "files" and streaming:
        rows = _folder(spark, schema, options, others, pace, strict=strict)
        if rows is not None:
            return rows
    reader = spark.readStream if streaming else spark.read
    if connector == "files":
        return _files(reader, Decoder(spark_schema(schema), options["format"], others, strict), options)
    if pace is not None:
        others = {"maxOffsetsPerTrigger": str(pace.rows(checkpoint))} | others
    rows = _loaded(reader, connector, others)
    if "format" not in options:
        return rows
    return Decoder(spark_schema(schema), options["format"], {}, strict).messages(rows)


def _folder(
    spark: SparkSession,
    schema: pa.Schema,
    options: Mapping[str, str],
    others: Mapping[str, str],
    pace: Pace | None,
    *,
    strict: bool,
) -> DataFrame | None:
    """Files by our own reader; None where only Spark's can read them."""
    path, format = options["path"], options["format"]
    if pace is not None:
        ADMISSION_CONTROL.require("a pace of files", f"leave it out. {_SPARKS_OWN}")
        steered = Files(format, others, strict=strict), Limits(pace=pace)
        return with_origin(read_folder(spark, path, schema, *steered))
    parsing = {name: value for name, value in others.items() if name != _MOST_FILES}
    if not reads(path, format, parsing):
        return None
    if _MOST_FILES in others:
        ADMISSION_CONTROL.require(f"{_MOST_FILES} of files by name", f"leave it out. {_SPARKS_OWN}")
    refuse_folders_inside(path)
    limits = Limits(max_files=_number_of_files(others.get(_MOST_FILES)))
    files = Files(format, parsing, strict=strict)
    return with_origin(read_folder(spark, path, schema, files, limits))


def _loaded(
    reader: DataStreamReader | DataFrameReader, connector: str, options: Mapping[str, str]
) -> DataFrame:
    """Rows with the connector's own columns."""
    return reader.options(**options).format(connector).load()


def _number_of_files(given: str | None) -> int | None:
    if given is not None and not given.isdecimal():
        raise PlanError(f"{_MOST_FILES} = {given!r} is not a number of files")
    return None if given is None else int(given)


def pace_of(options: Mapping[str, str]) -> Pace | None:
    return Pace(micros(options["pace"], "pace")) if "pace" in options else None


def _files(
    reader: DataStreamReader | DataFrameReader, decoder: Decoder, options: Mapping[str, str]
) -> DataFrame:
    """Files by Spark's own reader; those of text tell which of their rows cannot be used."""
    if decoder.format == "parquet" or decoder.leaves_corrupt_text:
        plain = reader.schema(decoder.schema).options(**decoder.options)
        return plain.format(decoder.format).load(options["path"])
    reader = reader.schema(decoder.reader_schema).options(**decoder.reader_options)
    return decoder.from_files(reader.format(decoder.format).load(options["path"]))
