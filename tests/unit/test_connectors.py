"""Connectors: what they declare is what SQL, pipeline files, functions and the docs say."""

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import tidegate as tg
from scripts import connectors as script
from tidegate.connectors import SINKS, SOURCES, FileSink
from tidegate.connectors.declaration import Option, SinkConnector, SourceConnector, declare
from tidegate.errors import PlanError
from tidegate.pipeline.model import BaseStream
from tidegate.spark.sources.declared import Reading, read

DOCS = Path(script.__file__).parents[1] / "docs"
EVERY_CONNECTOR = pytest.mark.parametrize(
    "connector", [*SOURCES.values(), *SINKS.values()], ids=lambda one: f"{type(one).__name__} {one.name}"
)
EVERY_SINK = pytest.mark.parametrize("connector", SINKS.values(), ids=lambda one: one.name)


def test_the_page_is_up_to_date():
    assert script.page() == (DOCS / "connectors.md").read_text("utf-8"), "run `make reference`"


def test_every_function_for_sinks_is_in_the_table_of_operations():
    text = (DOCS / "operations.md").read_text("utf-8")
    named = re.findall(r"tg\.sinks\.(\w+)\(", text.split("## Sinks")[1].split("## Files")[0])
    functions = {name for name, _ in inspect.getmembers(tg.sinks, inspect.isfunction)}
    assert set(named) == functions


@EVERY_CONNECTOR
def test_what_is_declared_is_said_in_a_sentence(connector):
    sentences = [connector.meaning, *(option.meaning for option in connector.options)]
    assert [one for one in sentences if not re.fullmatch(r"[A-Z].*[.?]", one)] == []


@EVERY_CONNECTOR
def test_an_option_is_declared_once_and_required_or_with_a_default(connector):
    names = [option.name for option in connector.options]
    assert len(names) == len(set(names))
    assert [o.name for o in connector.options if o.required and o.default is not None] == []


@EVERY_SINK
def test_options_are_what_makes_the_sink(connector):
    taken = inspect.signature(connector.make).parameters
    empty = inspect.Parameter.empty
    declared = {o.name: empty if o.required else o.default for o in connector.options}
    assert {name: parameter.default for name, parameter in taken.items()} == declared


@pytest.mark.parametrize("connector", SOURCES.values(), ids=lambda one: one.name)
def test_a_reader_is_there(connector):
    module, _, name = connector.reader.partition(":")
    assert callable(getattr(import_module(module), name))


def test_options_become_a_sink():
    assert SINKS["console"].sink({"limit": "5"}) == tg.sinks.console(limit=5)
    assert SINKS["console"].sink({}) == tg.sinks.console()
    assert SINKS["files"].sink({"path": "a", "format": "json"}) == tg.sinks.json("a")
    assert isinstance(SINKS["files"].sink({"path": "a", "format": "parquet"}), FileSink)


@pytest.mark.parametrize(
    ("connector", "options", "message"),
    [
        (SINKS["console"], {"limit": "x"}, "connector 'console': 'limit' is a whole number, not 'x'"),
        (SINKS["files"], {"path": "a"}, "connector 'files' needs the option 'format'"),
        (
            SINKS["files"],
            {"path": "a", "format": "csv"},
            "connector 'files' has no format 'csv'; available: 'parquet', 'json'",
        ),
        (
            SINKS["duckdb"],
            {"path": "a", "tabel": "b"},
            "connector 'duckdb' has no option 'tabel'; did you mean 'table'? available: 'path', 'table'",
        ),
    ],
)
def test_a_sink_refuses_what_it_cannot_have(connector, options, message):
    with pytest.raises(PlanError) as raised:
        connector.sink(options)
    assert str(raised.value) == message


def test_values_are_checked_where_they_are_declared():
    flag = Option("header", "Is there one?", "boolean")
    assert (flag.typed("x", "TRUE"), flag.typed("x", "false")) == (True, False)
    with pytest.raises(PlanError, match="connector 'x': 'header' is 'true' or 'false', not 'yes'"):
        flag.typed("x", "yes")
    with pytest.raises(PlanError, match="pace"):
        Option("pace", "How long.", "duration").check("x", "soon")


@pytest.mark.parametrize("connector", SOURCES.values(), ids=lambda one: one.name)
def test_an_option_of_ours_is_no_other_key_of_a_stream(connector):
    ours = {option.name for option in connector.options if not option.of_spark}
    assert ours & set(BaseStream.model_fields) == set()


class SparkOfTests:
    """Stands for a session and its reader: tells what is asked of it."""

    def __init__(self):
        self.asked = []

    @property
    def readStream(self):
        return self

    def __getattr__(self, name):
        def ask(*given, **options):
            self.asked.append((name, *given, options))
            return self

        return ask


def test_spark_reads_what_it_knows_by_name():
    spark, schema = SparkOfTests(), SOURCES["rate"].columns
    assert read(Reading(spark, "rate", schema, {"rowsPerSecond": "5"})) is spark
    assert spark.asked == [("options", {"rowsPerSecond": "5"}), ("format", "rate", {}), ("load", {})]


def test_options_of_ours_stay_with_us():
    options = {"kafka.x": "1", "subscribe": "a", "format": "json", "invalid_fields": "null"}
    assert SOURCES["kafka"].for_spark(options) == {"kafka.x": "1", "subscribe": "a"}


def test_further_options_pass_by_their_prefix():
    kafka = SOURCES["kafka"]
    kafka.check("kafka.security.protocol", "SSL")
    with pytest.raises(PlanError, match=r"connector 'kafka' has no option 'security\.protocol'"):
        kafka.check("security.protocol", "SSL")


@pytest.mark.parametrize(
    "twice",
    [
        SourceConnector(name="rate", meaning="Again."),
        SinkConnector(name="discard", meaning="A.", make=list),
    ],
    ids=["source", "sink"],
)
def test_a_name_is_declared_once(twice):
    with pytest.raises(AssertionError, match="is declared twice"):
        declare(twice)
