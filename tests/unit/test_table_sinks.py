"""Tables in DuckDB and PostgreSQL: every batch applied once, and whatever does not fit refused whole."""

import contextlib
import decimal
import math
import random
import re
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest

from tests.support.time_limits import HANG
from tidegate import sinks
from tidegate.connectors import TableSink, Target
from tidegate.connectors import duckdb as duckdb_files
from tidegate.errors import SinkError
from tidegate.plan.channels import OP, WINDOW_COLUMNS
from tidegate.plan.schema import TIMESTAMP

COUNTS = pa.schema([("user", pa.string()), ("shop", pa.int64()), *WINDOW_COLUMNS, ("n", pa.int64())])
IDENTITY = ("user", "shop", "window_start", "window_end")
CHANGES = Target("query-1", "main", COUNTS.append(OP), IDENTITY, changes=True)
RESULTS = Target("query-1", "main", COUNTS, IDENTITY)
LATE = Target("query-1", "late", pa.schema([("user", pa.string()), ("late_by", pa.duration("us"))]))

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@dataclass
class Rows:
    """Stands in for the DataFrame of a batch."""

    table: pa.Table

    def toArrow(self) -> pa.Table:
        return self.table


def batch(target: Target, *rows: Sequence[Any]) -> Rows:
    columns = list(zip(*rows, strict=True)) or [[] for _ in target.schema]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, target.schema, strict=True)]
    return Rows(pa.table(arrays, schema=target.schema))


def change(
    op: str | None, user: str | None, n: int, shop: int | None = 1, minute: int = 0
) -> tuple[Any, ...]:
    start = NOON + timedelta(minutes=minute)
    return user, shop, start, start + timedelta(minutes=1), n, op


def result(user: str | None, n: int, shop: int | None = 1, minute: int = 0) -> tuple[Any, ...]:
    return change("", user, n, shop, minute)[:-1]


# -- the two databases ----------------------------------------------------------------------------


@dataclass
class Place:
    """A database of a test's own: a sink for a table, and what a stranger sees."""

    name: str
    sink: Callable[[str], TableSink]
    run: Callable[[str], list[tuple[Any, ...]]]

    def rows(self, table: str = "counts") -> list[tuple[Any, ...]]:
        return sorted(self.run(f"SELECT * FROM {table}"), key=repr)


@pytest.fixture
def duck(tmp_path: Path) -> Place:
    path = tmp_path / "results.duckdb"

    def run(sql: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(path) as connection:
            return connection.execute(sql).fetchall()

    return Place("duckdb", lambda table: sinks.duckdb(path, table), run)


@pytest.fixture
def elephant(postgres: str) -> Iterator[Place]:
    schema = f"test_{time.monotonic_ns()}"
    dsn = f"{postgres}?options=-csearch_path%3D{schema}"

    def run(sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(dsn) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    run(f"CREATE SCHEMA {schema}")
    yield Place("postgres", lambda table: sinks.postgres(dsn, table), run)
    run(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=["duck", "elephant"])
def place(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def noted(place: Place, table: str = "counts") -> list[tuple[Any, ...]]:
    """Query, channel and last batch of a table, as written down."""
    return place.run(
        "SELECT query_id, channel, batch_id FROM tidegate_batches "
        f"WHERE table_name = '{table}' ORDER BY query_id"
    )


# -- changes --------------------------------------------------------------------------------------


def test_changes_are_applied_batch_by_batch(place: Place) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1), change("+I", None, 5), change("+I", "ann", 7, None)), 0)
    assert place.rows() == sorted([result("ann", 1), result(None, 5), result("ann", 7, None)], key=repr)
    # Out of any order inside a batch, null keys as well, and batches without rows are not handed over.
    table(batch(CHANGES, change("+U", None, 6), change("-U", None, 5), change("-D", "ann", 7, None)), 3)
    assert place.rows() == sorted([result("ann", 1), result(None, 6)], key=repr)
    table(batch(CHANGES, change("-D", None, 6), change("+I", None, 6, minute=1)), 4)
    assert place.rows() == sorted([result("ann", 1), result(None, 6, minute=1)], key=repr)
    assert noted(place) == [("query-1", "main", 4)]


