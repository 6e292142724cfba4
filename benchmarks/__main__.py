"""Run the benchmark: `python -m benchmarks [--list] [--only NAME…] [--quick]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import chart, data, launch, report
from benchmarks.cases import Case, catalogue

RESULTS = launch.ROOT / "benchmarks" / "results"


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    cases = catalogue(options.quick)
    chosen = choose(cases, options.only)
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    os.chdir(launch.ROOT)
    console = Console(width=None if sys.stdout.isatty() else 144)
    results, failures = _run(chosen, options.quick, console)
    whole = {"about": _about(options.quick), **report.assemble(results, cases), "failures": failures}
    report.show(whole, console)
    _write(whole, _stem(options), console)
    return int(bool(failures) or not all(check["passed"] for check in whole["checks"]))


def choose(cases: dict[str, Case], only: list[str]) -> list[Case]:
    """The cases whose name or workload begins with one of `only`; all of them without it."""
    strangers = [name for name in only if not any(known.startswith(name) for known in cases)]
    if strangers:
        raise SystemExit(f"no case begins with {', '.join(strangers)}; --list shows them all")
    return [case for case in cases.values() if not only or case.name.startswith(tuple(only))]


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="tidegate beside Spark's own operators"
    )
    parser.add_argument("--list", action="store_true", help="show the cases and stop")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="beginnings of case names")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it works")
    return parser.parse_args(arguments)


def _run(chosen: list[Case], quick: bool, console: Console) -> tuple[report.Results, list[str]]:
    results: report.Results = {}
    failures = []
    for number, case in enumerate(chosen, 1):
        for dataset in case.datasets:
            data.folder(dataset)
        console.print(f"[{number}/{len(chosen)}] {case.name} … ", end="", markup=False)
        try:
            results[case.name] = launch.run_case(case.name, quick)
            console.print(f"{results[case.name]['steady']['mean_ms']:,.0f} ms a batch")
        except launch.CaseFailed as failure:
            failures.append(str(failure))
            console.print(str(failure), markup=False)
    return results, failures


def _stem(options: argparse.Namespace) -> str:
    """Only a whole run at full size is the latest result."""
    return ("quick" if options.quick else "latest") + ("-partial" if options.only else "")


def _write(whole: dict[str, Any], stem: str, console: Console) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{stem}.json"
    path.write_text(json.dumps(whole, indent=1) + "\n")
    console.print(f"wrote {_short(path)}")
    try:
        for picture in chart.draw(whole, RESULTS / stem):
            console.print(f"wrote {_short(picture)}")
    except ImportError as error:
        console.print(f"no charts: {error}")


def _short(path: Path) -> Path:
    return path.relative_to(launch.ROOT)


def _about(quick: bool) -> dict[str, Any]:
    packages = ("pyspark", "polars", "pyarrow", "numpy", "pandas")
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "quick": quick,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "cores": os.cpu_count(),
    }


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=launch.ROOT)
    return run.stdout.strip() or None


if __name__ == "__main__":
    sys.exit(main())
