"""Tables that a channel is applied to exactly once: the rules, whatever the database.

All of a batch happens in one transaction, and the same transaction notes the batch's id in the table
`tidegate_batches`. A batch that is replayed after a crash finds its id there and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import pyarrow as pa

from tidegate.connectors.declaration import Option
from tidegate.connectors.sinks import Target
from tidegate.errors import SinkError
from tidegate.plan.channels import OP

TABLE = Option("table", "The table, as `name` or `schema.name`; it is made if needed.", required=True)

#: Which query fills which table, and how far it has got.
NOTES = "tidegate_batches"
#: The rows of one batch on their way into the table.
STAGE = "__tidegate_stage"

#: A table's name with all that leads to it: database or schema first.
Place = tuple[str, ...]
#: For each identity column: is it null? Rows of one pattern are found by plain equality.
Nulls = tuple[bool, ...]

_TAKEN_BACK, _PUT = "s.op IN ('-U', '-D')", "s.op IN ('+I', '+U')"

_CHANGED_BY_HAND = (
    " Was the table changed by hand, or given to a query that had run without it? Put it right, or "
    "start afresh with a new checkpoint location and a new table"
)


def quoted(names: Iterable[str]) -> str:
    """Names as SQL reads them, exactly as they are written."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


class Database(ABC):
    """What tells one database from another. Connections live for one transaction."""

    name: ClassVar[str]
    #: The driver's module, and what pip is to install for it: what the extra of the package says.
    module: ClassVar[str]
    requirement: ClassVar[str]
    #: How a transaction begins. Messages show times in UTC.
    opening: ClassVar[tuple[str, ...]]

    @abstractmethod
    def connect(self) -> AbstractContextManager[Any]:
        """A connection that loses what was not committed when it closes. Parameters are `$1`, `$2` …"""

    @abstractmethod
    def lock(self, connection: Any, place: Place) -> None:
        """Keep others from writing the table until the transaction ends."""

    @abstractmethod
    def home(self, connection: Any, table: str, schema: str | None = None) -> Place:
        """What leads to the table; without a schema, where the database itself would look."""

    @abstractmethod
    def columns(self, connection: Any, place: Place) -> dict[str, str]:
        """The columns of a table with their types; none if there is no such table."""

    @abstractmethod
    def types(self, connection: Any, schema: pa.Schema) -> dict[str, str]:
        """The types that columns for such rows have, spelt as `columns` spells them."""

    @abstractmethod
    def unique(self, columns: str) -> str:
        """The constraint by which rows are found fast, if the database needs one."""

    @abstractmethod
    def stage(self, connection: Any, rows: pa.Table) -> None:
        """Put the rows into a temporary table `STAGE`."""

    def __str__(self) -> str:
        """Its name alone: where it is may be a secret."""
        return self.name

    @contextmanager
    def transaction(self, doing: str) -> Iterator[Any]:
        """A connection whose work is kept if the block ends well, and only then."""
        failure = self._driver().Error
        try:
            with self.connect() as connection:
                for statement in self.opening:
                    connection.execute(statement)
                yield connection
                connection.execute("COMMIT")
        except failure as error:
            raise SinkError(f"{doing}: {str(error).strip()}") from error

    def _driver(self) -> Any:
        try:
            return import_module(self.module)
        except ImportError as error:
            raise SinkError(
                f"tables in {self.name} need the package {self.module} ({error}): "
                f"pip install '{self.requirement}'"
            ) from None


@dataclass(frozen=True)
class TableSink:
    """A table, `name` or `schema.name`, that a channel is applied to."""

    database: Database
    table: str

    def __post_init__(self) -> None:
        if not all(self._names):
            raise SinkError(f"table {self.table!r}: give a name, or a schema and a name: 'sales.clicks'")

    def __repr__(self) -> str:
        return f"<TableSink {self.table!r} in {self.database}>"

    def prepare(self, target: Target) -> Table:
        """Make the table if there is none, check it if there is, and take it for this query."""
        *schema, name = self._names
        if target.changes and not target.key:
            raise SinkError(
                f"{self.database.name} table {self.table!r}: changes of a fold without a key cannot be "
                "applied, as no column says which row they mean; fold by a key, if only a constant"
            )
        with self.database.transaction(f"{self.database.name} table {self.table!r}") as connection:
            home = self.database.home(connection, name, *schema)
            table = Table(self.database, (*home, name), target)
            table.take(connection)
        return table

    @property
    def _names(self) -> list[str]:
        return self.table.split(".", maxsplit=1)