def test_a_batch_that_comes_again_changes_nothing(place: Place) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1)), 0)
    update = batch(CHANGES, change("-U", "ann", 1), change("+U", "ann", 2))
    table(update, 1)
    table(update, 1)
    # After a crash the program prepares the table again.
    again = place.sink("counts").prepare(CHANGES)
    again(update, 1)
    assert place.rows() == [result("ann", 2)]
    again(batch(CHANGES, change("-D", "ann", 2)), 2)
    assert place.rows() == []


def test_batches_that_a_repair_replays_change_nothing(place: Place) -> None:
    table = place.sink("counts").prepare(CHANGES)
    batches = [change("+I", "ann", 1), change("+I", "bob", 1), change("-D", "ann", 1)]
    for number, row in enumerate(batches[:2]):
        table(batch(CHANGES, row), number)
    again = place.sink("counts").prepare(replace(CHANGES, replayed=2))
    for number, row in enumerate(batches):  # the last one had not been written before
        again(batch(CHANGES, row), number)
    assert place.rows() == [result("bob", 1)]
    table(batch(CHANGES, change("+I", "cid", 1)), 6)
    with pytest.raises(SinkError, match="out of order"):
        again(batch(CHANGES, batches[0]), 3)


def test_a_batch_out_of_order_is_refused(place: Place) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1)), 5)
    with pytest.raises(SinkError, match=r"batch 4 of channel 'main': out of order, batch 5 has been"):
        table(batch(CHANGES, change("+I", "bob", 1)), 4)
    assert place.rows() == [result("ann", 1)]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([change("-D", "bob", 1)], "takes back a row that the table does not have (user=bob, shop=1, "),
        (
            [change("-U", "ann", 2), change("+U", "ann", 3)],
            "takes back a row that the table does not have",
        ),
        (
            [change("-D", None, 1)],
            "does not have (user=null, shop=1, window_start=2024-05-01 12:00:00+00",
        ),
        ([change("-D", "ann", 1, None)], "does not have (user=ann, shop=null"),
        ([change("-D", "ann", 1), change("-D", "ann", 1)], "brings one window twice (user=ann, shop=1"),
        ([change("+I", "bob", 1), change("+I", "bob", 2)], "brings one window twice (user=bob, shop=1"),
        ([change("+X", "bob", 1)], "has a row whose op is none of +I, +U, -U and -D (user=bob, shop=1"),
        ([change(None, "bob", 1)], "has a row whose op is none of +I, +U, -U and -D (user=bob, shop=1"),
        ([change("+I", "ann", 1)], "inserts a row for a window that has one (user=ann, shop=1"),
        ([change("+I", None, 9, None)], "inserts a row for a window that has one (user=null, shop=null"),
        (
            [change("-D", "ann", 1), change("+I", None, 9, None)],
            "inserts a row for a window that has one",
        ),
    ],
)
def test_changes_that_do_not_fit_are_refused_whole(
    place: Place, rows: list[Any], complaint: str
) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1), change("+I", None, 1, None)), 0)
    before = place.rows()
    with pytest.raises(SinkError) as caught:
        table(batch(CHANGES, change("+I", "new", 1), *rows), 1)
    assert complaint in str(caught.value)
    assert "counts', batch 1 of channel 'main': it " in str(caught.value)
    assert place.rows() == before
    assert noted(place) == [("query-1", "main", 0)]
    table(batch(CHANGES, change("-D", "ann", 1)), 1)
    assert place.rows() == [result(None, 1, None)]


def test_a_crash_in_the_middle_leaves_nothing_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1)), 0)
    update = batch(CHANGES, change("-U", "ann", 1), change("+U", "ann", 2))

    def crash(self: Any, connection: Any) -> None:
        assert connection.execute('SELECT count(*) FROM "counts"').fetchall() == [(0,)]
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(table), "_insert", crash)
        with pytest.raises(KeyboardInterrupt):
            table(update, 1)
    assert place.rows() == [result("ann", 1)]
    table(update, 1)
    assert place.rows() == [result("ann", 2)]


