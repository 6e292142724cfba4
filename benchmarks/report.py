"""What the results of the cases say: comparisons, checks, targets; as JSON and as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.batching import NEAR
from benchmarks.cases import (
    ADMISSION,
    AHEAD,
    BATCHES,
    JOIN_HOPPING,
    KEY_COUNTS,
    PACED,
    SLIDING,
    SLIDING_SLICES,
    SPARKS_SOURCE,
    WINDOWS,
    Admission,
    Case,
    Distinct,
    Join,
    Sliding,
)
from benchmarks.data import CLOSING_GAP, Even, Preloaded, Resent

#: Results of cases by the name of the case.
Results = dict[str, dict[str, Any]]
#: What to compare: the workload, the case that serves as reference, and ours.
_PAIRS = (
    *((name, f"{name}/spark", f"{name}/tidegate{SPARKS_SOURCE}") for name in WINDOWS),
    *((name, f"{name}/spark", f"{name}/tidegate") for name in WINDOWS),
    ("bulk-tumbling", "bulk-tumbling/spark", "bulk-tumbling/tidegate"),
    ("slice", "slice/per-key", "slice/tidegate"),
    ("small", "small/spark", "small/tidegate"),
    *((name, f"{name}/spark", f"{name}/tidegate") for name in (*BATCHES, *KEY_COUNTS)),
    ("small", "small/spark-plain", "small/tidegate"),
    ("session", "session/spark", "session/tidegate"),
    ("session", "session/spark", f"session/tidegate{SPARKS_SOURCE}"),
    ("session-slice", "session-slice/per-key", "session-slice/tidegate"),
    *((name, f"{name}/per-key", f"{name}/tidegate") for name in SLIDING_SLICES),
    ("join-tumbling", "join-tumbling/spark", "join-tumbling/tidegate"),
    ("dedupe", "dedupe/spark", "dedupe/tidegate"),
    ("dedupe", "dedupe/spark", f"dedupe/tidegate{SPARKS_SOURCE}"),
    ("fusion", "fusion/tidegate-unfused", "fusion/tidegate"),
)


@dataclass(frozen=True)
class Target:
    """A figure to reach: `measure` finds it in the results, or None if its cases did not run.

    Without a bound it is only reported.
    """

    name: str
    bound: float | None
    measure: Callable[[Results], float | None]
    at_most: bool = False
    unit: str = "×"

    def reached(self, value: float | None) -> bool | None:
        if value is None or self.bound is None:
            return None
        return value <= self.bound if self.at_most else value >= self.bound

    def judge(self, results: Results) -> dict[str, Any]:
        value = self.measure(results)
        sign = "<=" if self.at_most else ">="
        target = {"name": self.name, "sign": sign, "target": self.bound, "unit": self.unit}
        return target | {"measured": value, "reached": self.reached(value)}


def ratio(over: str, under: str, figure: str = "mean_ms") -> Callable[[Results], float | None]:
    """How many times a steady figure of one case that of another is."""

    def measure(results: Results) -> float | None:
        if over not in results or under not in results:
            return None
        return results[over]["steady"][figure] / results[under]["steady"][figure]

    return measure


def throughput(case: str) -> Callable[[Results], float | None]:
    """Events per second of a case's steady batches."""
    return lambda results: results[case]["steady"]["events_per_s"] if case in results else None


def spread(workloads: Iterable[str]) -> Callable[[Results], float | None]:
    """How many times as long as the fastest of these workloads the slowest takes."""
    names = {f"{workload}/tidegate" for workload in workloads}

    def measure(results: Results) -> float | None:
        if not names <= {*results}:
            return None
        means = [results[name]["steady"]["mean_ms"] for name in names]
        return max(means) / min(means)

    return measure


def memory(over: str, under: str) -> Callable[[Results], float | None]:
    """How many times the peak memory of one case's Python workers that of another is."""

    def measure(results: Results) -> float | None:
        if over not in results or under not in results:
            return None
        return results[over]["peak_rss_bytes"]["python"] / results[under]["peak_rss_bytes"]["python"]

    return measure


def growth(case: str) -> Callable[[Results], float | None]:
    """How many times the state before the first steady batch that after the last one is."""

    def measure(results: Results) -> float | None:
        if case not in results:
            return None
        stored, steady = results[case]["batch_state_bytes"], results[case]["steady"]["batches"]
        return stored[-1] / stored[-steady - 1]

    return measure


