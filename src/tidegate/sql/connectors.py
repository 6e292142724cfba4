"""The connectors that streams and sinks can name, and the options each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.errors import PlanError, did_you_mean


@dataclass(frozen=True)
class Connector:
    """What has to be given, what may be, and what any further option starts with."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    prefix: str | None = None
    formats: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)

    def takes(self, option: str) -> bool:
        return option in self.options or (self.prefix is not None and option.startswith(self.prefix))


#: Options of Spark's readers of files that make sense for streams of them.
_READING = (
    "maxFilesPerTrigger", "maxBytesPerTrigger", "latestFirst", "fileNameOnly", "pathGlobFilter",
    "recursiveFileLookup", "header", "sep", "quote", "escape", "nullValue", "multiLine", "encoding",
    "mode", "dateFormat", "timestampFormat",
)  # fmt: skip

SOURCES = {
    "files": Connector(("path", "format"), _READING, formats=("json", "csv", "parquet")),
    "kafka": Connector(
        ("kafka.bootstrap.servers",),
        (
            "subscribe", "subscribePattern", "assign", "format", "startingOffsets",
            "maxOffsetsPerTrigger", "minPartitions", "failOnDataLoss",
        ),
        prefix="kafka.",
        formats=("json",),
    ),
    "rate": Connector((), ("rowsPerSecond", "rampUpTime", "numPartitions")),
}  # fmt: skip

SINKS = {
    "files": Connector(("path", "format"), formats=("parquet", "json")),
    "console": Connector((), ("limit",)),
    "duckdb": Connector(("path", "table")),
    "postgres": Connector(("dsn", "table")),
    "discard": Connector(),
}


def check_options(
    known: Mapping[str, Connector],
    name: str | None,
    options: Mapping[str, str],
    others: Iterable[str] = (),
) -> None:
    """Refuse a connector or an option that does not exist, and a missing one.

    `others` are options that belong to the stream itself, for the hint.
    """
    if name is None:
        raise PlanError(f"the option 'connector' is missing: one of {', '.join(map(repr, known))}")
    if name not in known:
        raise PlanError(f"no connector {name!r}; {did_you_mean(name, known)}")
    connector = known[name]
    for option in options:
        if not connector.takes(option):
            hint = did_you_mean(option, [*connector.options, *others])
            raise PlanError(f"connector {name!r} has no option {option!r}; {hint}")
    for option in connector.required:
        if option not in options:
            raise PlanError(f"connector {name!r} needs the option {option!r}")
    form = options.get("format")
    if connector.formats and form is not None and form not in connector.formats:
        raise PlanError(
            f"connector {name!r} has no format {form!r}; {did_you_mean(form, connector.formats)}"
        )
