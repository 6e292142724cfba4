"""Steps, fusion, shedding, admission and results side by side, as real queries."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException

import tidegate as tg
from tests.spark.conftest import NOON, run
from tests.spark.files import file_stream, write_files
from tests.spark.test_event_time_queries import wait_until
from tests.support.steps import FUSIONS
from tidegate.errors import PlanError
from tidegate.kernels.shedding import Load, LoadCoordinator
from tidegate.optimize import optimize
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark import load_shedding as load
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

Stream = Callable[..., Any]

ORDERS = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("id", pa.int64()),
        ("user", pa.string()),
        ("price", pa.float64()),
        ("weight", pa.string()),
        ("came", TIMESTAMP),
    ]
)
#: Tells where nobody can get lost: a filter of ours must never see these.
FLUSH = 10_000


def order(at: float | None, number: int, user: str | None, **more: Any) -> dict[str, Any]:
    """An order; seconds count from noon."""
    times = {name: more.pop(name) for name in ("came",) if name in more}
    instants = {name: _instant(time) for name, time in {"ts": at, **times}.items()}
    return {"price": 1.0, "weight": "low", "id": number, "user": user} | more | instants


def _instant(time: float | None) -> datetime | None:
    return None if time is None else instant_of(NOON + round(time * 1_000_000))


def written(folder: Path, batches: Iterable[Sequence[dict[str, Any]]], start: int = 0) -> None:
    write_files(folder, (pa.Table.from_pylist(list(rows), ORDERS) for rows in batches), start)


def counted(rows: Iterable[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows)


class Kept:
    """A sink that remembers the rows of each attempt at a batch, and can fail once."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.attempts: list[tuple[int, list[dict[str, Any]]]] = []
        self.fails_at = fails_at

    def __call__(self, rows: Any, batch_id: int) -> None:
        self.attempts.append((batch_id, [row.asDict() for row in rows.collect()]))
        if batch_id == self.fails_at:
            self.fails_at = None
            raise RuntimeError("the disk is full")

    def rows(self) -> list[dict[str, Any]]:
        return [row for rows in dict(self.attempts).values() for row in rows]


# -- fusion ---------------------------------------------------------------------------------------

BATCHES = [
    [
        order(1, 1, "ann", price=2.0), order(2, 2, "bob"), order(None, 3, "eve"), order(3, 1, "ann"),
        order(4, 4, None, price=5.0),
    ],
    [order(12, 5, "ann", price=7.5), order(13, 6, "bob", price=-1.0), order(31, 7, "ann")],
    [order(5, 8, "ann", price=4.0), order(6, 9, "bob"), order(33, 10, "bob"), order(None, 11, None)],
    [order(FLUSH, 12, "zoe")],
]  # fmt: skip


