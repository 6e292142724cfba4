"""Tables in a DuckDB file."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.connectors.declaration import Option, SinkConnector, declare
from tidegate.connectors.tables import STAGE, TABLE, Database, Place, TableSink
from tidegate.errors import SinkError

__all__ = ["duckdb"]

#: So many seconds a batch waits for a process that has the file open; then the query stops.
PATIENCE = 60.0
_PAUSE = 0.05

#: Queries of one process share the file: their transactions would otherwise run into each other.
_one_at_a_time = threading.RLock()


@dataclass(frozen=True)
class DuckDB(Database):
    """A DuckDB file, open only while a batch is written: other processes can read it in between."""

    path: Path
    name = "DuckDB"
    module = "duckdb"
    requirement = "duckdb>=1.2"
    opening = ("SET TimeZone = 'UTC'", "BEGIN")

    def __str__(self) -> str:
        return f"{self.name} {self.path}"

    @contextmanager
    def connect(self) -> Iterator[Any]:
        with _one_at_a_time:
            connection = self._open()
            try:
                yield connection
            finally:
                connection.close()

    def _open(self) -> Any:
        """The file is one process's at a time; wait for a reader to let go of it."""
        duckdb = self._driver()
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return duckdb.connect(self.path)
            except duckdb.IOException as error:
                if "lock on file" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def lock(self, connection: Any, place: Place) -> None:
        """Nothing: the open file is a lock."""

    def home(self, connection: Any, table: str, schema: str | None = None) -> Place:
        # With the name of the database, which may be that of a schema too.
        found = connection.execute("SELECT current_database(), current_schema()").fetchall()
        database, current = found[0]
        return database, schema or current

    def columns(self, connection: Any, place: Place) -> dict[str, str]:
        found = connection.execute(
            "SELECT column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = $1 AND schema_name = $2 AND table_name = $3",
            list(place),
        )
        return dict(found.fetchall())

    def types(self, connection: Any, schema: pa.Schema) -> dict[str, str]:
        twice = [name for name, n in Counter(map(str.lower, schema.names)).items() if n > 1]
        if twice:
            raise SinkError(f"DuckDB does not tell upper from lower case: rename one {twice[0]!r}")
        self.stage(connection, schema.empty_table())
        return self.columns(connection, ("temp", "main", STAGE))

    def unique(self, columns: str) -> str:
        # Rows are found by hash joins, which take no longer than an index would take to keep.
        return ""

    def stage(self, connection: Any, rows: pa.Table) -> None:
        arrived = f"{STAGE}_arrow"
        connection.register(arrived, rows)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {STAGE} AS SELECT * FROM {arrived}")
        connection.unregister(arrived)


def duckdb(path: str | PathLike[str], table: str) -> TableSink:
    """Keep a DuckDB table equal to the current results; each batch is applied exactly once.

    Changes (`op`) are applied, corrected results replace earlier ones, and other rows are inserted.
    The table is created if there is none. Other processes can read the file between batches.

    >>> tg.sinks.duckdb("/data/shop.duckdb", "spend").table
    'spend'
    """
    return TableSink(DuckDB(Path(path).absolute()), table)


declare(
    SinkConnector(
        name="duckdb",
        meaning="A table in a DuckDB file that is the result as it stands.",
        options=(
            Option("path", "The file; it is made if there is none.", "path", required=True),
            TABLE,
        ),
        make=duckdb,
        by_key=True,
    )
)
