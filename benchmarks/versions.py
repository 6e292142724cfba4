"""Tumbling windows on each version of Spark: `python -m benchmarks.versions [--quick]`.

Versions have the environments of `make matrix`. On each, Spark's own operator runs beside tidegate over
the same files: tidegate with Spark's source of files, and with `tg.read_folder` where Spark lets it
limit its batches. The table goes to the terminal, as Markdown.
"""

from __future__ import annotations

import argparse

from benchmarks import data, launch
from benchmarks.cases import Case, catalogue
from scripts.matrix import Environment, environment_of, newest, others

#: The engines, as the names of cases have them, and how the table calls them.
ENGINES = {
    "spark": "Spark, ms",
    "tidegate-sparks-source": "tidegate, Spark's source, ms",
    "tidegate": "tidegate, `tg.read_folder`, ms",
}
#: Where `tg.read_folder` takes a limit for its batches.
LIMITS_BATCHES = (4, 2)


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    known = catalogue(options.quick)
    cases = [known[f"tumbling/{engine}"] for engine in ENGINES]
    data.folder(cases[0].dataset)
    print(f"| | {' | '.join(ENGINES.values())} |\n|{'---|' * (1 + len(ENGINES))}", flush=True)
    for environment in environments():
        times = [measured(case, environment, options.quick) for case in cases]
        print(row(environment.version, times), flush=True)


def environments() -> list[Environment]:
    """The older versions that can be installed, and the newest."""
    found = [environment_of(version) for version in others()]
    own = Environment(newest(), launch.ROOT / ".venv" / "bin" / "python")
    return [*(one for one in found if one is not None), own]


def measured(case: Case, environment: Environment, quick: bool) -> float | None:
    """The mean time of a steady batch, in milliseconds; None where the case is refused."""
    version = tuple(int(part) for part in environment.version.split(".")[:2])
    if case.reader == "folder" and version < LIMITS_BATCHES:
        return None
    return launch.steady_ms(case.name, environment.python, launch.ROOT, quick)


def row(version: str, times: list[float | None]) -> str:
    shown = ("refused" if time is None else f"{time:,.0f}" for time in times)
    return f"| Spark {version} | {' | '.join(shown)} |"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.versions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it works")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
