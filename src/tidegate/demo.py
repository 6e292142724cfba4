"""A click stream through windows and sessions, end to end: `python -m tidegate.demo [folder]`.

Writes JSON files with clicks that are out of order, late, doubled or invalid; runs a streaming query
over them; shows its progress; then reads back what the query wrote and checks that no row is lost.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

import tidegate as tg
from tidegate.api.events import Events, Result
from tidegate.api.together import StatementSet
from tidegate.spark.classic import set_log_level, stderr_into
from tidegate.spark.query import Query
from tidegate.spark.versions import ADMISSION_CONTROL

FOLDER = "demo-output"
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
FILES, FILE_SPAN, CLICKS_PER_FILE = 12, timedelta(seconds=20), 20_000
SIZE, SLIDE = timedelta(minutes=1), timedelta(seconds=10)
TOLERANCE, LATENESS = timedelta(seconds=5), timedelta(seconds=20)
WINDOWS_PER_CLICK = SIZE // SLIDE
#: A visit ends after so long without a click, and is corrected by clicks that come so late.
GAP, OFFLINE = timedelta(seconds=20), timedelta(minutes=4)

PAGES = {"home": 0.40, "search": 0.25, "product": 0.20, "cart": 0.10, "checkout": 0.05}
SCHEMA = "id bigint, page string, user string, spend double, load_ms double, sent_at string"
INVALID_TIMES = ["", "yesterday", "2026-13-01T12:00:00Z", None]
RETRACTIONS = ("-D", "-U")
SHOWN_BATCHES = 13

#: Less than a minute does not repay what the JVM's optimizing compiler costs.
SHORT_RUN = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


@dataclass(frozen=True)
class Paths:
    """Everything the demonstration writes, in one folder."""

    root: Path

    @property
    def input(self) -> Path:
        return self.root / "input"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def windows(self) -> Path:
        return self.root / "windows"

    @property
    def visits(self) -> Path:
        return self.root / "visits"

    @property
    def late(self) -> Path:
        return self.root / "late"

    @property
    def errors(self) -> Path:
        return self.root / "errors"

    @property
    def log(self) -> Path:
        return self.root / "spark.log"

    @property
    def written(self) -> tuple[Path, ...]:
        return self.input, self.windows, self.visits, self.late, self.errors

    def clear(self) -> None:
        """Remove what an earlier run wrote, and nothing else."""
        for folder in (*self.written, self.checkpoint):
            shutil.rmtree(folder, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.input.mkdir(parents=True)


def main(folder: str = FOLDER) -> int:
    console = Console(highlight=False, soft_wrap=True)
    started = monotonic()
    paths = Paths(Path(folder))
    paths.clear()
    console.print("Writing clicks …")
    written = write_clicks(paths.input, np.random.default_rng(2026))
    console.print(f"{written:,} clicks in {FILES} files. Starting Spark …")
    with stderr_into(paths.log):
        spark = tg.local_spark(cores=2, app="tidegate-demo", **SHORT_RUN)
    try:
        set_log_level(spark, "ERROR")
        metrics = run(spark, paths, console)
    finally:
        spark.stop()
    balanced = Report(paths, console, written, metrics).print()
    console.print(f"Done in {monotonic() - started:.0f} s.")
    return 0 if balanced else 1


# -- the clicks ---------------------------------------------------------------------------------


def write_clicks(folder: Path, rng: np.random.Generator) -> int:
    """One JSON file for each stretch of arrival time; the number of rows written."""
    clicks = with_retries(make_clicks(FILES * CLICKS_PER_FILE, rng), rng)
    place = (pl.col("arrival") // FILE_SPAN.total_seconds()).clip(0, FILES - 1)
    files = clicks.sort("arrival").with_columns(place=place).partition_by("place", include_key=False)
    for number, rows in enumerate(files):
        rows.drop("arrival", "delay").write_ndjson(folder / f"clicks-{number:03d}.json")
    return len(clicks)


def make_clicks(count: int, rng: np.random.Generator) -> pl.DataFrame:
    """Clicks that arrive so many seconds after the beginning, and were sent `delay` before that."""
    delay = delays(count, rng)
    arrival = np.sort(rng.uniform(0, FILES * FILE_SPAN.total_seconds(), count))
    sent_at = instants(arrival - delay).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_numpy().astype(object)
    invalid = rng.random(count) < 0.002
    sent_at[invalid] = rng.choice(np.array(INVALID_TIMES, dtype=object), invalid.sum())
    return pl.DataFrame(
        {
            "id": np.arange(count),
            "page": rng.choice(list(PAGES), count, p=list(PAGES.values())),
            "user": [f"u{number:05d}" for number in rng.zipf(1.3, count) % 20_000],
            "spend": np.round(rng.exponential(4.0, count), 2),
            "load_ms": np.round(rng.lognormal(4.5, 0.6, count), 1),
            "sent_at": pl.Series(sent_at.tolist(), dtype=pl.String),
            "arrival": arrival,
            "delay": delay,
        }
    )


def delays(count: int, rng: np.random.Generator) -> np.ndarray:
    """Most clicks are seconds late, some just make it, some were offline for minutes.

    Up to tolerance plus allowed lateness a click finds all its windows open; the last kind finds
    none. So every click counts in all of its windows or in none, which is what the check relies on.
    """
    just_in_time = (TOLERANCE + LATENESS).total_seconds()
    kind = rng.random(count)
    delay = np.minimum(rng.exponential(1.0, count), TOLERANCE.total_seconds())
    delay = np.where(kind < 0.03, rng.uniform(5, just_in_time, count), delay)
    return np.where(kind < 0.005, rng.uniform(120, 240, count), delay)


def with_retries(clicks: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Some prompt clicks arrive once more, a few seconds later."""
    prompt = clicks.filter(pl.col("delay") <= TOLERANCE.total_seconds())
    again = prompt.sample(fraction=0.01, seed=int(rng.integers(1 << 31)))
    wait = pl.Series(rng.uniform(1, 10, len(again)))
    return pl.concat([clicks, again.with_columns(pl.col("arrival") + wait)])


