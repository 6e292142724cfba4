"""What a connector declares of itself, once: SQL, pipeline files, Python and the docs all read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pyarrow as pa

from tidegate.connectors.sinks import Sink
from tidegate.errors import PlanError, did_you_mean
from tidegate.plan.time import micros

#: What the text of an option means. Paths start where the pipeline file is; secrets are never shown.
Kind = Literal["text", "integer", "boolean", "duration", "path", "secret"]

#: Streams and sinks by the names of their connectors. `tidegate.connectors.registry` fills them.
SOURCES: dict[str, SourceConnector] = {}
SINKS: dict[str, SinkConnector] = {}


@dataclass(frozen=True)
class Option:
    """One option of a connector; `meaning` is a sentence for editors and for the docs."""

    name: str
    meaning: str
    kind: Kind = "text"
    required: bool = False
    default: object = None
    values: tuple[str, ...] = ()
    #: Is it an option of Spark's reader, which gets it as it is? Pipeline files list these apart.
    of_spark: bool = False

    def check(self, connector: str, value: str) -> None:
        """Refuse a value that cannot be meant."""
        if self.values and value not in self.values:
            if self.name == "format":
                hint = did_you_mean(value, self.values)
                raise PlanError(f"connector {connector!r} has no format {value!r}; {hint}")
            known = " or ".join(map(repr, self.values))
            raise PlanError(f"connector {connector!r}: {self.name!r} is {known}, not {value!r}")
        if self.kind == "duration":
            micros(value, self.name)

    def typed(self, connector: str, value: str) -> object:
        """The value as functions take it."""
        self.check(connector, value)
        if self.kind == "integer":
            try:
                return int(value)
            except ValueError:
                problem = f"{self.name!r} is a whole number, not {value!r}"
                raise PlanError(f"connector {connector!r}: {problem}") from None
        if self.kind == "boolean":
            if value.lower() not in ("true", "false"):
                problem = f"{self.name!r} is 'true' or 'false', not {value!r}"
                raise PlanError(f"connector {connector!r}: {problem}")
            return value.lower() == "true"
        return value


@dataclass(frozen=True, kw_only=True)
class Connector:
    """A connector's name, a sentence about it, and its options."""

    name: str
    meaning: str
    options: tuple[Option, ...] = ()

    def option(self, name: str) -> Option | None:
        """The declared option of this name."""
        return next((option for option in self.options if option.name == name), None)

    def passes(self, option: str) -> bool:
        """Is it taken although it is not declared?"""
        return False

    def check(self, option: str, value: str, others: Iterable[str] = ()) -> None:
        """Refuse an option that there is none of; `others` are known too, but not the connector's."""
        declared = self.option(option)
        if declared is not None:
            declared.check(self.name, value)
        elif not self.passes(option):
            hint = did_you_mean(option, [*(known.name for known in self.options), *others])
            raise PlanError(f"connector {self.name!r} has no option {option!r}; {hint}")

    def check_complete(self, given: Iterable[str]) -> None:
        """Refuse options that lack a required one."""
        for option in self.options:
            if option.required and option.name not in given:
                raise PlanError(f"connector {self.name!r} needs the option {option.name!r}")

    def check_all(self, options: Mapping[str, str]) -> None:
        """Refuse an option that does not exist, and a missing one."""
        for option, value in options.items():
            self.check(option, value)
        self.check_complete(options)

    def of_kind(self, kind: Kind, options: Mapping[str, str]) -> dict[str, str]:
        """Those of the given options that are declared as this kind."""
        names = {option.name for option in self.options if option.kind == kind}
        return {name: value for name, value in options.items() if name in names}


@dataclass(frozen=True, kw_only=True)
class SourceConnector(Connector):
    """Where the rows of streams come from."""

    #: The function that reads, as `module:name`. It needs Spark, so it is imported by who has that.
    reader: str = "tidegate.spark.sources.declared:read_by_name"
    #: The columns that rows have if the stream declares none.
    columns: pa.Schema | None = None
    #: Does the reader itself keep to a pace? Otherwise the query watches it.
    keeps_pace: bool = False
    #: What any further option starts with, if there can be some: Spark's reader gets it.
    prefix: str | None = None

    def passes(self, option: str) -> bool:
        return self.prefix is not None and option.startswith(self.prefix)

    def for_spark(self, options: Mapping[str, str]) -> dict[str, str]:
        """Those of the given options that Spark's reader gets as they are."""
        ours = {option.name for option in self.options if not option.of_spark}
        return {name: value for name, value in options.items() if name not in ours}


@dataclass(frozen=True, kw_only=True)
class SinkConnector(Connector):
    """Where the rows of a channel go."""

    #: The options, by name and with their types, to the sink.
    make: Callable[..., Sink]
    #: Does the sink find the rows that it has by the columns that tell results apart?
    by_key: bool = False

    def sink(self, options: Mapping[str, str]) -> Sink:
        """The sink that some options stand for."""
        self.check_all(options)
        typed = {o.name: o.typed(self.name, options[o.name]) for o in self.options if o.name in options}
        return self.make(**typed)


AnyConnector = TypeVar("AnyConnector", SourceConnector, SinkConnector)


def declare(connector: SourceConnector | SinkConnector) -> None:
    """Make a connector known under its name."""
    known: dict[str, Any] = SOURCES if isinstance(connector, SourceConnector) else SINKS
    assert connector.name not in known, f"{connector.name} is declared twice"
    known[connector.name] = connector


def connector_of(known: Mapping[str, AnyConnector], name: str | None) -> AnyConnector:
    """The connector of this name."""
    if name is None:
        raise PlanError(f"the option 'connector' is missing: one of {', '.join(map(repr, known))}")
    if name not in known:
        raise PlanError(f"no connector {name!r}; {did_you_mean(name, known)}")
    return known[name]
