"""The tests on every version of Spark that tidegate runs on, each in an environment of its own.

    python -m scripts.matrix [pytest arguments]    all Spark tests on all versions, and the ladder
    python -m scripts.matrix --smoke               tests marked `versions`, on the older versions

The versions are those of spark-versions.lock and requirements.lock. A whole run writes what its tests
have seen into docs/versions.json, and from it the table of docs/versions.md. A version is skipped if it
cannot be installed because no package index answers. Nothing else is skipped.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.versions_page import PAGE, SEEN, shown

#: Older versions of pyspark leave sockets to the garbage collector.
NOT_OURS = ["-W", "ignore::ResourceWarning"]
ROOT = Path(__file__).parents[1]
#: What scripts/matrix.sh ends with if no package index answers.
UNREACHABLE = 3
PINNED = re.compile(r"^pyspark==(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """A version of Spark, and the Python that has it."""

    version: str
    python: Path

    def tests(self, arguments: Sequence[str], features: Path) -> bool:
        """Run tests; did all pass?"""
        _say(f"tests on Spark {self.version}")
        self._archive_classes()
        parallel = ["-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
        return self._run("pytest", *NOT_OURS, *parallel, "--features", str(features), *arguments)

    def climbs(self, folder: Path, rung: int, rungs: int) -> bool:
        """Go on with the queries of the ladder; did they put out what they should?"""
        return self._run("tests.spark.ladder", str(folder), str(rung), str(rungs))

    def _archive_classes(self) -> None:
        """Only saves time: tests run without it too, so it may fail."""
        archive = self.python.parents[1] / "spark-classes.jsa"
        if not archive.exists():
            command = [self.python, "-m", "tests.spark.class_archive", archive]
            subprocess.run(command, cwd=ROOT, check=False, capture_output=True)

    def _run(self, module: str, *arguments: str) -> bool:
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        command = [self.python, "-m", module, *arguments]
        return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode == 0


def main(arguments: Sequence[str]) -> int:
    smoke = "--smoke" in arguments
    narrowed = [one for one in arguments if one != "--smoke"]
    environments = [found for version in others() if (found := environment_of(version)) is not None]
    own = Environment(newest(), ROOT / ".venv" / "bin" / "python")
    tested = environments if smoke else [*environments, own]
    chosen = narrowed or ["tests/spark"]
    if smoke:
        chosen = ["-m", "versions", *(narrowed or ["tests/spark"])]
    with tempfile.TemporaryDirectory(prefix="tidegate-matrix-") as scratch:
        files = {one.version: Path(scratch) / f"{one.version}.json" for one in tested}
        failed = [
            f"tests on Spark {one.version}"
            for one in tested
            if not one.tests(chosen, files[one.version])
        ]
        # It takes two minutes: too long for every change.
        if not (smoke or narrowed) and not climbed([*environments, own], Path(scratch) / "ladder"):
            failed.append("the ladder")
        if not (smoke or narrowed):
            write_down([file for file in files.values() if file.exists()])
    _say(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


def others() -> list[str]:
    return PINNED.findall((ROOT / "spark-versions.lock").read_text("utf-8"))


def newest() -> str:
    [version] = PINNED.findall((ROOT / "requirements.lock").read_text("utf-8"))
    return version


def environment_of(version: str) -> Environment | None:
    """An environment with that Spark; None if it cannot be installed here."""
    made = subprocess.run([ROOT / "scripts" / "matrix.sh", version], cwd=ROOT, check=False).returncode
    if made == UNREACHABLE:
        _say(f"skipped Spark {version}: it is not installed, and no package index can be reached")
        return None
    if made:
        raise SystemExit(f"matrix: the environment of Spark {version} could not be made")
    return Environment(version, ROOT / ".cache" / "matrix" / version / "bin" / "python")


def climbed(environments: Sequence[Environment], folder: Path) -> bool:
    """Queries of the oldest version go on with each newer one."""
    _say("one checkpoint on " + " → ".join(one.version for one in environments))
    rungs = len(environments)
    return all(one.climbs(folder, rung, rungs) for rung, one in enumerate(environments))


def write_down(files: Sequence[Path]) -> None:
    """Keep what whole runs have seen, for the documentation."""
    seen = [json.loads(file.read_text("utf-8")) for file in files]
    SEEN.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", "utf-8")
    PAGE.write_text(shown(PAGE.read_text("utf-8"), seen), "utf-8")


def _say(text: str) -> None:
    print(f"matrix: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