def test_many_batches_with_replays_keep_the_table_right(place: Place) -> None:
    dice = random.Random(11)
    live: dict[Any, int] = {}
    windows = [(u, s, m) for u in ("ann", "", None) for s in (1, 2, None) for m in (0, 1)]
    sink = place.sink("counts")
    for number in range(12):
        rows = []
        for user, shop, minute in dice.sample(windows, dice.randint(1, len(windows))):
            window = (user, shop, minute)
            if window in live:
                rows.append(change("-U", user, live.pop(window), shop, minute))
            if dice.random() < 0.8:
                live[window] = dice.randrange(3)
                rows.append(change("+U", user, live[window], shop, minute))
        dice.shuffle(rows)
        for _ in range(dice.choice([1, 2])):
            sink.prepare(CHANGES)(batch(CHANGES, *rows), number)
        expected = [result(user, n, shop, minute) for (user, shop, minute), n in live.items()]
        assert place.rows() == sorted(expected, key=repr)


# -- rows without `op` ----------------------------------------------------------------------------


def test_a_corrected_result_replaces_the_earlier_one(place: Place) -> None:
    table = place.sink("counts").prepare(RESULTS)
    table(batch(RESULTS, result("ann", 1), result(None, 1), result("bob", 1, None)), 0)
    table(batch(RESULTS, result(None, 2), result("bob", 2, None), result("eve", 2)), 1)
    table(batch(RESULTS, result(None, 2), result("bob", 2, None), result("eve", 2)), 1)
    expected = [result("ann", 1), result(None, 2), result("bob", 2, None), result("eve", 2)]
    assert place.rows() == sorted(expected, key=repr)
    with pytest.raises(SinkError, match=r"brings one window twice \(user=ann, shop=1"):
        table(batch(RESULTS, result("ann", 3), result("ann", 4)), 2)


def test_other_rows_are_added_once_a_batch(place: Place) -> None:
    row = ("ann", timedelta(seconds=3))
    table = place.sink("late").prepare(LATE)
    table(batch(LATE, row, row), 0)
    table(batch(LATE, row, row), 0)
    table(batch(LATE, row), 1)
    assert place.rows("late") == [row] * 3


def test_queries_may_share_a_table_of_such_rows(place: Place) -> None:
    row = ("ann", timedelta(seconds=3))
    targets = [LATE, replace(LATE, query="query-2")]
    tables = [place.sink("late").prepare(target) for target in targets]
    for table in tables:
        table(batch(LATE, row), 0)
    assert place.rows("late") == [row] * 2
    assert noted(place, "late") == [("query-1", "late", 0), ("query-2", "late", 0)]


def test_a_column_called_op_is_a_column_like_any_other(place: Place) -> None:
    late = Target("query-1", "late", pa.schema([OP]))
    place.sink("late").prepare(late)(batch(late, ("-D",), ("anything",)), 0)
    assert place.rows("late") == [("-D",), ("anything",)]


# -- whose table ----------------------------------------------------------------------------------


def test_a_table_of_another_query_is_refused(place: Place) -> None:
    place.sink("counts").prepare(CHANGES)(batch(CHANGES, change("+I", "ann", 1)), 0)
    other = replace(CHANGES, query="query-2")
    with pytest.raises(SinkError) as caught:
        place.sink("counts").prepare(other)
    assert "belongs to another query (query-1, channel 'main', written up to batch 0)" in str(
        caught.value
    )
    assert "choose another table, or drop this one" in str(caught.value)
    assert place.rows() == [result("ann", 1)]
    place.run("DROP TABLE counts")
    place.sink("counts").prepare(other)(batch(other, change("+I", "bob", 1)), 0)
    assert place.rows() == [result("bob", 1)]
    assert noted(place) == [("query-2", "main", 0)]


def test_a_query_that_never_wrote_is_no_hindrance(place: Place) -> None:
    first = place.sink("counts").prepare(CHANGES)
    other = replace(CHANGES, query="query-2")
    second = place.sink("counts").prepare(other)
    second(batch(other, change("+I", "ann", 1)), 0)
    with pytest.raises(SinkError, match="the table belongs to another query now"):
        first(batch(CHANGES, change("+I", "bob", 1)), 0)
    assert place.rows() == [result("ann", 1)]


