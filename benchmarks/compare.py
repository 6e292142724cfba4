"""Two checkouts on the same cases, next to each other: `python -m benchmarks.compare FOLDER [NAME…]`.

FOLDER is a checkout of another commit that has an environment of its own (`make demo` there makes it).
Cases run in the order before, after, after, before: a machine that gets slower meanwhile is then no
disadvantage to either. The table goes to the terminal, as Markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import data, launch
from benchmarks.__main__ import choose
from benchmarks.cases import Case, catalogue


@dataclass
class Pair:
    """Mean times of a steady batch, in milliseconds, a run each."""

    case: str
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """How long a batch takes now, as a share of how long it took."""
        return statistics.fmean(self.after) / statistics.fmean(self.before)

    def row(self) -> str:
        runs = (", ".join(f"{run:,.0f}" for run in runs) for runs in (self.before, self.after))
        return "| " + " | ".join((f"`{self.case}`", *runs, f"{self.ratio:.2f}")) + " |"


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    other = Path(options.folder).absolute()
    cases = [case for case in choose(catalogue(options.quick), options.names) if _is_ours(case)]
    print("| case | before, ms | after, ms | after / before |\n|---|---|---|---|", flush=True)
    for case in cases:
        for dataset in case.datasets:
            data.folder(dataset)
        measure = partial(_mean_ms, case.name, quick=options.quick, files=options.files)
        print(_compared(case.name, measure, other, options.pairs).row(), flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.compare", description=__doc__)
    parser.add_argument("folder", help="a checkout of the commit before")
    parser.add_argument("names", nargs="*", help="beginnings of case names; all without")
    parser.add_argument(
        "--pairs", type=int, default=2, help="runs of each checkout (default: %(default)s)"
    )
    parser.add_argument("--files", action="store_true", help="queries as users start them, into Parquet")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, to see that it works")
    return parser.parse_args(arguments)


def _is_ours(case: Case) -> bool:
    return case.engine in ("tidegate", "kernel")


def _compared(case: str, measure: Callable[[Path], float], other: Path, pairs: int) -> Pair:
    pair = Pair(case)
    for number in range(pairs):
        order = [(other, pair.before), (launch.ROOT, pair.after)]
        for checkout, runs in reversed(order) if number % 2 else order:
            runs.append(measure(checkout))
    return pair


def _mean_ms(case: str, checkout: Path, *, quick: bool, files: bool) -> float:
    return launch.steady_ms(case, checkout / ".venv" / "bin" / "python", checkout, quick, files=files)


if __name__ == "__main__":
    main(sys.argv[1:])
