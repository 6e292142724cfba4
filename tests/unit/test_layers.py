"""Imports inside tidegate go down only, and heavy libraries stay in the folder that owns them."""

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import ismodule
from pathlib import Path

import pytest

import tidegate
from tidegate import testing

# Low to high: a module may import from its own row and from the rows above it in this list.
LAYERS = (
    {"errors"},
    {"plan"},
    {"optimize"},
    {"dataflow"},
    {"columnar"},
    {"state"},
    {"kernels"},
    {"observe"},
    {"connectors"},
    {"spark"},
    {"sql"},
    {"api"},
    {"__init__"},
    {"pipeline"},
    {"cli", "demo", "__main__"},
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

# Beside the layers: nothing in the package imports it, and it needs little.
TESTING = "testing"
TESTING_MAY_IMPORT = {
    "errors",
    "plan",
    "dataflow",
    "columnar",
    "state",
    "kernels",
    "optimize",
    "sql",
    "pipeline",
    TESTING,
}

OWNERS = {"pyspark": {"spark", "demo"}, "pydantic": {"pipeline"}}

# The JVM behind a classic session is known where such sessions are made, and nowhere else.
KNOWS_THE_JVM = "spark/classic.py"
CLASSIC = {"SparkContext", "py4j"}
OF_THE_JVM = {"_jvm", "_jdf", "_jsparkSession", "_jsc", "_sc", "_jsq", "_gateway", "sparkContext"}


def imported_names(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import, relative ones resolved against `package`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else ()
                stem = ".".join((*base, *([module] if module else [])))
                # `from tidegate import plan` names a layer only together with its last part.
                yield from ((node.lineno, f"{stem}.{alias.name}") for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def part_of(name: str, parts: set[str]) -> str:
    """The part of tidegate a dotted name belongs to; a plain public name belongs to the root."""
    _, *inner = name.split(".")
    return inner[0] if inner and inner[0] in parts else "__init__"


def complaint(importer: str, name: str, parts: set[str]) -> str | None:
    """Why `importer` may not import `name`, if so."""
    library = name.partition(".")[0]
    if library in OWNERS and importer not in OWNERS[library]:
        return f"{library} belongs to {' and '.join(sorted(OWNERS[library]))}"
    if library != "tidegate":
        return None
    imported = part_of(name, parts)
    if importer == TESTING:
        allowed = imported in TESTING_MAY_IMPORT
    else:
        allowed = imported != TESTING and RANK[imported] <= RANK[importer]
    return None if allowed else f"{importer} may not import {imported}"


def uses_of_the_jvm(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of what only a classic session has, however it is asked for."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(attr=name)
                | ast.Name(id=name)
                | ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_])
            ) if name in OF_THE_JVM | CLASSIC:
                yield node.lineno, name
    for line, name in imported_names(tree, ()):
        yield from ((line, part) for part in name.split(".") if part in CLASSIC)


def classic_sessions(root: Path) -> list[str]:
    """One line for each use of the JVM below `root`, but where it is allowed."""
    files = (file for file in sorted(root.rglob("*.py")) if file != root / KNOWS_THE_JVM)
    return [
        f"{file.relative_to(root).as_posix()}:{line}: {name} belongs to {KNOWS_THE_JVM}"
        for file in files
        for line, name in uses_of_the_jvm(ast.parse(file.read_text("utf-8")))
    ]


def violations(root: Path) -> list[str]:
    """One line for each forbidden import below `root`, the folder of the package tidegate."""
    files = sorted(root.rglob("*.py"))
    parts = {file.relative_to(root).with_suffix("").parts[0] for file in files}
    if unknown := sorted(parts - RANK.keys() - {TESTING}):
        return [f"{part}: in no layer, add it to LAYERS" for part in unknown]
    found = []
    for file in files:
        inner = file.relative_to(root)
        importer = inner.with_suffix("").parts[0]
        package = ("tidegate", *inner.parent.parts)
        for line, name in imported_names(ast.parse(file.read_text("utf-8")), package):
            if reason := complaint(importer, name, parts):
                found.append(f"{inner.as_posix()}:{line}: {reason}")
    return found


def test_imports_go_down_only():
    assert violations(Path(tidegate.__file__).parent) == []


def test_only_one_module_knows_the_jvm():
    assert classic_sessions(Path(tidegate.__file__).parent) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("spark/query.py", "spark._jvm.java.lang.Thread.sleep(1)", ["_jvm"]),
        ("spark/query.py", "x = getattr(spark, '_jvm', None)", ["_jvm"]),
        ("spark/query.py", "frame._jdf.queryExecution()", ["_jdf"]),
        ("spark/query.py", "spark.sparkContext.setJobGroup('a', 'b')", ["sparkContext"]),
        ("spark/query.py", "from pyspark import SparkContext", ["SparkContext"]),
        ("demo.py", "def f():\n from py4j.protocol import Py4JError", ["py4j"]),
        ("demo.py", "import py4j.java_gateway as g", ["py4j"]),
        ("spark/query.py", "text = 'py4j.protocol.Py4JJavaError'  # _jvm", []),
        ("spark/classic.py", "import py4j\nspark._jvm", []),
    ],
)
def test_a_use_of_the_jvm_is_caught(tmp_path, path, text, expected):
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, "utf-8")
    line = text.count("\n") + 1
    assert classic_sessions(tmp_path) == [
        f"{path}:{line}: {name} belongs to {KNOWS_THE_JVM}" for name in expected
    ]


