"""Streams of files with an adaptive batch size: `tg.read_folder`, `tg.pace`."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal

from tidegate.connectors.file_splits import Order
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
    """A target for how long a micro-batch may take; the number of rows adapts to it.

    A batch has between `least` and `most` rows. The first has `start` rows; the default is `least`.

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
    """Read the files of a folder, present and future, as a streaming DataFrame.

    A micro-batch has as many rows as the `pace` asks for, even if that splits a file. Otherwise it has
    at most `max_rows` rows, or the rows of `max_files` files, or all rows that are available. These
    limits need Spark 4.2 or newer.

    Files are read by name, and numbers in names are compared as numbers: `2.json` before `10.json`.
    `order="modified"` reads them by modification time. Files must appear by a rename and never change.

    Formats are `json` (one object per line), `csv` and `parquet`. `options` are those of Spark's
    `from_json` and `from_csv`, and `header` for CSV. Parquet rows are read and packed in one Python
    task, and never pass through Spark as rows.

    A line that is not valid JSON is a row of nulls to Spark. `tg.events` sends it to the `errors`
    channel: the line, its file and the reason. A field of the wrong type is null. With
    `invalid_fields="errors"` its row goes to `errors` too, and the reason names the field.

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
