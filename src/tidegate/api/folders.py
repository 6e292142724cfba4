"""Streams of files whose micro-batches are as large as a latency allows: `tg.read_folder`, `tg.pace`."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal

from tidegate.connectors.folder import Order
from tidegate.errors import PlanError
from tidegate.plan.time import Duration, micros
from tidegate.spark.rate_control import Pace

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.spark.schema import DataFrame, StructType
    from tidegate.spark.session import SparkSession


def pace(
    target: Duration, *, least: int = 1_000, most: int = 1_000_000, start: int | None = None
) -> Pace:
    """Micro-batches that take about as long as `target`: their rows are chosen from batch to batch.

    There are between `least` and `most` of them; the first has `start`, or `least` if that is not given.

    >>> import tidegate as tg
    >>> tg.pace("500 ms", most=200_000)
    <Pace 500 ms a batch, 1,000 to 200,000 rows>
    """
    return Pace(micros(target, "pace(target)"), least, most, start)


def read_folder(  # noqa: PLR0913
    spark: SparkSession,
    path: str | PathLike[str],
    *,
    schema: pa.Schema | StructType | str,
    format: str = "json",
    pace: Pace | None = None,
    max_rows: int | None = None,
    max_files: int | None = None,
    order: Order = "name",
    invalid_fields: Literal["null", "errors"] = "null",
    **options: str,
) -> DataFrame:
    """The rows of the files in a folder, present and future, as a streaming DataFrame.

    With a `pace` a micro-batch has as many rows as its query asks for, wherever that cuts a file; with
    `max_rows` up to so many, with `max_files` those of so many files; without, everything there is.
    Files are taken by name, in which numbers count as numbers (`2.json` before `10.json`), whatever
    their times; `order="modified"` takes them by modification time. Formats are `json` (a line each),
    `csv` and `parquet`; `options` are those of Spark's `from_json` and `from_csv`, and `header` of CSV.
    Files must appear by a rename and never change. Rows of Parquet go from file to operator in one
    place, and never pass Spark. The limits of batches need Spark 4.2 or newer.

    A line that is no JSON is a row of nulls to Spark. `tg.events` sends it to the errors channel: the
    line itself, its file and the reason. A field that is not of its declared type is null; with
    `invalid_fields="errors"` its row goes there, too, and the reason names the field.

    >>> import tidegate as tg
    >>> clicks = tg.read_folder(
    ...     spark, clicks_folder, schema="ts timestamp, user string", pace=tg.pace("500 ms")
    ... )
    >>> clicks.isStreaming
    True
    """
    from tidegate.spark.sources import folder

    if invalid_fields not in ("null", "errors"):
        raise PlanError(f"read_folder(invalid_fields={invalid_fields!r}): it is 'null' or 'errors'")
    files = folder.Files(format, options, order, strict=invalid_fields == "errors")
    limits = folder.Limits(max_rows, max_files, pace)
    return folder.read_folder(spark, fspath(path), schema, files, limits)
