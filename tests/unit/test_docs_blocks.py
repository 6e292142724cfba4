"""Blocks of the documentation that are neither Python nor bash: each is run, or checked by a rule.

Programs in SQL and YAML run over rows that are made for the streams they declare, commands (`sh`) where
such a program lies. All of them share the session of the tests. `test_docs.py` runs Python and bash.
"""

import ast
import inspect
import json
import math
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import tidegate as tg
from tests.support.command_line import share_session
from tests.support.plans import hopping, logical_plan
from tests.unit.test_docs import FENCE, PAGES, ROOT, own_database
from tests.unit.test_docs_commands import commands, is_known
from tidegate import cli, sql
from tidegate.api import events
from tidegate.api.together import StatementSet
from tidegate.cli import repair as repair_command
from tidegate.cli.progress import Batch
from tidegate.connectors.files import METADATA, Written
from tidegate.connectors.metadata_files import write_metadata
from tidegate.dataflow import compile as compile_plan
from tidegate.dataflow.identity import identity_of
from tidegate.errors import CheckpointMismatch, CheckpointTaken, PipelineError, SqlError
from tidegate.kernels import snapshot
from tidegate.pipeline.load import load
from tidegate.pipeline.model import Pipeline
from tidegate.spark import executors
from tidegate.spark.checkpoint.metadata import check_same_state
from tidegate.spark.checkpoint.ownership import Owner, Ownership
from tidegate.spark.checkpoint.repair import Repair
from tidegate.spark.query import Query
from tidegate.spark.sources import invalid_rows

__all__ = ["own_database"]

SHELL_PAGES = [*PAGES, ROOT / "examples" / "README.md"]
TEXTS = {page.name: page.read_text("utf-8") for page in PAGES}

#: The first words of commands that are not run, and why. What they call must be there all the same.
NOT_RUN = {
    "make": "takes minutes, installs software, or is these tests",
    "scripts/setup.sh": "installs the environment that the tests run in",
    "scripts/postgres.sh": "serves until its terminal is closed; the tests have one of their own",
    ".": "changes the shell of the reader",
    "mkdir": "changes the shell of the reader, together with cd",
    "cd": "changes the shell of the reader",
    "export": "changes the shell of the reader",
    "python": "waits for what the reader types: the blocks that follow, which are run",
}

#: The first line of a block of SQL that must be refused, with part of the message.
REFUSED = re.compile(r"\A-- refused: (.*)\n")


def blocks(page: str, *languages: str) -> list[str]:
    """The blocks of a page in one of these languages."""
    return [code for language, code in FENCE.findall(TEXTS[page]) if language in languages]


def pages_with(language: str) -> list[str]:
    return [name for name in TEXTS if blocks(name, language)]


# -- texts ------------------------------------------------------------------------------------------


def a_drawing(text: str) -> None:
    """Nothing can be wrong with it that a program could see."""


def a_message_of_a_checkpoint(text: str) -> None:
    """Of a program whose window is twice as long as it was."""
    stored, now = (
        identity_of(compile_plan(logical_plan(hopping(minutes * 60_000_000))), 4, 1)
        for minutes in (1, 2)
    )
    with pytest.raises(CheckpointMismatch) as caught:
        check_same_state(text.split()[2], stored, now)
    assert str(caught.value) == text.strip()


def a_message_of_an_owner(text: str) -> None:
    """The claim of another start, with the page's process and time, is told as the page says."""
    checkpoint = Path("checkpoint").absolute().as_uri()
    first = Ownership.next(checkpoint)
    first.take()
    said = re.search(r"process (\d+) on (\S+) took it over at ([^ ]+)\. ", text)
    other = Ownership.next(checkpoint)
    write_metadata(f"{other.folder}/{other.name}", asdict(Owner(said[2], int(said[1]), 0.0, said[3])))
    with pytest.raises(CheckpointTaken) as caught:
        first.check()
    assert str(caught.value) == text.strip().replace("file:///data/checkpoint", checkpoint)


def a_message_of_executors(text: str) -> None:
    """Of an executor that lacks tidegate."""
    said = re.search(r"\((No module named .*?)\)", text)
    assert executors._told("tidegate", said[1]) == text.strip()


