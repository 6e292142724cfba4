"""Are the folders there that jobs read and write? Asked before Spark is started, which takes a while."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path

from tidegate.connectors import SINKS, SOURCES
from tidegate.errors import StartError
from tidegate.pipeline.load import Job
from tidegate.sql.program import Insert


def check_places(jobs: Iterable[Job]) -> None:
    """Refuse a folder that does not exist, or that cannot be written."""
    for job in jobs:
        check_inputs(job.insert)
        for channel, table in job.insert.sinks.items():
            for path in SINKS[table.connector].of_kind("path", table.options).values():
                _check_written(f"the sink of channel {channel!r}", path)
        _check_written("the checkpoint", job.checkpoint)


def check_inputs(insert: Insert) -> None:
    """Refuse files that are not there."""
    for one in insert.inputs:
        stream = one.stream
        for path in SOURCES[stream.connector].of_kind("path", stream.options).values():
            _check_read(f"stream {stream.name!r}", path)


def _check_read(what: str, path: str) -> None:
    if "://" in path:
        return
    patterns = [*_alternatives(path), glob.escape(path)]  # brackets may be part of a name
    found = [place for one in patterns for place in glob.glob(one)]
    if not found:
        raise StartError(f"{what}: there is nothing at {path!r}; make the folder, or correct the path")
    if not all(os.access(place, os.R_OK) for place in found):
        raise StartError(f"{what}: {path!r} may not be read by this user")


def _alternatives(path: str) -> list[str]:
    """Patterns without braces, which Spark knows and Python does not: `a/{b,c}` is `a/b` and `a/c`."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if braces is None:
        return [path]
    parts = (path[: braces.start()] + one + path[braces.end() :] for one in braces[1].split(","))
    return [whole for part in parts for whole in _alternatives(part)]


def _check_written(what: str, path: str) -> None:
    if "://" in path:
        return
    place = Path(path)
    while not place.exists():  # folders are made as needed, below the first that is there
        place = place.parent
    if place != Path(path) and not place.is_dir():
        raise StartError(f"{what}: {path!r} cannot be made, {str(place)!r} is a file")
    if not os.access(place, os.W_OK):
        raise StartError(f"{what}: {path!r} may not be written by this user")
