"""Where the rows of a channel go: `tg.sinks`. Any function `(rows: DataFrame, batch_id)` works too."""

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
    """Rows kept on the driver; `rows()` and `to_arrow()` read them.

    >>> tg.sinks.memory().rows()
    []
    """
    return MemorySink()


def console(limit: int = 20) -> ConsoleSink:
    """Rows printed batch by batch.

    >>> tg.sinks.console(limit=5)
    ConsoleSink(limit=5)
    """
    return ConsoleSink(limit)


def parquet(path: str | PathLike[str]) -> FileSink:
    """Parquet files in a folder, each row exactly once, also after a crash.

    >>> tg.sinks.parquet("/data/spend")
    FileSink(path='file:///data/spend', format='parquet')
    """
    return FileSink(fspath(path), "parquet")


def json(path: str | PathLike[str]) -> FileSink:
    """JSON lines in a folder, each row exactly once, also after a crash.

    >>> tg.sinks.json("/data/spend")
    FileSink(path='file:///data/spend', format='json')
    """
    return FileSink(fspath(path), "json")


def duckdb(path: str | PathLike[str], table: str) -> TableSink:
    """A table in a DuckDB file that is the result as it stands, each batch applied exactly once.

    Changes (`op`) are applied; corrected results replace the earlier ones; other rows are added.
    The table is made if there is none. Other processes can read the file between batches.

    >>> tg.sinks.duckdb("/data/shop.duckdb", "spend").table
    'spend'
    """
    return TableSink(DuckDB(Path(path).absolute()), table)


def postgres(dsn: str, table: str) -> TableSink:
    """A table in PostgreSQL (15 or newer) that is the result as it stands, as `duckdb` keeps it.

    `dsn` is what libpq takes: `postgresql://user@host/database`, or `host=… dbname=…`.

    >>> tg.sinks.postgres("postgresql://shop@localhost/sales", "daily.spend").table
    'daily.spend'
    """
    return TableSink(Postgres(dsn), table)


def discard() -> DiscardSink:
    """Rows that are only counted.

    >>> tg.sinks.discard()
    DiscardSink()
    """
    return DiscardSink()
