"""Streaming queries that keep a table: stopped, resumed, and told what does not fit."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

import tidegate as tg
from tests.spark.conftest import run, seconds, write_batches
from tests.spark.test_restarts import expected, hopping, windows
from tests.spark.test_windows import BATCHES, FLUSH, disordered, tumbling
from tidegate.connectors import Target
from tidegate.plan.channels import LATE_COLUMNS

SCHEMA = "ts timestamp, user string, price double"


class Tables:
    """A database: sinks for its tables, and their rows."""

    def __init__(self, sink: Callable[[str], Any], connect: Callable[[], Any]) -> None:
        self.sink = sink
        self.connect = connect

    def run(self, sql: str) -> None:
        with self.connect() as connection:
            connection.execute(sql)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.connect() as connection:
            cursor = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


#: One database is enough where they share the code (`connectors/tables.py`); unit tests have both.
ONE_DATABASE = pytest.mark.parametrize("tables", ["duckdb"], indirect=True)


@pytest.fixture(params=["duckdb", "postgres"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    if request.param == "duckdb":
        path = tmp_path / "results.duckdb"
        yield Tables(lambda table: tg.sinks.duckdb(path, table), lambda: duckdb.connect(path))
    else:
        dsn = request.getfixturevalue("postgres")
        found = Tables(
            lambda table: tg.sinks.postgres(dsn, f"streams.{table}"),
            lambda: psycopg.connect(dsn, options="-csearch_path=streams"),
        )
        found.run("CREATE SCHEMA streams")
        yield found
        found.run("DROP SCHEMA streams CASCADE")


def test_a_changelog_keeps_a_table_over_stops(spark: Any, tables: Tables, tmp_path: Path) -> None:
    batches = disordered(240, 60)
    for end in (2, len(batches) + 1):
        done = len(list((tmp_path / "clicks").glob("*.parquet")))
        write_batches(tmp_path / "clicks", (batches + FLUSH)[done:end], start=done)
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        changes = hopping(reader.parquet(str(tmp_path / "clicks"))).emit(tg.emit.changelog())
        run(changes, tmp_path / "ckpt", main=tables.sink("spend"))
        assert windows(tables.rows("spend")) == expected(batches[:end])
    (note,) = tables.rows("tidegate_batches")
    stored = json.loads((tmp_path / "ckpt" / "tidegate.json").read_text())
    assert (note["table_name"], note["query_id"]) == ("spend", stored["query"])


def test_every_channel_can_be_a_table(
    click_stream: Callable[..., Any], tables: Tables, tmp_path: Path
) -> None:
    result = tumbling(
        click_stream(BATCHES), allowed_lateness="5 s", late=tg.late.side_output("late")
    ).emit(tg.emit.on_watermark())
    run(
        result,
        tmp_path / "ckpt",
        main=tables.sink("spend"),
        late=tables.sink("late"),
        errors=tables.sink("errors"),
    )
    assert windows(tables.rows("spend")) == Counter(
        [
            ("ann", 0, 3, 7.0),
            ("bob", 0, 1, 5.0),
            ("ann", 10, 1, 3.0),
            (None, 10, 1, 7.0),
            ("bob", 20, 2, 2.0),
        ]
    )
    (late,) = tables.rows("late")
    assert (late["user"], seconds(late["ts"]), late["late_by"].total_seconds()) == ("bob", 6, 14)
    (error,) = tables.rows("errors")
    assert error["reason"] == "event time 'ts' is null"


@ONE_DATABASE
def test_a_table_of_another_query_is_refused_before_the_start(
    click_stream: Callable[..., Any], tables: Tables, tmp_path: Path
) -> None:
    changes = tumbling(click_stream(BATCHES[:2])).emit(tg.emit.changelog())
    run(changes, tmp_path / "one", main=tables.sink("spend"))
    before = tables.rows("spend")
    with pytest.raises(tg.errors.SinkError, match="belongs to another query"):
        run(changes, tmp_path / "two", main=tables.sink("spend"))
    assert tables.rows("spend") == before
    # The same checkpoint with another table: nothing has run yet.
    run(changes, tmp_path / "two", main=tables.sink("other"))
    assert windows(tables.rows("other")) == windows(before)


@ONE_DATABASE
def test_a_table_that_somebody_changed_stops_the_query(
    spark: Any, tables: Tables, tmp_path: Path
) -> None:
    write_batches(tmp_path / "clicks", [[(1, "ann", 1.0)]])
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "clicks"))
    changes = tumbling(stream).emit(tg.emit.on_update())
    run(changes, tmp_path / "ckpt", main=tables.sink("spend"))
    tables.run("UPDATE spend SET n = 5")
    write_batches(tmp_path / "clicks", [[(2, "ann", 1.0)]], start=1)
    for _ in range(2):  # nothing is lost: the batch is tried again by each start
        with pytest.raises(
            Exception, match=r"batch \d of channel 'main': it takes back a row"
        ) as caught:
            run(changes, tmp_path / "ckpt", main=tables.sink("spend"))
        assert "user=ann" in str(caught.value)
    tables.run("UPDATE spend SET n = 1")
    run(changes, tmp_path / "ckpt", main=tables.sink("spend"))
    assert [(row["user"], row["n"]) for row in tables.rows("spend")] == [("ann", 2)]


class Recorder:
    """A sink that remembers what it is told before the start."""

    def __init__(self) -> None:
        self.targets: list[Target] = []

    def prepare(self, target: Target) -> Any:
        self.targets.append(target)
        return tg.sinks.discard()


@pytest.mark.parametrize(
    ("emission", "changes"), [(tg.emit.on_watermark(), False), (tg.emit.on_update(), True)], ids=str
)
def test_a_sink_is_told_what_it_will_be_given(
    click_stream: Callable[..., Any], tmp_path: Path, emission: Any, changes: bool
) -> None:
    result = tumbling(click_stream(BATCHES[:1]), late=tg.late.side_output("late")).emit(emission)
    sink = Recorder()
    for _ in range(2):
        run(result, tmp_path / "ckpt", main=sink, late=sink)
    main, late, *again = sink.targets
    assert again == [main, late]
    assert main.query == late.query
    assert (main.channel, late.channel) == ("main", "late")
    assert main.key == ("user", "window_start", "window_end")
    assert late.key == ()
    assert (main.changes, late.changes) == (changes, False)
    assert main.schema.names == ["user", "window_start", "window_end", "n", "spend"] + ["op"] * changes
    assert late.schema.names == ["ts", "user", "price", *(field.name for field in LATE_COLUMNS)]
    assert (main.durations, late.durations) == ((), ("late_by", "allowed_lateness"))


def test_a_damaged_note_is_named(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    result = tumbling(click_stream(BATCHES))
    (tmp_path / "ckpt").mkdir()
    for text in ("{", "{}", "[]", '{"query": "x", "identity": {}, "more": 1}'):
        (tmp_path / "ckpt" / "tidegate.json").write_text(text)
        with pytest.raises(tg.errors.CheckpointMismatch, match=r"tidegate\.json is damaged"):
            run(result, tmp_path / "ckpt", main=tg.sinks.discard())
