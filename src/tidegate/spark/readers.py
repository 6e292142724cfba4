"""Declared streams as DataFrames, by connector."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

from tidegate.plan.time import micros
from tidegate.spark.decoding import Decoder, with_origin
from tidegate.spark.folder import read_folder
from tidegate.spark.pacing import Pace
from tidegate.spark.schema import spark_schema

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

    Where it has a `pace`, files are read by a reader that can be steered; Kafka has a limit that is
    fixed here, from what the query with this checkpoint chose last. Rows that are decoded from text
    have their origin beside them.
    """
    others = {name: value for name, value in options.items() if name not in _OURS}
    strict = options.get(INVALID_FIELDS) == "errors"
    pace = pace_of(options) if streaming else None
    if pace is not None and connector == "files":
        folder, format = options["path"], options["format"]
        return with_origin(read_folder(spark, folder, schema, format, pace, None, others, strict=strict))
    if pace is not None:
        others = {"maxOffsetsPerTrigger": str(pace.rows(checkpoint))} | others
    reader = spark.readStream if streaming else spark.read
    if connector == "files":
        decoder = Decoder(spark_schema(schema), options["format"], others, strict)
        return _files(reader, decoder, options["path"])
    rows = _loaded(reader, connector, others)
    if "format" not in options:
        return rows
    return Decoder(spark_schema(schema), options["format"], {}, strict).messages(rows)


def _loaded(
    reader: DataStreamReader | DataFrameReader, connector: str, options: Mapping[str, str]
) -> DataFrame:
    """Rows with the connector's own columns."""
    return reader.options(**options).format(connector).load()


def pace_of(options: Mapping[str, str]) -> Pace | None:
    return Pace(micros(options["pace"], "pace")) if "pace" in options else None


def _files(reader: DataStreamReader | DataFrameReader, decoder: Decoder, path: str) -> DataFrame:
    """Files by Spark's own reader; those of text tell which of their rows cannot be used."""
    if decoder.format == "parquet" or decoder.leaves_corrupt_text:
        plain = reader.schema(decoder.schema).options(**decoder.options)
        return plain.format(decoder.format).load(path)
    reader = reader.schema(decoder.reader_schema).options(**decoder.reader_options)
    return decoder.from_files(reader.format(decoder.format).load(path))
