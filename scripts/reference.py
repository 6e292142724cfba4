"""docs/reference.md, made of signatures and docstrings: `make reference`.

Names stand as programs write them (`tg.hopping`, `query.stop`), wherever they are defined.
"""

import inspect
import re
from collections.abc import Iterator
from types import FunctionType, ModuleType

import tidegate as tg
from tidegate import sql, testing
from tidegate.api import aggregates, windows
from tidegate.api.events import KeyedEvents, Result, Stream, WindowedEvents
from tidegate.connectors import MemorySink
from tidegate.dataflow import watermarks as pieces_of_watermarks
from tidegate.kernels.aggregate_registry import AGGREGATES
from tidegate.kernels.snapshot import Snapshot
from tidegate.plan.event_time import EventTimeTypes
from tidegate.spark.query import Query

INTRODUCTION = """\
# Reference

Every public name: its signature and its docstring, whose examples run with the tests.
`tg` is `import tidegate as tg`; a `Duration` is a `timedelta` or text such as `"10 seconds"`.
`make reference` writes this page: change docstrings, not the page.
"""
WIDTH = 105
#: Plans, which parts of the package hand to each other.
INTERNAL = {"upstream", "node"}
EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)

#: What programs hold in their hands; the members of each have entries of their own.
TYPES = "Events KeyedEvents WindowedEvents ForwardedEvents Result Rows StatementSet Query"

#: Names as programs write them, and what they stand for.
Entries = dict[str, object]


def areas() -> dict[str, tuple[object, Entries]]:
    """The parts of the page: whose docstring introduces them, and what they have entries for."""
    sources = chosen("events at processing_time read_folder pace local_spark event_time_types")
    own = chosen("Aggregate") | members("Aggregate", tg.Aggregate)
    return {
        "Sources": (None, sources | members("tg.event_time_types", EventTimeTypes)),
        "Events": (Stream, members("events", Stream)),
        "Events with a key": (KeyedEvents, members("keyed", KeyedEvents)),
        "Windows": (windows, functions("tg", windows)),
        "Events in windows": (WindowedEvents, members("windowed", WindowedEvents)),
        "Aggregates": (aggregates, chosen(" ".join(AGGREGATES)) | own),
        "Emission": (tg.emit, functions("tg.emit", tg.emit)),
        "Late rows": (tg.late, functions("tg.late", tg.late)),
        "Limits and fusion": (None, chosen("sla fusion")),
        "Results": (Result, members("result", Result) | chosen("together")),
        "Sinks": (tg.sinks, every_function("tg.sinks", tg.sinks) | members("memory", MemorySink)),
        "Queries": (Query, members("query", Query)),
        "Types to annotate with": (None, chosen(TYPES)),
        "Watermarks": (pieces_of_watermarks, watermarks()),
        "Snapshots": (Snapshot, chosen("read_snapshot")),
        "Errors": (tg.errors, {}),
        "SQL": (sql, exported(sql)),
        "Testing": (testing, exported(testing)),
    }


def watermarks() -> Entries:
    pieces = {
        "generator": tg.WatermarkGenerator,
        "aligner": tg.WatermarkAligner,
        "propagator": tg.WatermarkPropagator,
    }
    found: Entries = {}
    for name, piece in pieces.items():
        found |= {f"tg.{piece.__name__}": piece} | members(name, piece)
    return found


def chosen(names: str) -> Entries:
    return {f"tg.{name}": getattr(tg, name) for name in names.split()}


def functions(prefix: str, module: ModuleType) -> Entries:
    """The functions that a module defines, in their order."""
    found = every_function(prefix, module)
    return {name: one for name, one in found.items() if one.__module__ == module.__name__}


def every_function(prefix: str, module: ModuleType) -> Entries:
    """The functions of a module that has nothing but public ones, wherever they are defined."""
    return {f"{prefix}.{n}": one for n, one in vars(module).items() if isinstance(one, FunctionType)}


def exported(module: ModuleType) -> Entries:
    """The functions and classes that a module exports, each class with its members."""
    found: Entries = {}
    for name in module.__all__:
        one = getattr(module, name)
        found |= {f"{module.__name__}.{name}": one} if isinstance(one, type | FunctionType) else {}
        found |= members(name, one) if isinstance(one, type) else {}
    return found


def members(prefix: str, kind: type) -> Entries:
    """The methods and properties of a class, those of its bases first."""
    found = {name: one for base in reversed(kind.__mro__[:-1]) for name, one in vars(base).items()}
    members = {name: one for name, one in found.items() if isinstance(one, FunctionType | property)}
    return {f"{prefix}.{n}": one for n, one in members.items() if n[0] != "_" and n not in INTERNAL}


def signature(name: str, value: object) -> str:
    """A call, a property with its type, or a name alone."""
    if isinstance(value, property):
        return f"{name}: {inspect.signature(value.fget).return_annotation}"
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return name
    call = inspect.signature(value)
    given = list(parameters(call))
    back = "" if isinstance(value, type) else f" -> {call.return_annotation}"
    line = f"{name}({', '.join(given)}){back}"
    return line if len(line) <= WIDTH else f"{name}(\n    " + ",\n    ".join(given) + f",\n){back}"


def parameters(call: inspect.Signature) -> Iterator[str]:
    """Parameters as they are written, and the star before those that are given by name."""
    before = None
    for one in call.parameters.values():
        if one.kind is one.KEYWORD_ONLY and before not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            yield "*"
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "…" if repr(one.default).startswith("<") else repr(one.default)
        if one.name != "self":
            text = f"{stars}{one.name}: {one.annotation}"
            yield text if one.default is one.empty else f"{text} = {default}"
        before = one.kind


def explained(value: object) -> str:
    """A docstring as Markdown: examples, and the tree of errors, are blocks of code."""
    doc = re.sub(r"\n(\w+\n├.*)", r"\n```text\n\1\n```", inspect.getdoc(value) or "", flags=re.DOTALL)
    return EXAMPLE.sub(lambda x: f"```pycon\n{x[0].removesuffix('<BLANKLINE>').rstrip()}\n```", doc)


def page() -> str:
    """The whole page: what there is, and then everything."""
    contents, body = "", ""
    for title, (common, entries) in areas().items():
        links = [f"[{name}](#{name.replace('.', '').lower()})" for name in entries]
        contents += (
            f"- [{title}](#{title.replace(' ', '-').lower()}): {', '.join(links)}".rstrip(": ") + "\n"
        )
        body += f"\n## {title}\n" + (f"\n{explained(common)}\n" if common else "")
        for name, value in entries.items():
            body += f"\n### {name}\n\n```py\n{signature(name, value)}\n```\n\n{explained(value)}\n"
    return f"{INTRODUCTION}\n{contents}{body}"


if __name__ == "__main__":
    print(page(), end="")