def instants(seconds: np.ndarray) -> pl.Series:
    """Instants this long after the beginning."""
    return pl.Series((seconds * 1e6).astype(np.int64)).cast(pl.Duration("us")) + BEGIN


# -- the query ----------------------------------------------------------------------------------


def run(spark: SparkSession, paths: Paths, console: Console) -> dict[str, float]:
    """Run the query over all files, showing each batch; its counters come back."""
    query = pipeline(read_clicks(spark, paths.input)).start(
        checkpoint=paths.checkpoint,
        windows=tg.sinks.parquet(paths.windows),
        visits=tg.sinks.parquet(paths.visits),
        late=tg.sinks.parquet(paths.late),
        errors=tg.sinks.parquet(paths.errors),
        trigger={"availableNow": True},
    )
    with Live(console=console, auto_refresh=False) as live:
        while query.is_active:
            live.update(progress_table(query), refresh=True)
            sleep(0.25)
        live.update(progress_table(query), refresh=True)
    console.print()
    query.await_termination()
    return query.metrics


def read_clicks(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of one file a batch. A time that cannot be parsed becomes null."""
    if ADMISSION_CONTROL.here:
        files = tg.read_folder(spark, folder, schema=SCHEMA, max_files=1)
    else:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
    return files.withColumn("ts", F.try_to_timestamp("sent_at"))


def pipeline(clicks: DataFrame) -> StatementSet:
    """The program: two results of the same clicks, in one query."""
    events = tg.events(clicks, time="ts", tolerance=TOLERANCE)
    return tg.together(windows=busy_pages(events), visits=visits(events))


def busy_pages(clicks: Events) -> Result:
    """One-minute windows every ten seconds, per page."""
    return (
        clicks.key_by("page")
        .window(
            tg.hopping(SIZE, SLIDE),
            allowed_lateness=LATENESS,
            late=tg.late.side_output("late"),
        )
        .agg(
            clicks=tg.count(),
            distinct=tg.count_distinct("id"),
            spend=tg.sum("spend"),
            p95_ms=tg.quantile("load_ms", 0.95),
        )
        .emit(tg.emit.changelog())
    )


def visits(clicks: Events) -> Result:
    """Sessions, as they begin, grow and merge, per user."""
    return (
        clicks.key_by("user")
        .window(tg.session(GAP), allowed_lateness=OFFLINE)
        .agg(clicks=tg.count(), spend=tg.sum("spend"))
        .emit(tg.emit.changelog())
    )


def progress_table(query: Query) -> Table:
    """The newest batches, as Spark reports them, and the totals."""
    names = ("batch", "rows in", "rows/s", "watermark", "late", "errors", "rows out")
    table = Table(*map(right, names))
    for progress in query.spark.recentProgress[-SHOWN_BATCHES:]:
        table.add_row(*progress_row(progress))
    total = query.metrics
    counts = [f"{total[name]:,}" for name in ("rows_in", "late_rows", "errors", "rows_out")]
    table.add_section()
    table.add_row("total", counts[0], "", "", *counts[1:], style="bold")
    return table


def progress_row(progress: StreamingQueryProgress) -> list[str]:
    observed = progress.observedMetrics.get("tidegate")
    counts = observed.asDict() if observed else {}
    watermark = progress.eventTime.get("watermark", "")
    return [
        str(progress.batchId),
        f"{counts.get('rows_in', 0):,}",
        f"{progress.processedRowsPerSecond or 0:,.0f}",
        "–" if watermark.startswith("1970") else watermark[11:19],
        *(f"{counts.get(name, 0):,}" for name in ("late_rows", "errors", "rows_out")),
    ]


# -- the results --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What the query wrote, read back from its files."""

    paths: Paths
    console: Console
    written: int
    metrics: dict[str, float]

    def print(self) -> bool:
        """Print all of it; False if the rows do not add up."""
        changes = rows_in(self.paths.windows)
        windows = consolidate(changes)
        self._print_busiest(windows)
        self._print_corrected(changes)
        self._print_merged(rows_in(self.paths.visits))
        self._print_side_channels()
        balanced = self._print_check(windows)
        self._print_folders()
        return balanced

    def _print_busiest(self, windows: pl.DataFrame) -> None:
        self.console.print("The busiest windows:")
        table = Table("page", *map(right, ("from", "to", "clicks", "distinct", "spend", "p95 ms")))
        busiest = windows.sort("clicks", "page", "window_start", descending=[True, False, False])
        for row in busiest.head(6).iter_rows(named=True):
            edges = clock(row["window_start"]), clock(row["window_end"])
            table.add_row(row["page"], *edges, *numbers(row), f"{row['p95_ms']:.0f}")
        self.console.print(table)

    def _print_corrected(self, changes: pl.DataFrame) -> None:
        """Each correction retracts the row last emitted, field by field, and inserts the new one."""
        story = corrected_window(changes)
        page, start, end = story.select("page", "window_start", "window_end").row(0)
        self.console.print(f"\nOne window as it was corrected: {page}, {clock(start)} to {clock(end)}:")
        table = Table("op", *map(right, ("clicks", "distinct", "spend")))
        for row in story.iter_rows(named=True):
            table.add_row(row["op"], *numbers(row), style="red" if row["op"] in RETRACTIONS else "green")
        self.console.print(table)

    def _print_merged(self, changes: pl.DataFrame) -> None:
        """A click that comes late ties visits together that are out already."""
        story = merged_visit(changes)
        merged = story.row(-1, named=True)
        self.console.print(f"\nA visit of {merged['user']} that was several, until a late click came:")
        table = Table("batch", "op", *map(right, ("from", "to", "clicks", "spend")))
        for row in story.iter_rows(named=True):
            edges = clock(row["window_start"]), clock(row["window_end"])
            shown = str(row["batch"]), row["op"], *edges, f"{row['clicks']:,}", f"{row['spend']:,.2f}"
            table.add_row(*shown, style="red" if row["op"] in RETRACTIONS else "green")
        self.console.print(table)
        self.console.print("Spark's session_window shows a visit once, when it is over.")

    def _print_side_channels(self) -> None:
        late, errors = rows_in(self.paths.late), rows_in(self.paths.errors)
        late = late.with_columns(behind=pl.col("watermark") - pl.col("ts"))
        row = late.sort("behind", descending=True).row(0, named=True)
        self.console.print(
            f"\n{len(late):,} late clicks. The latest: click {row['id']} of {clock(row['ts'])}, "
            f"{row['behind'].total_seconds():.0f} s behind the watermark {clock(row['watermark'])}"
        )
        row = errors.sort("row").row(-1, named=True)
        self.console.print(f"{len(errors):,} invalid clicks. One of them: {row['reason']}: {row['row']}")

    def _print_check(self, windows: pl.DataFrame) -> bool:
        """Every row is counted, late or invalid; a counted one is in all windows around its time."""
        counted, rest = divmod(int(windows["clicks"].sum()), WINDOWS_PER_CLICK)
        doubled = counted - int(windows["distinct"].sum()) // WINDOWS_PER_CLICK
        late, invalid = self.metrics["late_rows"], self.metrics["errors"]
        balanced = rest == 0 and self.written == self.metrics["rows_in"] == counted + late + invalid
        mark = "[green]adds up[/]" if balanced else "[red]does not add up[/]"
        self.console.print(
            f"\n{self.written:,} rows in = {counted:,} counted ({doubled:,} of them retries) "
            f"+ {late:,} late + {invalid:,} invalid: {mark}"
        )
        return balanced

    def _print_folders(self) -> None:
        self.console.print(f"\nFiles in {self.paths.root}/:")
        for path in self.paths.written:
            count = sum(1 for file in path.iterdir() if file.is_file() and file.name[0] != ".")
            self.console.print(f"  {path.name + '/':<12}{count} files")
        self.console.print(f"  {self.paths.log.name:<12}what Spark had to say")


def rows_in(folder: Path) -> pl.DataFrame:
    """What a query wrote into a folder, with the number of the batch: files begin with it."""
    rows = pl.read_parquet(folder / "batch-*.parquet", include_file_paths="file")
    batch = pl.col("file").str.extract(r"batch-(\d+)-").cast(pl.Int64)
    return rows.with_columns(batch=batch).drop("file")


def consolidate(changes: pl.DataFrame) -> pl.DataFrame:
    """The rows that are left when every retraction has taken its row back."""
    weight = pl.when(pl.col("op").is_in(RETRACTIONS)).then(-1).otherwise(1).sum().alias("weight")
    rows = changes.group_by(pl.exclude("op", "batch")).agg(weight)
    assert rows["weight"].is_in([0, 1]).all(), "a changelog takes back only rows that are out"
    return rows.filter(pl.col("weight") == 1).drop("weight")


def corrected_window(changes: pl.DataFrame) -> pl.DataFrame:
    """The changes of the window that was corrected most often, oldest first."""
    window = ["page", "window_start"]
    most = changes.group_by(window).len().sort("len", *window, descending=True).head(1)
    return told(changes.join(most.select(window), on=window))


def merged_visit(changes: pl.DataFrame) -> pl.DataFrame:
    """All that became part of one visit, oldest first: the shortest of those with the most parts."""
    taken_back = pl.col("op").is_in(RETRACTIONS)
    corrections = changes.group_by("user", "batch").agg(
        parts=taken_back.sum(),
        results=(~taken_back).sum(),
        start=pl.col("window_start").min(),
        end=pl.col("window_end").max(),
        clicks=pl.col("clicks").max(),
    )
    merges = corrections.filter(pl.col("results") == 1)
    merged = merges.sort("parts", "clicks", "user", descending=[True, False, False]).row(0, named=True)
    return told(
        changes.filter(
            pl.col("user") == merged["user"],
            pl.col("window_start") >= merged["start"],
            pl.col("window_end") <= merged["end"],
            pl.col("batch") <= merged["batch"],
        )
    )


def told(changes: pl.DataFrame) -> pl.DataFrame:
    """In the order of time; in each batch retractions come first."""
    return changes.sort("batch", ~pl.col("op").is_in(RETRACTIONS), "window_start")


def right(name: str) -> Column:
    return Column(name, justify="right")


def numbers(row: dict[str, Any]) -> tuple[str, str, str]:
    return f"{row['clicks']:,}", f"{row['distinct']:,}", f"{row['spend']:,.2f}"


def clock(instant: datetime) -> str:
    return f"{instant:%H:%M:%S}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
