"""A pipeline file → jobs, each a query with its checkpoint. Only expressions of SQL may need Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.connectors import SINKS, SOURCES, Connector
from tidegate.errors import PipelineError, SqlError, did_you_mean
from tidegate.pipeline import model
from tidegate.pipeline.build import program_of
from tidegate.pipeline.document import fill_in
from tidegate.pipeline.file import parse
from tidegate.plan.channels import MAIN
from tidegate.plan.time import micros
from tidegate.sql.program import Insert

if TYPE_CHECKING:
    from tidegate.sql.analysis import Session

_YAML, _SQL = (".yaml", ".yml"), (".sql",)


@dataclass(frozen=True)
class Job:
    """A query, and what it needs to run."""

    name: str
    insert: Insert
    checkpoint: str
    trigger: Mapping[str, Any] | None = None


def load(
    file: Path, environment: Mapping[str, str] = os.environ, spark: Session | None = None
) -> list[Job]:
    """The queries of a file. Relative paths in it start where the file is.

    SQL asks `spark`, a session or a function that starts one, for types that only Spark can tell.
    """
    text = _text(file)
    if file.suffix in _SQL:
        return _sql_jobs(file, text, environment, spark)
    pipeline, document = parse(text, file.name, environment)
    [insert] = program_of(pipeline, document, spark).inserts
    return [
        Job(
            pipeline.name or file.stem,
            _with_options(insert, lambda value: value, file.parent),
            located(pipeline.checkpoint, file.parent),
            _trigger(pipeline.trigger),
        )
    ]


def _text(file: Path) -> str:
    if file.suffix not in (*_YAML, *_SQL):
        raise PipelineError(f"{file}: a pipeline is a file that ends in {', '.join((*_YAML, *_SQL))}")
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        beside = [other.name for other in file.parent.glob("*") if other.suffix in (*_YAML, *_SQL)]
        raise PipelineError(
            f"no file {str(file)!r}; {did_you_mean(file.name, sorted(beside))}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"cannot read {str(file)!r}: {error}") from None


def _sql_jobs(file: Path, text: str, environment: Mapping[str, str], spark: Session | None) -> list[Job]:
    from tidegate.sql import compile  # the parser takes its time, and files of YAML do without

    try:
        inserts = compile(text, spark=spark).inserts
    except SqlError as error:
        raise PipelineError(f"{file.name}, {error}") from error
    if not inserts:
        raise PipelineError(f"{file.name}: nothing to run, there is no INSERT INTO … SELECT …")
    names = _distinct([insert.sinks[MAIN].name for insert in inserts])
    folder, filled = file.with_suffix(".checkpoint"), partial(fill_in, environment=environment)
    return [
        Job(f"{file.stem}.{name}", _with_options(insert, filled, file.parent), str(folder / name))
        for name, insert in zip(names, inserts, strict=True)
    ]


def question(
    text: str,
    base: Path,
    environment: Mapping[str, str] = os.environ,
    spark: Session | None = None,
) -> Insert:
    """The one query of a text that asks and writes nothing."""
    from tidegate.sql import compile

    program = compile(text, spark=spark)
    if program.inserts or not program.selects:
        raise PipelineError(
            "a question ends with a SELECT; INSERT INTO belongs into a file for tidegate run"
        )
    [select] = program.selects
    return _with_options(select, partial(fill_in, environment=environment), base)


def _distinct(names: list[str]) -> list[str]:
    """Names that come again get a number."""
    again = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name}-{n + 1}" if n else name for name, n in zip(names, again, strict=True)]


def _trigger(given: model.Trigger | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, model.Every):
        return {"processingTime": f"{micros(given.every, 'trigger') // 1000} milliseconds"}
    return {"availableNow": True}


def located(path: str, base: Path) -> str:
    """A path as seen from a folder; one with a scheme stays as it is."""
    return path if "://" in path else str(base / path)


def _with_options(insert: Insert, filled: Callable[[str], str], base: Path) -> Insert:
    """The query with the options of its streams and sinks filled in, paths as seen from `base`."""

    def changed(connector: Connector, given: Mapping[str, str]) -> dict[str, str]:
        values = {name: filled(value) for name, value in given.items()}
        paths = connector.of_kind("path", values)
        return values | {name: located(path, base) for name, path in paths.items()}

    streams = [one.stream for one in insert.inputs]
    read = [replace(s, options=changed(SOURCES[s.connector], s.options)) for s in streams]
    written = {
        channel: replace(table, options=changed(SINKS[table.connector], table.options))
        for channel, table in insert.sinks.items()
    }
    inputs = (replace(one, stream=s) for one, s in zip(insert.inputs, read, strict=True))
    return replace(insert, inputs=tuple(inputs), sinks=written)