def paced(workload: str, figure: str) -> Callable[[Results], float | None]:
    """How the batches of a case did whose rows are found while it runs."""
    case = f"{workload}/tidegate"
    return lambda results: results[case]["paced"][figure] if case in results else None


def _spark_over_tidegate(workload: str) -> Callable[[Results], float | None]:
    return ratio(f"{workload}/spark", f"{workload}/tidegate")


def _ten_times(emission: str) -> Callable[[Results], float | None]:
    return ratio(f"state-{emission}-10x/tidegate", f"state-{emission}-1x/tidegate")


TARGETS = (
    Target("tumbling 10 s against Spark", 1.2, _spark_over_tidegate("tumbling")),
    Target("hopping 60 s / 10 s against Spark", 2.5, _spark_over_tidegate("hopping-60-10")),
    Target("hopping 60 s / 1 s against Spark", 15, _spark_over_tidegate("hopping-60-1")),
    *(
        Target(f"large batches, {name}", 2e6, throughput(f"bulk-{name}/tidegate"), unit="events/s")
        for name in WINDOWS
    ),
    Target("per-key transformWithStateInPandas", 40, ratio("slice/per-key", "slice/tidegate")),
    Target(
        "1,000-event batches against Spark",
        1.2,
        ratio("small/tidegate", "small/spark", "median_ms"),
        at_most=True,
    ),
    Target("ten times the state, on_watermark", 2, _ten_times("on-watermark"), at_most=True),
    Target("ten times the state, changelog", 2, _ten_times("changelog"), at_most=True),
    Target("sessions against Spark", 1.7, _spark_over_tidegate("session")),
    Target(
        "sessions: changelog against on_window_close",
        1.6,
        ratio("session/tidegate-changelog", "session/tidegate"),
        at_most=True,
    ),
    Target(
        "sessions: per-key transformWithStateInPandas",
        40,
        ratio("session-slice/per-key", "session-slice/tidegate"),
    ),
    Target(
        "sessions: 5 M live against 100 k",
        2,
        ratio("sessions-5m/tidegate", "sessions-100k/tidegate"),
        at_most=True,
    ),
    Target(
        "sliding: per-key transformWithStateInPandas",
        40,
        ratio("sliding-slice/per-key", "sliding-slice/tidegate"),
    ),
    Target(
        "sliding with lookahead: per-key transformWithStateInPandas",
        40,
        ratio("sliding-ahead-slice/per-key", "sliding-ahead-slice/tidegate"),
    ),
    *(
        Target(f"{name} 10 s, 1 min, 10 min: slowest against fastest", 2, spread(those), at_most=True)
        for name, those in {"lookback": SLIDING, "lookahead, and lookback": AHEAD}.items()
    ),
    Target("join, tumbling 10 s, against Spark", 2, _spark_over_tidegate("join-tumbling")),
    Target("join with 10 s … 120 s every 10 s: slowest against fastest", None, spread(JOIN_HOPPING)),
    Target("four steps, fused against not", 2.5, ratio("fusion/tidegate-unfused", "fusion/tidegate")),
    Target("join of sessions", None, throughput("join-session/tidegate"), unit="events/s"),
    Target(
        "join with a hot key: Python memory against even keys",
        None,
        memory("join-skewed/tidegate", "join-tumbling/tidegate"),
    ),
    Target("duplicates, 5 M ids, against Spark", 3, _spark_over_tidegate("dedupe")),
    Target(
        "duplicates: state of 20 batches against 10, ids kept for 200 s",
        1.2,
        growth("dedupe-state/kernel"),
        at_most=True,
    ),
    *(
        Target(f"{name} streams, one core", 2e6, throughput(f"{name}/kernel"), unit="events/s")
        for name in ADMISSION
    ),
    Target("admission in a query", None, throughput("admission-10k/tidegate"), unit="events/s"),
    *(
        target
        for workload in PACED
        for target in (
            Target(f"{workload}: until 1 s", 10, paced(workload, "reached"), True, "batches"),
            Target(f"{workload}: median after ten, off 1 s by", 0.2, paced(workload, "off"), True),
            Target(f"{workload}: share after ten within 20 %", None, paced(workload, "near")),
        )
    ),
)


@dataclass(frozen=True)
class Check:
    """Whether engines gave the same answer."""

    name: str
    passed: bool
    detail: str


