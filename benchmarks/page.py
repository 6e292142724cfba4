"""The page of a report: `python -m benchmarks.page [RESULTS]` writes docs/benchmarks.md and its charts.

The results are kept beside the charts, so that the page can be written again from them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.cases import ADMISSION, AHEAD, BATCHES, GROWTH, JOIN_HOPPING, SLIDING, WINDOWS
from benchmarks.launch import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"
FOLDER = ROOT / "docs" / "benchmarks"
LATEST = ROOT / "benchmarks" / "results" / "latest.json"

Report = dict[str, Any]

#: Why a target is missed, by its name; shown where it is.
REASONS = {
    "hopping 60 s / 1 s against Spark": "the first steady batches take half as long again as the last "
    "ones, until the JVM has compiled the path of 1.35 M result rows per batch. The last three are 17.8 "
    "times as fast as Spark's",
    "large batches, hopping-60-1": "5 M events give 13.5 M result rows. Python assembles them, and the "
    "sink counts each",
    "1,000-event batches against Spark": "tidegate's query has two more stages, so Spark takes 49 "
    "instead of 21 ms to plan it, and two more Python tasks (137 instead of 125 ms). Another run "
    "measured 1.68. The session's own class for the local disk saves 60 to 90 ms, but saves them for "
    "Spark too",
    "ten times the state, changelog": "single batches that merge pages; the median hardly grows",
    "sliding: per-key transformWithStateInPandas": "500 k result rows per batch, each with its own "
    "columns, pass through the shuffle and the state and back. The reference uses bisection and is fast",
    "sliding with lookahead: per-key transformWithStateInPandas": "as without a lookahead",
    "duplicates, 5 M ids, against Spark": "nearly all rows remain and pass through the shuffle and the "
    "operator and back. Looking up their ids is the smaller part",
    "admission-100k streams, one core": "each stream has five rows per batch. Finding the streams costs "
    "more than checking the rows",
    "four steps, fused against not": "the windows after the steps take half of the time of both",
}


def main(arguments: list[str]) -> None:
    report = json.loads(Path(arguments[0] if arguments else LATEST).read_text())
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps(report, indent=1) + "\n")
    chart.draw(report, FOLDER)
    PAGE.write_text(render(report))


def render(report: Report) -> str:
    """The page, from the results of one run."""
    parts = [_INTRODUCTION, _about(report), *_sections(report)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


_INTRODUCTION = """
# Benchmarks

`python -m benchmarks.page` writes this page from the results of `make bench`.
[benchmarks/README.md](../benchmarks/README.md) describes each workload and how it is measured.

All engines read the same files and write to the same sink. Times are those of whole micro-batches in
steady state, as Spark reports them.
"""


def _about(report: Report) -> str:
    about, checks = report["about"], report["checks"]
    packages = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    held = sum(check["passed"] for check in checks)
    busiest = max(result.get("others_cpu") or 0 for result in report["results"])
    return (
        f"Measured at {about['at']} on {about['cores']} cores, commit `{about['commit']}`, "
        f"Python {about['python']}, {packages}. {held} of {len(checks)} checks passed; they compare the "
        f"answers of the engines. Other processes used at most {busiest:.0%} of the machine."
    )


def _sections(report: Report) -> Iterator[str]:
    results = {result["case"]: result for result in report["results"]}
    yield "## Targets\n\n" + _targets(report)
    yield "## Against Spark, and against Python per key\n\n" + _comparisons(report, results)
    yield _pictures("windows", "sessions", "joins", "per-key")
    yield "## How cost grows\n\n" + "\n\n".join(_growth(results))
    yield _pictures("growth", "batches", "rows", "admission")
    yield "## Memory\n\n" + _memory(results) + "\n\n" + _pictures("memory")


def _targets(report: Report) -> str:
    rows = []
    for target in report["targets"]:
        reached = {None: "", True: "yes", False: "**no**"}[target["reached"]]
        bound = target["target"]
        wanted = "" if bound is None else f"{'≤' if target['sign'] == '<=' else '≥'} {_figure(bound)}"
        measured = "not run" if target["measured"] is None else _figure(target["measured"])
        why = REASONS.get(target["name"], "") if target["reached"] is False else ""
        rows.append(
            [target["name"], f"{wanted} {target['unit'] if wanted else ''}", measured, reached, why]
        )
    return _table(["target", "required", "measured", "reached", "where the time goes"], rows)


def _comparisons(report: Report, results: dict[str, Report]) -> str:
    rows = [
        [
            one["ours"],
            one["reference"],
            _millis(results[one["reference"]]),
            _millis(results[one["ours"]]),
            f"{one['ratios']['steady_mean']:.2f}",
            f"{one['ratios']['steady_median']:.2f}",
        ]
        for one in report["comparisons"]
    ]
    header = ["case", "reference", "reference, ms", "tidegate, ms", "times as fast", "by medians"]
    return _table(header, rows) + (
        "\n\nCases that end in `sparks-source` read with Spark's file source. The others read with "
        "`tg.read_folder`, which packs rows where they are read."
    )


def _growth(results: dict[str, Report]) -> Iterator[str]:
    tables: dict[str, Sequence[str]] = {
        "Keys": ("keys-1k", "tumbling", "keys-1m"),
        "Rows per batch": ("small", *BATCHES, "tumbling", "bulk-tumbling"),
        "Overlap: 1, 6 and 60 windows per event": (*WINDOWS, *(f"bulk-{name}" for name in WINDOWS)),
        "Live state": (
            *(f"state-{kind}-{times}x" for kind in ("on-watermark", "changelog") for times in (1, 10)),
            *GROWTH,
        ),
        "Range of windows around rows": (*SLIDING, *AHEAD),
        "Window size of a join": (*JOIN_HOPPING,),
        "Number of streams in admission": (*ADMISSION,),
    }
    for title, workloads in tables.items():
        cases = [name for name in results if results[name]["workload"] in workloads]
        rows = [
            [
                name,
                _millis(results[name]),
                _figure(results[name]["steady"]["events_per_s"]),
                _megabytes(results[name]["state"].get("rocksdbSstFileSize")),
            ]
            for name in sorted(cases, key=lambda name: workloads.index(results[name]["workload"]))
        ]
        if rows:
            yield f"### {title}\n\n" + _table(["case", "ms per batch", "events/s", "state, MB"], rows)


def _memory(results: dict[str, Report]) -> str:
    rows = [
        [name, *(_megabytes(result["peak_rss_bytes"].get(part)) for part in ("jvm", "python"))]
        for name, result in results.items()
        if "peak_rss_bytes" in result
    ]
    return (
        "Peak resident memory in MB. Memory that forked Python workers share counts for each worker.\n\n"
        + _table(["case", "JVM", "Python"], rows)
    )


def _pictures(*topics: str) -> str:
    return "\n\n".join(f"![{topic}](benchmarks/{topic}.svg)" for topic in topics)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.strip() for cell in line) + " |" for line in lines)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _millis(result: Report) -> str:
    return f"{result['steady']['mean_ms']:,.0f}"


def _megabytes(size: float | None) -> str:
    return "" if not size else f"{size / 1e6:,.0f}"


if __name__ == "__main__":
    main(sys.argv[1:])
