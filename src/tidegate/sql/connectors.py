"""The connectors that streams and sinks can name, and the options each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import PlanError, did_you_mean
from tidegate.plan.time import micros


@dataclass(frozen=True)
class Connector:
    """What has to be given, what may be, and what any further option starts with."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    prefix: str | None = None
    formats: tuple[str, ...] = ()
    #: Does a sink find the rows that it has by the columns that tell results apart?
    by_identity: bool = False

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)

    def check(self, name: str, option: str, value: str, others: Iterable[str] = ()) -> None:
        """Refuse an option that there is none of; `others` are known too, but not the connector's."""
        if not (option in self.options or (self.prefix and option.startswith(self.prefix))):
            hint = did_you_mean(option, [*self.options, *others])
            raise PlanError(f"connector {name!r} has no option {option!r}; {hint}")
        if option == "format" and value not in self.formats:
            raise PlanError(
                f"connector {name!r} has no format {value!r}; {did_you_mean(value, self.formats)}"
            )
        if option == "invalid_fields" and value not in ("null", "errors"):
            raise PlanError(f"connector {name!r}: 'invalid_fields' is 'null' or 'errors', not {value!r}")
        if option == "pace":
            micros(value, "pace")  # refused here, where it can be pointed at

    def check_complete(self, name: str, options: Iterable[str]) -> None:
        for option in self.required:
            if option not in options:
                raise PlanError(f"connector {name!r} needs the option {option!r}")


#: Options of Spark's readers of files that make sense for streams of them.
_READING = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "pathGlobFilter",
    "recursiveFileLookup", "header", "sep", "quote", "escape", "nullValue", "multiLine", "encoding",
    "mode", "dateFormat", "timestampFormat",
)  # fmt: skip

SOURCES = {
    "files": Connector(
        ("path", "format"), (*_READING, "pace", "invalid_fields"), formats=("json", "csv", "parquet")
    ),
    "kafka": Connector(
        ("kafka.bootstrap.servers",),
        (
            "subscribe", "subscribePattern", "assign", "format", "startingOffsets",
            "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss", "pace", "invalid_fields",
        ),
        prefix="kafka.",
        formats=("json",),
    ),
    "rate": Connector((), ("rowsPerSecond", "rampUpTime", "numPartitions")),
}  # fmt: skip

SINKS = {
    "files": Connector(("path", "format"), formats=("parquet", "json")),
    "console": Connector((), ("limit",)),
    "duckdb": Connector(("path", "table"), by_identity=True),
    "postgres": Connector(("dsn", "table"), by_identity=True),
    "discard": Connector(),
}


def connector_of(known: Mapping[str, Connector], name: str | None) -> Connector:
    """The connector of this name."""
    if name is None:
        raise PlanError(f"the option 'connector' is missing: one of {', '.join(map(repr, known))}")
    if name not in known:
        raise PlanError(f"no connector {name!r}; {did_you_mean(name, known)}")
    return known[name]


def check_options(known: Mapping[str, Connector], name: str | None, options: Mapping[str, str]) -> None:
    """Refuse a connector or an option that does not exist, and a missing one."""
    connector = connector_of(known, name)
    for option, value in options.items():
        connector.check(str(name), option, value)
    connector.check_complete(str(name), options)