def checks(results: Results, cases: dict[str, Case]) -> list[Check]:
    """Compare what the engines emitted with each other, and with what the data must give."""
    complete = [cases[name] for name in results if cases[name].complete]
    found = [_all_counted(case, results[case.name]) for case in complete]
    for case in complete:
        reference = next(other for other in complete if other.workload == case.workload)
        if reference is not case and case.emission != "changelog":
            found.append(_same(case, results[reference.name], results[case.name]))
    loaded = [cases[name] for name in results if isinstance(cases[name].dataset, Preloaded)]
    found += [_loaded(case, results[case.name]) for case in loaded]
    return found + [_far_off(name, results[name]) for name in results if cases[name].paced]


def _all_counted(case: Case, result: dict[str, Any]) -> Check:
    """Each event is in as many windows as it must be; all but the closing event's have closed."""
    if isinstance(case.window, Sliding):
        return _one_each(case, case.window, result)
    if isinstance(case.window, Join):
        return _each_pair(case, result)
    if isinstance(case.window, Distinct):
        return _each_once(case, result)
    if isinstance(case.window, Admission):
        return _as_allowed(case, case.window, result)
    copies = _full_batches(case, result) * case.window.copies
    wanted = copies + (case.emission == "changelog")  # open ones are out, too
    events = result["emitted"]["events"]
    return Check(f"{case.name} counts all events", events == wanted, f"{events:,} of {wanted:,}")


def _one_each(case: Case, window: Sliding, result: dict[str, Any]) -> Check:
    """Each event has one result; only the closing event's is still open, where it looks ahead."""
    wanted = _full_batches(case, result) + (window.lookahead is None)
    rows = result["emitted"]["rows"]
    name = f"{case.name} has one result for each event"
    return Check(name, rows == wanted, f"{rows:,} of {wanted:,}")


def _each_pair(case: Case, result: dict[str, Any]) -> Check:
    """As many pairs as the data has."""
    pairs, wanted = result["emitted"]["rows"], result["wanted_pairs"]
    return Check(f"{case.name} has each pair once", pairs == wanted, f"{pairs:,} of {wanted:,}")


def _each_once(case: Case, result: dict[str, Any]) -> Check:
    """As many rows as there are messages."""
    assert isinstance(case.dataset, Resent)
    rows, wanted = result["emitted"]["rows"], case.dataset.messages * case.dataset.batches
    return Check(f"{case.name} lets each message pass once", rows == wanted, f"{rows:,} of {wanted:,}")


def _as_allowed(case: Case, limits: Admission, result: dict[str, Any]) -> Check:
    """Some rows are turned away, and streams have no more than they were given, at first and since."""
    assert isinstance(case.dataset, Even)
    data, rows = case.dataset, result["emitted"]["rows"]
    seconds = data.events / data.rate + CLOSING_GAP
    most = data.keys * (limits.capacity + limits.max_rate * seconds)
    name = f"{case.name} admits no more than is allowed"
    return Check(name, 0 < rows < min(most, data.events), f"{rows:,}, at most {most:,.0f}")


def _full_batches(case: Case, result: dict[str, Any]) -> int:
    """Their events: all but the closing one."""
    return sum(rows for rows in result["batch_rows"] if rows >= case.rows)


def _loaded(case: Case, result: dict[str, Any]) -> Check:
    """Nothing closes; a changelog has a row for each new key, and two for each one touched again."""
    assert isinstance(case.dataset, Preloaded)
    data = case.dataset
    changes = data.loaded + 2 * data.touched * data.measured
    wanted = changes if case.emission == "changelog" else 0
    rows = result["emitted"]["rows"]
    return Check(f"{case.name} emits each change", rows == wanted, f"{rows:,} of {wanted:,}")


def _far_off(name: str, result: dict[str, Any]) -> Check:
    """A run shows something if it began about ten times off in rows, and by that in time.

    On a busy machine the right number of rows is misjudged, or a batch of any size takes as long.
    """
    began, off = result["paced"]["began"], result["paced"]["off_at_first"]
    passed = 5 <= max(began, 1 / began) <= 20 and off > NEAR
    detail = f"{began:.2f} times the later rows, {off:.0%} off the target"
    return Check(f"{name} began ten times off", passed, detail)