def what_a_repair_says(text: str) -> None:
    """The page's checkpoint and sink, made of files: the command says of them what the page says."""
    _, problem, *told, unchanged = text.splitlines()
    checkpoint, out = Path("checkpoint"), Path("out")
    for batch in range(7):
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        (checkpoint / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"logOffset":{batch}}}')
    out.mkdir()
    write_metadata(f"{out.absolute().as_uri()}/{METADATA}", asdict(Written("query", "main", 6)))
    owner = Owner("host", 1, 0.0, "now", {"main": f"parquet files in {out.absolute().as_uri()}"})
    repair = Repair(version=4, until=6, kept="tidegate.repaired/1")
    said = repair_command._told(checkpoint.absolute().as_uri(), repair, [problem], owner)
    here = "\n".join(said).replace(out.absolute().as_uri(), "file:///data/out")
    assert here.splitlines() == [problem, *told]
    assert unchanged in inspect.getsource(repair_command)


def a_payload_among_the_errors(text: str) -> None:
    reason, row = (line.partition(":")[2].strip() for line in text.splitlines())
    assert reason == invalid_rows.NOT_JSON
    told = json.loads(row)
    assert list(told) == ["topic", "partition", "offset", "timestamp", "key", "payload"]


def a_message_of_the_pipeline_before_it(text: str) -> None:
    broken = blocks("pipelines.md", "yaml")[0].replace("{tumbling:", "{tumblin:")
    file = Path("pipeline.yaml")
    file.write_text(broken, "utf-8")
    with pytest.raises(PipelineError) as caught:
        load(file)
    beginning = text.strip().partition("…")[0]
    assert str(caught.value).startswith(beginning)


def json_lines_of_a_run(text: str) -> None:
    batch, summary = text.splitlines()
    own = {"type", "behind_seconds", *(field.name for field in fields(Batch))}
    assert json.loads(batch).keys() == own
    assert json.loads(summary.replace(", …", "")).keys() == {"type", "ended", "seconds", "queries"}


def a_snapshot(text: str) -> None:
    first, described, *rows, digest = text.splitlines()
    keys, state = (json.loads(described)[name] for name in ("keys", "state"))
    assert json.loads(described)["rows"] == len(rows)
    tables = [
        pa.table(
            {
                name: pa.array([json.loads(row)[part][place] for row in rows], kind)
                for place, (name, kind) in enumerate(columns)
            }
        )
        for part, columns in enumerate((keys, state))
    ]
    written = snapshot.encode(*tables).decode().splitlines()
    assert [*written[:-1], written[-1].split()[0]] == [first, described, *rows, digest.split()[0]]


def the_load_score(text: str) -> None:
    """What `docs/load.md` computes is what SEMANTICS says; the numbers are tested with the shedder."""
    weights = [float(number) for number in re.findall(r"(0\.\d+) · min", text)]
    assert math.isclose(sum(weights), 1.0)


#: Texts that no program above them prints: how each begins, and what is checked of it.
TEXTS_ALONE: dict[tuple[str, str], Callable[[str], None]] = {
    ("architecture.md", "rows ──pack──▶"): a_drawing,
    ("cli.md", '{"type": "batch"'): json_lines_of_a_run,
    ("deployment.md", "the executors have no tidegate"): a_message_of_executors,
    ("event-time.md", ">>> query.watermarks"): a_drawing,  # of a query that runs; test_clock has some
    ("folds.md", "tidegate snapshot 1"): a_snapshot,
    ("joins.md", "left    |  a        b"): a_drawing,
    ("joins.md", "left    |      a  "): a_drawing,
    ("joins.md", "left, gap 10"): a_drawing,
    ("joins.md", "left, tumbling 10"): a_drawing,
    ("load.md", "score = "): the_load_score,
    ("operations.md", "the checkpoint file:///data/checkpoint belongs"): a_message_of_a_checkpoint,
    ("operations.md", "the checkpoint file:///data/checkpoint has"): a_message_of_an_owner,
    ("operations.md", "$ tidegate repair"): what_a_repair_says,
    ("semantics.md", "reason: "): a_payload_among_the_errors,
    (
        "operations.md",
        "query.spark.lastProgress",
    ): a_drawing,  # of a query that runs; test_surface has one
    ("pipelines.md", "pipeline.yaml, line"): a_message_of_the_pipeline_before_it,
    ("reference.md", "TidegateError"): a_drawing,  # the page is made by a script, and compared with it
}


