"""Everything in one query: admission, shedding, steps, duplicates, two joins and a running fold.

    python examples/whole_pipeline.py [FOLDER]

    events ─ admit ─ shed ─ filter, map, filter ─ dedupe ─┬─ pairs    impressions and clicks of a window
              │       │                            │      ├─ visits   sessions of clicks and of orders
          rejected   shed                       too_old   └─ totals   a running fold

A shop's events come from several producers. Some come again, some late, some are broken, and one
producer sends more than it may. The query is stopped in the middle and goes on from its checkpoint.
At the end it is told where every single row went.
"""

import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import tidegate as tg

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = """
    ts timestamp, received_at timestamp, producer string, seq long,
    kind string, user string, price double, priority string
"""
#: What each kind is worth when there is too much of everything.
PRIORITIES = {"impression": "medium", "click": "high", "order": "critical", "debug": "low"}
#: Channels that are written as files; the totals are a table.
FILES = ("pairs", "visits", "errors", "rejected", "shed", "too_old", "late_pairs", "late_visits")


# -- the events -----------------------------------------------------------------------------------


def generate(minutes: int, rows: int, seed: int = 7) -> list[pl.DataFrame]:
    """Events by the minute they were received in, about so many rows in each; then one that ends it."""
    random = np.random.default_rng(seed)
    count = minutes * rows
    received = np.sort(random.uniform(0, 60 * minutes, count))
    # Most are on time. Some are late for windows, some too old for ids to be known, some over the limit.
    delay = random.choice([2.0, 45.0, 95.0, 200.0], count, p=[0.9, 0.04, 0.04, 0.02])
    kind = random.choice([*PRIORITIES], count, p=[0.55, 0.25, 0.1, 0.1])
    sent = pl.DataFrame(
        {
            "ts": received - delay * random.uniform(0, 1.2, count),
            "received_at": received,
            "producer": random.choice(["web", "app", "till", "robot"], count, p=[0.2, 0.2, 0.2, 0.4]),
            "kind": kind,
            "user": [f"user-{number}" for number in random.integers(0, rows // 10, count)],
            "price": np.where(kind == "order", random.integers(1, 10_000, count) / 100, 0.0),
        }
    ).with_columns(
        seq=pl.int_range(pl.len()).over("producer"), priority=pl.col("kind").replace(PRIORITIES)
    )
    again = sent.sample(fraction=0.05, seed=seed).with_columns(pl.col("received_at") + 20)
    broken = pl.lit(random.random(count + len(again)) < 0.01)
    ending = {"ts": 1e5, "received_at": 1e5, "producer": "clock", "seq": 0, "kind": "debug"}
    events = (
        pl.concat([sent, again])
        .with_columns(ts=pl.when(~broken).then("ts"))
        .sort("received_at")
        .with_columns(minute=(pl.col("received_at") // 60).cast(int).clip(upper_bound=minutes - 1))
    )
    batches = [*events.partition_by("minute", include_key=False), pl.DataFrame([ending])]
    columns = events.drop("minute").clear()
    return [_with_times(pl.concat([columns, batch], how="diagonal")) for batch in batches]


def _with_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Seconds since noon as points in time, to the millisecond."""
    times = [
        (pl.lit(NOON) + pl.duration(milliseconds=(pl.col(name) * 1000).round().cast(int))).alias(name)
        for name in ("ts", "received_at")
    ]
    order = [column.split()[0] for column in SCHEMA.split(",")]
    return rows.with_columns(times).select(order)


def write(folder: Path, batches: list[pl.DataFrame], first: int = 0) -> None:
    """Each as a file that is there all at once."""
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate(batches, first):
        rows.write_parquet(folder / f"_{number}")
        (folder / f"_{number}").rename(folder / f"{number}.parquet")


# -- the pipeline ---------------------------------------------------------------------------------


def known(rows: pl.DataFrame) -> pl.Series:
    return rows["kind"].is_in(["impression", "click", "order"])


def in_cents(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(cents=(pl.col("price") * 100).round().cast(pl.Int64)).drop("price")


def no_tests(rows: pl.DataFrame) -> pl.Series:
    return rows["user"] != "user-0"


def of_kind(kind: str):
    return lambda rows: rows["kind"] == kind


def limits(rows: int) -> object:
    """For each producer nearly a third of the rows of a minute; the robot sends more."""
    return tg.sla(
        max_rate=rows * 0.3 / 60, capacity=rows // 20, max_lag="2 minutes", arrival="received_at"
    )


def pipeline(stream, rows: int):
    """The whole of it; `rows` is how many a minute are expected."""
    admitted = tg.events(stream, time="ts", tolerance="10 s").admit(limits(rows), stream="producer")
    clean = admitted.shed(priority="priority").filter(known).map(in_cents).filter(no_tests)
    distinct = clean.dedupe(
        on=["producer", "seq"], within="1 minute", late=tg.late.side_output("too_old")
    )

    def windows(kind: str, window, late: str):
        of_users = distinct.filter(of_kind(kind)).key_by("user")
        return of_users.window(window, late=tg.late.side_output(late))

    pane, session = tg.tumbling("30 s"), tg.session("10 s")
    shown, clicked = (windows(kind, pane, "late_pairs") for kind in ("impression", "click"))
    looked, bought = (windows(kind, session, "late_visits") for kind in ("click", "order"))
    return tg.together(
        pairs=shown.join(clicked, where="ts_right >= ts_left"),
        visits=looked.join(bought),
        totals=distinct.key_by("producer", "kind").agg(events=tg.count(), cents=tg.sum("cents")),
    )


def start(spark, folder: Path, rows: int, **options):
    events = tg.read_folder(spark, folder / "events", schema=SCHEMA, format="parquet", max_files=1)
    sinks = {name: tg.sinks.parquet(folder / name) for name in FILES}
    sinks["totals"] = tg.sinks.duckdb(folder / "totals.duckdb", "totals")
    whole = pipeline(events, rows)
    return whole.start(checkpoint=folder / "checkpoint", **options, **sinks)


def run(spark, folder: Path, batches: list[pl.DataFrame], rows: int) -> Counter:
    """Run it over half of the batches, stop, and go on with the others; what it counted comes back."""
    half = len(batches) // 2
    metrics: Counter = Counter()

    write(folder / "events", batches[:half])
    query = start(spark, folder, rows)
    query.process_all_available()
    query.stop()
    metrics.update(query.metrics)  # which are those of a run

    write(folder / "events", batches[half:], half)
    query = start(spark, folder, rows, trigger={"availableNow": True})
    query.await_termination()
    metrics.update(query.metrics)
    return metrics


# -- where every row went -------------------------------------------------------------------------


def totals(folder: Path) -> list[tuple]:
    """The table, as it stands."""
    with duckdb.connect(str(folder / "totals.duckdb"), read_only=True) as tables:
        return tables.sql("SELECT producer, kind, events, cents FROM totals ORDER BY ALL").fetchall()


def written(folder: Path, channel: str) -> pl.DataFrame:
    """The rows of a channel; one without rows has no folder."""
    files = sorted((folder / channel).glob("*.parquet"))
    rows = pl.concat(map(pl.read_parquet, files)) if files else pl.DataFrame()
    # Spark's files have times in UTC that do not say so.
    return rows.with_columns(
        pl.col(pl.Datetime("ns")).dt.cast_time_unit("us").dt.replace_time_zone("UTC")
    )


def account(folder: Path, metrics: Counter) -> dict[str, int]:
    """Where the rows went: each is in one line."""
    counted = sum(events for _, _, events, _ in totals(folder))
    # `filtered` is of all filters. Each row that is counted was also shown to the four before the joins,
    # which let pass what came to the sides.
    before_joins = 4 * counted - metrics["left_rows"] - metrics["right_rows"]
    return {
        "broken": metrics["errors"],
        "rejected: lag": metrics["rejected_lag"],
        "rejected: rate": metrics["rejected_rate"],
        "shed": metrics["shed"],
        "filtered": metrics["filtered"] - before_joins,
        "duplicates": metrics["duplicates_filtered"],
        "too old": metrics["rows_out.too_old"],
        "counted in totals": counted,
    }


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).absolute()
    folder.mkdir(exist_ok=True)
    spark = tg.local_spark(cores=2)
    rows = 10_000
    metrics = run(spark, folder, generate(minutes=4, rows=rows), rows)
    where = account(folder, metrics)
    for name, count in where.items():
        print(f"{name:>20} {count:>8,}")
    print(f"{'rows in':>20} {metrics['rows_in']:>8,}")
    for channel in ("pairs", "visits", "late_pairs", "late_visits"):
        print(f"{channel:>20} {len(written(folder, channel)):>8,}")
    print(f"everything is in {folder}")
    if sum(where.values()) != metrics["rows_in"]:
        sys.exit("some rows are not accounted for")


if __name__ == "__main__":
    main()
