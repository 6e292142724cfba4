"""docs/connectors.md, made of what connectors declare: `make reference`."""

from collections.abc import Iterable

from tidegate.connectors import SINKS, SOURCES, Connector, Option

INTRODUCTION = """\
# Connectors

A connector is where a stream of [SQL](sql.md) or of a [pipeline file](pipelines.md) comes from, or where
a sink writes. In SQL, options stand in `WITH (…)`. In pipeline files, they are keys of the stream or
sink.
Options with a star are those of Spark's reader: in pipeline files they stand under `options`.
An unknown option is refused, and the error suggests the nearest one.
`make reference` writes this page: change the declarations in `src/tidegate/connectors`, not the page.
"""


def page() -> str:
    """The whole page."""
    streams = "".join(section("Stream", connector) for connector in SOURCES.values())
    sinks = "".join(section("Sink", connector) for connector in SINKS.values())
    return f"{INTRODUCTION}\n## Streams\n{streams}\n## Sinks\n{sinks}"


def section(what: str, connector: Connector) -> str:
    """A connector: what it is, and its options."""
    text = f"\n### {what} `{connector.name}`\n\n{connector.meaning}\n"
    return text + (f"\n{table(connector.options)}\n" if connector.options else "")


def table(options: Iterable[Option]) -> str:
    """Options, with what each of them means."""
    rows = (f"| {named(option)} | {value(option)} | {option.meaning} |" for option in options)
    return "\n".join(["| option | value | meaning |", "|---|---|---|", *rows])


def named(option: Option) -> str:
    return f"`{option.name}`" + ("*" if option.of_spark else "")


def value(option: Option) -> str:
    """What can be given, and what holds if nothing is."""
    kind = ", ".join(f"`{one}`" for one in option.values) or option.kind
    if option.required:
        return f"{kind}; required"
    return kind if option.default is None else f"{kind}; by default `{option.default}`"


if __name__ == "__main__":
    print(page(), end="")
