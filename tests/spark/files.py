"""Streams of files that Spark takes one a micro-batch."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.spark.schema import spark_schema


def write_files(folder: Path, tables: Iterable[pa.Table], start: int = 0) -> None:
    """One parquet file a micro-batch; Spark takes them by their modification times."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables, start):
        staged = folder / f"_{number:05d}"
        pq.write_table(table, staged)
        os.utime(staged, (1_000_000_000 + number, 1_000_000_000 + number))
        staged.rename(folder / f"{number:05d}.parquet")


def file_stream(spark: Any, folder: Path, schema: pa.Schema, files_per_batch: int = 1) -> Any:
    reader = spark.readStream.schema(spark_schema(schema))
    return reader.option("maxFilesPerTrigger", files_per_batch).parquet(str(folder))
