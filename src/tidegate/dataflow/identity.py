"""What stored state depends on: two plans of one identity can read each other's checkpoints."""

import hashlib
import json
from collections.abc import Iterable

import pyarrow as pa

from tidegate.dataflow.graph import Dataflow
from tidegate.plan.aggregate import Aggregate
from tidegate.plan.feeds import Derived, origin
from tidegate.plan.inlets import KeyBy
from tidegate.plan.joins import SIDES
from tidegate.plan.nodes import Join, Output
from tidegate.plan.passages import Admit, Dedupe, Reorder
from tidegate.plan.time import render

Identity = dict[str, str]

#: What the state of all operators depends on.
SHARED = ("buckets", "state format")


def identity_of(dataflow: Dataflow, buckets: int, state_format: int) -> Identity:
    """The parts of a query that its state is laid out by, each as text a person can compare.

    Tolerance and late policy are not among them: they may change between runs.
    """
    parts: Identity = {}
    for vertex in dataflow.vertices:
        place = "" if vertex.number == 0 else f" of operator {vertex.number + 1}"
        parts |= {name + place: value for name, value in _parts(vertex.operator).items()}
    return parts | {"buckets": str(buckets), "state format": str(state_format)}


def stage_identities(dataflow: Dataflow, identity: Identity) -> list[Identity]:
    """For each operator what its own state depends on."""
    shared = {name: identity[name] for name in SHARED}
    return [_parts(vertex.operator) | shared for vertex in dataflow.vertices]


def own_parts(identity: Identity, number: int) -> Identity:
    """What is written down about one operator."""
    suffix = "" if number == 1 else f" of operator {number}"
    own = {
        name.removesuffix(suffix): value
        for name, value in identity.items()
        if (name.endswith(suffix) if suffix else " of operator " not in name) and name not in SHARED
    }
    return own | {name: identity[name] for name in SHARED if name in identity}


def _parts(stage: Output) -> Identity:
    if isinstance(stage, Join):
        return _join_parts(stage)
    rows = stage.feed.schema
    keys = _keys(stage.keyed)
    if isinstance(stage, Reorder):
        return keys | {"operator": "reorder", "rows": _typed(rows, rows.names)}
    if isinstance(stage, Dedupe):
        return keys | {"operator": "dedupe", "within": render(stage.within), "ids": "keyed digests"}
    if isinstance(stage, Admit):
        return keys | {"operator": "admit", "shards": str(stage.sla.shards)}
    window, types = stage.windowed, stage.input.schema
    parts = keys | {
        "window": str(window.window),
        "allowed lateness": render(window.lateness),
        "aggregates": ", ".join(
            f"{name}={_registered(agg)}: {types.field(name).type}"
            for name, agg in stage.input.aggregates
        ),
        "emission": str(stage.emission),
    }
    return parts | ({"rows": _typed(rows, rows.names)} if stage.by_row else {})


def _join_parts(join: Join) -> Identity:
    parts = {"operator": "join", "how": join.how, "match": join.match, "where": str(join.where)}
    if join.strict_keys:
        parts["null matches nothing in"] = ", ".join(join.strict_keys)
    for name, side in zip(SIDES, join.sides, strict=True):
        own = _keys(side.input) | {
            "window": str(side.window),
            "allowed lateness": render(side.lateness),
            "rows": _typed(side.schema, side.schema.names),
        }
        parts |= {f"{part} on the {name}": value for part, value in own.items()}
    return parts


def _registered(aggregate: Aggregate) -> str:
    """An aggregate by its text; one of the user's by its class too, as its text may equal one of ours.

    Modules are left out: a class may move, and a program may be a script today and a package tomorrow.
    """
    ours = type(aggregate).__module__.partition(".")[0] == __name__.partition(".")[0]
    return str(aggregate) if ours else f"{type(aggregate).__qualname__} {aggregate}"


def _keys(keyed: KeyBy) -> Identity:
    keys = {"keys": _typed(keyed.schema, keyed.keys) or "global"}
    return keys | ({"time": keyed.input.time} if isinstance(origin(keyed.input), Derived) else {})


def _typed(schema: pa.Schema, names: Iterable[str]) -> str:
    return ", ".join(f"{name}: {schema.field(name).type}" for name in names)


def title_of(number: int, own: Identity) -> str:
    """What a user would call an operator: its number, its window or kind, and its keys."""
    what = own.get("window") or own["operator"]
    keys = own.get("keys") or own[f"keys on the {SIDES[0]}"]
    names = ", ".join(key.partition(": ")[0] for key in keys.split(", "))
    return f"operator {number}, {what}" + ("" if keys == "global" else f" by {names}")


def fingerprint(identity: Identity) -> str:
    """The identity in sixteen letters, kept in every bucket's manifest."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
