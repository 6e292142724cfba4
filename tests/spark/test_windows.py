"""Windows through real streaming queries: what each micro-batch puts out, and what is left."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.conftest import NOON, run, seconds

BATCHES = [
    [(1, "ann", 1.0), (4, "ann", 2.0), (2, "bob", 5.0), (None, "ann", 9.0)],
    [(12, "ann", 3.0), (11, None, 7.0)],
    [(3, "ann", 4.0), (25, "bob", None)],  # 3 s: the watermark is at 12 - 5 = 7 s, so not late
    [(6, "bob", 1.0), (26, "bob", 2.0)],  # 6 s: the watermark is at 20 s, so late
    [(60, "ann", 1.0)],
]


def rows_by_batch(sink: Any) -> dict[int, list[tuple[Any, ...]]]:
    return {
        batch: sorted(
            (
                (
                    r["user"],
                    seconds(r["window_start"]),
                    r["n"],
                    r["spend"],
                    *([r["op"]] if "op" in r else []),
                )
                for r in table.to_pylist()
            ),
            key=repr,
        )
        for batch, table in sink.batches.items()
    }


def tumbling(stream: Any, **window: Any) -> Any:
    keyed = tg.events(stream, time="ts", tolerance="5 s").key_by("user")
    return keyed.window(tg.tumbling("10 s"), **window).agg(n=tg.count(), spend=tg.sum("price"))


@pytest.mark.versions("tumbling windows")
def test_a_window_is_emitted_once_when_the_watermark_passes_its_end(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    main, errors = tg.sinks.memory(), tg.sinks.memory()
    query = run(tumbling(click_stream(BATCHES)), tmp_path / "ckpt", main=main, errors=errors)
    assert rows_by_batch(main) == {
        3: [("ann", 0, 3, 7.0), ("ann", 10, 1, 3.0), ("bob", 0, 1, 5.0), (None, 10, 1, 7.0)],
        5: [("bob", 20, 2, 2.0)],
    }
    assert query.metrics["late_rows"] == query.metrics["late_dropped"] == 1
    assert query.metrics["rows_in"] == 11
    assert query.metrics["errors"] == 1
    assert [(r["reason"], r["row"]) for r in errors.rows()] == [
        ("event time 'ts' is null", '{"user":"ann","price":9.0}')
    ]


@pytest.mark.versions("late side output")
def test_late_rows_leave_unchanged_with_how_late_they_were(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    late = tg.sinks.memory()
    result = tumbling(click_stream(BATCHES), late=tg.late.side_output("late"))
    query = run(result, tmp_path / "ckpt", main=tg.sinks.discard(), late=late)
    (row,) = late.rows()
    assert (row["user"], seconds(row["ts"]), row["price"]) == ("bob", 6, 1.0)
    assert row["late_by"].total_seconds() == 14
    assert seconds(row["watermark"]) == 20
    assert query.metrics["late_rows"] == 1
    assert query.metrics["late_dropped"] == 0


def test_reassigned_rows_count_where_the_watermark_is(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    main = tg.sinks.memory()
    result = tumbling(click_stream(BATCHES), late=tg.late.reassign("14 s"))
    query = run(result, tmp_path / "ckpt", main=main)
    assert rows_by_batch(main)[5] == [("bob", 20, 3, 3.0)]
    assert query.metrics["late_reassigned"] == query.metrics["late_rows"] == 1


def test_a_late_row_within_the_allowed_lateness_corrects_the_window(
    click_stream: Callable[..., Any], tmp_path: Path
) -> None:
    main = tg.sinks.memory()
    query = run(tumbling(click_stream(BATCHES), allowed_lateness="15 s"), tmp_path / "ckpt", main=main)
    batches = rows_by_batch(main)
    # Batch 3 brings bob's late row while the window is being emitted: the net change is one row.
    assert ("bob", 0, 2, 6.0) in batches[3]
    assert query.metrics["late_rows"] == 0


@pytest.mark.versions("changelogs")
def test_a_changelog_balances_at_every_batch(click_stream: Callable[..., Any], tmp_path: Path) -> None:
    main = tg.sinks.memory()
    run(tumbling(click_stream(BATCHES)).emit(tg.emit.changelog()), tmp_path / "ckpt", main=main)
    live: dict[Any, Any] = {}
    for batch in sorted(main.batches):
        for row in main.batches[batch].to_pylist():
            window = (row["user"], row["window_start"])
            value = (row["n"], row["spend"])
            if row["op"] == "-D":
                assert live.pop(window) == value
            else:
                assert row["op"] == "+I"
                assert window not in live
                live[window] = value
    assert {(user, seconds(start)): value for (user, start), value in live.items()} == {
        ("ann", 0): (3, 7.0),
        ("ann", 10): (1, 3.0),
        ("ann", 60): (1, 1.0),
        ("bob", 0): (1, 5.0),
        ("bob", 20): (2, 2.0),
        (None, 10): (1, 7.0),
    }


def expected_windows(batches: Any, size: int, slide: int) -> dict[Any, tuple[int, float]]:
    """Each row put into each of its windows, one by one. Windows count from 1970, not from noon."""
    windows: dict[Any, list[float]] = defaultdict(list)
    since_1970 = NOON // 1_000_000
    for t, user, price in (row for batch in batches for row in batch):
        start = (t + since_1970) // slide * slide - since_1970
        while start > t - size:
            windows[user, start].append(price)
            start -= slide
    return {window: (len(prices), sum(prices)) for window, prices in windows.items()}


def disordered(rows: int, per_batch: int) -> list[list[tuple[float, str, float]]]:
    """Clicks one after the other, each up to three seconds early."""
    clicks = [(i / 2 - i * 7919 % 13 / 4, f"user-{i * 31 % 17}", float(i % 10)) for i in range(rows)]
    return [clicks[i : i + per_batch] for i in range(0, rows, per_batch)]


FLUSH = [[(10_000.0, "flush", 0.0)]]


@pytest.mark.versions("hopping windows")
@pytest.mark.parametrize(
    ("emission", "slide"),
    [
        ("on_watermark", 7),
        ("on_window_close", 25),
        ("final", 10),
        ("on_update", 7),
        ("periodic", 10),
    ],
)
def test_hopping_windows_equal_those_kept_one_by_one(
    click_stream: Callable[..., Any], tmp_path: Path, slide: int, emission: str
) -> None:
    batches = disordered(600, 300)
    strategy = tg.emit.periodic("1 ms") if emission == "periodic" else getattr(tg.emit, emission)()
    events = tg.events(click_stream(batches + FLUSH), time="ts", tolerance="4 s").key_by("user")
    windows = events.window(tg.hopping("20 s", f"{slide} s")).agg(n=tg.count(), spend=tg.sum("price"))
    main = tg.sinks.memory()
    run(windows.emit(strategy), tmp_path / "ckpt", main=main)
    live: dict[Any, Any] = {}
    for row in main.rows():
        window, value = (row["user"], seconds(row["window_start"])), (row["n"], row["spend"])
        if row.get("op", "+I").startswith("-"):
            assert live.pop(window) == value
        else:
            assert window not in live
            live[window] = value
    live = {window: value for window, value in live.items() if window[0] != "flush"}
    assert live == expected_windows(batches, 20, slide)


def test_batch_frames_give_the_final_answer(spark: Any) -> None:
    clicks = [click for batch in disordered(300, 100) for click in batch]
    df = spark.createDataFrame(clicks, "t double, user string, price double").selectExpr(
        "timestamp_micros(1714564800000000 + cast(t * 1000000 as bigint)) ts", "user", "price"
    )
    hopping = tg.events(df, time="ts").key_by("user").window(tg.hopping("20 s", "7 s"))
    rows = hopping.agg(n=tg.count(), spend=tg.sum("price")).to_df().collect()
    found = {(r["user"], round(seconds(r["window_start"]))): (r["n"], r["spend"]) for r in rows}
    assert found == expected_windows([clicks], 20, 7)
