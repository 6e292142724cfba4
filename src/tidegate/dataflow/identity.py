"""What stored state depends on, part by part: two programs that differ in no part share a checkpoint.

Operators are matched by the names that checkpoints know them by, aggregates by those of their results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.dataflow.graph import Dataflow
from tidegate.errors import StateError
from tidegate.plan.identity import Values, read_back
from tidegate.plan.joins import SIDES
from tidegate.plan.time import render
from tidegate.plan.windows import Window

#: The part of an operator that may change between two starts.
SETTINGS = "settings"


@dataclass(frozen=True)
class Identity:
    """A program as its checkpoint knows it. Durations are microseconds."""

    buckets: int
    state_format: int
    #: What each operator says of itself, by its name, each after those it reads.
    operators: Mapping[str, Values]

    def own(self, operator: str) -> Values:
        """What the state of one operator depends on."""
        parts = {name: part for name, part in self.operators[operator].items() if name != SETTINGS}
        shared = {"buckets": self.buckets, "state_format": self.state_format}
        return {"operator": operator, **parts, **shared}

    def title(self, operator: str) -> str:
        """What messages call it: its number, its window or kind, and its keys."""
        number = list(self.operators).index(operator) + 1
        own = self.operators[operator]
        first, *_ = own["inputs"].values()
        window, keys = window_of(own), [key["name"] for key in first["keys"]]
        by = f" by {', '.join(keys)}" if keys else ""
        return f"operator {number}, {window or own['kind']}{by}"


def identity_of(dataflow: Dataflow, buckets: int, state_format: int) -> Identity:
    operators = {vertex.id: vertex.identity for vertex in dataflow.vertices}
    return Identity(buckets, state_format, operators)


def fingerprint(own: Values) -> str:
    """What the state of an operator depends on, in sixteen letters, for each bucket's directory."""
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]


def window_of(own: Values) -> Window | None:
    """The window of an operator with aggregates, as it is written down; None of other operators."""
    if "aggregates" not in own:
        return None
    [rows] = own["inputs"].values()
    window = read_back(rows["window"])
    if not isinstance(window, Window):
        raise StateError(f"this version of tidegate knows no window {json.dumps(rows['window'])}")
    return window


# -- two programs compared --------------------------------------------------------------------------

#: The names that lead to a part of an operator: `("emission",)`, `("inputs", "left", "window")`.
Path = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A part in which two programs differ; None stands for what is missing."""

    #: None if it is about the whole query.
    operator: str | None
    part: Path
    before: Any
    after: Any

    @property
    def binds(self) -> bool:
        """Does stored state depend on it?"""
        return self.part[0] != SETTINGS

    def __str__(self) -> str:
        where = "" if self.operator is None else f"{self.operator}, "
        before, after = (in_words(self.part, value) for value in (self.before, self.after))
        return f"{where}{path_in_words(self.part)}: stored {before!r}, now {after!r}"


def differences(before: Identity, after: Identity) -> list[Difference]:
    """The parts in which a program differs from the one that a checkpoint was written by."""
    found = []
    for operator in {**before.operators, **after.operators}:
        one, other = before.operators.get(operator), after.operators.get(operator)
        if one is None or other is None:
            kinds = (None if own is None else own["kind"] for own in (one, other))
            found.append(Difference(operator, ("kind",), *kinds))
        else:
            found += [Difference(operator, *unequal) for unequal in _unequal(one, other)]
    shared = ("buckets", "state_format")
    values = ((name, getattr(before, name), getattr(after, name)) for name in shared)
    return found + [Difference(None, (name,), *two) for name, *two in values if two[0] != two[1]]


def _unequal(before: Values, after: Values) -> Iterator[tuple[Path, Any, Any]]:
    one, other = dict(_parts(before)), dict(_parts(after))
    for path in {**one, **other}:
        if one.get(path) != other.get(path):
            yield path, one.get(path), other.get(path)
    names, others = ([part["name"] for part in own.get("aggregates", ())] for own in (before, after))
    kept, now = [n for n in names if n in others], [n for n in others if n in names]
    if kept != now:  # columns of state are in the order of the aggregates
        yield ("aggregates",), kept, now


def _parts(own: Values) -> Iterator[tuple[Path, Any]]:
    """The parts of an operator: those of each input, and each aggregate, by their names."""
    for name, part in own.items():
        if name == "inputs":
            yield from (((name, k, n), v) for k, parts in part.items() for n, v in parts.items())
        elif name == "aggregates":
            yield from (((name, one["name"]), one) for one in part)
        elif name == SETTINGS:
            yield from (((name, *path), value) for path, value in _parts(part))
        else:
            yield (name,), part


# -- in words ---------------------------------------------------------------------------------------

_DURATIONS = ("allowed_lateness", "within")
_WORDS = {"strict_keys": "keys in which null equals nothing"}


def lines(own: Values) -> list[str]:
    """An operator as `tidegate state` shows it, a line for each part."""
    apart = ("operator", "aggregates", "buckets", "state_format")
    parts = [(path, value) for path, value in _parts(own) if path[0] not in apart]
    shown = [f"{path_in_words(path)}: {in_words(path, value)}" for path, value in parts]
    aggregates = (f"{one['name']}={_aggregate(one)}" for one in own.get("aggregates", ()))
    return shown + ([f"aggregates: {', '.join(aggregates)}"] if "aggregates" in own else [])


def path_in_words(path: Path) -> str:
    """What users call a part: `window on the left`, `'spend' among the aggregates`."""
    match path:
        case ("inputs", side, name) if side in SIDES:
            return f"{path_in_words((name,))} on the {side}"
        case ("aggregates", name):
            return f"{name!r} among the aggregates"
        case (*_, name):
            return _WORDS.get(name, name.replace("_", " "))
    raise AssertionError("a part has a name")


def in_words(path: Path, value: Any) -> str:
    """What a part says, as plans and messages write it."""
    match value:
        case None:
            return "nothing"
        case int() if path[-1] in _DURATIONS:
            return render(value)
        case {"aggregate": _}:
            return _aggregate(value)
        case {"kind": _}:
            return str(read_back(value) or json.dumps(value))
        case []:
            return "global" if path[-1] == "keys" else "none"
        case [{"name": _, "type": _}, *_]:
            return ", ".join(f"{one['name']}: {one['type']}" for one in value)
        case [*names]:
            return ", ".join(map(str, names))
    return str(value)


def _aggregate(one: Values) -> str:
    shown = [one["column"] or "*", *(f"{name}={value}" for name, value in one["arguments"].items())]
    return f"{one['aggregate']}({', '.join(shown)}): {one['type']}"
