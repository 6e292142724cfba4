"""Declared streams as DataFrames, by connector."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidegate.plan.time import micros
from tidegate.spark.folder import read_folder
from tidegate.spark.pacing import Pace
from tidegate.spark.schema import spark_schema


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
    fixed here, from what the query with this checkpoint chose last.
    """
    others = {name: value for name, value in options.items() if name not in ("path", "format", "pace")}
    pace = pace_of(options) if streaming else None
    if pace is not None and connector == "files":
        return read_folder(spark, options["path"], schema, options["format"], pace, None, others)
    if pace is not None:
        others = {"maxOffsetsPerTrigger": str(pace.rows(checkpoint))} | others
    reader = (spark.readStream if streaming else spark.read).options(**others)
    if connector == "files":
        return reader.schema(spark_schema(schema)).format(options["format"]).load(options["path"])
    rows = reader.format(connector).load()
    return _parsed(rows, schema) if "format" in options else rows


def pace_of(options: Mapping[str, str]) -> Pace | None:
    return Pace(micros(options["pace"], "pace")) if "pace" in options else None


def _parsed(messages: DataFrame, schema: pa.Schema) -> DataFrame:
    """The JSON values of messages as columns; one that is no JSON has nulls in all of them."""
    value = F.from_json(F.col("value").cast("string"), spark_schema(schema))
    return messages.select(value.alias("row")).select("row.*")