def _same(case: Case, left: dict[str, Any], right: dict[str, Any]) -> Check:
    one, two = left["emitted"], right["emitted"]
    name, rows = f"{left['case']} = {right['case']}", f"{one['rows']:,} and {two['rows']:,} rows"
    if isinstance(case.window, Sliding) and case.window.by_arrival:
        # Each engine takes the rows of a batch, which come from several files, in an order of its own.
        return Check(f"{name}, in the number of rows", one["rows"] == two["rows"], rows)
    if isinstance(case.window, Admission):
        # Of rows that arrive at the same moment, each engine takes one of its own first.
        return Check(f"{name}, in the number of rows", one["rows"] == two["rows"], rows)
    counts = [one[count] == two[count] for count in ("rows", "events", "digest")]
    totals = one.keys() - {"rows", "events", "digest"}
    sums = [math.isclose(one[total], two[total], rel_tol=1e-9) for total in totals]
    return Check(name, all(counts + sums), rows)


def assemble(results: Results, cases: dict[str, Case]) -> dict[str, Any]:
    """The whole report, ready for JSON."""
    return {
        "targets": [target.judge(results) for target in TARGETS],
        "comparisons": [_compare(*pair, results) for pair in _PAIRS if {*pair[1:]} <= {*results}],
        "checks": [asdict(check) for check in checks(results, cases)],
        "results": list(results.values()),
    }


def _compare(workload: str, reference: str, ours: str, results: Results) -> dict[str, Any]:
    one, two = results[reference], results[ours]
    ratios = {
        "steady_mean": one["steady"]["mean_ms"] / two["steady"]["mean_ms"],
        "steady_median": one["steady"]["median_ms"] / two["steady"]["median_ms"],
        "total": one["total_s"] / two["total_s"],
    }
    return {"workload": workload, "reference": reference, "ours": ours, "ratios": ratios}


def show(report: dict[str, Any], console: Console) -> None:
    """Print the tables."""
    console.print(_cases_table(report), _comparisons_table(report))
    for check in report["checks"]:
        if not check["passed"]:
            console.print(f"[red]DIFFERS[/red] {check['name']}: {check['detail']}")
    console.print(
        f"{sum(check['passed'] for check in report['checks'])} of {len(report['checks'])} checks hold"
    )
    console.print(_targets_table(report))


def _cases_table(report: dict[str, Any]) -> Table:
    columns = (
        "total s",
        "mean ms",
        "median ms",
        "events/s",
        "rows out",
        "per event",
        "state MB",
        "JVM MB",
        "Python MB",
        "others",
    )
    table = _table("Cases (steady batches)", "case", *columns)
    for result in report["results"]:
        steady, peak = result["steady"], result["peak_rss_bytes"]
        table.add_row(
            result["case"],
            f"{result['total_s']:.1f}",
            f"{steady['mean_ms']:,.0f}",
            f"{steady['median_ms']:,.0f}",
            f"{steady['events_per_s']:,.0f}",
            f"{result['emitted']['rows']:,}",
            f"{result['emitted']['rows'] / sum(result['batch_rows']):.2f}",
            f"{result['state']['rocksdbSstFileSize'] / 1e6:,.1f}",
            f"{peak['jvm'] / 1e6:,.0f}",
            f"{peak['python'] / 1e6:,.0f}",
            f"{result['others_cpu']:.0%}",
        )
    return table


def _comparisons_table(report: dict[str, Any]) -> Table:
    table = _table(
        "How many times as long as tidegate the reference takes",
        "reference",
        "steady mean",
        "steady median",
        "total",
    )
    for row in report["comparisons"]:
        table.add_row(row["reference"], *(f"{value:.2f}" for value in row["ratios"].values()))
    return table


def _targets_table(report: dict[str, Any]) -> Table:
    table = _table("Targets", "target", "wanted", "measured", "reached")
    for row in report["targets"]:
        measured = "–" if row["measured"] is None else f"{row['measured']:,.2f} {row['unit']}"
        reached = {None: "–", True: "[green]yes[/green]", False: "[red]no[/red]"}[row["reached"]]
        table.add_row(row["name"], _wanted(row), measured, reached)
    return table


def _wanted(target: dict[str, Any]) -> str:
    bound = target["target"]
    return "–" if bound is None else f"{target['sign']} {bound:,.10g} {target['unit']}"


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(first, title=title, title_justify="left")
    for name in others:
        table.add_column(name, justify="right")
    return table
