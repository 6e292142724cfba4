"""The table of cases: an engine, a workload, and which of its batches count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.data import Dataset, Even, Preloaded, Resent, Skewed

#: A kernel runs without Spark, on one core.
Engine = Literal["spark", "tidegate", "per-key", "kernel"]
Emission = Literal["on_watermark", "on_window_close", "changelog"]
Steps = Literal["fused", "unfused"]
#: Spark's own source of files, or `tg.read_folder`, which packs rows where they are read.
Reader = Literal["spark", "folder"]

#: The span of 5 M events, in seconds of event time.
SPAN = 440
KEYS = 50_000
ONE_PARTITION = {"spark.sql.shuffle.partitions": "1"}
#: Spark's RocksDB store as it comes.
PLAIN_ROCKSDB = {
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "true",
}


@dataclass(frozen=True)
class Window:
    """Size and slide in seconds."""

    size: int
    slide: int

    @property
    def copies(self) -> int:
        """How many windows hold an event."""
        return self.size // self.slide


@dataclass(frozen=True)
class Session:
    """The gap in seconds."""

    gap: int
    copies: int = 1


@dataclass(frozen=True)
class Sliding:
    """Lookback and lookahead in seconds; without the latter results leave with their rows."""

    lookback: int
    lookahead: int | None = None

    @property
    def by_arrival(self) -> bool:
        """Do results depend on the order of rows inside a batch, which is each engine's own?"""
        return self.lookahead is None


@dataclass(frozen=True)
class Join:
    """The windows of both sides."""

    left: Window | Session
    right: Window | Session


@dataclass(frozen=True)
class Distinct:
    """How long ids are remembered, in seconds; the tolerance is the same, as Spark has one for both."""

    delay: int


@dataclass(frozen=True)
class Admission:
    """How many tokens flow into a stream's bucket each second, and how many it holds."""

    max_rate: float
    capacity: int


@dataclass(frozen=True)
class Paced:
    """How long batches should take, and how many times too many rows the first one has."""

    target_ms: int
    start: float


@dataclass(frozen=True)
class Case:
    """One engine on one workload, run in a process of its own."""

    workload: str
    engine: Engine
    dataset: Dataset
    window: Window | Session | Sliding | Join | Distinct | Admission
    #: Steady batches are those after this many, as far as they have the full number of rows.
    warmup: int
    #: A full batch's, those of both sides together where there are two.
    rows: int
    emission: Emission = "on_watermark"
    conf: dict[str, str] = field(default_factory=dict)
    variant: str = ""
    #: What the engines emit can be compared, as every window closes.
    complete: bool = True
    #: The right side of a join.
    other: Dataset | None = None
    #: The rows of batches are found while it runs.
    paced: Paced | None = None
    #: Events take steps before the windows.
    steps: Steps | None = None
    #: Who reads the files.
    reader: Reader = "spark"

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.engine}{self.variant}"

    @property
    def datasets(self) -> tuple[Dataset, ...]:
        """One for each stream that is read."""
        return (self.dataset,) if self.other is None else (self.dataset, self.other)


#: Of cases that read with Spark's own source of files, beside those that do not.
SPARKS_SOURCE = "-sparks-source"

TUMBLING = Window(10, 10)
WINDOWS = {"tumbling": TUMBLING, "hopping-60-10": Window(60, 10), "hopping-60-1": Window(60, 1)}
HOUR = Window(3600, 3600)
SESSION = Session(10)
#: Rows of a batch, and keys, by the name of the workload.
BATCHES = {"batch-10k": 10_000, "batch-100k": 100_000}
KEY_COUNTS = {"keys-1k": 1_000, "keys-1m": 1_000_000}
#: Live sessions by the name of the workload.
GROWTH = {"sessions-100k": 100_000, "sessions-1m": 1_000_000, "sessions-5m": 5_000_000}
LOOKBACKS = {"10s": 10, "1m": 60, "10m": 600}
SLIDING = {f"sliding-{name}": Sliding(seconds) for name, seconds in LOOKBACKS.items()}
#: A short lookahead, so that each batch has about as many results as events.
AHEAD = {f"sliding-ahead-{name}": Sliding(seconds, 10) for name, seconds in LOOKBACKS.items()}
SLIDING_SLICES = {"sliding-slice": Sliding(10), "sliding-ahead-slice": Sliding(10, 10)}
#: Long enough for the part of a batch that depends on its rows to be most of it.
PACED = {"batching-small": Paced(1000, 0.1), "batching-large": Paced(1000, 10)}
#: Tumbling windows with hopping ones, of which more and more are open at a time.
JOIN_HOPPING = {
    f"join-hopping-{size}-10": Join(TUMBLING, Window(size, 10)) for size in (10, 30, 60, 120)
}
#: Streams by the name of the workload.
ADMISSION = {"admission-1k": 1_000, "admission-10k": 10_000, "admission-100k": 100_000}


