"""`tidegate init`: a pipeline to start from, with data that it can run on."""

from __future__ import annotations

from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from tidegate.cli.failures import OK
from tidegate.errors import PipelineError

_STARTER = ("pipeline.yaml", "clicks/1.json", "clicks/2.json")


def run(arguments: Namespace) -> int:
    folder: Path = arguments.folder
    there = [name for name in _STARTER if (folder / name).exists()]
    if there:
        raise PipelineError(f"{folder / there[0]} exists already: name another folder")
    starter = files("tidegate.cli") / "starter"
    for name in _STARTER:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text((starter / name).read_text("utf-8"), "utf-8")
    pipeline = folder / _STARTER[0]
    print(f"wrote {pipeline}, and some clicks to run it on:\n")
    print(f"  tidegate explain {pipeline}\n  tidegate run {pipeline} --once")
    return OK
