"""The reference: it is what `make reference` would write now, and no public name is missing from it."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tidegate
import tidegate.sql
import tidegate.testing
from scripts import reference
from tidegate.api import events
from tidegate.kernels.aggregate_registry import AGGREGATES
from tidegate.spark.query import Query

PAGE = Path(reference.__file__).parents[1] / "docs" / "reference.md"

#: Names of `tg` that are namespaces: each of their functions has an entry.
NAMESPACES = ("emit", "late", "sinks")
#: What `together` gives.
STATEMENT_SET = tidegate.StatementSet
#: What programs hold in their hands, and what the page calls it.
HELD = {
    "events": (events.Events,),
    "keyed": (events.KeyedEvents,),
    "windowed": (events.WindowedEvents,),
    "result": (events.Result, events.Rows, STATEMENT_SET),
    "query": (Query,),
    "Aggregate": (tidegate.Aggregate,),
    "generator": (tidegate.WatermarkGenerator,),
    "aligner": (tidegate.WatermarkAligner,),
    "propagator": (tidegate.WatermarkPropagator,),
}
#: Parts of plans, which are not for programs.
INTERNAL = {"upstream", "node"}


def public(owner: object) -> dict[str, object]:
    """The functions and properties that an object has, under names without an underscore."""
    found = {name: inspect.getattr_static(owner, name) for name in dir(owner) if name[0] != "_"}
    return {
        name: value
        for name, value in found.items()
        if inspect.isfunction(value) or isinstance(value, property)
    }


def exported(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):  # and not the name of a type
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            yield from ((f"{name}.{inner}", one) for inner, one in public(value).items())


def public_names() -> dict[str, object]:
    """Every name that needs an entry."""
    names = {
        f"tg.{name}": getattr(tidegate, name)
        for name in (*tidegate.__all__, *AGGREGATES)
        if name not in (*NAMESPACES, "errors")
    }
    for space in NAMESPACES:
        module = getattr(tidegate, space)
        own = {
            name: value
            for name, value in public(module).items()
            if value.__module__ == module.__name__ or module is tidegate.sinks  # those of connectors
        }
        names |= {f"tg.{space}.{name}": value for name, value in own.items()}
    for held, kinds in HELD.items():
        members = {name: one for kind in kinds for name, one in public(kind).items()}
        names |= {f"{held}.{name}": one for name, one in members.items() if name not in INTERNAL}
    return names | dict(exported(tidegate.sql)) | dict(exported(tidegate.testing))


def entries(page: str) -> dict[str, str]:
    """The text below each heading of the third level."""
    parts = re.split(r"^### (.*)$", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def complaint(name: str, value: object, entry: str | None) -> str | None:
    """What is wrong with an entry, if so."""
    doc = inspect.getdoc(value) or ""
    if entry is None:
        return f"{name} has no entry"
    if f"```py\n{name}" not in entry:
        return f"{name} has no signature"
    if not doc or doc.splitlines()[0] not in entry:
        return f"{name} has no sentence that says what it is"
    if ">>>" in doc and "```pycon\n>>> " not in entry:
        return f"{name} has an example, which is not shown"
    return None


def test_the_page_is_up_to_date():
    assert reference.page() == PAGE.read_text("utf-8"), "run `make reference`"


def test_every_public_name_has_an_entry():
    found = entries(PAGE.read_text("utf-8"))
    complaints = [complaint(name, value, found.get(name)) for name, value in public_names().items()]
    assert [one for one in complaints if one] == []


def test_events_that_have_passed_an_operator_are_events_and_results():
    both = public(events.Events).keys() | public(events.Runnable).keys()
    assert public(events.ForwardedEvents).keys() <= both


def test_every_error_is_in_the_tree():
    tree = PAGE.read_text("utf-8").split("## Errors")[1].split("## SQL")[0]
    kinds = [kind for _, kind in inspect.getmembers(tidegate.errors, inspect.isclass)]
    names = [kind.__name__ for kind in kinds if issubclass(kind, Exception)]
    assert [name for name in names if not re.search(rf"\b{name}\b", tree)] == []


def sample(column: str) -> str:
    """What it is.

    >>> sample("x")
    'x'
    """
    return column


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (None, "no entry"),
        ("What it is.", "no signature"),
        ("```py\ntg.sample(column)\n```\n", "no sentence"),
        ("```py\ntg.sample(column)\n```\nWhat it is.\n", "an example"),
        ("```py\ntg.sample(column)\n```\nWhat it is.\n```pycon\n>>> sample('x')\n```", None),
    ],
)
def test_a_thin_entry_is_noticed(entry, expected):
    found = complaint("tg.sample", sample, entry)
    assert found == expected or expected in found


def long(first: "dict[str, int]", *, second: "str" = "a, b: c", **others: "str") -> "str": ...


def test_long_signatures_have_a_line_for_each_parameter():
    name = "tg." + "x" * 80
    expected = [f"{name}(", "    first: dict[str, int],", "    *,", "    second: str = 'a, b: c',"]
    assert reference.signature(name, long).splitlines() == [*expected, "    **others: str,", ") -> str"]