def catalogue(quick: bool = False) -> dict[str, Case]:
    """All cases by name, in the order they run; `quick` takes a tenth of the data."""
    scale = 10 if quick else 1
    makers = (
        _windows,
        _bulk,
        _per_key,
        _small,
        _batches,
        _keys,
        _state,
        _sessions,
        _sessions_per_key,
        _growth,
        _sliding,
        _sliding_per_key,
        _join_tumbling,
        _join_hopping,
        _join_session,
        _join_skewed,
        _dedupe,
        _dedupe_state,
        _admission,
        _batching,
        _fusion,
    )
    return {case.name: case for make in makers for case in make(scale)}


def _reads(engine: Engine) -> Reader:
    """What someone would take who uses the engine."""
    return "folder" if engine == "tidegate" else "spark"


def _events(scale: int, batches: int, rows: int) -> Skewed:
    """Batches of the main data; a smaller scale has fewer events and keys over the same time."""
    return Skewed(batches * rows // scale, rows // scale, 5_000_000 / SPAN / scale, KEYS // scale)


def _windows(scale: int) -> Iterator[Case]:
    data = _events(scale, 10, 500_000)
    for name, window in WINDOWS.items():
        for engine in ("spark", "tidegate"):
            yield Case(name, engine, data, window, 1, data.rows, reader=_reads(engine))
        yield Case(name, "tidegate", data, window, 1, data.rows, variant=SPARKS_SOURCE)


def _bulk(scale: int) -> Iterator[Case]:
    data = _events(scale, 3, 5_000_000)
    yield Case("bulk-tumbling", "spark", data, TUMBLING, warmup=1, rows=data.rows)
    for name, window in WINDOWS.items():
        yield Case(f"bulk-{name}", "tidegate", data, window, 1, data.rows, reader="folder")


def _per_key(scale: int) -> Iterator[Case]:
    data = _events(scale, 3, 500_000)
    for engine in ("per-key", "tidegate"):
        yield Case("slice", engine, data, TUMBLING, 1, data.rows, reader=_reads(engine))


def _small(scale: int) -> Iterator[Case]:
    batches = 60 if scale == 1 else 25
    data = Skewed(batches * 1000, 1000, 1000, KEYS, files=1)
    variants: tuple[tuple[Engine, str, dict[str, str]], ...] = (
        ("spark", "", {}),
        ("tidegate", "", {}),
        ("spark", "-plain", PLAIN_ROCKSDB),
    )
    for engine, variant, conf in variants:
        settings = ONE_PARTITION | conf
        yield Case("small", engine, data, TUMBLING, 10, data.rows, conf=settings, variant=variant)


def _batches(scale: int) -> Iterator[Case]:
    """Between the small batches and those of `tumbling`."""
    for name, rows in BATCHES.items():
        data = _events(scale, 15, rows)
        for engine in ("spark", "tidegate"):
            yield Case(name, engine, data, TUMBLING, 5, data.rows, reader=_reads(engine))


def _keys(scale: int) -> Iterator[Case]:
    """Fewer and more keys than those of `tumbling`."""
    for name, keys in KEY_COUNTS.items():
        data = replace(_events(scale, 10, 500_000), keys=keys // scale)
        for engine in ("spark", "tidegate"):
            yield Case(name, engine, data, TUMBLING, 1, data.rows, reader=_reads(engine))


def _state(scale: int) -> Iterator[Case]:
    runs: tuple[tuple[Engine, Emission], ...] = (
        ("tidegate", "on_watermark"),
        ("tidegate", "changelog"),
        ("spark", "on_watermark"),
    )
    for engine, emission in runs:
        for times in (1, 10):
            base = 200_000 // scale
            data = Preloaded(base * times, base, 50_000 // scale, 20_000 // scale, measured=20)
            yield Case(
                f"state-{emission.replace('_', '-')}-{times}x",
                engine,
                data,
                HOUR,
                warmup=data.load_batches + 4,
                rows=data.rows,
                emission=emission,
                complete=False,
            )


def _sessions(scale: int) -> Iterator[Case]:
    data = _events(scale, 10, 500_000)
    for engine in ("spark", "tidegate"):
        yield Case(
            "session",
            engine,
            data,
            SESSION,
            warmup=1,
            rows=data.rows,
            emission="on_window_close",
            reader=_reads(engine),
        )
    ours = Case("session", "tidegate", data, SESSION, 1, data.rows, emission="on_window_close")
    yield replace(ours, variant=SPARKS_SOURCE)
    yield replace(ours, emission="changelog", variant="-changelog", reader="folder")


def _sessions_per_key(scale: int) -> Iterator[Case]:
    data = _events(scale, 3, 500_000)
    for engine in ("per-key", "tidegate"):
        yield Case("session-slice", engine, data, SESSION, 1, data.rows, reader=_reads(engine))


def _growth(scale: int) -> Iterator[Case]:
    """More and more live sessions, the same input."""
    for name, live in GROWTH.items():
        data = Preloaded(live // scale, 100_000 // scale, 200_000 // scale, 20_000 // scale, measured=20)
        yield Case(
            name,
            "tidegate",
            data,
            Session(3600),
            warmup=data.load_batches + 4,
            rows=data.rows,
            emission="changelog",
            complete=False,
        )


def _sliding(scale: int) -> Iterator[Case]:
    data = _events(scale, 10, 500_000)
    for name, window in (SLIDING | AHEAD).items():
        yield Case(name, "tidegate", data, window, 1, data.rows, reader="folder")


def _sliding_per_key(scale: int) -> Iterator[Case]:
    data = _events(scale, 3, 500_000)
    for name, window in SLIDING_SLICES.items():
        for engine in ("per-key", "tidegate"):
            yield Case(name, engine, data, window, 1, data.rows, reader=_reads(engine))


def _streams(scale: int, rate: float, keys: int) -> tuple[Even, Even]:
    """Two of 1 M events each, in batches of 100 k."""
    events, rows = 1_000_000 // scale, 100_000 // scale
    left, right = (Even(events, rows, rate / scale, keys // scale, seed=seed) for seed in (3, 4))
    return left, right


def _join(name: str, engine: Engine, join: Join, streams: tuple[Even, Even], warmup: int = 1) -> Case:
    left, right = streams
    rows = left.rows + right.rows
    return Case(name, engine, left, join, warmup, rows, other=right, reader=_reads(engine))


def _join_tumbling(scale: int) -> Iterator[Case]:
    """1.5 partners for each event."""
    streams = _streams(scale, rate=7_500, keys=50_000)
    for engine in ("spark", "tidegate"):
        yield _join("join-tumbling", engine, Join(TUMBLING, TUMBLING), streams)


def _join_hopping(scale: int) -> Iterator[Case]:
    """The same input and the same pairs: keys last for one pane, as those of requests do.

    A batch is 40 s long. After four of them the longest windows hold all they ever will.
    """
    left, right = _streams(scale, rate=2_500, keys=16_000)
    streams = replace(left, lifetime=TUMBLING.size), replace(right, lifetime=TUMBLING.size)
    for name, join in JOIN_HOPPING.items():
        yield _join(name, "tidegate", join, streams, warmup=4)


def _join_session(scale: int) -> Iterator[Case]:
    """Keys are rarer than for panes, lest their sessions never end."""
    streams = _streams(scale, rate=7_500, keys=200_000)
    yield _join("join-session", "tidegate", Join(SESSION, SESSION), streams)


def _join_skewed(scale: int) -> Iterator[Case]:
    """One key has a tenth of the events; its pairs would be too many if windows were longer."""
    left, right = _streams(scale, rate=500, keys=50_000)
    streams = replace(left, hot=0.1), replace(right, hot=0.1)
    yield _join("join-skewed", "tidegate", Join(Window(1, 1), Window(1, 1)), streams)


def _dedupe(scale: int) -> Iterator[Case]:
    """No id is forgotten: the longest memory there can be over this data."""
    data = Resent(5_000_000 // scale, 500_000 // scale, 5_000_000 / SPAN / scale)
    for engine in ("spark", "tidegate"):
        yield Case("dedupe", engine, data, Distinct(600), 1, data.rows, reader=_reads(engine))
    yield Case("dedupe", "tidegate", data, Distinct(600), 1, data.rows, variant=SPARKS_SOURCE)


def _dedupe_state(scale: int) -> Iterator[Case]:
    """A batch is 44 s long, and ids are remembered for 200 s: those of five batches, or a few more."""
    data = Resent(10_000_000 // scale, 500_000 // scale, 5_000_000 / SPAN / scale)
    yield Case("dedupe-state", "kernel", data, Distinct(100), warmup=10, rows=data.rows)


def _admission(scale: int) -> Iterator[Case]:
    """A stream may have seven tenths of what it sends, so three tenths are turned away."""
    rate = 5_000_000 / SPAN
    for name, streams in ADMISSION.items():
        data = Even(2_500_000 // scale, 500_000 // scale, rate / scale, streams // scale)
        sent = rate / streams
        limits = Admission(max_rate=round(0.7 * sent, 6), capacity=max(5, round(10 * sent)))
        engines: tuple[Engine, ...] = ("kernel", "tidegate") if streams == 10_000 else ("kernel",)
        for engine in engines:
            yield Case(name, engine, data, limits, 1, data.rows, reader=_reads(engine))


def _batching(scale: int) -> Iterator[Case]:
    """Data for a first batch that is ten times too large; the steady batches are those after ten."""
    data = _events(1 if scale == 1 else 2, 45, 500_000)
    for name, paced in PACED.items():
        yield Case(name, "tidegate", data, Sliding(10), 10, rows=1, complete=False, paced=paced)


def _fusion(scale: int) -> Iterator[Case]:
    """Four steps in one crossing from Spark to Python, together with packing; and each in its own."""
    data = _events(scale, 10, 500_000)
    runs: tuple[tuple[Steps, str], ...] = (("unfused", "-unfused"), ("fused", ""))
    for steps, variant in runs:
        case = Case("fusion", "tidegate", data, TUMBLING, 1, data.rows, variant=variant, steps=steps)
        yield replace(case, reader="folder")