def test_a_table_that_is_gone_is_not_made_again(place: Place) -> None:
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1)), 2)
    place.run("DROP TABLE counts")
    with pytest.raises(SinkError, match="is gone, but this query has written it up to batch 2"):
        place.sink("counts").prepare(CHANGES)
    with pytest.raises(SinkError, match="counts"):
        table(batch(CHANGES, change("+I", "bob", 1)), 3)


def test_a_table_with_other_columns_is_refused(place: Place) -> None:
    place.run('CREATE TABLE counts ("user" text, shop text, window_start timestamptz, extra boolean)')
    with pytest.raises(SinkError) as caught:
        place.sink("counts").prepare(CHANGES)
    message = str(caught.value)
    assert "counts' has other columns than the channel 'main':\n" in message
    bigint, text = ("BIGINT", "VARCHAR") if place.name == "duckdb" else ("bigint", "text")
    assert f"\n  shop: the table has {text}, the channel {bigint}\n" in message
    assert f"\n  n: the table has none, the channel {bigint}\n" in message
    assert "\n  extra: the table has " in message
    assert "  user:" not in message
    assert "  op:" not in message


def test_a_table_made_by_hand_is_taken_if_it_is_empty(place: Place) -> None:
    place.run(
        'CREATE TABLE counts (n bigint, "user" text, shop bigint, '
        "window_start timestamptz, window_end timestamptz)"
    )
    place.run("INSERT INTO counts (n) VALUES (1)")
    with pytest.raises(SinkError, match="holds rows that no query of ours wrote"):
        place.sink("counts").prepare(CHANGES)
    place.run("DELETE FROM counts")
    table = place.sink("counts").prepare(CHANGES)
    table(batch(CHANGES, change("+I", "ann", 1)), 0)
    table(batch(CHANGES, change("-U", "ann", 1), change("+U", "ann", 2)), 1)
    assert place.run('SELECT "user", n FROM counts') == [("ann", 2)]


# -- names and types ------------------------------------------------------------------------------


def test_names_are_taken_as_they_are_written(place: Place) -> None:
    names = ['User "Name"', "100%", "SELECT", "a b;--", "$1"]
    schema = pa.schema([(name, pa.string()) for name in names])
    target = Target("it's", 'ma"in', schema.append(OP), tuple(names[:3]), changes=True)
    place.run('CREATE SCHEMA "Odd %s one"')
    for name in ('Odd %s one.Tab"le.1', 'Tab"le'):
        table = place.sink(name).prepare(target)
        table(batch(target, ("a", None, "c", "d", "e", "+I")), 0)
        table(batch(target, ("a", None, "c", "d", "e", "-U"), ("a", None, "c", "'", None, "+U")), 1)
    expected = [("a", None, "c", "'", None)]
    assert place.rows('"Odd %s one"."Tab""le.1"') == place.rows('"Tab""le"') == expected
    assert place.run('SELECT table_name, query_id, channel FROM "Odd %s one".tidegate_batches') == [
        ('Tab"le.1', "it's", 'ma"in')
    ]
    place.run('DROP SCHEMA "Odd %s one" CASCADE')