@pytest.fixture
def tree(tmp_path):
    """A made-up package that keeps the rules; the function it gives writes one more file."""

    def write(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return tmp_path

    write("__init__.py", "from tidegate.api.stream import events\n")
    write("errors.py", "class TidegateError(Exception): ...\n")
    write("plan/__init__.py", "from tidegate import errors\nfrom . import nodes\n")
    write("plan/nodes.py", "from ..errors import TidegateError\nimport tidegate.plan\n")
    write("kernels/windows/store.py", "import polars\nfrom tidegate.plan import nodes\n")
    write("spark/lower.py", "from pyspark.sql import DataFrame\nimport tidegate.kernels\n")
    write("sql/parse.py", "from tidegate.plan.nodes import Window\n")
    write("api/stream.py", "from tidegate.spark import lower\n")
    write("testing/table.py", "from tidegate.kernels import windows\nfrom . import oracle\n")
    write("pipeline/load.py", "from tidegate.api import stream\nfrom tidegate.sql import parse\n")
    write("cli.py", "import tidegate as tg\nfrom tidegate import demo, events\n")
    write("demo.py", "import pyspark\nfrom tidegate import events\n")
    return write


def test_a_tree_that_keeps_the_rules_has_no_violations(tree):
    assert violations(tree("observe/metrics.py", "import rich\n")) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("plan/bad.py", "import tidegate.spark.lower", "plan may not import spark"),
        ("plan/bad.py", "from tidegate import kernels", "plan may not import kernels"),
        ("plan/bad.py", "from .. import api", "plan may not import api"),
        ("plan/bad.py", "from ..kernels.folds import store", "plan may not import kernels"),
        ("plan/bad.py", "from tidegate import events", "plan may not import __init__"),
        ("plan/bad.py", "import tidegate as tg", "plan may not import __init__"),
        ("plan/deep/bad.py", "from ...sql import parse", "plan may not import sql"),
        ("plan/__init__.py", "from ..sql import parse", "plan may not import sql"),
        ("errors.py", "from .plan import nodes", "errors may not import plan"),
        ("spark/bad.py", "from tidegate.sql import parse", "spark may not import sql"),
        ("api/bad.py", "from tidegate import cli", "api may not import cli"),
        ("api/bad.py", "from tidegate.pipeline import load", "api may not import pipeline"),
        ("pipeline/bad.py", "from tidegate import cli", "pipeline may not import cli"),
        ("pipeline/bad.py", "import pyspark", "pyspark belongs to demo and spark"),
        ("testing/bad.py", "from tidegate.spark import lower", "testing may not import spark"),
        ("api/bad.py", "from tidegate.testing import table", "api may not import testing"),
        ("cli.py", "import tidegate.testing", "cli may not import testing"),
        ("api/bad.py", "from pyspark.sql import Row", "pyspark belongs to demo and spark"),
        ("api/bad.py", "def f():\n import pyspark", "pyspark belongs to demo and spark"),
        ("api/bad.py", "import importlib as i\ni.import_module('pyspark.sql')", "pyspark belongs"),
        ("cli.py", "import pydantic.fields", "pydantic belongs to pipeline"),
        ("utils.py", "", "utils: in no layer, add it to LAYERS"),
    ],
)
def test_a_violation_is_caught(tree, path, text, expected):
    [found] = violations(tree(path, text))
    assert expected in found
    assert path.removesuffix(".py") in found


