"""The command line with Spark: as a process of its own where signals and the terminal matter."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import tidegate
from tests.support.command_line import share_session
from tests.support.plan_facts import facts
from tests.support.time_limits import HANG
from tidegate import cli
from tidegate.pipeline.load import load

PIPELINE = """\
streams:
  clicks:
    connector: files
    format: json
    path: clicks
    columns: {ts: timestamp, user: string, price: double}
    eventtime: {column: ts}
    options: {maxFilesPerTrigger: 1}
options: {eventtime.lateTolerance: 5 seconds}
query:
  from: clicks
  operators:
    - key_by: [user]
      window: {tumbling: 1 minute}
      aggregates: {n: count, spend: {sum: price}}
      emit: changelog
sinks:
  main: {connector: files, format: json, path: out}
checkpoint: checkpoint
"""
FILES, ROWS = 6, 5


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tidegate", *map(str, arguments)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(tidegate.__file__).parents[1])}


def run(*arguments: object, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=HANG, env=environment(), **options
    )


def write_clicks(folder: Path) -> None:
    """Minute after minute, a file each."""
    folder.mkdir(parents=True)
    for minute in range(FILES):
        file = folder / f"{minute:02}.json"
        times = (f"2026-01-01T12:{minute:02}:{second:02}Z" for second in range(ROWS))
        rows = ({"ts": time, "user": "ann", "price": 1.5} for time in times)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def command_here(spark, monkeypatch, capsys):
    """The command in this process, with the session of the tests: its code, its output, its errors."""
    share_session(spark, monkeypatch)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(list(map(str, arguments)))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def pipeline(tmp_path):
    write_clicks(tmp_path / "clicks")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE)
    return file


def results(folder: Path) -> dict[str, int]:
    """The count of each window that is left when changes have been applied."""
    lines = (line for file in folder.glob("*.json") for line in file.read_text().splitlines())
    weights: Counter = Counter()
    for row in map(json.loads, lines):
        weights[row["window_start"], row["n"]] += -1 if row["op"] == "-D" else 1
    assert set(weights.values()) <= {0, 1}
    return {start: n for (start, n), weight in weights.items() if weight}


def test_an_interrupted_run_goes_on_where_it_was(pipeline, command_here):
    with subprocess.Popen(
        command("run", pipeline), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(), start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(2)]
        os.killpg(running.pid, signal.SIGINT)  # Ctrl-C goes to all processes of the terminal
        output, errors = running.communicate(timeout=HANG)
    assert (running.returncode, errors) == (130, "")
    assert lines[0] == "pipeline: starting Spark …\n"
    assert lines[1].startswith("pipeline batch 0: rows in 5, ")
    assert "pipeline interrupted after" in output.splitlines()[-1]
    assert f"batch {FILES - 1}" not in output, "it was stopped on the way"

    resumed = run("run", pipeline, "--once", "--json")
    assert (resumed.returncode, resumed.stderr) == (0, "")
    *batches, summary = map(json.loads, resumed.stdout.splitlines())
    assert summary["ended"] == "done"
    assert all(batch["query"] == "pipeline" for batch in batches)
    assert batches[-1]["watermark"] == "2026-01-01T12:04:59+00:00"
    assert batches[-1]["behind_seconds"] > 0
    assert len(results(pipeline.parent / "out")) == FILES
    assert set(results(pipeline.parent / "out").values()) == {ROWS}

    code, printed, _ = command_here("state", pipeline.parent / "checkpoint", "--json")
    assert code == 0
    [operator] = json.loads(printed)
    window = operator["identity"]["inputs"]["rows"]["window"]
    assert (window["kind"], window["size"]) == ("hopping", 60_000_000)
    # The last click is of 12:05:04, and 5 s are tolerated: the windows of 12:04 and 12:05 are open.
    assert (operator["open"], operator["keys"]) == (2, 1)
    assert operator["watermark"] == "2026-01-01T12:04:59+00:00"
    assert operator["next_due"] == "2026-01-01T12:05:00+00:00"
    assert operator["bytes"] > 0


def test_a_query_that_cannot_start_is_exit_code_2(pipeline, command_here):
    database = pipeline.parent / "results.duckdb"
    sink = f"{{connector: duckdb, path: {database}, table: spend}}"
    pipeline.write_text(PIPELINE.replace("{connector: files, format: json, path: out}", sink))
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE spend (something INTEGER)")
    code, _, said = command_here("run", pipeline, "--once")
    assert code == 2
    assert "has other columns than the channel 'main'" in said
    assert "Traceback" not in said


def test_a_batch_that_fails_is_exit_code_1(pipeline):
    pipeline.write_text(
        PIPELINE.replace("  from: clicks", "  from: clicks\n  where: assert_true(price < 0) IS NULL")
    )
    failed = run("run", pipeline, "--once", "--json")
    assert failed.returncode == 1
    assert failed.stderr.startswith("tidegate: pipeline failed: [USER_RAISED_EXCEPTION] ")
    assert "\tat " not in failed.stderr
    assert "Traceback" not in failed.stderr
    assert json.loads(failed.stdout.splitlines()[-1])["ended"] == "failed"


def test_a_question_about_files_is_answered_as_a_table(tmp_path, command_here):
    write_clicks(tmp_path / "clicks")
    code, printed, said = command_here(
        "sql",
        f"""
        CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
        WITH (connector = 'files', path = '{tmp_path}/clicks', format = 'json');
        SELECT user, window_start, count(*) AS n, sum(price) * 2 AS twice
        FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' HOUR)
        """,
        "--json",
    )
    assert (code, said) == (0, "")
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"user": "ann", "window_start": "2026-01-01T12:00:00+00:00", "n": 30, "twice": 90.0}
    ]


def test_the_api_on_a_dataframe_builds_the_plan_of_the_file(spark, pipeline):
    import tidegate as tg

    clicks = spark.readStream.schema("ts timestamp, user string, price double").json(
        str(pipeline.parent / "clicks")
    )
    result = (
        tg.events(clicks, time="ts", tolerance="5 seconds")
        .key_by("user")
        .window(tg.tumbling("1 minute"))
        .agg(n=tg.count(), spend=tg.sum("price"))
        .emit(tg.emit.changelog())
    )
    [job] = load(pipeline)
    assert facts(job.insert.plan) == facts(result.node)
