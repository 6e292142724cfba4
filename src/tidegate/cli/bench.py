"""`tidegate bench`: the benchmarks, which are not part of the installed package."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from tidegate.errors import StartError


def run(arguments: Namespace) -> int:
    checkout = Path(__file__).parents[3]
    if not (checkout / "benchmarks" / "__main__.py").is_file():
        raise StartError("the benchmarks are in the repository only: run this in a checkout of it")
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments.rest], cwd=checkout).returncode
