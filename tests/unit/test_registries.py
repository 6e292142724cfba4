"""What a connector and an aggregate cost: a module or a class, and a line in a registry."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tests.support.samples import sample
from tests.support.time_limits import HANG
from tidegate import sql
from tidegate.errors import SqlError
from tidegate.kernels.aggregate_registry import AGGREGATES, SQL_CALLS, parameters_of

PACKAGE = Path(tidegate.__file__).parent

# -- what is registered ----------------------------------------------------------------------------

EVERY_AGGREGATE = pytest.mark.parametrize("name", AGGREGATES)


@EVERY_AGGREGATE
def test_plans_and_programs_have_one_name_for_an_aggregate(name):
    assert sample(AGGREGATES[name], "column").name == name
    assert getattr(tidegate, name) is AGGREGATES[name]
    assert name in dir(tidegate)


def test_a_name_of_sql_stands_for_one_aggregate():
    names = [n for kind in AGGREGATES.values() for call in kind.sql for n in call.names]
    assert sorted(names) == sorted(SQL_CALLS)


def test_a_parameter_is_not_called_like_an_aggregate():
    parameters = {one.name for kind in AGGREGATES.values() for one in parameters_of(kind)}
    assert parameters == {"population", "q"}
    assert parameters & AGGREGATES.keys() == set()


def test_an_unknown_name_is_no_aggregate():
    with pytest.raises(AttributeError, match="module 'tidegate' has no attribute 'summ'"):
        tidegate.summ  # noqa: B018


CLICKS = """
CREATE STREAM clicks (ts TIMESTAMP, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
SELECT window_start, window_end, {call} AS x FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("percentile(price, 0.5)", "quantile(price, q=0.5)"),
        ("percentile_approx(price, 1)", "quantile(price, q=1.0)"),
        ("var_samp(price)", "var(price)"),
        ("std(price)", "stddev(price)"),
        ("stddev_pop(price)", "stddev(price, population=True)"),
        ("first_value(price)", "first(price)"),
        ("array_agg(price)", "collect(price)"),
    ],
)
def test_sql_has_names_of_its_own(call, expected):
    [query] = sql.compile(CLICKS.format(call=call)).selects
    assert [str(aggregate) for _, aggregate in query.plan.aggregates] == [expected]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("percentile(price)", "percentile takes a column and a number between 0 and 1, such as 0.99"),
        (
            "approx_percentile(price, ts)",
            "approx_percentile takes a column and a number between 0 and 1",
        ),
        ("percentile(price, 0.5, 1)", "percentile takes a column and a number between 0 and 1"),
        ("percentile(price, 2)", "quantile of 'column': q must lie between 0 and 1, got 2.0"),
        ("var_pop(price, 1)", "var_pop(price, 1) takes one argument here, a column or an expression"),
    ],
)
def test_sql_refuses_other_arguments(call, message):
    with pytest.raises(SqlError) as raised:
        sql.compile(CLICKS.format(call=call))
    assert message in str(raised.value)


# -- one more of each ------------------------------------------------------------------------------

LINES = '''
"""Rows as lines of text."""

from dataclasses import dataclass

from tidegate.connectors.declaration import Option, SinkConnector, SourceConnector, declare

__all__ = ["lines"]


@dataclass(frozen=True)
class LinesSink:
    path: str
    separator: str

    def prepare(self, target):
        def write(rows, batch_id):
            with open(self.path, "a") as file:
                for row in rows:
                    print(self.separator.join(str(row[name]) for name in target.schema.names), file=file)

        return write


def lines(path: str, separator: str = ",") -> LinesSink:
    """Lines of text."""
    return LinesSink(path, separator)


OPTIONS = (
    Option("path", "The file.", "path", required=True),
    Option("separator", "What separates fields.", default=","),
)
declare(SinkConnector(name="lines", meaning="Lines of text.", options=OPTIONS, make=lines))
declare(SourceConnector(name="lines", meaning="Lines of text.", options=OPTIONS))
'''

SPREAD = '''

class Spread(OfColumn):
    """The largest value minus the smallest."""

    sql = (SqlCall(("spread", "value_range")),)

    def __init__(self, column: str, scale: float) -> None:
        super().__init__(column)
        self.scale = scale

    meanings = {"scale": "a number"}

    def parameters(self):
        return {"scale": self.scale}

    def output_type(self, column_type):
        return column_type

    def partial(self, value, time):
        return {"low": value.min(), "high": value.max()}

    def merge(self, state):
        return {"low": state["low"].min(), "high": state["high"].max()}

    def finish(self, state):
        return (state["high"] - state["low"]) * self.scale
'''

