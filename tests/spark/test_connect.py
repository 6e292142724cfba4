"""Queries over Spark Connect: a server in a process of its own, and clients that have no JVM."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.spark import needs
from tests.spark.conftest import write_batches
from tests.spark.kills import SOAK
from tests.support.connect_server import ConnectServer
from tests.support.features_seen import REFUSED
from tests.support.time_limits import HANG
from tidegate.spark.versions import STATE_OVER_CONNECT

FIRST = [
    [(1, "ann", 1.0), (2, "bob", 2.0)],
    [(5, "ann", 4.0), (None, "bob", 9.0)],
    [(40, "ann", 8.0)],
]
THEN = [[(3, "bob", 3.0), (41, "bob", 5.0)], [(80, "cid", 1.0)]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    server = ConnectServer(tmp_path_factory.mktemp("connect"))
    server.start()
    yield server
    server.kill()


def command(server: ConnectServer, program: str, *arguments: object, thin: bool = False) -> list[str]:
    given = [program, server.url, *map(str, arguments)]
    return [sys.executable, "-m", "tests.spark.connect_client", *(["--thin"] if thin else []), *given]


def client(server: ConnectServer, program: str, *arguments: object, thin: bool = False) -> Any:
    """What a client's program answers."""
    given = command(server, program, *arguments, thin=thin)
    run = subprocess.run(given, capture_output=True, text=True, timeout=HANG, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def table(dsn: str) -> list[tuple[Any, ...]]:
    import psycopg

    with closing(psycopg.connect(dsn)) as connection:
        query = 'SELECT "user", n, spend FROM visits ORDER BY "user", window_start'
        return connection.execute(query).fetchall()


@pytest.fixture
def own_schema(postgres: str, request: pytest.FixtureRequest) -> str:
    """The connection string of a schema of the test's own."""
    import psycopg

    name = f"connect_{abs(hash(request.node.name))}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres}{'&' if '?' in postgres else '?'}options=-csearch_path%3D{name}"


README = [["ann", 2, 7.5, "+I"], ["bob", 1, 5.0, "+I"], ["bob", 1, 2.0, "+I"]]


@pytest.mark.versions("Spark Connect")
def test_the_program_of_the_readme(
    server: ConnectServer, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if STATE_OVER_CONNECT.here:
        assert client(server, "readme", tmp_path, thin=True) == README
        return
    given = command(server, "readme", tmp_path, thin=True)
    run = subprocess.run(given, capture_output=True, text=True, timeout=HANG, check=False)
    assert "SessionError: state over Spark Connect needs Spark 4.1 or newer, and this is" in run.stderr
    record_property(REFUSED, f"needs {STATE_OVER_CONNECT.since}")


@needs.state_over_connect
def test_the_program_of_the_readme_with_the_full_client(server: ConnectServer, tmp_path: Path) -> None:
    assert client(server, "readme", tmp_path) == README


@needs.state_over_connect
def test_sessions_in_a_table_go_on_after_a_restart_and_are_drained(
    server: ConnectServer, tmp_path: Path, own_schema: str
) -> None:
    write_batches(tmp_path / "clicks", FIRST)
    seen = client(server, "sessions", tmp_path, own_schema, thin=True)
    assert table(own_schema) == [("ann", 2, 5.0), ("ann", 1, 8.0), ("bob", 1, 2.0)]
    assert (seen["metrics"]["rows_in"], seen["metrics"]["errors"], seen["rows_out"]) == (5, 1, 2)
    assert list(seen["watermarks"].values()) == ["2024-05-01T12:00:39+00:00"]
    assert (tmp_path / "errors" / "_tidegate_batches").exists()

    write_batches(tmp_path / "clicks", THEN, start=len(FIRST))
    finished = client(server, "drained", tmp_path, own_schema)
    # What came late is in its own files; what was open is emitted.
    assert table(own_schema) == [
        ("ann", 2, 5.0), ("ann", 1, 8.0), ("bob", 1, 2.0), ("bob", 1, 5.0), ("cid", 1, 1.0),
    ]  # fmt: skip
    [late] = [file.read_text() for file in (tmp_path / "late").glob("batch-*.json")]
    assert json.loads(late)["price"] == 3.0
    assert "it is finished, and no query goes on from it" in finished


@needs.state_over_connect
def test_a_join(server: ConnectServer, tmp_path: Path) -> None:
    write_batches(tmp_path / "left", [[(1, "ann", 1.0), (2, "bob", 2.0)], [(30, "ann", 3.0)]])
    write_batches(tmp_path / "right", [[(4, "ann", 10.0)], [(31, "ann", 30.0)]])
    assert client(server, "joined", tmp_path, thin=True) == [
        ["ann", 1.0, 10.0], ["ann", 3.0, 30.0], ["bob", 2.0, None],
    ]  # fmt: skip


@needs.admission_control
def test_a_folder_with_a_pace_and_a_fold(server: ConnectServer, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", [[(at, "ann", 1.0), (at, "bob", 2.0)] for at in range(4)])
    seen = client(server, "paced_folder", tmp_path, thin=True)
    assert seen["metrics"]["rows_in"] == 8
    assert "batch_rows" in seen["metrics"]
    assert seen["users"] == ["ann", "bob"]


@needs.state_over_connect
def test_sinks_that_would_show_rows_on_the_server_are_refused(
    server: ConnectServer, tmp_path: Path
) -> None:
    write_batches(tmp_path / "clicks", FIRST)
    messages = client(server, "refused", tmp_path)
    assert [message.partition(": ")[0] for message in messages] == [
        "the sink of channel 'main' is MemorySink",
        "the sink of channel 'main' is ConsoleSink",
    ]


@needs.state_over_connect
@pytest.mark.kills
@pytest.mark.parametrize(
    "killed",
    [
        "server",  # and the client with it
        pytest.param("client", marks=pytest.mark.skipif(not SOAK, reason="half a minute: make soak")),
    ],
)
def test_nothing_is_lost_or_doubled_if_one_of_them_is_killed(
    server: ConnectServer, tmp_path: Path, own_schema: str, killed: str
) -> None:
    """A query whose client has gone runs on; the next start takes its checkpoint over."""
    write_batches(tmp_path / "clicks", FIRST)
    given = command(server, "forever", tmp_path, own_schema)
    with subprocess.Popen(
        given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"started\n"
        if killed == "server":
            server.kill()
        running.kill()
    if killed == "server":
        server.start()
    write_batches(tmp_path / "clicks", THEN, start=len(FIRST))
    client(server, "sessions", tmp_path, own_schema, thin=True)
    assert table(own_schema) == [
        ("ann", 2, 5.0), ("ann", 1, 8.0), ("bob", 1, 2.0), ("bob", 1, 5.0), ("cid", 1, 1.0),
    ]  # fmt: skip
    [late] = [file.read_text() for file in (tmp_path / "late").glob("batch-*.json")]
    assert json.loads(late)["price"] == 3.0


PIPELINE = """\
streams:
  clicks:
    connector: files
    format: parquet
    path: clicks
    columns: {ts: timestamp, user: string, price: double}
    eventtime: {column: ts, type: timestamp}
query:
  from: clicks
  operators:
    - key_by: [user]
      window: {tumbling: 10 s}
      aggregates: {n: count}
sinks:
  main: {connector: files, format: json, path: out}
checkpoint: checkpoint
"""


@needs.state_over_connect
def test_the_command_line_runs_a_pipeline_on_a_server(server: ConnectServer, tmp_path: Path) -> None:
    write_batches(tmp_path / "clicks", [[(1, "ann", 1.0)], [(15, "ann", 1.0)], [(40, "bob", 1.0)]])
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    given = ["run", str(tmp_path / "pipeline.yaml"), "--once", "--json", "--remote", server.url]
    run = subprocess.run(
        [sys.executable, "-m", "tidegate", *given],
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    summary = json.loads(run.stdout.splitlines()[-1])
    assert summary["ended"] == "done"
    [query] = summary["queries"].values()
    assert (query["rows_in"], query["rows_out"]) == (3, 2)
    assert len(list((tmp_path / "out").glob("batch-*.json"))) > 0
