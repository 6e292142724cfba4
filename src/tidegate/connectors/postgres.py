"""Tables in PostgreSQL, by psycopg. Rows travel as text: each type as PostgreSQL writes it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyarrow import types as kinds

from tidegate.connectors.declaration import Option, SinkConnector, declare
from tidegate.connectors.tables import STAGE, TABLE, Database, Place, TableSink, quoted
from tidegate.errors import SinkError

__all__ = ["postgres"]

#: The first version whose unique constraints can take null for a value.
OLDEST = 15
#: PostgreSQL cuts longer names.
LONGEST_NAME = 63
_CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class Postgres(Database):
    """A PostgreSQL database, connected to for each batch."""

    dsn: str = field(repr=False)  # there may be a password in it
    name = "PostgreSQL"
    module = "psycopg"
    requirement = "psycopg[binary]>=3.2"
    opening = ("BEGIN", "SET LOCAL TimeZone = 'UTC'")

    @contextmanager
    def connect(self) -> Iterator[Any]:
        psycopg = self._driver()
        self._check_dsn()
        with psycopg.connect(
            self.dsn,
            autocommit=True,  # BEGIN and COMMIT are ours
            client_encoding="utf8",
            cursor_factory=psycopg.RawCursor,  # `$1`, so that a % in a name is just that
            prepare_threshold=None,
        ) as connection:
            version = connection.info.server_version // 10_000
            if version < OLDEST:
                raise SinkError(f"PostgreSQL {OLDEST} or newer is needed, this is {version}")
            yield connection

    def _check_dsn(self) -> None:
        """What the driver says of a string that it cannot read may show the password in it."""
        psycopg = self._driver()
        try:
            psycopg.conninfo.conninfo_to_dict(self.dsn)
        except psycopg.Error:
            raise SinkError(
                "the connection string of PostgreSQL cannot be read: write postgresql://user:password@"
                "host/database with special characters as %-codes (@ is %40), or host=… user=… with "
                "quotes around values that have spaces"
            ) from None

    def lock(self, connection: Any, place: Place) -> None:
        # The transaction of a killed process may still be under way: its end is waited for.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [quoted(place)])

    def home(self, connection: Any, table: str, schema: str | None = None) -> Place:
        _check_name(table)
        if schema:
            return (schema,)
        (found,) = connection.execute(
            "SELECT coalesce((SELECT nspname FROM pg_namespace n JOIN pg_class c "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)), current_schema())",
            [quoted([table])],
        ).fetchone()
        if not found:
            raise SinkError(f"no schema of the search path exists; write 'schema.{table}'")
        return (found,)

    def columns(self, connection: Any, place: Place) -> dict[str, str]:
        found = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
            [quoted(place)],
        )
        return dict(found.fetchall())

    def types(self, connection: Any, schema: pa.Schema) -> dict[str, str]:
        for name in schema.names:
            _check_name(name)
        return {column.name: _column_type(column) for column in schema}

    def unique(self, columns: str) -> str:
        return f"UNIQUE NULLS NOT DISTINCT ({columns})"

    def stage(self, connection: Any, rows: pa.Table) -> None:
        columns = ", ".join(f"{quoted([f.name])} {_column_type(f)}" for f in rows.schema)
        connection.execute(f"CREATE TEMP TABLE {STAGE} ({columns}) ON COMMIT DROP")
        with connection.cursor().copy(f"COPY {STAGE} FROM STDIN (FORMAT csv)") as copy:
            for batch in rows.to_batches(max_chunksize=_CHUNK_ROWS):
                copy.write(_as_csv(batch))
        connection.execute(f"ANALYZE {STAGE}")  # or joins are planned for a handful of rows


def _check_name(name: str) -> None:
    if len(name.encode()) > LONGEST_NAME:
        raise SinkError(f"{name!r}: PostgreSQL keeps only {LONGEST_NAME} bytes of a name; rename it")


# -- types ----------------------------------------------------------------------------------------

_SCALARS = {
    kinds.is_boolean: "boolean",
    kinds.is_int8: "smallint",
    kinds.is_int16: "smallint",
    kinds.is_int32: "integer",
    kinds.is_int64: "bigint",
    kinds.is_float32: "real",
    kinds.is_float64: "double precision",
    kinds.is_string: "text",
    kinds.is_large_string: "text",
    kinds.is_binary: "bytea",
    kinds.is_large_binary: "bytea",
    kinds.is_date32: "date",
    kinds.is_time: "time without time zone",
    kinds.is_duration: "interval",
}


def _column_type(column: pa.Field) -> str:
    found = _sql_type(column.type)
    if found is None:
        raise SinkError(f"column {column.name!r} is {column.type}: PostgreSQL has no such type; cast it")
    return found


def _sql_type(kind: pa.DataType) -> str | None:
    if kinds.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if kinds.is_timestamp(kind):
        return f"timestamp with{'' if kind.tz else 'out'} time zone"
    if kinds.is_list(kind) and not kinds.is_nested(kind.value_type):
        inner = _sql_type(kind.value_type)
        return inner and f"{inner}[]"
    if kinds.is_nested(kind):
        return "jsonb"
    return next((name for is_kind, name in _SCALARS.items() if is_kind(kind)), None)


# -- values ---------------------------------------------------------------------------------------


def _as_csv(rows: pa.RecordBatch) -> bytes:
    """Text in quotes, null as nothing: what COPY reads."""
    text = pa.table([_text(column) for column in rows.columns], names=rows.schema.names)
    sink = pa.BufferOutputStream()
    csv.write_csv(text, sink, csv.WriteOptions(include_header=False))
    return sink.getvalue().to_pybytes()


def _text(values: pa.Array) -> pa.Array:
    """A column as PostgreSQL spells its values."""
    kind = values.type
    if kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return _each(values, lambda value: "\\x" + value.hex())
    if kinds.is_duration(kind):
        micros = values.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(micros, "microseconds", " ")
    if kinds.is_list(kind) and not kinds.is_nested(kind.value_type):
        return _array_literals(values)
    if kinds.is_nested(kind):
        return _each(values, lambda value: _json(value, kind))
    return values.cast(pa.string())


def _each(values: pa.Array, spell: Any) -> pa.Array:
    found = [None if value is None else spell(value) for value in values.to_pylist()]
    return pa.array(found, pa.string())


def _array_literals(lists: pa.ListArray) -> pa.Array:
    items = _text(lists.flatten()).to_pylist()
    spelt: list[str | None] = []
    first = 0
    for length in pc.list_value_length(lists).to_pylist():
        if length is None:
            spelt.append(None)
        else:
            spelt.append(_array_literal(items[first : first + length]))
            first += length
    return pa.array(spelt, pa.string())


def _array_literal(items: Sequence[str | None]) -> str:
    escaped = (i if i is None else i.replace("\\", "\\\\").replace('"', '\\"') for i in items)
    return "{" + ",".join("NULL" if item is None else f'"{item}"' for item in escaped) + "}"


def _json(value: Any, kind: pa.DataType) -> str:
    """A nested value as Spark's `to_json` writes it, but for nulls, which are kept."""
    if value is None:
        return "null"
    if kinds.is_struct(kind):
        members = (f"{json.dumps(f.name)}: {_json(value[f.name], f.type)}" for f in kind)
        return "{" + ", ".join(members) + "}"
    if kinds.is_map(kind):
        members = (f"{_json_key(k, kind.key_type)}: {_json(v, kind.item_type)}" for k, v in value)
        return "{" + ", ".join(members) + "}"
    if kinds.is_nested(kind):
        return "[" + ", ".join(_json(item, kind.value_type) for item in value) + "]"
    return _json_scalar(value)


def _json_key(value: Any, kind: pa.DataType) -> str:
    text = _json(value, kind)
    return text if text.startswith('"') else json.dumps(text)


def _json_scalar(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps("NaN" if value != value else "Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, date | time):  # a datetime is a date too
        return json.dumps(value.isoformat())
    return json.dumps(value, default=str, ensure_ascii=False)


def postgres(dsn: str, table: str) -> TableSink:
    """Keep a PostgreSQL table (15 or newer) equal to the current results, as `duckdb` does.

    `dsn` is what libpq takes: `postgresql://user@host/database`, or `host=… dbname=…`.

    >>> tg.sinks.postgres("postgresql://shop@localhost/sales", "daily.spend").table
    'daily.spend'
    """
    return TableSink(Postgres(dsn), table)


declare(
    SinkConnector(
        name="postgres",
        meaning="A table in PostgreSQL (15 or newer) that is the result as it stands.",
        options=(
            Option(
                "dsn",
                "The connection string of libpq, which belongs into an environment variable.",
                "secret",
                required=True,
            ),
            TABLE,
        ),
        make=postgres,
        by_key=True,
    )
)