PIPELINE = """
streams:
  clicks:
    connector: lines
    path: clicks
    separator: ";"
    columns: {ts: timestamp, price: double}
    eventtime: {column: ts}
query:
  from: clicks
  operators:
    - window: {tumbling: 1 min}
      aggregates: {x: {spread: price, scale: 2.0}}
sinks:
  main: {connector: lines, path: out, separator: "|"}
checkpoint: checkpoint
"""

PROGRAM = """
CREATE STREAM clicks (ts TIMESTAMP, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'lines', path = 'clicks', separator = ';');
CREATE SINK out WITH (connector = 'lines', path = 'out', separator = '|');
INSERT INTO out SELECT window_start, window_end, spread(price, 2.0) AS x
FROM clicks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
"""

#: Uses the two from Python, SQL and YAML, and says what comes of it.
USES = """
import json, sys
from pathlib import Path

import pyarrow as pa

import tidegate as tg
from tidegate.connectors import Target
from tidegate.errors import PlanError
from tidegate.pipeline.load import load
from tidegate.pipeline.schema import schema_text
from tidegate.pipeline.sinks import sink_of
from tidegate.sql import compile

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64())])
folder = Path(sys.argv[1])
said = {"python": [str(tg.spread("price", 2.0)), repr(tg.sinks.lines("out", "|"))]}
for name in ("p.sql", "p.yaml"):
    [job] = load(folder / name)
    [(_, aggregate)] = job.insert.plan.aggregates
    table = job.insert.sinks["main"]
    write = sink_of(table).prepare(Target("q", "main", SCHEMA))
    write([{"x": 1, "y": 2}], 0)
    [given] = job.insert.inputs
    said[name] = [str(aggregate), given.stream.connector, dict(given.stream.options)]
said["written"] = (folder / "out").read_text()

def refused(name, old, new):
    text = (folder / name).read_text()
    assert old in text
    (folder / f"wrong_{name}").write_text(text.replace(old, new))
    try:
        load(folder / f"wrong_{name}")
    except PlanError as error:
        return str(error)

said["refused"] = [
    refused("p.sql", "separator = '|'", "seperator = '|'"),
    refused("p.sql", "spread(price, 2.0)", "spread(price)"),
    refused("p.yaml", 'out, separator: "|"', 'out, seperator: "|"'),
    refused("p.yaml", ", scale: 2.0", ""),
]
schema = json.loads(schema_text())["$defs"]
functions = schema["Function"]["properties"]
said["schema"] = [schema["LinesSink"]["required"], functions["spread"], functions["scale"]]
print(json.dumps(said))
"""


def append(file: Path, text: str) -> None:
    file.write_text(file.read_text("utf-8") + text, "utf-8")


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What programs say in a copy of the package that has a connector and an aggregate more."""
    folder = tmp_path_factory.mktemp("copy")
    package = folder / "tidegate"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "connectors" / "lines.py").write_text(LINES, "utf-8")
    append(package / "connectors" / "registry.py", "from tidegate.connectors.lines import *\n")
    append(package / "kernels" / "aggregates.py", SPREAD)
    append(package / "kernels" / "public_aggregates.py", "spread = _a.Spread\n")
    (folder / "p.sql").write_text(PROGRAM)
    (folder / "p.yaml").write_text(PIPELINE)
    done = subprocess.run(
        [sys.executable, "-c", USES, str(folder)],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"folder": str(folder)}


def test_one_more_of_each_is_known_to_python(said):
    assert said["python"] == ["spread(price, scale=2.0)", "LinesSink(path='out', separator='|')"]


@pytest.mark.parametrize("file", ["p.sql", "p.yaml"])
def test_one_more_of_each_is_known_to_sql_and_yaml(said, file):
    options = {"path": f"{said['folder']}/clicks", "separator": ";"}
    assert said[file] == ["spread(price, scale=2.0)", "lines", options]


def test_one_more_sink_is_written(said):
    assert said["written"] == "1|2\n" * 2


def test_mistakes_in_one_more_of_each_are_told(said):
    option, arguments, key, parameter = said["refused"]
    assert "connector 'lines' has no option 'seperator'; did you mean 'separator'?" in option
    assert "spread takes a column and a number" in arguments
    assert "unknown key 'seperator'; did you mean 'separator'?" in key
    assert "spread needs scale, a number" in parameter


def test_one_more_of_each_is_in_the_schema(said):
    required, spread, scale = said["schema"]
    assert required == ["connector", "path"]
    assert spread["description"] == "The largest value minus the smallest."
    assert (scale["type"], scale["description"]) == ("number", "spread: a number.")
