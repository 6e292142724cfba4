"""Declared streams as DataFrames, by connector."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.errors import PlanError
from tidegate.plan.time import micros
from tidegate.spark.folder import Limits, read_folder, reads, refuse_folders_inside
from tidegate.spark.pacing import Pace
from tidegate.spark.schema import spark_schema

#: Spark's name for how many files a batch takes.
_MOST_FILES = "maxFilesPerTrigger"


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
    Kafka has a limit that is fixed here, from what the query with this checkpoint chose last.
    """
    others = {name: value for name, value in options.items() if name not in ("path", "format", "pace")}
    pace = pace_of(options) if streaming else None
    if connector == "files" and streaming:
        path, format = options["path"], options["format"]
        if pace is not None:
            return read_folder(spark, path, schema, format, pace, others)
        parsing = {name: value for name, value in others.items() if name != _MOST_FILES}
        if reads(path, format, parsing):
            refuse_folders_inside(path)
            limits = Limits(max_files=_number_of_files(others.get(_MOST_FILES)))
            return read_folder(spark, path, schema, format, None, parsing, limits)
    if pace is not None:
        others = {"maxOffsetsPerTrigger": str(pace.rows(checkpoint))} | others
    reader = (spark.readStream if streaming else spark.read).options(**others)
    if connector == "files":
        return reader.schema(spark_schema(schema)).format(options["format"]).load(options["path"])
    rows = reader.format(connector).load()
    return _parsed(rows, schema) if "format" in options else rows


def _number_of_files(given: str | None) -> int | None:
    if given is not None and not given.isdecimal():
        raise PlanError(f"{_MOST_FILES} = {given!r} is not a number of files")
    return None if given is None else int(given)


def pace_of(options: Mapping[str, str]) -> Pace | None:
    return Pace(micros(options["pace"], "pace")) if "pace" in options else None


def _parsed(messages: DataFrame, schema: pa.Schema) -> DataFrame:
    """The JSON values of messages as columns; one that is no JSON has nulls in all of them."""
    value = F.from_json(F.col("value").cast("string"), spark_schema(schema))
    return messages.select(value.alias("row")).select("row.*")
