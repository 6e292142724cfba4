"""What connectors and aggregates declare, as models of pipeline files and for their JSON schema."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

from tidegate.connectors import SINKS, SOURCES, Connector, Option
from tidegate.kernels.aggregate_registry import AGGREGATES, Parameter, parameters_of

#: A duration as text; `tidegate.plan.time` reads it.
DurationText = Annotated[str, Field(examples=["250 ms", "10 seconds", "1 hour 30 minutes"])]

#: The default of what may be left out, but is not null where it is given.
_UNSET: Any = None

_TYPES: dict[str, Any] = {"integer": int, "boolean": bool, "duration": DurationText}


def sink_models(base: type[BaseModel]) -> list[type[BaseModel]]:
    """A model for each connector of sinks: every option is a key."""
    return [_sink_model(connector, base) for connector in SINKS.values()]


def _sink_model(connector: Connector, base: type[BaseModel]) -> type[BaseModel]:
    fields: dict[str, Any] = {"connector": (Literal[connector.name], ...)}
    for option in connector.options:
        kind = _type(option) if option.required or option.default is not None else _type(option) | None
        default = ... if option.required else option.default
        fields[option.name] = (kind, Field(default, description=option.meaning))
    title = f"{connector.name.title()}Sink"
    return create_model(title, __base__=base, __doc__=connector.meaning, **fields)


def stream_model(base: type[BaseModel]) -> type[BaseModel]:
    """The model of streams: the options of every connector are keys, but for those of Spark's readers.

    Which of them a connector has, and needs, is its declaration's to say.
    """
    fields: dict[str, Any] = {
        "connector": (Literal[tuple(SOURCES)], Field(..., description=_explained(SOURCES.values())))
    }
    for name, declared in _by_name(of_spark=False).items():
        kind = reduce(or_, dict.fromkeys(_type(option) for _, option in declared))
        fields[name] = (kind | None, Field(None, description=_meaning(declared)))
    return create_model("Stream", __base__=base, __doc__=base.__doc__, **fields)


def reader_options() -> dict[str, Any]:
    """What editors are told of the options that Spark's readers get."""
    named = {
        name: {"description": _meaning(declared), "type": ["string", "integer", "number", "boolean"]}
        for name, declared in _by_name(of_spark=True).items()
    }
    return {"properties": named}


def function_model(base: type[BaseModel]) -> type[BaseModel]:
    """The model of aggregates: every one is a key, as is every parameter of one."""
    kinds = {name: kind for name, kind in AGGREGATES.items() if kind.mergeable}
    fields: dict[str, Any] = {
        name: (str, Field(_UNSET, description=(kind.__doc__ or "").partition("\n")[0]))
        for name, kind in kinds.items()
    }
    taken: dict[str, dict[str, Parameter]] = {}
    for name, kind in kinds.items():
        for parameter in parameters_of(kind):
            taken.setdefault(parameter.name, {})[name] = parameter
    for name, by in taken.items():
        values = reduce(or_, dict.fromkeys(parameter.type for parameter in by.values()))
        meaning = next(iter(by.values())).meaning
        fields[name] = (values, Field(_UNSET, description=f"{', '.join(by)}: {meaning}."))
    return create_model("Function", __base__=base, __doc__=base.__doc__, **fields)


def _by_name(*, of_spark: bool) -> dict[str, list[tuple[str, Option]]]:
    """The options of streams, each with the connectors that have it."""
    found: dict[str, list[tuple[str, Option]]] = {}
    for connector in SOURCES.values():
        for option in connector.options:
            if option.of_spark is of_spark:
                found.setdefault(option.name, []).append((connector.name, option))
    return found


def _meaning(declared: list[tuple[str, Option]]) -> str:
    """What an option means: once, or for each connector where they differ."""
    meanings = {option.meaning for _, option in declared}
    names = ", ".join(name for name, _ in declared)
    if len(meanings) == 1:
        return f"{names}: {meanings.pop()}"
    return " ".join(f"{name}: {option.meaning}" for name, option in declared)


def _explained(connectors: Iterable[Connector]) -> str:
    return " ".join(f"{connector.name}: {connector.meaning}" for connector in connectors)


def _type(option: Option) -> Any:
    return Literal[option.values] if option.values else _TYPES.get(option.kind, str)