def texts_alone() -> Iterator[tuple[str, str]]:
    """The blocks of text that follow on no program."""
    for page, text in TEXTS.items():
        before = ""
        for language, code in FENCE.findall(text):
            if language == "text" and before not in ("python", "bash"):
                yield page, code
            before = language


@pytest.mark.parametrize(
    ("page", "text"), list(texts_alone()), ids=lambda value: value.splitlines()[0][:40]
)
def test_a_text_that_no_program_prints_is_right(page, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    checks = [
        check
        for (where, beginning), check in TEXTS_ALONE.items()
        if where == page and text.startswith(beginning)
    ]
    assert len(checks) == 1, f"{page}: no rule, or several, for the text {text.splitlines()[0]!r}"
    checks[0](text)


def test_every_rule_for_a_text_is_used():
    found = list(texts_alone())
    unused = [
        rule for rule in TEXTS_ALONE if not any(p == rule[0] and t.startswith(rule[1]) for p, t in found)
    ]
    assert unused == []


# -- languages --------------------------------------------------------------------------------------

#: What becomes of the blocks of each language.
LANGUAGES = {
    "python": "run by test_docs",
    "bash": "run by test_docs",
    "text": "what the block before prints, or a rule above",
    "sql": "run below",
    "yaml": "run below",
    "sh": "run below, except for NOT_RUN",
    "mermaid": "read below",
    "py": "a sketch, read below; in reference.md a signature, which a script writes",
    "pycon": "in reference.md: an example of a docstring, which is run there",
}


@pytest.mark.parametrize("page", TEXTS)
def test_every_block_has_a_language_with_a_rule(page):
    text = TEXTS[page]
    fences = re.findall(r"^\s*```(.*)$", text, re.MULTILINE)
    assert len(fences) == 2 * len(FENCE.findall(text)), "a fence that no test would see"
    assert {language for language, _ in FENCE.findall(text)} <= LANGUAGES.keys()
    if page != "reference.md":
        assert not blocks(page, "pycon"), "examples of docstrings are in the reference alone"


MERMAID = re.compile(
    r"""
    \s*(?:flowchart\ LR
    | (\w+)(?:\[.*?\])?(?:\s(?:-->|--\ .*?\ -->|-\.\ .*?\ \.->)\s(\w+)(?:\[.*\])?)?)\s*
    """,
    re.VERBOSE,
)


@pytest.mark.parametrize("page", pages_with("mermaid"))
def test_flowcharts_are_nodes_and_arrows(page):
    for chart in blocks(page, "mermaid"):
        assert chart.startswith("flowchart ")
        assert [line for line in chart.splitlines() if not MERMAID.fullmatch(line)] == []


# -- sketches in Python ------------------------------------------------------------------------------

HOLDERS = (
    events.Events, events.KeyedEvents, events.WindowedEvents, events.Result, events.Rows,
    events.ForwardedEvents, StatementSet, Query,
)  # fmt: skip


def dotted(node: ast.expr) -> list[str]:
    """`tg.sinks.parquet` as words; nothing for what does not begin with a name."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return [*before, node.attr] if before else []
    return [node.id] if isinstance(node, ast.Name) else []


def mistakes(code: str) -> list[str]:
    """Calls of ours that do not exist, or do not take what they are given."""
    found = []
    for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
        words, keywords = dotted(call.func), {word.arg: None for word in call.keywords if word.arg}
        if words[:1] == ["tg"]:
            candidates = [resolved(words[1:])]
        elif isinstance(call.func, ast.Attribute):
            name = call.func.attr
            candidates = [getattr(kind, name) for kind in HOLDERS if hasattr(kind, name)]
            call.args = [ast.Constant(None), *call.args] if candidates else call.args  # self
        else:
            continue
        if candidates and not any(binds(one, len(call.args), keywords) for one in candidates):
            found.append(ast.unparse(call))
    return found


def resolved(words: list[str]) -> Any:
    value: Any = tg
    for word in words:
        value = getattr(value, word, None)
    return value


def binds(function: Any, places: int, keywords: dict[str, None]) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*[None] * places, **keywords)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("page", [page for page in pages_with("py") if page != "reference.md"])
def test_sketches_call_what_there_is(page):
    assert [call for code in blocks(page, "py") for call in mistakes(code)] == []


@pytest.mark.parametrize(
    "code",
    [
        "tg.tumblin('1 s')",
        "tg.events(df, tme='ts')",
        "result.start(checkpoint='c', lateness=1) or x.agg(1)",
    ],
)
def test_a_wrong_sketch_is_found(code):
    assert mistakes(code)


# -- programs: rows for their streams, and one session for all ---------------------------------------

BEGINNING = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS = 40


def value_of(field: pa.Field, is_time: bool, number: int) -> Any:
    """Something for a column: times ten minutes apart, two names, numbers that grow."""
    time = BEGINNING + timedelta(minutes=10 * number)
    kind = field.type
    if pa.types.is_timestamp(kind):
        return time if kind.tz else time.replace(tzinfo=None)
    if is_time and pa.types.is_integer(kind):
        return round(time.timestamp() * 1000)
    if pa.types.is_string(kind):
        return time.isoformat() if is_time else ("ann", "bob")[number % 2]
    assert pa.types.is_integer(kind) or pa.types.is_floating(kind), f"no rule for rows with a {kind}"
    return number


def write_rows(stream: sql.Stream) -> None:
    """Files that the stream reads, one for each half of the rows."""
    if stream.connector != "files":
        return
    rows = [
        {field.name: value_of(field, field.name == stream.time, n) for field in stream.schema}
        for n in range(ROWS)
    ]
    folder, kind = Path(stream.options["path"]), stream.options["format"]
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate((rows[: ROWS // 2], rows[ROWS // 2 :])):
        file = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(part, stream.schema), file)
        else:
            assert kind == "json", f"no rule for rows as {kind}"
            file.write_text("".join(json.dumps(row, default=str) + "\n" for row in part), "utf-8")
        os.utime(file, (1_000_000_000 + number,) * 2)


Tidegate = Callable[..., str]


def rooted(word: str) -> str:
    """A word of a command with whole paths: the JVM of the session was started in another folder."""
    if "\n" not in word and Path(word).exists():
        return str(Path(word).absolute())
    return re.sub(r"(?<=path = ')[\w./-]+", lambda path: str(Path(path[0]).absolute()), word)


@pytest.fixture
def tidegate(spark, tmp_path, monkeypatch, capsys) -> Tidegate:
    """The command, in a folder of its own, with the session of the tests; what it prints."""

    monkeypatch.chdir(tmp_path)
    share_session(spark, monkeypatch)

    def call(*words: str) -> str:
        code = cli.main([rooted(word) for word in words])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, ""), f"tidegate {shlex.join(words)}: {printed.err}"
        return printed.out

    return call


def check_run(tidegate: Tidegate, file: Path, spark: Any) -> None:
    """Run a pipeline over all its rows: every query takes them in, and what it writes is there."""
    jobs = load(file, spark=lambda: spark)
    for stream in {one.stream.name: one.stream for job in jobs for one in job.insert.inputs}.values():
        write_rows(stream)
    lines = tidegate("run", str(file), "--once", "--json", "--checkpoint", "run.checkpoint").splitlines()
    reports = [json.loads(line) for line in lines if line.startswith('{"type"')]
    summary = reports[-1]
    assert summary["ended"] == "done"
    assert summary["queries"].keys() == {job.name for job in jobs}
    for job in jobs:
        if all(one.stream.connector == "files" for one in job.insert.inputs):
            read = len({one.stream.name for one in job.insert.inputs})
            counted = [report["rows_in"] for report in reports[:-1] if report["query"] == job.name]
            assert 0 < sum(counted) <= ROWS * read
            assert written(job.insert.sinks["main"]), f"{job.name} has written nothing"


def written(table: sql.SinkTable) -> bool:
    """Has a sink rows? Those that only show them are believed."""
    if table.connector == "duckdb":
        with duckdb.connect(table.options["path"], read_only=True) as connection:
            return bool(
                connection.execute(f'SELECT count(*) FROM "{table.options["table"]}"').fetchone()[0]
            )
    if table.connector == "files":
        return any(Path(table.options["path"]).glob("*." + table.options["format"]))
    return True


# -- SQL ---------------------------------------------------------------------------------------------


def sql_file(page: str) -> Path:
    """The program of a page, under the name that its commands call it by."""
    named = re.search(r"\btidegate \w+ (\w+\.sql)\b", "\n".join(blocks(page, "sh")))
    file = Path(named[1] if named else "program.sql")
    file.write_text("\n".join(code for code in blocks(page, "sql") if not REFUSED.match(code)), "utf-8")
    return file


@pytest.mark.spark
@pytest.mark.parametrize("page", pages_with("sql"))
def test_the_sql_of_a_page_is_a_program_that_runs(page, tidegate, spark):
    check_run(tidegate, sql_file(page), spark)


def refusals() -> Iterator[tuple[str, str, str]]:
    """Refused blocks: what stands before them on the page, the block, and part of the message."""
    for page in pages_with("sql"):
        before = ""
        for code in blocks(page, "sql"):
            if refused := REFUSED.match(code):
                yield before, code, refused[1]
            else:
                before += code


def check_refusal(before: str, code: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        sql.compile(before + "\n" + code)
    assert message in str(caught.value)


def test_refused_sql_is_refused_as_the_page_says():
    for before, code, message in refusals():
        check_refusal(before, code, message)


def test_sql_that_is_not_refused_as_marked_is_found():
    stream = (
        "CREATE STREAM c (ts TIMESTAMP, k STRING, WATERMARK FOR ts AS ts)\n"
        "WITH (connector = 'files', path = 'c', format = 'json');\n"
    )
    check_refusal(stream, "-- refused: no column 'q'\nSELECT q FROM c;", "no column 'q'")
    with pytest.raises(pytest.fail.Exception):
        check_refusal(stream, "-- refused: no column 'k'\nSELECT k FROM c;", "no column 'k'")


# -- YAML --------------------------------------------------------------------------------------------


def yaml_blocks() -> list[Any]:
    return [
        pytest.param(page, code, id=f"{page}-{number}")
        for page in TEXTS
        for number, code in enumerate(blocks(page, "yaml"))
    ]


@pytest.mark.spark
@pytest.mark.parametrize(("page", "code"), yaml_blocks())
def test_a_pipeline_on_a_page_runs(page, code, tidegate, spark, monkeypatch, request):
    given = yaml.safe_load(code)
    if not {"streams", "sinks"} <= given.keys():  # part of a file: at least its keys are known
        assert given.keys() <= Pipeline.model_fields.keys(), page
        return
    if "PG_DSN" in code:
        monkeypatch.setenv("PG_DSN", request.getfixturevalue("own_database"))
    file = Path("pipeline.yaml")
    file.write_text(code, "utf-8")
    check_run(tidegate, file, spark)


# -- commands ----------------------------------------------------------------------------------------


def shell_commands(page: Path) -> list[list[str]]:
    found = FENCE.findall(page.read_text("utf-8"))
    text = "".join(f"```sh\n{code}```\n" for language, code in found if language == "sh")
    return list(commands(text))


def prepare_folder(page: Path, called: list[list[str]]) -> None:
    """What commands of a page work on: its program with rows, the examples, or files in a question."""
    if page.parent.name == "examples":
        shutil.copytree(page.parent, "examples")
    elif blocks(page.name, "sql"):
        for job in load(sql_file(page.name)):
            for one in job.insert.inputs:
                write_rows(one.stream)
    for question in (words[2] for words in called if words[:2] == ["tidegate", "sql"]):
        for stream in sql.compile(question).streams.values():
            write_rows(stream)


def once(words: list[str]) -> list[str]:
    """A run that ends."""
    return [*words, "--once"] if words[0] == "run" and "--once" not in words else words


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [page for page in SHELL_PAGES if any(words[0] == "tidegate" for words in shell_commands(page))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_of_a_page_work(page, tidegate):
    called = shell_commands(page)
    prepare_folder(page, called)
    for command, *words in called:
        if command == "tidegate":
            assert tidegate(*once(words)) != ""


@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_are_not_run_are_known(page):
    others = [words for words in shell_commands(page) if words[0] != "tidegate"]
    assert [words for words in others if words[0] not in NOT_RUN or not is_known(words)] == []