@dataclass(frozen=True)
class Table:
    """One table, filled by one channel of one query."""

    database: Database
    place: Place
    target: Target

    def __str__(self) -> str:
        return f"{self.database.name} table {'.'.join(self.place)!r}"

    # -- before the query starts ------------------------------------------------------------------

    def take(self, connection: Any) -> None:
        """Make sure that the table has the right columns and is this query's own."""
        self.database.lock(connection, self._notes)
        self.database.lock(connection, self.place)
        if not self.database.columns(connection, self._notes):
            connection.execute(
                f"CREATE TABLE {quoted(self._notes)} (table_name text, query_id text, channel text, "
                "owns boolean NOT NULL, batch_id bigint, PRIMARY KEY (table_name, query_id, channel))"
            )
        wanted = self.database.types(connection, self._checked_schema())
        found = self.database.columns(connection, self.place)
        if not found:
            self._make(connection, wanted)
        elif found != wanted:
            raise SinkError(self._difference(found, wanted))
        self._own(connection)

    def _checked_schema(self) -> pa.Schema:
        """The columns the table has: all but `op`, which tells what to do with a row."""
        fields = [f for f in self.target.schema if not (self.target.changes and f.name == OP.name)]
        for field in fields:
            if pa.types.is_null(field.type):
                raise SinkError(f"{self}: column {field.name!r} has no type; drop or cast it")
        return pa.schema(fields)

    def _make(self, connection: Any, types: Mapping[str, str]) -> None:
        last = self._note(connection)
        if last and last[0] is not None:
            raise SinkError(
                f"{self} is gone, but this query has written it up to batch {last[0]}: bring it back, "
                "or start afresh with a new checkpoint location"
            )
        # What is noted about an earlier table of this name has gone with it.
        connection.execute(f"DELETE FROM {quoted(self._notes)} WHERE table_name = $1", [self.place[-1]])
        parts = [f"{quoted([name])} {kind}" for name, kind in types.items()]
        if self.target.key:
            parts.append(self.database.unique(_listed(self.target.key)))
        connection.execute(f"CREATE TABLE {self._sql} ({', '.join(filter(None, parts))})")

    def _difference(self, found: Mapping[str, str], wanted: Mapping[str, str]) -> str:
        changes = [
            f"  {name}: the table has {found.get(name, 'none')}, the channel {wanted.get(name, 'none')}"
            for name in {**wanted, **found}
            if found.get(name) != wanted.get(name)
        ]
        return "\n".join(
            [
                f"{self} has other columns than the channel {self.target.channel!r}:",
                *changes,
                "choose another table, or drop this one",
            ]
        )

    def _own(self, connection: Any) -> None:
        """Note this query beside the table, unless the table is another one's.

        Rows that stand for themselves may come from many queries; results that replace or take back
        each other may not. A query that has never written a batch is no hindrance.
        """
        owns, notes = bool(self.target.key), quoted(self._notes)
        if self._note(connection) is not None:
            return
        other = _first(
            connection,
            f"SELECT query_id, channel, batch_id FROM {notes} "
            "WHERE table_name = $1 AND batch_id IS NOT NULL AND (owns OR $2)",
            [self.place[-1], owns],
        )
        if other:
            raise SinkError(
                f"{self} belongs to another query ({other[0]}, channel {other[1]!r}, written up to "
                f"batch {other[2]}): choose another table, or drop this one"
            )
        if owns and _first(connection, f"SELECT 1 FROM {self._sql} LIMIT 1"):
            raise SinkError(
                f"{self} holds rows that no query of ours wrote: choose another table, or empty this one"
            )
        connection.execute(
            f"DELETE FROM {notes} WHERE table_name = $1 AND (owns OR $2)", [self.place[-1], owns]
        )
        connection.execute(
            f"INSERT INTO {notes} VALUES ($1, $2, $3, $4, NULL)",
            [self.place[-1], self.target.query, self.target.channel, owns],
        )

    # -- one batch --------------------------------------------------------------------------------

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Apply a batch, once."""
        self.write_rows(rows.toArrow(), batch_id)

    def write_rows(self, arrived: pa.Table, batch_id: int) -> None:
        """The same with rows that are here."""
        with self.database.transaction(self._doing(batch_id)) as connection:
            self.database.lock(connection, self.place)
            if not self._is_new(connection, batch_id):
                return
            self.database.stage(connection, arrived)
            if self.target.key:
                self._replace(connection, batch_id, _null_patterns(arrived, self.target.key))
            self._insert(connection)
            connection.execute(
                f"UPDATE {quoted(self._notes)} SET batch_id = $1 "
                "WHERE table_name = $2 AND query_id = $3 AND channel = $4",
                [batch_id, *self._key],
            )

    def _is_new(self, connection: Any, batch_id: int) -> bool:
        noted = self._note(connection)
        if noted is None:
            raise SinkError(f"{self._doing(batch_id)}: the table belongs to another query now")
        last = noted[0]
        if last is not None and batch_id <= min(last, self.target.replayed):
            return False
        if last is not None and batch_id < last:
            raise SinkError(
                f"{self._doing(batch_id)}: out of order, batch {last} has been applied already. The "
                "checkpoint is older than the table: start afresh with a new checkpoint location and a "
                "new table"
            )
        return bool(batch_id != last)

    def _replace(self, connection: Any, batch_id: int, patterns: Sequence[Nulls]) -> None:
        """Take out the rows that those of the batch replace or take back."""
        self._refuse(batch_id, self._doubled(connection), "brings one window twice")
        matches = {nulls: self._match(nulls) for nulls in patterns}
        if self.target.changes:
            self._take_back(connection, batch_id, matches)
        else:
            self._delete(connection, matches.values())

    def _take_back(self, connection: Any, batch_id: int, matches: Mapping[Nulls, str]) -> None:
        """Take out what changes say, all of it, and see that there is room for what they put."""
        unknown = self._staged(connection, f"({_TAKEN_BACK} OR {_PUT}) IS NOT TRUE")
        self._refuse(batch_id, unknown, "has a row whose op is none of +I, +U, -U and -D")
        for nulls, match in matches.items():
            complaint = "takes back a row that the table does not have"
            missing = self._missing(connection, nulls, match)
            self._refuse(batch_id, missing, complaint, _CHANGED_BY_HAND)
        self._delete(connection, [f"{_TAKEN_BACK} AND {match}" for match in matches.values()])
        for match in matches.values():
            complaint = "inserts a row for a window that has one"
            there = f"EXISTS (SELECT 1 FROM {self._sql} AS t WHERE {match})"
            occupied = self._staged(connection, f"{_PUT} AND {there}")
            self._refuse(batch_id, occupied, complaint, _CHANGED_BY_HAND)

    def _delete(self, connection: Any, conditions: Iterable[str]) -> None:
        for condition in conditions:
            connection.execute(f"DELETE FROM {self._sql} AS t USING {STAGE} AS s WHERE {condition}")

    def _insert(self, connection: Any) -> None:
        columns = _listed(self._columns)
        condition = f" WHERE {_PUT}" if self.target.changes else ""
        connection.execute(
            f"INSERT INTO {self._sql} ({columns}) SELECT {columns} FROM {STAGE} AS s{condition}"
        )

    def _refuse(self, batch_id: int, example: str | None, complaint: str, hint: str = "") -> None:
        if example is not None:
            raise SinkError(
                f"{self._doing(batch_id)}: it {complaint} ({example}). Nothing of the batch was "
                f"applied.{hint}"
            )

    # -- rows as SQL ------------------------------------------------------------------------------

    def _match(self, nulls: Nulls) -> str:
        """Row `t` of the table is the one that the staged row `s` speaks of.

        Plain equality, as a database has no index for one that takes null for a value.
        """
        return " AND ".join(
            f"t.{name} IS NULL AND s.{name} IS NULL" if null else f"t.{name} = s.{name}"
            for name, null in self._by_column(nulls)
        )

    def _missing(self, connection: Any, nulls: Nulls, match: str) -> str | None:
        """A staged row that takes back what is not in the table, field by field."""
        values = [quoted([name]) for name in self._columns if name not in self.target.key]
        equal = [match, *(f"t.{name} IS NOT DISTINCT FROM s.{name}" for name in values)]
        pattern = " AND ".join(
            f"s.{name} IS {'' if null else 'NOT '}NULL" for name, null in self._by_column(nulls)
        )
        absent = f"NOT EXISTS (SELECT 1 FROM {self._sql} AS t WHERE {' AND '.join(equal)})"
        return self._staged(connection, f"{_TAKEN_BACK} AND {pattern} AND {absent}")

    def _doubled(self, connection: Any) -> str | None:
        """The identity of two staged rows that would both be put in, or both taken back."""
        changes = self.target.changes
        groups = _listed(self.target.key) + (f", {_PUT}" if changes else "")
        found = _first(
            connection,
            f"SELECT {_as_text(self.target.key)} FROM {STAGE} AS s "
            f"GROUP BY {groups} HAVING count(*) > 1",
        )
        return _shown(self.target.key, found)

    def _staged(self, connection: Any, condition: str) -> str | None:
        """A staged row for which the condition holds, as text."""
        # Without LIMIT: for one row PostgreSQL would choose a plan that is slow when there is none.
        columns = _as_text(self._columns)
        found = _first(connection, f"SELECT {columns} FROM {STAGE} AS s WHERE {condition}")
        return _shown(self._columns, found)

    def _by_column(self, nulls: Nulls) -> Iterator[tuple[str, bool]]:
        return ((quoted([name]), null) for name, null in zip(self.target.key, nulls, strict=True))

    # -- names ------------------------------------------------------------------------------------

    @property
    def _sql(self) -> str:
        return quoted(self.place)

    @property
    def _notes(self) -> Place:
        return (*self.place[:-1], NOTES)

    @property
    def _columns(self) -> list[str]:
        return self._checked_schema().names

    @property
    def _key(self) -> list[str]:
        return [self.place[-1], self.target.query, self.target.channel]

    def _note(self, connection: Any) -> Any:
        """A row with the id of the last batch, null before any; nothing where this query is unknown."""
        return _first(
            connection,
            f"SELECT batch_id FROM {quoted(self._notes)} "
            "WHERE table_name = $1 AND query_id = $2 AND channel = $3",
            self._key,
        )

    def _doing(self, batch_id: int) -> str:
        return f"{self}, batch {batch_id} of channel {self.target.channel!r}"


def _first(connection: Any, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """The first row of an answer, or None. The others are fetched too: DuckDB insists."""
    rows = connection.execute(sql, list(parameters)).fetchall()
    return rows[0] if rows else None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(quoted([name]) for name in names)


def _as_text(names: Iterable[str]) -> str:
    return ", ".join(f"CAST(s.{quoted([name])} AS text)" for name in names)


def _shown(names: Iterable[str], row: Sequence[str | None] | None) -> str | None:
    if row is None:
        return None
    return ", ".join(f"{n}={'null' if v is None else v}" for n, v in zip(names, row, strict=True))


def _null_patterns(rows: pa.Table, identity: Sequence[str]) -> list[Nulls]:
    """Which of the identity columns are null together; mostly there is one answer."""
    numbers = [str(number) for number in range(len(identity))]
    flags = pa.table([rows[name].is_null() for name in identity], names=numbers)
    patterns = flags.group_by(numbers).aggregate([]).to_pylist()
    return sorted(tuple(pattern[number] for number in numbers) for pattern in patterns)