#: The modules that say what plans are made of.
NODES = ("sources", "inputs", "joins", "nodes", "operator", "pass_through", "windowed_aggregates")


def kinds_of_nodes() -> set[str]:
    """The classes of plan nodes, and what stands for several of them."""
    modules = [import_module(f"tidegate.plan.{name}") for name in NODES]
    classes = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    named = {one.__name__ for one in classes if hasattr(one, "children") or hasattr(one, "with_inputs")}
    return named | {"Upstream", "Node", "AnyOperator", "Plan"}


def questions_of_kind(root: Path, kinds: set[str]) -> list[str]:
    """Where somebody asks of which class a plan node is, instead of asking the node."""
    found = []
    for file in sorted(root.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        imports = (one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom))
        plans = [one for one in imports if (one.module or "").startswith("tidegate.plan")]
        nodes = {
            alias.asname or alias.name for one in plans for alias in one.names if alias.name in kinds
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked]):
                    pass
                case ast.MatchClass(cls=asked):
                    pass
                case _:
                    continue
            names = {one.id for one in ast.walk(asked) if isinstance(one, ast.Name)}
            inner = file.relative_to(root)
            found += [f"{inner.as_posix()}:{asked.lineno}: {name}" for name in sorted(names & nodes)]
    return found


def test_plan_nodes_answer_for_themselves():
    """Nobody asks of which class one is: a new operator would have to be added there."""
    kinds = kinds_of_nodes()
    assert {
        "Source",
        "Stepped",
        "KeyBy",
        "WindowBy",
        "WindowedAggregate",
        "Join",
        "Dedupe",
        "Together",
    } <= kinds
    assert questions_of_kind(Path(tidegate.__file__).parent, kinds) == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("isinstance(plan, WindowedAggregate)", ["WindowedAggregate"]),
        ("isinstance(plan, (WindowedAggregate, Join))", ["Join", "WindowedAggregate"]),
        ("isinstance(plan, Join | WindowedAggregate)", ["Join", "WindowedAggregate"]),
        ("match plan:\n    case WindowedAggregate(input=rows): ...", ["WindowedAggregate"]),
        ("isinstance(plan, dict)", []),
        ("plan = WindowedAggregate(plan)", []),
    ],
)
def test_a_question_of_kind_is_caught(tree, text, names):
    root = tree("spark/bad.py", f"from tidegate.plan.nodes import WindowedAggregate, Join\n{text}\n")
    found = questions_of_kind(root, {"WindowedAggregate", "Join"})
    assert [line.rpartition(" ")[2] for line in found] == names


def test_public_names_are_sorted_and_exist():
    assert list(tidegate.__all__) == sorted(set(tidegate.__all__))
    assert [name for name in tidegate.__all__ if not hasattr(tidegate, name)] == []


def test_public_names_of_the_testing_kit_are_sorted_and_exist():
    assert list(testing.__all__) == sorted(set(testing.__all__))
    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []
    defined = {name for name, value in vars(testing).items() if not (name[0] == "_" or ismodule(value))}
    assert defined == set(testing.__all__)
