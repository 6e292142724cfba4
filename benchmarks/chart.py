"""The charts of a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import (
    ADMISSION,
    AHEAD,
    BATCHES,
    GROWTH,
    JOIN_HOPPING,
    SLIDING,
    SLIDING_SLICES,
    WINDOWS,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"spark": "#9aa5b1", "tidegate": "#0b7285", "per-key": "#e8590c", "kernel": "#2b8a3e"}
Results = dict[str, dict[str, Any]]


def draw(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write a chart for each topic of which some cases did run."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tidegate"
    from matplotlib import pyplot

    results = {result["case"]: result for result in report["results"]}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for topic, panels in TOPICS.items():
        size = (6.4 * len(panels), 4)
        figure, axes = pyplot.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
        for panel, axis in zip(panels, axes.flat, strict=True):
            panel(axis, results)
            axis.spines[["top", "right"]].set_visible(False)
            if not axis.patches:
                axis.set_axis_off()
        if any(axis.patches for axis in axes.flat):
            path = folder / f"{topic}.svg"
            figure.savefig(path, metadata={"Date": None})
            written.append(path)
        pyplot.close(figure)
    return written


def _windows(axis: Axes, results: Results) -> None:
    names = [f"{name}/{engine}" for name in WINDOWS for engine in ("spark", "tidegate")]
    _bars(axis, results, names, lambda result: result["steady"]["mean_ms"] / 1000)
    axis.set(title="Steady micro-batch", ylabel="seconds")


def _overlap(axis: Axes, results: Results) -> None:
    """How many windows hold an event: 1, 6, 60."""
    names = [f"bulk-{name}/tidegate" for name in WINDOWS]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"] / 1e6)
    axis.set(title="5 M events a batch, in 1, 6 and 60 windows each", ylabel="million events per second")


def _batches(axis: Axes, results: Results) -> None:
    workloads = ("small", *BATCHES, "tumbling", "bulk-tumbling")
    names = [f"{name}/{engine}" for name in workloads for engine in ("spark", "tidegate")]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"] / 1e6)
    axis.set(
        title="Larger batches: 1 k, 10 k, 100 k, 500 k, 5 M events", ylabel="million events per second"
    )


def _keys(axis: Axes, results: Results) -> None:
    names = [
        f"{name}/{engine}"
        for name in ("keys-1k", "tumbling", "keys-1m")
        for engine in ("spark", "tidegate")
    ]
    _bars(axis, results, names, lambda result: result["steady"]["mean_ms"])
    axis.set(title="1 k, 50 k and 1 M keys, same number of events", ylabel="milliseconds per batch")


def _fusion(axis: Axes, results: Results) -> None:
    names = ["fusion/tidegate-unfused", "fusion/tidegate"]
    _bars(axis, results, names, lambda result: result["steady"]["mean_ms"])
    axis.set(title="Four steps, each in its own crossing, and fused", ylabel="milliseconds per batch")


def _per_key(axis: Axes, results: Results) -> None:
    names = [
        f"{name}/{engine}" for name in ("slice", "session-slice") for engine in ("per-key", "tidegate")
    ]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Windows in Python, per key and packed", ylabel="events per second")


def _sessions(axis: Axes, results: Results) -> None:
    names = ["session/spark", "session/tidegate", "session/tidegate-changelog"]
    _bars(axis, results, names, lambda result: result["steady"]["mean_ms"] / 1000)
    axis.set(title="Sessions, steady micro-batch", ylabel="seconds")


def _growth(axis: Axes, results: Results) -> None:
    _bars(axis, results, [f"{name}/tidegate" for name in GROWTH], lambda r: r["steady"]["mean_ms"])
    axis.set(title="More live sessions, same input", ylabel="milliseconds per batch")


def _sliding(axis: Axes, results: Results) -> None:
    names = [f"{name}/tidegate" for name in (*SLIDING, *AHEAD)]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Around each row: longer lookback, same input", ylabel="events per second")


def _sliding_per_key(axis: Axes, results: Results) -> None:
    names = [f"{name}/{engine}" for name in SLIDING_SLICES for engine in ("per-key", "tidegate")]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Around each row, per key and packed", ylabel="events per second")


def _joins(axis: Axes, results: Results) -> None:
    names = [
        "join-tumbling/spark",
        *(f"join-{kind}/tidegate" for kind in ("tumbling", "session", "skewed")),
    ]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Joins", ylabel="events per second, of both sides")


def _join_growth(axis: Axes, results: Results) -> None:
    names = [f"{name}/tidegate" for name in JOIN_HOPPING]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Joins with longer windows, same input", ylabel="events per second, of both sides")


def _dedupe(axis: Axes, results: Results) -> None:
    names = ["dedupe/spark", "dedupe/tidegate", "dedupe-state/kernel"]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"])
    axis.set(title="Duplicates; a kernel has one core", ylabel="events per second")


def _admission(axis: Axes, results: Results) -> None:
    names = ["admission-10k/tidegate", *(f"{name}/kernel" for name in ADMISSION)]
    _bars(axis, results, names, lambda result: result["steady"]["events_per_s"] / 1e6)
    axis.set(title="Admission; a kernel has one core", ylabel="million events per second")


def _small(axis: Axes, results: Results) -> None:
    names = [name for name in ("small/spark", "small/spark-plain", "small/tidegate") if name in results]
    bottoms = [0.0] * len(names)
    for part in results[names[0]]["steady"]["parts_ms"] if names else ():
        heights = [results[name]["steady"]["parts_ms"][part] for name in names]
        axis.bar(_labels(names), heights, bottom=bottoms, label=part, width=0.6)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    if names:
        axis.legend(fontsize=8, frameon=False)
    axis.set(title="Batches of 1,000 events: where the time goes", ylabel="milliseconds")


def _state(axis: Axes, results: Results) -> None:
    kinds = ("on-watermark", "changelog")
    runs = [(kind, "tidegate") for kind in kinds] + [("on-watermark", "spark")]
    names = [f"state-{kind}-{times}x/{engine}" for kind, engine in runs for times in (1, 10)]
    _bars(axis, results, names, lambda result: result["steady"]["mean_ms"])
    axis.set(title="Ten times the live state, same input", ylabel="milliseconds per batch")


def _memory(axis: Axes, results: Results) -> None:
    workloads = (*WINDOWS, "join-tumbling", "join-skewed")
    names = [f"{name}/{engine}" for name in workloads for engine in ("spark", "tidegate")]
    names = [name for name in names if name in results]
    peaks = [results[name]["peak_rss_bytes"] for name in names]
    jvm = [peak["jvm"] / 1e9 for peak in peaks]
    axis.bar(_labels(names), jvm, label="JVM", color="#868e96", width=0.6)
    python = [peak["python"] / 1e9 for peak in peaks]
    axis.bar(_labels(names), python, bottom=jvm, label="Python workers", color="#f2b705", width=0.6)
    if names:
        axis.legend(fontsize=8, frameon=False)
    axis.set(title="Peak resident memory", ylabel="GB")
    axis.tick_params("x", labelsize=7)


def _bars(axis: Axes, results: Results, names: list[str], value: Any) -> None:
    names = [name for name in names if name in results]
    colours = [_COLOURS[results[name]["engine"]] for name in names]
    bars = axis.bar(_labels(names), [value(results[name]) for name in names], color=colours, width=0.6)
    axis.bar_label(bars, fmt=lambda height: f"{height:,.{0 if height >= 100 else 2}f}", fontsize=8)
    axis.tick_params("x", labelsize=7)


def _labels(names: list[str]) -> list[str]:
    short = [re.sub("^(bulk|state|sliding)-", "", name) for name in names]
    return [name.replace("-watermark-", "-watermark\n").replace("/", "\n") for name in short]


#: What the charts show, by their names.
TOPICS = {
    "windows": (_windows, _overlap),
    "sessions": (_sessions, _growth),
    "rows": (_sliding, _dedupe),
    "joins": (_joins, _join_growth),
    "per-key": (_per_key, _sliding_per_key),
    "batches": (_batches, _small),
    "growth": (_keys, _state),
    "admission": (_admission, _fusion),
    "memory": (_memory,),
}