@pytest.mark.parametrize("name", ["", ".", "a.", ".b"])
def test_a_table_has_a_name(place: Place, name: str) -> None:
    with pytest.raises(SinkError, match=r"give a name, or a schema and a name: 'sales\.clicks'"):
        place.sink(name)


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-32768, 32767]),
    "int": (pa.int32(), [-(2**31), 2**31 - 1]),
    "big": (pa.int64(), [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), [0.1, math.nan, math.inf, -0.0, 3.4e38]),
    "double": (pa.float64(), [0.1, math.nan, -math.inf, 5e-324, 1.7976931348623157e308]),
    "amount": (pa.decimal128(38, 18), [decimal.Decimal("-12345678901234567890.123456789012345678")]),
    "whole": (pa.decimal128(10, 0), [decimal.Decimal("9999999999")]),
    "text": (pa.string(), ["", "null", "NULL", "\\N", "\\.", "a\n\\.\nb", 'say "é, 🦆"', "a\tb\rc"]),
    "bytes": (pa.binary(), [b"", b"\x00\xff'\\"]),
    "day": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    "at": (
        TIMESTAMP,
        [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 5, 1, tzinfo=UTC)],
    ),
    "local": (pa.timestamp("us"), [datetime(2024, 3, 31, 2, 30, 0, 1)]),
    "span": (pa.duration("us"), [timedelta(microseconds=-1), timedelta(days=4000, microseconds=7)]),
    "texts": (pa.list_(pa.string()), [[], ["a", None, "", "NULL", '{"x\\"}', "a,b"]]),
    "numbers": (pa.list_(pa.float64()), [[0.1, None, math.inf]]),
    "blobs": (pa.list_(pa.binary()), [[b"\x00\\", b""]]),
    "times": (pa.list_(TIMESTAMP), [[datetime(2024, 5, 1, 12, 0, 0, 5, UTC), None]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_of_every_type_comes_back_and_can_be_taken_back(place: Place, name: str) -> None:
    kind, values = VALUES[name]
    schema = pa.schema([("id", pa.int64()), pa.field(name, kind), OP])
    target = Target("query-1", "main", schema, ("id",), changes=True)
    table = place.sink("values_").prepare(target)
    rows = list(enumerate([*values, None]))
    table(batch(target, *((*row, "+I") for row in rows)), 0)
    assert comparable(place.run("SELECT * FROM values_ ORDER BY id")) == comparable(rows)
    table(batch(target, *((*row, "-D") for row in rows)), 1)
    assert place.rows("values_") == []


def comparable(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Rows as plain values: NaN equals NaN, single floats are what they are stored as."""
    return [[_comparable(value) for value in row] for row in rows]


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    return [_comparable(item) for item in value] if isinstance(value, list) else value


KEYS = ["flag", "tiny", "big", "float", "double", "amount", "text", "bytes", "day", "at", "local"]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_every_type_finds_its_row(place: Place, name: str) -> None:
    kind, values = VALUES[name]
    schema = pa.schema([pa.field(name, kind), ("n", pa.int64()), OP])
    target = Target("query-1", "main", schema, (name,), changes=True)
    table = place.sink("values_").prepare(target)
    keys = [*values, None]
    table(batch(target, *((key, 1, "+I") for key in keys)), 0)
    update = [[(key, 1, "-U"), (key, 2, "+U")] for key in keys]
    table(batch(target, *(row for pair in update for row in pair)), 1)
    assert [n for (n,) in place.run("SELECT n FROM values_")] == [2] * len(keys)


NESTED = pa.struct([("a", pa.list_(pa.int8())), ("at", TIMESTAMP), ("x", pa.decimal128(5, 2))])


def test_nested_values(place: Place) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("tags", pa.map_(pa.string(), pa.float64())),
            ("nested", NESTED),
            ("deep", pa.list_(pa.list_(pa.int64()))),
            OP,
        ]
    )
    target = Target("query-1", "main", schema, ("id",), changes=True)
    table = place.sink("nested").prepare(target)
    nested = {"a": [1, None], "at": NOON, "x": decimal.Decimal("1.50")}
    rows = [(1, [("k", 0.5), ('"', None)], nested, [[1], [], None]), (2, None, None, None)]
    table(batch(target, *((*row, "+I") for row in rows)), 0)
    found = place.run("SELECT * FROM nested ORDER BY id")
    assert found[0][1] == {"k": 0.5, '"': None}
    assert found[0][3] == [[1], [], None]
    assert found[1] == (2, None, None, None)
    kept = dict(found[0][2])
    assert kept.pop("at") in (NOON, NOON.isoformat())  # JSON has no times
    assert kept == {"a": [1, None], "x": decimal.Decimal("1.50")}
    table(batch(target, *((*row, "-D") for row in rows)), 1)
    assert place.rows("nested") == []


def test_json_holds_what_json_can(elephant: Place) -> None:
    inner = pa.struct(
        [
            ("f", pa.float64()),
            ("b", pa.binary()),
            ("d", pa.date32()),
            ("s", pa.duration("us")),
            ("t", pa.string()),
        ]
    )
    target = Target("query-1", "late", pa.schema([("x", inner), ("m", pa.map_(pa.int64(), pa.bool_()))]))
    values = [
        {"f": math.nan, "b": b"\x00", "d": date(2024, 5, 1), "s": timedelta(seconds=1), "t": 'é"\\'},
        {"f": -math.inf, "b": None, "d": None, "s": None, "t": None},
    ]
    elephant.sink("late").prepare(target)(batch(target, (values[0], [(1, True)]), (values[1], [])), 0)
    assert elephant.rows("late") == [
        ({"f": "NaN", "b": "AA==", "d": "2024-05-01", "s": "0:00:01", "t": 'é"\\'}, {"1": True}),
        ({"f": "-Infinity", "b": None, "d": None, "s": None, "t": None}, {}),
    ]


@pytest.mark.parametrize(
    ("database", "schema", "complaint"),
    [
        ("duck", [("x", pa.null())], "column 'x' has no type; drop or cast it"),
        ("elephant", [("x", pa.null())], "column 'x' has no type; drop or cast it"),
        (
            "elephant",
            [("x", pa.month_day_nano_interval())],
            "column 'x' is month_day_nano_interval: Post",
        ),
        ("elephant", [("x" * 64, pa.int64())], "PostgreSQL keeps only 63 bytes of a name; rename it"),
        ("duck", [("User", pa.int64()), ("user", pa.int64())], "rename one 'user'"),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    request: pytest.FixtureRequest, database: str, schema: list[Any], complaint: str
) -> None:
    place = request.getfixturevalue(database)
    with pytest.raises(SinkError) as caught:
        place.sink("late").prepare(Target("query-1", "late", pa.schema(schema)))
    assert complaint in str(caught.value)


def test_a_value_that_no_table_can_hold_stops_the_batch(elephant: Place) -> None:
    table = elephant.sink("late").prepare(LATE)
    with pytest.raises(SinkError, match=r"late', batch 0 of channel 'late': invalid byte sequence"):
        table(batch(LATE, ("a\x00b", None)), 0)
    assert elephant.rows("late") == []


# -- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "extra"), [("duckdb", "duckdb"), ("psycopg", "postgres")])
def test_a_missing_driver_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    sink = sinks.duckdb(tmp_path / "x", "t") if module == "duckdb" else sinks.postgres("", "t")
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    [requirement] = project["optional-dependencies"][extra]
    with pytest.raises(SinkError, match=re.escape(f"pip install '{requirement}'")):
        sink.prepare(LATE)


def test_no_connection_is_noticed_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match=r"PostgreSQL table 't': .*refused") as caught:
        sinks.postgres("postgresql://me:secret@127.0.0.1:1/x", "t").prepare(LATE)
    assert "secret" not in str(caught.value)
    with pytest.raises(SinkError, match=r"DuckDB table 't': .*No such file"):
        sinks.duckdb(tmp_path / "no" / "x.duckdb", "t").prepare(LATE)
    (tmp_path / "text").write_text("no database " * 1000)
    with pytest.raises(SinkError, match="not a valid DuckDB database file"):
        sinks.duckdb(tmp_path / "text", "t").prepare(LATE)


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(sinks.postgres("postgresql://me:secret@localhost/x", "t"))


def test_a_missing_schema_is_named(place: Place) -> None:
    with pytest.raises(SinkError, match=r"table 'nowhere\.late': .*nowhere"):
        place.sink("nowhere.late").prepare(LATE)


READER = """
import duckdb, sys
with duckdb.connect(sys.argv[1], read_only=True) as connection:
    print(connection.execute("SELECT count(*) FROM late").fetchone()[0], flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_reader(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the file open until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", READER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        yield reader


def test_others_can_read_the_file_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.duckdb"
    table = sinks.duckdb(path, "late").prepare(LATE)
    table(batch(LATE, ("ann", None)), 0)
    with another_reader(path) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "1\n"
        with monkeypatch.context() as patched:
            patched.setattr(duckdb_files, "PATIENCE", 0.1)
            with pytest.raises(SinkError, match="lock on file"):
                table(batch(LATE, ("bob", None)), 1)
        assert reader.stdin is not None
        threading.Timer(0.3, reader.stdin.close).start()
        table(batch(LATE, ("bob", None)), 1)  # waits for the reader
    with duckdb.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM late").fetchone() == (2,)


def test_the_transaction_of_a_killed_process_is_waited_for(elephant: Place) -> None:
    """Its COMMIT may be on the way while the next process already replays the batch."""
    table = elephant.sink("late").prepare(LATE)
    rows = batch(LATE, ("ann", None))
    replay = threading.Thread(target=table, args=(rows, 0))
    with table.database.transaction("the killed process") as connection:
        table.database.lock(connection, table.place)
        connection.execute("INSERT INTO late VALUES ('ann', NULL)")
        connection.execute("UPDATE tidegate_batches SET batch_id = 0")
        replay.start()
        replay.join(0.5)
        assert replay.is_alive()
    replay.join(HANG)
    assert elephant.rows("late") == [("ann", None)]


def test_an_old_postgres_is_refused(elephant: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.connectors.postgres.OLDEST", 99)
    with pytest.raises(SinkError, match="PostgreSQL 99 or newer is needed, this is 1"):
        elephant.sink("late").prepare(LATE)


def test_one_sink_serves_many_queries(place: Place) -> None:
    """What a sink is told at one start is not mixed up with another."""
    sink = place.sink("late")
    tables = [sink.prepare(replace(LATE, query=f"query-{number}")) for number in range(2)]
    assert [table.target.query for table in tables] == ["query-0", "query-1"]
    assert sink == place.sink("late")


# -- many rows ------------------------------------------------------------------------------------

#: How databases call a join that looks at each pair of rows.
EACH_PAIR = ("NESTED_LOOP", "CROSS_PRODUCT", "BLOCKWISE_NL", "Join Filter")


@dataclass
class Explaining:
    """A connection that asks how each statement will be run."""

    connection: Any
    plans: list[str]

    def execute(self, sql: str) -> Any:
        explained = self.connection.execute(f"EXPLAIN {sql}").fetchall()
        self.plans.append("\n".join(str(column) for row in explained for column in row))
        return self.connection.execute(sql)


def test_a_large_table_is_changed_without_a_look_at_each_pair(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, plans = place.sink("counts").prepare(CHANGES), []
    delete = type(table)._delete
    monkeypatch.setattr(
        type(table), "_delete", lambda self, own, them: delete(self, Explaining(own, plans), them)
    )
    table(counts(200_000, "+I", 0), 0)
    plans.clear()  # those of an empty table
    table(Rows(pa.concat_tables([counts(5_000, "-U", 0).table, counts(5_000, "+U", 1).table])), 1)
    assert place.run("SELECT n, count(*) FROM counts GROUP BY n ORDER BY n") == [
        (0, 195_000),
        (1, 5_000),
    ]
    changing = [plan for plan in plans if "Delete" in plan or "DELETE" in plan]
    assert len(changing) >= 3, "one for each column that may be null, and one for rows without"
    assert [plan for plan in changing if any(name in plan for name in EACH_PAIR)] == []


def counts(rows: int, op: str, n: int) -> Rows:
    """So many windows; every hundredth key is null in one column or the other."""
    start = pa.array([NOON] * rows, TIMESTAMP)
    columns = [
        pa.array([None if i % 100 == 0 else f"user-{i}" for i in range(rows)]),
        pa.array([None if i % 100 == 1 else i for i in range(rows)], pa.int64()),
        start,
        start,
        pa.array([n] * rows, pa.int64()),
        pa.array([op] * rows),
    ]
    return Rows(pa.table(columns, schema=CHANGES.schema))


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:50%off@host/db",
        "postgres//me:50%off@h/db",
        "host=h password=50%off x",
        "postgresql://me:50%off x@h/db",
    ],
)
def test_a_password_is_not_shown_where_its_string_cannot_be_read(dsn):
    target = Target("q", "main", pa.schema([("n", pa.int64())]))
    with pytest.raises(SinkError, match="connection string of PostgreSQL cannot be read") as raised:
        sinks.postgres(dsn, "t").prepare(target)
    assert "off" not in str(raised.value)
    assert raised.value.__cause__ is None
