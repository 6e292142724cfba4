"""Sinks for channels, `tg.sinks`. Any function `(rows: DataFrame, batch_id)` works too."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from tidegate.connectors import (
    ConsoleSink,
    DiscardSink,
    DuckDB,
    FileSink,
    MemorySink,
    Postgres,
    TableSink,
)


def memory() -> MemorySink:
    """Keep rows on the driver; `rows()` and `to_arrow()` read them.

    >>> tg.sinks.memory().rows()
    []
    """
    return MemorySink()


def console(limit: int = 20) -> ConsoleSink:
    """Print rows, batch by batch.

    >>> tg.sinks.console(limit=5)
    ConsoleSink(limit=5)
    """
    return ConsoleSink(limit)


def parquet(path: str | PathLike[str]) -> FileSink:
    """Write Parquet files to a folder, each row exactly once, also after a crash.

    >>> tg.sinks.parquet("/data/spend")
    FileSink(path='file:///data/spend', format='parquet')
    """
    return FileSink(fspath(path), "parquet")


def json(path: str | PathLike[str]) -> FileSink:
    """Write JSON lines to a folder, each row exactly once, also after a crash.

    >>> tg.sinks.json("/data/spend")
    FileSink(path='file:///data/spend', format='json')
    """
    return FileSink(fspath(path), "json")


def duckdb(path: str | PathLike[str], table: str) -> TableSink:
    """Keep a DuckDB table equal to the current results; each batch is applied exactly once.

    Changes (`op`) are applied, corrected results replace earlier ones, and other rows are inserted.
    The table is created if there is none. Other processes can read the file between batches.

    >>> tg.sinks.duckdb("/data/shop.duckdb", "spend").table
    'spend'
    """
    return TableSink(DuckDB(Path(path).absolute()), table)


def postgres(dsn: str, table: str) -> TableSink:
    """Keep a PostgreSQL table (15 or newer) equal to the current results, as `duckdb` does.

    `dsn` is what libpq takes: `postgresql://user@host/database`, or `host=… dbname=…`.

    >>> tg.sinks.postgres("postgresql://shop@localhost/sales", "daily.spend").table
    'daily.spend'
    """
    return TableSink(Postgres(dsn), table)


def discard() -> DiscardSink:
    """Count rows and drop them.

    >>> tg.sinks.discard()
    DiscardSink()
    """
    return DiscardSink()
