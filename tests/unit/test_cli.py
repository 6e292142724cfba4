"""The command line as a process, as far as it needs no Spark: outputs, exit codes, what it loads."""

import io
import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import tidegate
from benchmarks.commands import commands
from tests.golden import assert_golden
from tests.support.time_limits import HANG
from tidegate import cli
from tidegate.cli import bench
from tidegate.cli.failures import cause
from tidegate.cli.session import interruptions
from tidegate.cli.views import length, size
from tidegate.errors import StartError

STARTER = Path(tidegate.__file__).parent / "cli" / "starter"


def tidegate_command(*arguments: object, **options) -> subprocess.CompletedProcess:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, "-m", "tidegate", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env=environment | {"PYTHONPATH": str(Path(tidegate.__file__).parents[1])},
        **options,
    )


def tidegate_here(*arguments: object, cwd: Path | str = ".") -> subprocess.CompletedProcess:
    """The command in this process, where only its answer matters."""
    printed, told = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(told), chdir(cwd):
        code = cli.main(list(map(str, arguments)))
    return subprocess.CompletedProcess(arguments, code, printed.getvalue(), told.getvalue())


@pytest.fixture
def starter(tmp_path):
    """A folder as `tidegate init` makes it."""
    done = tidegate_here("init", tmp_path / "starter")
    assert done.returncode == 0, done.stderr
    return tmp_path / "starter" / "pipeline.yaml"


def test_help_names_every_command_and_exit_code():
    done = tidegate_command("--help")
    assert done.returncode == 0
    for word in ("run", "sql", "explain", "validate", "init", "state", "repair", "bench", "demo", "130"):
        assert word in done.stdout