def sums(stream: Any) -> Any:
    """Steps before each of two operators, which change keys, columns and the number of rows."""

    def in_cents(rows: pl.DataFrame) -> pl.DataFrame:
        assert not rows["ts"].null_count()
        assert not rows["id"].null_count()
        return rows.with_columns(cents=(pl.col("price") * 100).cast(pl.UInt32, strict=False))

    def known(rows: pa.Table) -> Any:
        return pc.is_valid(rows["user"])

    def shouted(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.select(
            "ts", user=pl.col("user").str.to_uppercase().cast(pl.Categorical), cents="cents"
        )

    distinct = (
        tg.events(stream, time="ts", tolerance="5 s")
        .map(in_cents)
        .filter(lambda rows: rows["price"] > 0)
        .filter(known, frames="arrow")
        .dedupe(on="id", within="1 hour")
    )
    keyed = distinct.map(shouted).filter(lambda rows: rows["cents"] > 0).key_by("user")
    windows = keyed.window(tg.tumbling("10 s"), late=tg.late.side_output("late"))
    return windows.agg(n=tg.count(), cents=tg.sum("cents"))


def on_the_host(result: Any, parts: Sequence[Sequence[Sequence[dict[str, Any]]]]) -> Any:
    """All that leaves by each channel, and what is counted."""
    host, channels, counts = KernelHost(optimize(result.node), as_spark=True), {}, Counter()
    for part in parts:
        for batch in (*part, []):  # Spark ends a run with a batch without rows
            got = host.batch(batch)
            counts.update(got.counts)
            for name, rows in got.channels.items():
                channels.setdefault(name, []).extend(rows)
    return channels, counts


@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_fusion_does_not_show_in_a_query(spark: Any, tmp_path: Path, fusion: str) -> None:
    """Results, late rows, errors and counters, over a restart: all as on the host."""
    parts = BATCHES[:2], BATCHES[2:]
    sinks = {name: tg.sinks.memory() for name in ("main", "late", "errors")}
    counters: Counter[str] = Counter()
    for part, start in zip(parts, (0, 2), strict=True):
        written(tmp_path / "in", part, start)
        result = sums(file_stream(spark, tmp_path / "in", ORDERS))
        query = run(result, tmp_path / "checkpoint", fusion=FUSIONS[fusion], **sinks)
        counters.update({name: query.metrics[name] for name in query.metrics})
    channels, counts = on_the_host(result, parts)
    assert all(channels[name] for name in sinks)
    for name in ("main", "late"):
        assert counted(sinks[name].rows()) == counted(channels[name])
    errors = [json.loads(row["row"])["id"] for row in sinks["errors"].rows()]
    assert sorted(errors) == [3, 11]
    for name in ("rows_in", "filtered", "errors", "duplicates_filtered", "late_rows"):
        assert counters[name] == counts[name] > 0


def test_what_is_open_behind_steps_can_be_drained(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in", BATCHES[:1])
    result = sums(file_stream(spark, tmp_path / "in", ORDERS))
    sinks = {"main": tg.sinks.memory(), "late": tg.sinks.discard()}
    query = run(result, tmp_path / "checkpoint", fusion=FUSIONS["unfused"], **sinks)
    assert sinks["main"].rows() == []
    query.stop(drain=True)
    host = KernelHost(optimize(result.node), as_spark=True)
    host.batch(BATCHES[0])
    assert counted(sinks["main"].rows()) == counted(host.end().main) != Counter()


def test_rows_of_the_clock_take_no_steps(spark: Any, tmp_path: Path) -> None:
    """They have nothing but a time: a function that needs more would fail."""

    def strict(rows: pl.DataFrame) -> pl.DataFrame:
        assert not rows["id"].null_count()
        return rows.with_columns(pl.col("id") + 1)

    written(tmp_path / "in", [[order(None, 1, "ann"), order(5, 2, "bob")]])
    stamped = tg.events(
        file_stream(spark, tmp_path / "in", ORDERS), time=tg.processing_time(tick="200 ms")
    )
    around = stamped.map(strict).filter(lambda rows: rows["id"] == 3).window(tg.sliding("1 s", "1 s"))
    main = tg.sinks.memory()
    query = around.agg(n=tg.count()).start(
        checkpoint=tmp_path / "checkpoint", main=main, fusion=FUSIONS["unfused"]
    )
    try:
        wait_until(query, lambda: len(main.rows()) == 1)
        assert (query.metrics["rows_in"], query.metrics["filtered"]) == (2, 1)
    finally:
        query.stop()
    assert [(row["id"], row["n"]) for row in main.rows()] == [(3, 1)]


@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_a_map_that_fails_stops_the_query_and_says_why(spark: Any, tmp_path: Path, fusion: str) -> None:
    def shares(rows: pl.DataFrame) -> pl.DataFrame:
        if rows["price"].sum() > 100:
            raise ValueError("who pays that?")
        return rows

    written(tmp_path / "in", [BATCHES[0], [order(5, 6, "ann", price=1000.0)]])
    stream = tg.events(file_stream(spark, tmp_path / "in", ORDERS), time="ts").map(shares)
    main = tg.sinks.memory()
    with pytest.raises(StreamingQueryException) as failure:
        run(stream.agg(n=tg.count()), tmp_path / "checkpoint", main=main, fusion=FUSIONS[fusion])
    assert "StepError: map shares failed: ValueError: who pays that?" in str(failure.value)
    assert list(main.batches) == [0]


# -- side by side ---------------------------------------------------------------------------------


NAMED = ("totals", "windows", "rows", "errors")


def three(stream: Any) -> dict[str, Any]:
    distinct = tg.events(stream, time="ts", tolerance="5 s").dedupe(on="id", within="1 hour")
    dear = distinct.filter(lambda rows: rows["price"] > 1).key_by("user")
    return {
        "totals": distinct.key_by("user").agg(n=tg.count(), spent=tg.sum("price")),
        "windows": dear.window(tg.tumbling("10 s")).agg(n=tg.count()),
        "rows": distinct,
    }


def test_results_side_by_side_are_those_of_each_by_itself(spark: Any, tmp_path: Path) -> None:
    """What they share is read and counted once; they stop and go on."""
    sinks = {fusion: {name: tg.sinks.memory() for name in NAMED} for fusion in ("fused", "unfused")}
    counters = {fusion: Counter[str]() for fusion in sinks}
    parts = BATCHES[:2], BATCHES[2:]
    for part, start in zip(parts, (0, 2), strict=True):
        written(tmp_path / "in", part, start)
        results = three(file_stream(spark, tmp_path / "in", ORDERS))
        for name, own in sinks.items():
            query = run(tg.together(**results), tmp_path / name, fusion=FUSIONS[name], **own)
            counters[name].update(query.metrics)
    assert list(query.watermarks) == ["1 dedupe", "2 fold", "3 tumbling(10 seconds)"]
    alone = {name: on_the_host(result, parts)[0]["main"] for name, result in results.items()}
    for fusion, own in sinks.items():
        counts = counters[fusion]
        for name in results:
            assert counted(own[name].rows()) == counted(alone[name]) != Counter()
            assert counts[f"rows_out.{name}"] == len(own[name].rows())
        assert counts["rows_out"] == sum(len(own[name].rows()) for name in results)
        assert counts["rows_in"] == sum(map(len, BATCHES))
        assert counts["errors"] == len(own["errors"].rows()) == 2
        assert counts["duplicates_filtered"] == 1
        assert counts["filtered"] == sum(row["price"] <= 1 for row in own["rows"].rows())


# -- load -----------------------------------------------------------------------------------------

#: Every measure at its worst.
WORST = Load(cpu=1.0, memory=1.0, queue=20_000, latency=5.0)
WEIGHTS = ("low", "medium", "high", "critical")
BUSY = [
    [
        order(
            10 * batch + number // 10, 100 * batch + number, f"u{number % 5}", weight=WEIGHTS[number % 4]
        )
        for number in range(100)
    ]
    for batch in range(4)
]


def admitted(stream: Any, policy: Any) -> Any:
    limits = tg.sla("bronze", max_rate=1, capacity=8, max_lag="1 hour", arrival="ts")
    passed = tg.events(stream, time="ts").admit(limits, stream="user").shed(policy, priority="weight")
    return passed.key_by("user").agg(n=tg.count())


@pytest.fixture
def overloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The checkpoint of a query that has been under load; measured, here, is always the worst."""
    monkeypatch.setattr(load, "Load", lambda *_: WORST)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    note = LoadCoordinator("strict", scores=(1.0, 1.0, 1.0), smoothed=0.8).metadata()
    (checkpoint / "tidegate.load.json").write_text(json.dumps(note))
    return checkpoint


@pytest.mark.versions("load shedding")
def test_rows_are_shed_under_load_and_a_replay_sheds_the_same(
    spark: Any, tmp_path: Path, overloaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third batch fails twice: in a sink, and when the decision on the next one is written down."""
    decide, failures = load.Shedding.after, iter(["the plug is out"])

    def decide_and_fail(self: Any, batch: int, *measured: Any) -> Any:
        decision = decide(self, batch, *measured)
        if batch == 2 and (failure := next(failures, None)):
            raise RuntimeError(failure)
        return decision

    monkeypatch.setattr(load.Shedding, "after", decide_and_fail)
    written(tmp_path / "in", BUSY)
    sinks = {"shed": Kept(), "rejected": Kept(), "main": Kept(fails_at=2)}
    for failure in ("the disk is full", "the plug is out"):
        with pytest.raises(StreamingQueryException, match=failure):
            run(admitted(file_stream(spark, tmp_path / "in", ORDERS), "strict"), overloaded, **sinks)
    query = run(admitted(file_stream(spark, tmp_path / "in", ORDERS), "strict"), overloaded, **sinks)

    shed, rejected = sinks["shed"], sinks["rejected"]
    # Nothing was known before the first batch.
    assert [number for number, _ in shed.attempts] == [1, 2, 2, 2, 3]
    assert shed.attempts[1] == shed.attempts[2] == shed.attempts[3]
    assert [number for number, _ in rejected.attempts] == [0, 1, 2, 2, 2, 3]

    by_weight = Counter(row["weight"] for row in shed.rows())
    assert by_weight["low"] > by_weight["high"] > by_weight["critical"] == 0
    gone, refused = ({row["id"] for row in sink.rows()} for sink in (shed, rejected))
    assert not gone & refused
    totals = {row["user"]: row["n"] for row in sinks["main"].rows() if row["op"] in ("+I", "+U")}
    assert sum(totals.values()) + len(refused) + len(gone) == 400

    metrics = query.metrics
    assert metrics["load_score"] == pytest.approx(1.0)
    assert metrics["load_score.cpu"] == metrics["load_score.memory"] == pytest.approx(0.35)
    assert metrics["load_score.queue"] == pytest.approx(0.2)
    assert metrics["load_score.latency"] == pytest.approx(0.1)
    assert 0.8 < metrics["shed_probability"] <= 0.95
    assert metrics["rows_in"] == 200  # since the start: of the last two batches
    apart = metrics["rejected_rate"] + metrics["rejected_lag"] + metrics["rejected_jitter"]
    assert metrics["admitted"] + apart == metrics["rows_in"]
    assert metrics["shed"] == sum(len(rows) for _, rows in shed.attempts[3:])


@pytest.mark.parametrize("policy", ["prefer_throttle", "bypass"])
def test_other_policies_shed_nothing(spark: Any, tmp_path: Path, overloaded: Path, policy: str) -> None:
    written(tmp_path / "in", BUSY[:3])
    shed = Kept()
    result = admitted(file_stream(spark, tmp_path / "in", ORDERS), policy)
    query = run(result, overloaded, main=tg.sinks.discard(), rejected=tg.sinks.discard(), shed=shed)
    assert shed.attempts == []
    assert query.metrics["shed"] == query.metrics["shed_probability"] == 0
    assert query.metrics["rows_in"] == 300
    if policy == "bypass":
        assert (query.metrics["throttle"], query.metrics["load_score"]) == (1, 0)
    else:
        assert query.metrics["throttle"] < 0.2
        assert query.metrics["load_score"] == pytest.approx(1.0)


def test_the_load_is_sampled_where_rows_are(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in", BUSY[:2])
    result = tg.events(file_stream(spark, tmp_path / "in", ORDERS), time="ts").shed().agg(n=tg.count())
    query = run(result, tmp_path / "checkpoint", main=tg.sinks.discard(), shed=tg.sinks.discard())
    # The last batch has no rows, and so no load; of the one before it the note tells.
    assert query.metrics["load_score.queue"] == 0
    note = json.loads((tmp_path / "checkpoint" / "tidegate.load.json").read_text())
    decision, last = note["decisions"]
    assert (decision["batch"], last["batch"]) == (2, 3)
    parts = decision["parts"]
    assert decision["score"] == pytest.approx(sum(parts.values()))
    assert 0 < parts["memory"] <= 0.35
    assert 0 <= parts["cpu"] <= 0.35
    assert parts["queue"] == pytest.approx(0.2 * 100 / 10_000)
    with pytest.raises(
        PlanError, match=r"^the load is watched by a running query: with shed\(\) use start"
    ):
        result.to_df()


# -- admission ------------------------------------------------------------------------------------

#: Arrival in a burst; two seconds later; out of date; after a long silence; and soon after it.
ARRIVALS = [
    [order(0, number, "ann", came=0) for number in range(7)] + [order(0, 7, "bob", came=0)],
    [order(2, number, "ann", came=2) for number in range(8, 12)],
    [order(2, 12, "ann", came=8), order(60, 13, "ann", came=60), order(61, 14, "ann", came=61)],
]
LIMITS = {"jitter_budget": "30 s", "arrival": "came"}
REASONS = {5: "rate", 6: "rate", 10: "rate", 11: "rate", 12: "lag", 13: "jitter"}


@pytest.mark.versions("admission")
def test_a_stream_drains_refills_and_keeps_its_level_over_a_restart(spark: Any, tmp_path: Path) -> None:
    counters: Counter[str] = Counter()
    main = tg.sinks.memory()
    for number, batch in enumerate(ARRIVALS):
        written(tmp_path / "in", [batch], number)
        events = tg.events(file_stream(spark, tmp_path / "in", ORDERS), time="ts")
        passed = events.admit(tg.sla("bronze", **LIMITS), stream="user")
        rejected = tg.sinks.parquet(tmp_path / "rejected")
        counters.update(run(passed, tmp_path / "checkpoint", main=main, rejected=rejected).metrics)
    sent_away = pl.read_parquet(str(tmp_path / "rejected" / "*.parquet"))
    assert dict(sent_away.select("id", "reason").iter_rows()) == REASONS
    assert sorted(row["id"] for row in main.rows()) == [0, 1, 2, 3, 4, 7, 8, 9, 14]
    assert counters["rows_in"] == 15
    named = ("admitted", "rejected_rate", "rejected_lag", "rejected_jitter")
    assert [counters[name] for name in named] == [9, 4, 1, 1]
    late = sent_away.row(by_predicate=pl.col("id") == 12, named=True)
    assert (late["lag"], late["gap"]) == (timedelta(seconds=6), timedelta(seconds=6))


def test_rows_of_a_batch_arrive_when_their_column_says(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in", ARRIVALS)
    events = tg.events(spark.read.parquet(str(tmp_path / "in")), time="ts")
    passed = events.admit(tg.sla("bronze", **LIMITS), stream="user").to_df()
    kept = {row["id"] for row in passed.collect()}
    # Equal arrivals have no order among each other: how many pass is the same.
    assert len(kept & set(range(7))) == 5
    assert len(kept & set(range(8, 12))) == 2
    assert kept & {7, 12, 13, 14} == {7, 14}
    with pytest.raises(
        PlanError, match=r"^admit\(\) of a batch DataFrame: its rows do not arrive; name"
    ):
        events.admit(tg.sla("bronze"), stream="user")


def test_now_is_the_time_of_the_batch(spark: Any, tmp_path: Path) -> None:
    """Without a column that says otherwise rows arrive together, however old they are."""
    old = datetime.now(UTC).timestamp() - NOON / 1_000_000
    fresh = [order(old, number, "ann") for number in range(7)]
    written(tmp_path / "in", [[*fresh, order(0, 7, "ann")]])
    events = tg.events(file_stream(spark, tmp_path / "in", ORDERS), time="ts", tolerance="9000 days")
    passed = events.admit(tg.sla("bronze", max_lag="10 minutes"))
    metrics = run(
        passed, tmp_path / "checkpoint", main=tg.sinks.discard(), rejected=tg.sinks.discard()
    ).metrics
    named = ("rows_in", "admitted", "rejected_rate", "rejected_lag")
    assert [metrics[name] for name in named] == [8, 5, 2, 1]
