"""Every operator and every sink on a real cluster, whose workers have nothing of the driver's machine.

The Python that workers find has our libraries and no tidegate, which is told. Then it is shipped, or
they are given another Python that has it.
"""

import json
import os
import pickle
import subprocess
import sys
import tarfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate
from tests.oracle import Oracle
from tests.spark import needs
from tests.spark.class_archive import java_options
from tests.spark.cluster_programs import CASES, EVENTS, OWN_STEPS, batches
from tests.spark.files import write_files
from tests.spark.kills import ROOT, SOAK, kill_session
from tests.support.cluster import Cluster, copy_tidegate, python_of_workers
from tests.support.connect_server import ConnectServer
from tests.support.time_limits import HANG
from tidegate.plan.nodes import Together
from tidegate.spark.versions import STATE_FORMAT_2
from tidegate.testing.results import BatchResult, row_differences
from tidegate.testing.table import Row, micros_of, to_arrow

TOLERANCE = 5_000_000
ON_PATH = str(Path(sys.executable).parent)


class Driver:
    """The driver of a session, in a process of its own; `ask` waits for the answer."""

    def __init__(
        self, cluster: Cluster, home: Path, settings: Sequence[str] = (), **environment: str
    ) -> None:
        self._log = home / "driver.log"
        path = os.pathsep.join([ON_PATH, str(home), os.environ["PATH"]])
        own = {"TMPDIR": str(home / "tmp"), "PATH": path, "PYTHONPATH": str(ROOT)}
        others = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_driver", cluster.url, *settings],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=home,
                env=others | own | {"CLUSTER_FOLDER": str(cluster.folder)} | environment,
                start_new_session=True,
            )  # fmt: skip

    def ask(self, name: str, *arguments: Any) -> Any:
        self.tell(name, *arguments)
        return self.answer()

    def tell(self, name: str, *arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *map(_plain, arguments)]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise AssertionError(self._log.read_text()[-6000:])

    def check(self) -> None:
        assert self._process.poll() is None, self._log.read_text()[-6000:]

    def end(self) -> None:
        kill_session(self._process.pid)
        self._process.communicate()


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the driver; its temporary folder is hidden from workers."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "tmp").mkdir()
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    python = python_of_workers(folder / "python", installed=False)
    with Cluster(folder, python, home / "tmp") as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip` would install, as far as Python imports it."""
    file = tmp_path_factory.mktemp("wheel") / "tidegate-0.1.0-py3-none-any.whl"
    package = Path(tidegate.__file__).parent
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(package.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                archive.write(source, source.relative_to(package.parent))
    return file


@pytest.fixture(scope="module")
def own_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("code") / "own_steps.py"
    file.write_text(OWN_STEPS)
    return file


@pytest.fixture(scope="module")
def driver(
    cluster: Cluster, home: Path, own_steps: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """A session whose executors have tidegate installed, and load it before they fork workers."""
    python = python_of_workers(tmp_path_factory.mktemp("python") / "installed", installed=True)
    ahead = "spark.python.daemon.module=tidegate.spark.daemon"
    driver = Driver(cluster, home, [ahead], PYSPARK_PYTHON=str(python))
    try:
        driver.ask("ship", own_steps)
        yield driver
    finally:
        driver.end()


def write_inputs(folder: Path, sources: int) -> None:
    for number in range(sources):
        write_files(folder / f"in-{number}", (to_arrow(rows, EVENTS) for rows in batches(number)))


# -- what must come out ---------------------------------------------------------------------------


def watermarks(sources: Sequence[list[list[Row]]]) -> Iterator[int | None]:
    """The watermark in force in each batch, and in an empty one behind them."""
    highest: list[int | None] = [None] * len(sources)
    for batch in range(len(sources[0]) + 1):
        marks = [mark for mark in highest if mark is not None]
        yield min(marks) - TOLERANCE if len(marks) == len(sources) else None
        for number, source in enumerate(sources):
            rows = source[batch] if batch < len(source) else []
            times = [micros_of(row["ts"]) for row in rows if row["ts"] is not None]
            highest[number] = max([*times, *marks_of(highest[number])], default=None)


def marks_of(mark: int | None) -> list[int]:
    return [] if mark is None else [mark]


def by_the_rules(plan: Any) -> BatchResult:
    """All that a program must put out, by channel, over all batches."""
    sources = [batches(number) for number in range(len(plan.sources))]
    oracle, total = Oracle(plan), BatchResult()
    for batch, watermark in enumerate(watermarks(sources)):
        rows = [source[batch] if batch < len(source) else [] for source in sources]
        result = oracle.batch_of(rows, watermark)
        total.counts.update(result.counts)
        for channel, found in result.channels.items():
            total.put(channel, *found)
    return total


def live(rows: Sequence[Row]) -> list[Row]:
    """What is left of changes: what a table holds."""
    left: Counter[Any] = Counter()
    for row in rows:
        values = tuple((name, value) for name, value in row.items() if name != "op")
        left[values] += -1 if row.get("op", "+").startswith("-") else 1
    return [dict(values) for values, times in left.items() for _ in range(times)]


def written(kind: str, folder: Path, channel: str, dsn: str) -> list[Row]:
    match kind:
        case "json":
            files = sorted((folder / channel).glob("batch-*.json"))
            return [json.loads(line) for file in files for line in file.read_text().splitlines()]
        case "duckdb":
            return _of_duckdb(folder / "results.duckdb", channel)
        case "postgres":
            return _of_postgres(dsn, channel)
    return [row for file in sorted((folder / channel).glob("*.parquet")) for row in _of_parquet(file)]


def _of_parquet(file: Path) -> list[Row]:
    table = pq.read_table(file, coerce_int96_timestamp_unit="us")
    in_utc = pa.schema([_in_utc(one) for one in table.schema])
    return table.cast(in_utc).to_pylist()


def _in_utc(field: pa.Field) -> pa.Field:
    return field.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(field.type) else field


def _of_duckdb(file: Path, table: str) -> list[Row]:
    import duckdb

    with duckdb.connect(str(file)) as connection:
        return connection.sql(f'SELECT * FROM "{table}"').to_arrow_table().to_pylist()


def _of_postgres(dsn: str, table: str) -> list[Row]:
    import psycopg
    from psycopg.rows import dict_row

    with closing(psycopg.connect(dsn, row_factory=dict_row)) as connection:
        return connection.execute(f'SELECT * FROM "{table}"').fetchall()


def shown(row: Row, columns: Sequence[str]) -> Row:
    """A row as every kind of sink shows it: JSON leaves nulls out, and has times as text."""
    found = {name: row.get(name) for name in columns}
    return {name: _instant(value) if name in _TIMES else value for name, value in found.items()}


_TIMES = ("ts", "window_start", "window_end", "watermark")


def _instant(value: Any) -> Any:
    value = datetime.fromisoformat(value) if isinstance(value, str) else value
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def differences(plan: Any, channel: str, kind: str, wanted: list[Row], found: list[Row]) -> list[str]:
    wanted = live(wanted) if kind in ("duckdb", "postgres") else wanted
    # Of rows that are set apart: the row itself. Durations differ by format.
    columns = list(dict.fromkeys(name for row in wanted for name in row))
    if channel not in ("main", "errors"):
        columns = [name for name in columns if name in EVENTS.names]
    sides = ([shown(row, columns) for row in rows] for rows in (wanted, found))
    return [f"{channel}: {line}" for line in row_differences(plan, "", *sides)]


APART = {"errors": "parquet", "late": "json", "too_old": "json", "rejected": "json"}

#: What only a known answer can be compared with.
BY_RULES = [name for name in CASES if name not in ("together", "shed", "steps")]


# -- tests ----------------------------------------------------------------------------------------


def test_executors_have_nothing_of_the_drivers_machine(driver: Driver, cluster: Cluster) -> None:
    """Only then do the other tests prove that nothing is left for them there."""
    found = driver.ask("places")
    assert found["executors"]
    for places in found["executors"]:
        assert all(place.startswith(str(cluster.folder)) for place in places), places
    assert not any(place.startswith(str(cluster.folder)) for place in found["driver"])
    assert set(found["see"]) == {not cluster.hides}


@pytest.mark.parametrize("name", BY_RULES)
def test_an_operator(name: str, driver: Driver, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    case = CASES[name]
    dsn = request.getfixturevalue("postgres") if case.sink == "postgres" else ""
    write_inputs(tmp_path, case.sources)
    metrics = driver.ask("run", name, tmp_path, dsn)
    plan = pickle.loads((tmp_path / "plan").read_bytes())
    expected = by_the_rules(plan)
    assert expected.channels["main"]
    found = []
    for channel in {"main", *expected.channels}:
        kind = APART.get(channel, case.sink)
        rows = written(kind, tmp_path, channel, dsn)
        found += differences(plan, channel, kind, expected.channels.get(channel, []), rows)
    assert found == []
    assert {name: metrics[name] for name in expected.counts} == dict(expected.counts)


def test_several_results_in_one_query(driver: Driver, tmp_path: Path) -> None:
    write_inputs(tmp_path, 1)
    driver.ask("run", "together", tmp_path, "")
    plan: Together = pickle.loads((tmp_path / "plan").read_bytes())
    for name, branch in plan.branches:
        wanted = by_the_rules(branch).channels["main"]
        rows = written("parquet", tmp_path, name, "")
        assert wanted
        assert differences(branch, "main", "parquet", wanted, rows) == []


def test_load_that_is_shed_by_decisions_of_the_driver(driver: Driver, tmp_path: Path) -> None:
    """Decisions travel through the checkpoint: a row is counted or shed, and some are shed."""
    driver.ask("under_load")
    write_inputs(tmp_path, 1)
    metrics = driver.ask("run", "shed", tmp_path, "")
    usable = [row for rows in batches() for row in rows if row["ts"] is not None]
    gone = written("json", tmp_path, "shed", "")
    totals = live(written("parquet", tmp_path, "main", ""))
    assert 0 < metrics["shed"] == len(gone)
    assert "critical" not in {row["priority"] for row in gone}
    assert sum(row["n"] for row in totals) + len(gone) == len(usable)


def test_a_function_of_a_module_that_was_shipped(driver: Driver, tmp_path: Path) -> None:
    write_inputs(tmp_path, 1)
    driver.ask("run", "steps", tmp_path, "")
    wanted: Counter[Any] = Counter()
    for row in (row for rows in batches() for row in rows if row["ts"] is not None):
        wanted[row["user"]] += round(row["price"] * 100)
    totals = live(written("parquet", tmp_path, "main", ""))
    assert {row["user"]: row["cents"] for row in totals} == dict(wanted)


def test_a_batch_that_needs_what_was_not_shipped_says_so(
    driver: Driver, home: Path, tmp_path: Path
) -> None:
    (home / "other_steps.py").write_text(OWN_STEPS)
    write_inputs(tmp_path, 1)
    # Spark puts codes of its own behind it.
    assert driver.ask("failed", tmp_path).startswith(
        "the executors lack a module (No module named 'other_steps'). Ship your own modules with "
        "`tidegate run --py-files`, spark.sparkContext.addPyFile(…) or spark.submit.pyFiles. Install "
        "libraries for their Python, or ship an environment that has them with spark.archives"
    )


@needs.admission_control
def test_a_folder_with_a_pace_a_snapshot_and_a_drain(driver: Driver, tmp_path: Path) -> None:
    write_inputs(tmp_path, 1)
    found = driver.ask("drained", tmp_path)
    usable = [row["user"] for rows in batches() for row in rows if row["ts"] is not None]
    assert dict(found["users"]) == dict(Counter(usable))
    assert found["metrics"]["rows_in"] == sum(map(len, batches()))
    assert "batch_rows" in found["metrics"]


# -- kills ----------------------------------------------------------------------------------------


@pytest.mark.kills
def test_executors_and_their_python_are_killed_in_batches(driver: Driver, tmp_path: Path) -> None:
    """While rows pass a step, and when the batch is computed but not written.

    In a soak a task of the batch before never ends, and Spark starts a second attempt at it. That comes
    first, since Spark takes no host for it that a killed attempt was on.
    """
    write_inputs(tmp_path, 1)
    holds = tmp_path / "held"
    holds.mkdir()
    (holds / "hold-1").touch()
    if SPECULATES:
        (holds / "hold-0").touch()
    driver.tell("killed", tmp_path, 1)
    if SPECULATES:
        held_process(holds, driver)
    for number, kill in enumerate(KILLS, 1):
        kill(held_process(holds, driver))
        if number < len(KILLS):
            (holds / "hold-1").touch()
    metrics = driver.answer()
    plan = pickle.loads((tmp_path / "plan").read_bytes())
    expected = by_the_rules(plan)
    rows = written("parquet", tmp_path, "main", "")
    assert differences(plan, "main", "parquet", expected.channels["main"], rows) == []
    assert metrics["rows_in"] == expected.counts["rows_in"]


def kill_executor(worker: psutil.Process) -> None:
    [executor] = [one for one in worker.parents() if one.name() == "java"][:1]
    executor.kill()


#: The Python of a task; `make soak` also kills executors, in turn.
KILLS = [psutil.Process.kill, kill_executor] * 4 if SOAK else [psutil.Process.kill]
SPECULATES = SOAK and STATE_FORMAT_2.here


def held_process(folder: Path, driver: Driver) -> psutil.Process:
    """The process that waits in the step, once there is one."""
    until = time.monotonic() + HANG
    while time.monotonic() < until:
        for found in folder.glob("held-*"):
            found.unlink()
            return psutil.Process(int(found.name.removeprefix("held-")))
        driver.check()
        time.sleep(0.05)
    raise TimeoutError("no process has reached the step")


# -- other ways to ship, and the command line -----------------------------------------------------

#: Each starts Spark once or twice more.
IN_A_SOAK = pytest.mark.skipif(not SOAK, reason="takes half a minute each: make soak")

PIPELINE = """\
streams:
  clicks:
    connector: files
    format: parquet
    path: in-0
    columns: {ts: timestamp, user: string, seq: bigint, price: double, priority: string}
    eventtime: {column: ts, type: timestamp}
query:
  from: clicks
  operators:
    - key_by: [user]
      window: {tumbling: 1 day}
      aggregates: {n: count}
      emit: on_update
sinks:
  main: {connector: files, format: parquet, path: main}
checkpoint: checkpoint
"""

#: For an application beside the one of the driver.
SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": java_options(),
}


def command(folder: Path, *arguments: Any, **environment: str) -> "subprocess.CompletedProcess[str]":
    """A command line, run where `python3` is not ours already."""
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    inherited["PATH"] = os.pathsep.join(
        place for place in os.environ["PATH"].split(os.pathsep) if place != ON_PATH
    )
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *map(str, arguments)],
        cwd=folder, env=inherited | environment, timeout=HANG,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def settings(given: dict[str, str]) -> list[str]:
    return [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]


def counted(folder: Path) -> dict[Any, int]:
    return {row["user"]: row["n"] for row in live(written("parquet", folder, "main", ""))}


def usable() -> Counter[Any]:
    return Counter(row["user"] for rows in batches() for row in rows if row["ts"] is not None)


def test_the_command_line_tells_what_executors_lack_and_ships_it(
    cluster: Cluster, wheel: Path, tmp_path: Path
) -> None:
    write_inputs(tmp_path, 1)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    given = ["run", "pipeline.yaml", "--once", "--json", "--master", cluster.url, *settings(SMALL)]
    refused = command(tmp_path, *given)
    assert refused.returncode == 2, refused.stderr
    [told] = [line for line in refused.stderr.splitlines() if line.startswith("tidegate: ")]
    assert told.startswith(
        "tidegate: the executors have no tidegate (No module named 'tidegate', in "
        f"{cluster.folder}/python/bin/python3 on "
    )
    assert told.endswith("spark.sparkContext.addPyFile(…) or spark.submit.pyFiles")
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "main").exists()
    ran = command(tmp_path, *given, "--py-files", wheel)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["ended"] == "done"
    assert counted(tmp_path) == usable()


@pytest.mark.kills
@IN_A_SOAK
def test_the_command_line_with_a_master_and_tidegate_installed(cluster: Cluster, tmp_path: Path) -> None:
    """A query over what is there now, by the Python that the driver runs, too."""
    write_inputs(tmp_path, 1)
    text = f"""
        CREATE STREAM clicks (ts TIMESTAMP, user STRING, seq BIGINT, price DOUBLE, priority STRING)
        WITH ('connector' = 'files', 'format' = 'parquet', 'path' = '{tmp_path}/in-0',
              'eventtime.column' = 'ts', 'eventtime.type' = 'timestamp');
        SELECT user, window_start, window_end, count(*) AS n
        FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1 day'))
        GROUP BY user, window_start, window_end
    """
    given = ["sql", text, "--json", "--master", cluster.url, *settings(SMALL)]
    ran = command(tmp_path, *given, PYSPARK_PYTHON=sys.executable)
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {row["user"]: row["n"] for row in found} == usable()


@pytest.mark.kills
@IN_A_SOAK
@pytest.mark.parametrize("installed", [True, False])
def test_the_command_line_with_a_server_whose_executors_are_a_cluster(
    cluster: Cluster, tmp_path: Path, installed: bool
) -> None:
    write_inputs(tmp_path, 1)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    path = os.pathsep.join([ON_PATH, os.environ["PATH"]])
    python = {"PYSPARK_PYTHON": sys.executable} if installed else {"PATH": path}
    server = ConnectServer(tmp_path, cluster.url, SMALL, **python)
    server.start()
    try:
        ran = command(tmp_path, "run", "pipeline.yaml", "--once", "--json", "--remote", server.url)
    finally:
        server.kill()
    if installed:
        assert ran.returncode == 0, ran.stderr
        assert counted(tmp_path) == usable()
    else:
        assert ran.returncode == 2
        assert ran.stderr == (
            "tidegate: the Python of the Spark Connect server, or that of its executors, has no "
            "tidegate: install the version that this client has there, for the driver and the "
            "executors\n"
        )


@pytest.mark.kills
@IN_A_SOAK
def test_an_environment_that_is_shipped_as_an_archive(cluster: Cluster, tmp_path: Path) -> None:
    """As conda-pack and venv-pack make them; the driver has it unpacked where it runs."""
    home, environment = tmp_path / "home", tmp_path / "home" / "environment"
    (home / "tmp").mkdir(parents=True)
    pack_environment(environment)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as archive:
        archive.add(environment, ".")
    shipped = f"spark.archives={tmp_path}/environment.tar.gz#environment"
    driver = Driver(cluster, home, [shipped], PYSPARK_PYTHON="./environment/bin/python")
    try:
        write_inputs(tmp_path, 1)
        driver.ask("run", "fold", tmp_path, "")
    finally:
        driver.end()
    table = written("duckdb", tmp_path, "main", "")
    assert {row["user"]: row["n"] for row in table} == usable()


def pack_environment(folder: Path) -> None:
    """Less than a real one: the libraries stay where they are, which all workers here can read."""
    copy_tidegate(folder / "lib")
    python_of_workers(folder / "python", installed=False)
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    here = 'here=$(dirname "$0")/..\n'
    run = f'PYTHONPATH="$here/lib:$PYTHONPATH" exec {folder}/python/bin/python3 "$@"\n'
    python.write_text("#!/bin/sh\n" + here + run)
    python.chmod(0o755)