def test_the_version_is_that_of_the_package():
    done = tidegate_command("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("tidegate 0.")


@pytest.mark.parametrize("given", [[], ["runn"], ["run"], ["explain", "x.yaml", "--format", "xml"]])
def test_a_wrong_command_line_is_exit_code_2(given):
    done = tidegate_command(*given)
    assert done.returncode == 2
    assert "usage: tidegate" in done.stderr


def test_init_writes_what_can_be_run_and_overwrites_nothing(starter):
    assert tidegate_here("validate", starter).returncode == 0
    again = tidegate_here("init", starter.parent)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_the_clicks_of_init_come_in_order(starter):
    first, second = sorted((starter.parent / "clicks").iterdir())
    assert first.stat().st_mtime < second.stat().st_mtime


def test_validate_says_ok(starter):
    done = tidegate_here("validate", starter)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{starter}: ok, spend\n"


def test_a_broken_file_is_told_in_a_line(starter):
    starter.write_text(starter.read_text().replace("tumbling", "tumblin"))
    done = tidegate_here("validate", starter)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("tidegate: pipeline.yaml, line ")
    assert "did you mean 'tumbling'?" in line


def test_debug_shows_where_it_was_noticed(starter):
    starter.write_text(starter.read_text().replace("tumbling", "tumblin"))
    done = tidegate_here("validate", starter, "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_a_missing_file_is_exit_code_2(tmp_path):
    done = tidegate_command("run", tmp_path / "nothing.yaml")
    assert done.returncode == 2
    assert "no file" in done.stderr


def test_a_missing_path_is_told_before_spark_is_started(starter):
    for file in (starter.parent / "clicks").iterdir():
        file.unlink()
    (starter.parent / "clicks").rmdir()
    done = tidegate_command("run", starter, "--once")
    assert done.returncode == 2
    assert "stream 'clicks': there is nothing at" in done.stderr
    assert "starting Spark" not in done.stdout


def test_a_checkpoint_that_cannot_be_made_is_told_before_spark_is_started(starter):
    (starter.parent / "file").touch()
    done = tidegate_command("run", starter, "--checkpoint", starter.parent / "file" / "checkpoint")
    assert done.returncode == 2
    assert "the checkpoint: " in done.stderr
    assert "is a file" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights_is_told_before_spark_is_started(starter):
    locked = starter.parent / "locked"
    locked.mkdir(mode=0o500)
    done = tidegate_command("run", starter, "--checkpoint", locked / "checkpoint")
    assert done.returncode == 2
    assert "may not be written by this user" in done.stderr


@pytest.mark.parametrize("command", ["state", "repair"])
def test_a_folder_that_is_no_checkpoint_is_exit_code_2(tmp_path, command):
    done = tidegate_command(command, tmp_path)
    assert done.returncode == 2
    assert "is no checkpoint of tidegate" in done.stderr


def test_explain_as_text():
    done = tidegate_here("explain", "pipeline.yaml", cwd=STARTER)
    assert (done.returncode, done.stderr) == (0, "")
    assert_golden("cli_explain_text", done.stdout)


def test_explain_as_mermaid():
    done = tidegate_here("explain", "pipeline.yaml", "--format", "mermaid", cwd=STARTER)
    assert done.returncode == 0
    assert_golden("cli_explain_mermaid", done.stdout)


def test_explain_as_json():
    done = tidegate_here("explain", "pipeline.yaml", "--format", "json", cwd=STARTER)
    [job] = json.loads(done.stdout)
    assert job["name"] == "spend"
    assert job["logical"]["node"] == "Emit[changelog]"
    assert job["logical"]["inputs"][0]["node"] == "Aggregate[clicks=count(*), spend=sum(price)]"
    assert job["physical"][0][0] == "SlicePreAggregate[user]"
    assert job["hold_backs"] == {"1 tumbling(1 minute)": "0 seconds"}
    assert job["channels"]["late"][-2:] == ["late_window_end", "allowed_lateness"]


def test_what_is_held_back_is_shown(starter):
    hourly = "    - {time: window_end, window: {tumbling: 1 hour}, aggregates: {n: count}}\n"
    text = starter.read_text().replace("emit: changelog\n", f"emit: on_window_close\n{hourly}")
    starter.write_text(text)
    done = tidegate_here("explain", starter)
    assert done.returncode == 0, done.stderr
    assert "2 tumbling(1 hour): behind the sources by 30 seconds" in done.stdout


def test_benchmarks_are_in_a_checkout_only(monkeypatch, tmp_path):
    monkeypatch.setattr(
        bench, "__file__", str(tmp_path / "site-packages" / "tidegate" / "cli" / "bench.py")
    )
    with pytest.raises(StartError, match="in the repository only"):
        bench.run(Namespace(rest=[]))


# -- fast to start ---------------------------------------------------------------------------------

#: Runs a command, and says which modules it has loaded and which processes it has started.
WATCHED = """
import json, sys
started = []
STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
sys.addaudithook(lambda event, _: started.append(event) if event in STARTS else None)
from tidegate.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as exit:
    code = exit.code
print(json.dumps([code or 0, sorted(sys.modules), started]), file=sys.stderr)
"""

#: What takes a while to load. Of Polars, which is there in pieces, what the others stand on.
HEAVY = {"pyspark", "py4j", "pandas", "polars.dataframe", "duckdb", "psycopg"}


@pytest.mark.parametrize("name", ["--help", "validate", "explain", "validate sql", "explain sql"])
def test_what_needs_no_spark_is_light(name, tmp_path):
    """No Spark, no process, nothing that is slow to load: those benchmarks say how long they take."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *commands(tmp_path)[name]],
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    code, loaded, started = json.loads(done.stderr.splitlines()[-1])
    assert (code, started) == (0, []), done.stderr
    assert HEAVY & {*loaded} == set()


def test_a_process_that_a_command_starts_is_noticed():
    starts = "import tidegate.cli, subprocess; tidegate.cli.main = lambda _: subprocess.call(['true'])\n"
    done = subprocess.run(
        [sys.executable, "-c", starts + WATCHED], capture_output=True, text=True, timeout=HANG
    )
    assert json.loads(done.stderr)[2] != []


# -- interruptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_twice_does_not_wait(number):
    before = signal.getsignal(number)
    with interruptions() as asked:
        assert not asked.is_set()
        signal.raise_signal(number)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


# -- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.2, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7200, "2 h"), (90061, "1 d 1 h"), (-5, "0 s")],
)
def test_lengths_have_two_units(seconds, shown):
    assert length(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_250_000, "1.2 MB"), (7 * 10**12, "7000.0 GB")],
)
def test_sizes_have_a_unit_that_fits(count, shown):
    assert size(count) == shown


STREAM_FAILED = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the \
Python Proxy. Return Message: Traceback (most recent call last):
  File "callback.py", line 1, in call
    raise error
tidegate.errors.SinkError: DuckDB table 'users', batch 3: it cannot be
  name: the table has none

\tat py4j.Protocol.getReturnValue(Protocol.java:476)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STREAM_FAILED, "DuckDB table 'users', batch 3: it cannot be\n  name: the table has none"),
        (
            "[CAST] no number\n\tat org.apache.spark.Cast.go(Cast.scala:1)",
            "[CAST] no number",
        ),
        (
            "[STREAM_FAILED] Query\nTraceback (most recent call last):\n  File\n    line\n"
            "pyspark.errors.exceptions.captured.SparkRuntimeException: [ASSERTED] it is: so",
            "[ASSERTED] it is: so",
        ),
        ("[X] what\n\nJVM stacktrace:\norg.apache.Some", "[X] what"),
        ("", "ValueError"),
    ],
)
def test_causes_come_without_stacks(text, told):
    assert cause(ValueError(text)) == told


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_failure(starter, unbuffered):
    """As in `tidegate explain … | head -1`: output may be written after the command is done."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "tidegate", "explain", str(starter)]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            command, stdout=write, stderr=subprocess.PIPE, env=environment, timeout=HANG, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


# -- warnings --------------------------------------------------------------------------------------

TIES_SQL = """\
CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE SINK users WITH (connector = 'discard');
INSERT INTO users SELECT * FROM clicks ORDER BY ts;
"""

TIES_YAML = """\
name: ordered
streams:
  clicks:
    connector: files
    format: json
    path: clicks
    columns: {ts: timestamp, user: string}
    eventtime: {column: ts}
query:
  from: clicks
  operators: [{reorder: true}]
sinks: {main: {connector: discard}}
checkpoint: checkpoint
"""


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_rows_at_the_watermark_that_would_be_dropped_are_told_plainly(command, tmp_path):
    file = tmp_path / "ordered.yaml"
    file.write_text(TIES_YAML)
    done = tidegate_command(command, file)
    assert done.returncode == 0
    assert done.stderr.startswith("tidegate: warning: ordered: reorder() with a tolerance of zero: ")
    assert "'1 millisecond'" in done.stderr
    assert done.stderr.count("\n") == 1, "no line of Python's own"
    file.write_text(TIES_YAML.replace("{column: ts}", "{column: ts, tolerance: 1 ms}"))
    assert tidegate_command(command, file).stderr == ""


def test_also_of_sql(tmp_path):
    file = tmp_path / "ordered.sql"
    file.write_text(TIES_SQL)
    done = tidegate_command("validate", file)
    assert done.returncode == 0
    assert done.stderr.startswith("tidegate: warning: ordered.users: reorder() with a tolerance of zero")
    file.write_text(TIES_SQL.replace("AS ts)", "AS ts - INTERVAL '0.001' SECOND)"))
    assert tidegate_command("validate", file).stderr == ""
