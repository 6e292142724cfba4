"""The parts of the benchmark that need no Spark session: generator, cases, report, per-key code."""

import dataclasses
import io
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.tws_tester import TwsTester
from rich.console import Console

from benchmarks import __main__ as main
from benchmarks import chart, compare, data, hops, launch, page, pairs, report, versions
from benchmarks.batching import judge
from benchmarks.cases import (
    JOIN_HOPPING,
    Admission,
    Case,
    Distinct,
    Join,
    Paced,
    Session,
    Sliding,
    Window,
    catalogue,
)
from benchmarks.kernel import OneThread
from benchmarks.per_key import LookaheadPerKey, LookbackPerKey
from benchmarks.plans import row_plan
from benchmarks.run import PARTS, measure
from tidegate.kernels.invalid_rows import INVALID_ROW

SMALL = data.Skewed(events=3000, rows=1000, rate=100, keys=50)
EVEN = data.Even(events=3000, rows=1000, rate=100, keys=50)
RESENT = data.Resent(events=3000, rows=1000, rate=100)
STATE = data.Preloaded(loaded=400, shared=100, rows=50, touched=20, measured=2)


def seconds(table):
    return table["ts"].cast("int64").to_numpy() / 1e6 - data.EPOCH


def test_batches_are_the_same_each_time_and_a_prefix_of_a_longer_data_set():
    longer = dataclasses.replace(SMALL, events=5000)
    for index in range(3):
        assert SMALL.batch(index).equals(SMALL.batch(index))
        assert SMALL.batch(index).equals(longer.batch(index))
    assert not SMALL.batch(0).equals(dataclasses.replace(SMALL, seed=9).batch(0))


def test_disorder_stays_below_three_seconds():
    times = np.concatenate([seconds(SMALL.batch(index)) for index in range(3)])
    behind = np.maximum.accumulate(times) - times
    assert 0 < behind.max() < data.DISORDER


def test_the_closing_event_comes_after_all_windows():
    latest = max(seconds(SMALL.batch(index)).max() for index in range(3))
    closing = SMALL.batch(3)
    assert closing.num_rows == 1
    assert seconds(closing)[0] - latest > 60 + data.DISORDER


def test_keys_are_skewed():
    counts = SMALL.batch(0)["user"].value_counts().field("counts").to_numpy()
    assert counts.max() > 10 * np.median(counts)


def users(dataset: data.Dataset) -> list[str]:
    return [user for index in range(3) for user in dataset.batch(index)["user"].to_pylist()]


def test_even_keys_are_about_as_frequent():
    counts = Counter(users(EVEN))
    assert len(counts) == EVEN.keys
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_hot_key_has_its_share_beside_even_ones():
    (hot, most), (_, second), *_ = Counter(users(dataclasses.replace(EVEN, hot=0.1))).most_common()
    assert hot == "user-0"
    assert 300 < most < 420
    assert second < 100


def test_keys_that_last_for_a_pane_are_in_no_other():
    brief = dataclasses.replace(EVEN, lifetime=10)
    seen: dict[str, set[int]] = {}
    for index in range(3):
        batch = brief.batch(index)
        for user, at in zip(batch["user"].to_pylist(), seconds(batch), strict=True):
            seen.setdefault(user, set()).add(int(at) // 10)
    assert all(len(panes) == 1 for panes in seen.values())
    assert len(set.union(*seen.values())) > 2


def test_messages_are_sent_again_in_their_batch_and_in_the_next_one():
    batches = [RESENT.batch(index).to_pylist() for index in range(RESENT.batches)]
    assert [len(batch) for batch in batches] == [1000] * 3
    rows = Counter(tuple(row.values()) for batch in batches for row in batch)
    ids = {user for _, user, _ in rows}
    assert len(rows) == len(ids) == 3 * RESENT.messages == 3 * 950  # whole rows come again
    last, before = ([row["user"] for row in batch] for batch in batches[:0:-1])
    assert len(last) - len(set(last)) > 15
    assert len(set(last) & set(before)) > 15


def test_messages_are_the_same_each_time_and_a_prefix_of_a_longer_data_set():
    longer = dataclasses.replace(RESENT, events=5000)
    assert all(RESENT.batch(index).equals(longer.batch(index)) for index in range(3))
    times = np.concatenate([seconds(RESENT.batch(index)) for index in range(3)])
    assert 0 <= times.min() < times.max() < 30 + data.DISORDER


def test_loading_batches_hold_each_key_once():
    loaded = [
        key for index in range(STATE.load_batches) for key in STATE.batch(index)["user"].to_pylist()
    ]
    assert sorted(loaded) == sorted(f"user-{key}" for key in range(400))


def test_touching_batches_do_not_depend_on_the_state():
    ten_times = dataclasses.replace(STATE, loaded=4000)
    for index in (10, 11):
        assert STATE.batch(index).equals(ten_times.batch(index))
        assert len(set(STATE.batch(index)["user"].to_pylist())) == 20


def test_files_share_the_rows_of_a_batch_and_are_older_the_earlier_they_come(tmp_path: Path):
    path = data.folder(SMALL, tmp_path)
    files = sorted(path.iterdir())
    assert len(files) == SMALL.batches * SMALL.files
    assert [pq.read_metadata(file).num_rows for file in files] == [500] * 6 + [1, 0]
    ages = [file.stat().st_mtime for file in files]
    assert ages == sorted(ages)
    assert data.folder(SMALL, tmp_path) == path
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def changes(case: Case) -> int:
    state = case.dataset
    return state.loaded + 2 * 20 * 20_000 if case.emission == "changelog" else 0


def emitted(case: Case, rows: int) -> dict:
    if isinstance(case.window, Sliding):
        rows = case.rows + (case.window.lookahead is None)
        return {"rows": rows, "events": 9, "spend": 1.5, "most": 2.5, "digest": 0}
    if isinstance(case.window, Join):
        return {"rows": rows, "events": 0, "left_price": 1.5, "right_price": 2.5, "digest": 0}
    if isinstance(case.window, Distinct):
        rows = case.dataset.messages * case.dataset.batches
        return {"rows": rows, "events": 0, "digest": 77}
    if isinstance(case.window, Admission):
        return {"rows": rows, "events": 0, "digest": 0}
    events = case.rows * case.window.copies + (case.complete and case.emission == "changelog")
    rows = rows if case.complete else changes(case)
    return {"rows": rows, "events": events, "spend": 1.5, "most": 0, "digest": 0}


def result(case: Case, mean: float, rows: int = 7) -> dict:
    return {
        "case": case.name,
        "workload": case.workload,
        "engine": case.engine,
        "steady": {
            "batches": 2,
            "mean_ms": mean,
            "median_ms": mean,
            "events_per_s": case.rows / mean * 1000,
            "parts_ms": {"addBatch": mean},
        },
        "emitted": emitted(case, rows),
        "batch_rows": [case.rows, 1, 0],
        "wanted_pairs": 7,
        "paced": {"reached": 4, "off": 0.1, "near": 0.9, "began": 9.5, "off_at_first": 3.0},
        "state": {"rocksdbSstFileSize": 2_500_000},
        "batch_state_bytes": [100, 1000, 1200, 1100],
        "total_s": mean,
        "peak_rss_bytes": {"jvm": 1, "python": 2},
        "others_cpu": 0.0,
    }


def assembled(times: dict[str, float], **rows: int) -> dict:
    cases = catalogue()
    found = {name: result(cases[name], mean, **rows) for name, mean in times.items()}
    return report.assemble(found, cases)


def test_a_target_is_reached_missed_or_not_measured():
    whole = assembled(
        {"tumbling/spark": 130, "tumbling/tidegate": 100, "small/spark": 10, "small/tidegate": 13}
    )
    targets = {target["name"]: target for target in whole["targets"]}
    assert targets["tumbling 10 s against Spark"]["reached"] is True
    assert targets["tumbling 10 s against Spark"]["measured"] == pytest.approx(1.3)
    assert targets["1,000-event batches against Spark"]["reached"] is False
    assert targets["hopping 60 s / 1 s against Spark"]["reached"] is None


def test_every_case_of_a_target_exists():
    whole = assembled(dict.fromkeys(catalogue(), 1))
    assert all(target["measured"] is not None for target in whole["targets"])
    assert all(check["passed"] for check in whole["checks"])


def test_engines_that_differ_are_told_apart():
    cases = catalogue()
    names = ("tumbling/spark", "tumbling/tidegate")
    found = {name: result(cases[name], 1, rows) for rows, name in enumerate(names)}
    failed = [check for check in report.checks(found, cases) if not check.passed]
    assert [check.detail for check in failed] == ["0 and 1 rows"]


def test_lost_events_are_noticed():
    cases = catalogue()
    lossy = result(cases["hopping-60-10/tidegate"], 1)
    lossy["emitted"]["events"] -= 1
    (check,) = report.checks({"hopping-60-10/tidegate": lossy}, cases)
    assert not check.passed
    assert check.detail == "2,999,999 of 3,000,000"


@pytest.mark.parametrize(
    ("workload", "wanted"), [("sliding-1m", "500,001"), ("sliding-ahead-1m", "500,000")]
)
@pytest.mark.parametrize("change", [-1, 1])
def test_rows_without_or_with_a_second_result_are_noticed(workload, wanted, change):
    case = catalogue()[f"{workload}/tidegate"]
    wrong = result(case, 1)
    wrong["emitted"]["rows"] += change
    (check,) = report.checks({case.name: wrong}, {case.name: case})
    assert not check.passed
    assert check.detail.endswith(f" of {wanted}")


def differing(workload: str, name: str, reference: str = "per-key") -> list[str]:
    """Checks that fail when one engine's total is one more than the other's."""
    cases = catalogue()
    found = {
        case.name: result(case, 1)
        for case in (cases[f"{workload}/{engine}"] for engine in (reference, "tidegate"))
    }
    found[f"{workload}/tidegate"]["emitted"][name] += 1
    return [check.name for check in report.checks(found, cases) if not check.passed]


@pytest.mark.parametrize("name", ["events", "spend", "most"])
def test_only_results_that_do_not_depend_on_arrival_are_compared(name):
    compared = "sliding-ahead-slice/per-key = sliding-ahead-slice/tidegate"
    assert differing("sliding-ahead-slice", name) == [compared]
    assert differing("sliding-slice", name) == []


def test_the_number_of_rows_is_always_compared():
    compared = "sliding-slice/per-key = sliding-slice/tidegate, in the number of rows"
    assert compared in differing("sliding-slice", "rows")


@pytest.mark.parametrize("name", ["left_price", "right_price"])
def test_joins_must_agree_in_the_sums_of_both_sides(name):
    assert differing("join-tumbling", name, "spark") == ["join-tumbling/spark = join-tumbling/tidegate"]


def test_pairs_that_are_missing_or_there_twice_are_noticed():
    cases = catalogue()
    name = "join-hopping-30-10/tidegate"
    for rows in (6, 8):
        (check,) = report.checks({name: result(cases[name], 1, rows)}, cases)
        assert (check.passed, check.detail) == (False, f"{rows} of 7")


def test_rows_that_are_left_must_be_the_same_ones():
    assert differing("dedupe", "digest", "spark") == ["dedupe/spark = dedupe/tidegate"]


def test_admission_is_compared_in_the_number_of_rows():
    (differs,) = differing("admission-10k", "rows", "kernel")
    assert differs == "admission-10k/kernel = admission-10k/tidegate, in the number of rows"
    assert differing("admission-10k", "digest", "kernel") == []


@pytest.mark.parametrize("change", [-1, 1])
def test_messages_that_are_lost_or_pass_twice_are_noticed(change):
    case = catalogue()["dedupe/tidegate"]
    wrong = result(case, 1)
    wrong["emitted"]["rows"] += change
    (check,) = report.checks({case.name: wrong}, {case.name: case})
    assert (check.passed, check.detail) == (False, f"{4_750_000 + change:,} of 4,750,000")


@pytest.mark.parametrize("rows", [0, 2_500_000, 10**9])
def test_admission_of_nothing_or_everything_or_too_much_is_noticed(rows):
    case = catalogue()["admission-10k/kernel"]
    (check,) = report.checks({case.name: result(case, 1, rows)}, {case.name: case})
    assert not check.passed


def test_state_is_set_against_what_it_was_before_the_steady_batches():
    (target,) = (
        target
        for target in assembled({"dedupe-state/kernel": 1})["targets"]
        if target["name"].startswith("duplicates: state")
    )
    assert (target["measured"], target["reached"]) == (1.1, True)


def test_a_kernel_alone_lets_each_message_pass_once_and_forgets_it():
    plan = row_plan(dataclasses.replace(catalogue()["dedupe-state/kernel"], window=Distinct(15)))
    host, passed, stored = OneThread(plan), 0, []
    for index in range(30):
        rows = dataclasses.replace(RESENT, events=30_000).batch(index)
        rows = rows.append_column(INVALID_ROW, pa.nulls(rows.num_rows, pa.string()))
        passed += sum(table.num_rows for table in host.batch([rows]))
        stored.append(host.stored)
    assert passed == 30 * RESENT.messages
    assert max(stored[15:]) < 1.2 * max(stored[:15])


def stream(rng: np.random.Generator, rows: int) -> pa.Table:
    """Whole seconds, so that times are equal, touch, and lie on edges; before and after the epoch."""
    times = (data.EPOCH + rng.integers(-40, 60, rows)) * 1_000_000
    names = [f"user-{key}" for key in rng.integers(3, size=rows)]
    ts = pa.array(times).cast(data.SCHEMA.field("ts").type)
    return pa.table([ts, names, np.zeros(rows)], schema=data.SCHEMA)


def stretches(rows: pa.Table, window: Window | Session) -> list[tuple[str, set[tuple[int, int]]]]:
    """Each row's user and all its windows, as first and last second that meet another window."""
    listed = [(row["user"], int(row["ts"].timestamp())) for row in rows.to_pylist()]
    if isinstance(window, Window):
        starts = range(data.EPOCH - 600, data.EPOCH + 600, window.slide)
        return [
            (user, {(s, s + window.size - 1) for s in starts if s <= at < s + window.size})
            for user, at in listed
        ]
    return [(user, {_session(user, at, listed, window.gap)}) for user, at in listed]


def _session(user: str, at: int, rows: list[tuple[str, int]], gap: int) -> tuple[int, int]:
    first = last = at
    while True:
        near = [t for other, t in rows if other == user and first - gap <= t <= last + gap]
        if (min(near), max(near)) == (first, last):
            return first, last + gap
        first, last = min(near), max(near)


JOINS = [*JOIN_HOPPING.values(), Join(Session(3), Session(3))]


@pytest.mark.parametrize("join", JOINS, ids=str)
def test_pairs_are_counted_as_a_nested_loop_counts_them(join):
    rng = np.random.default_rng(5)
    left, right = stream(rng, 60), stream(rng, 50)
    met = sum(
        any(a <= d and c <= b for a, b in ours for c, d in theirs)
        for user, ours in stretches(left, join.left)
        for other, theirs in stretches(right, join.right)
        if user == other
    )
    assert 0 < met < 60 * 50
    assert pairs.count(join, left, right) == met


def test_the_closing_events_are_a_pair_of_panes_but_of_no_closed_sessions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left, right = (data.Even(events=40, rows=20, rate=10, keys=20, seed=seed) for seed in (1, 2))
    for window, closing in ((Window(10, 10), 1), (Session(1), 0)):
        join = Join(window, window)
        case = Case("some", "tidegate", left, join, warmup=0, rows=40, other=right)
        events = [pa.concat_tables([side.batch(0), side.batch(1)]) for side in (left, right)]
        assert pairs.wanted(case) == pairs.count(join, *events) + closing


def test_a_join_with_longer_windows_has_the_same_input_and_the_same_pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = [catalogue(quick=True)[f"{name}/tidegate"] for name in JOIN_HOPPING]
    assert len({case.datasets for case in cases}) == 1
    left, right = (dataset.batch(0) for dataset in cases[0].datasets)
    assert not left.equals(right)
    assert len({pairs.count(case.window, left, right) for case in cases}) == 1


def progress(rows: int, millis: int) -> dict:
    durations = dict.fromkeys(PARTS, millis / 10) | {"triggerExecution": millis}
    return {"numInputRows": rows, "durationMs": durations}


def test_the_full_batches_of_a_join_have_the_rows_of_both_sides():
    case = catalogue()["join-tumbling/tidegate"]
    batches = [(200_000, 900), (200_000, 300), (100_000, 10), (200_000, 500), (2, 10), (0, 10)]
    steady = measure(case, [progress(*batch) for batch in batches])["steady"]
    assert (steady["batches"], steady["mean_ms"], steady["events_per_s"]) == (2, 400, 500_000)


def test_a_pace_is_reached_where_three_batches_are_near_and_held_by_those_after_ten():
    approach = [3000, 1000, 1600, 1500, 1199, 1500, *[1000] * 4]
    held = [*[1100] * 6, *[1300] * 4]
    judged = judge(Paced(1000, 10), [900, *[100] * 19], [*approach, *held])
    assert judged == {
        "reached": 5, "off": pytest.approx(0.1), "near": 0.6, "began": 9, "off_at_first": 0,
    }  # fmt: skip
    assert judge(Paced(1000, 10), [5] * 12, [2000] * 12)["reached"] == 13


@pytest.mark.parametrize(
    ("began", "off", "passed"),
    [(10, 3, True), (0.1, 0.5, True), (3, 3, False), (0.003, 0.5, False), (0.1, 0.15, False)],
)
def test_a_pace_that_did_not_begin_ten_times_off_shows_nothing(began, off, passed):
    case = catalogue()["batching-large/tidegate"]
    found = result(case, 1)
    found["paced"] |= {"began": began, "off_at_first": off}
    (check,) = report.checks({case.name: found}, {case.name: case})
    assert check.passed == passed
    assert check.detail == f"{began:.2f} times the later rows, {off:.0%} off the target"


def test_a_figure_without_a_bound_is_reported_and_not_judged():
    times = {f"{name}/tidegate": 10 * number for number, name in enumerate(JOIN_HOPPING, 1)}
    whole = assembled(times)
    name = "join with 10 s … 120 s every 10 s: slowest against fastest"
    (target,) = (target for target in whole["targets"] if target["name"] == name)
    assert (target["target"], target["measured"], target["reached"]) == (None, 4, None)
    out = io.StringIO()
    report.show(whole, Console(file=out, width=144))
    assert "4.00 ×" in out.getvalue()


def test_the_slowest_lookback_is_set_against_the_fastest():
    times = {"sliding-10s/tidegate": 30, "sliding-1m/tidegate": 20, "sliding-10m/tidegate": 50}
    name = "lookback 10 s, 1 min, 10 min: slowest against fastest"
    (target,) = (target for target in assembled(times)["targets"] if target["name"] == name)
    assert (target["measured"], target["reached"]) == (2.5, False)
    times.pop("sliding-1m/tidegate")
    (target,) = (target for target in assembled(times)["targets"] if target["name"] == name)
    assert target["measured"] is None


#: Batches of one user's events, as seconds and prices: ties, and neighbours exactly a window apart.
USER = [
    [(float(at), float(price)) for price, at in enumerate(rng.integers(1 + start, 24 + start, 40))]
    for rng, start in zip(np.random.default_rng(3).spawn(4), range(0, 80, 20), strict=True)
]


def frame(rows: list[tuple[float, float]]) -> pd.DataFrame:
    times, prices = zip(*rows, strict=True)
    return pd.DataFrame({"ts": pd.to_datetime(times, unit="s"), "user": "ann", "price": prices})


def tuples(results: pd.DataFrame) -> list[tuple[float, float, int, float, float]]:
    if not len(results):
        return []
    assert set(results.pop("user")) == {"ann"}
    results["ts"] = results["ts"].astype("datetime64[us]").astype("int64") / 1e6
    return list(results[["ts", "price", "n", "spend", "most"]].itertuples(index=False, name=None))


def total(row: tuple[float, float], window: list[tuple[float, float]]) -> tuple:
    prices = [price for _, price in window]
    return (*row, len(prices), sum(prices), max(prices))


def millis(row: pd.Series) -> int:
    return row["ts"].value // 1_000_000


def simulated(processor: LookbackPerKey | LookaheadPerKey) -> TwsTester:
    return TwsTester(processor, timeMode="EventTime", eventTimeExtractor=millis)


def test_a_per_key_lookback_sees_what_has_arrived():
    spark = simulated(LookbackPerKey(10, tolerance=5))
    seen: list[tuple[float, float]] = []
    for rows in USER:
        wanted = []
        for at, price in rows:
            seen.append((at, price))
            wanted.append(total((at, price), [row for row in seen if at - 10 <= row[0] <= at]))
        spark.handle.setGroupingKey("ann")
        frames = iter([frame(rows[:25]), frame(rows[25:])])  # the tester itself knows only one a batch
        found = pd.concat(spark.processor.handleInputRows(("ann",), frames, None))
        assert tuples(found) == wanted
    newest = max(at for at, _ in seen)
    kept = [at / 1e6 for at, _ in spark.peekListState("recent", "ann")]
    assert kept == sorted(at for at, _ in seen if at >= newest - 15)


def test_a_per_key_lookahead_sees_all_that_is_near_and_comes_when_the_watermark_has_passed():
    spark = simulated(LookaheadPerKey(10, 3))
    everything = sorted(row for rows in USER for row in rows)
    wanted = [
        total((at, price), [row for row in everything if at - 10 <= row[0] <= at + 3])
        for at, price in everything
    ]
    watermark = 0
    for rows in USER:
        assert spark.testInPandas("ann", frame(rows)).empty
        before, watermark = watermark, int(max(at for at, _ in rows)) - 4
        due = [one for one in wanted if before < one[0] + 3 <= watermark]
        assert tuples(spark.setWatermark(watermark * 1000)) == due
    assert tuples(spark.setWatermark(1_000_000)) == [one for one in wanted if one[0] + 3 > watermark]
    assert spark.peekListState("rows", "ann") == []


def test_a_per_key_lookahead_does_not_wait_for_rows_that_came_first():
    spark = simulated(LookaheadPerKey(10, 3))
    for row in ((20.0, 1.0), (18.0, 2.0)):
        spark.testInPandas("ann", frame([row]))
    assert tuples(spark.setWatermark(21_000)) == [(18.0, 2.0, 2, 3.0, 2.0)]
    assert tuples(spark.setWatermark(23_000)) == [(20.0, 1.0, 2, 3.0, 2.0)]


def test_the_report_is_json_and_prints():
    whole = assembled(dict.fromkeys(catalogue(), 1))
    assert json.loads(json.dumps(whole)) == whole
    out = io.StringIO()
    report.show(whole, Console(file=out, width=144))
    assert "hopping-60-1/tidegate" in out.getvalue()
    assert ">= 2,000,000 events/s" in out.getvalue()


def test_charts_are_drawn_of_what_there_is(tmp_path: Path):
    everything = chart.draw(assembled(dict.fromkeys(catalogue(), 1)), tmp_path / "all")
    assert {path.stem for path in everything} == {*chart.TOPICS}
    [few] = chart.draw(assembled({"fusion/tidegate": 1}), tmp_path / "few")
    assert few.name == "admission.svg"
    assert "Four steps" in few.read_text()


def test_the_page_is_that_of_the_results_beside_it():
    written = json.loads((page.FOLDER / "results.json").read_text())
    assert page.PAGE.read_text() == page.render(written)
    charts = {path.name for path in page.FOLDER.glob("*.svg")}
    assert charts == {f"{topic}.svg" for topic in chart.TOPICS}


def test_the_page_has_every_target_and_says_why_one_is_missed():
    text = page.render(json.loads((page.FOLDER / "results.json").read_text()))
    assert {*page.REASONS} <= {target.name for target in report.TARGETS}
    for target in json.loads((page.FOLDER / "results.json").read_text())["targets"]:
        assert f"| {target['name']} |" in text
        assert target["reached"] is not False or page.REASONS[target["name"]] in text


def test_cases_are_chosen_by_the_beginning_of_their_name(capsys: pytest.CaptureFixture[str]):
    assert main.main(["--list", "--only", "slice", "tumbling/spark"]) == 0
    assert capsys.readouterr().out.split() == ["tumbling/spark", "slice/per-key", "slice/tidegate"]
    with pytest.raises(SystemExit, match="no case begins with nonsense"):
        main.main(["--only", "nonsense"])


def test_the_figures_of_the_readme_are_those_of_the_page():
    written = json.loads((page.FOLDER / "results.json").read_text())
    mean = {result["case"]: f"{result['steady']['mean_ms']:,.0f}" for result in written["results"]}
    known = {
        (mean[one["reference"]], mean[one["ours"]], times(one["ratios"]["steady_mean"]))
        for one in written["comparisons"]
    }
    readme = (page.PAGE.parents[1] / "README.md").read_text("utf-8")
    shown = re.findall(r"\| ([\d,]+) ms \| ([\d,]+) ms \| ([\d.]+×) \|", readme)
    assert len(shown) > 5
    assert [figures for figures in shown if figures not in known] == []


def times(ratio: float) -> str:
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×"


def test_two_checkouts_take_turns_and_only_with_our_own_cases(tmp_path, monkeypatch, capsys):
    times = {tmp_path: iter((100.0, 140.0)), launch.ROOT: iter((50.0, 70.0))}
    ran = []

    def mean_ms(case, checkout, quick, files):
        ran.append((case, checkout))
        return next(times[checkout])

    monkeypatch.setattr(compare, "_mean_ms", mean_ms)
    monkeypatch.setattr(data, "folder", lambda _: tmp_path)
    compare.main([str(tmp_path), "small", "--quick"])
    order = [tmp_path, launch.ROOT, launch.ROOT, tmp_path]
    assert ran == [("small/tidegate", checkout) for checkout in order]
    assert capsys.readouterr().out.splitlines()[-1] == "| `small/tidegate` | 100, 140 | 50, 70 | 0.50 |"


def test_on_each_version_cases_run_that_it_can_run(tmp_path, monkeypatch, capsys):
    found = [versions.Environment(version, tmp_path / version) for version in ("4.1.4", "4.3.0")]
    monkeypatch.setattr(versions, "environments", lambda: found)
    monkeypatch.setattr(data, "folder", lambda _: tmp_path)
    ran = []

    def steady_ms(case, python, checkout, quick):
        assert (checkout, quick) == (launch.ROOT, True)
        ran.append((case, python.name))
        return 1000.0 * len(ran)

    monkeypatch.setattr(launch, "steady_ms", steady_ms)
    versions.main(["--quick"])
    assert ran == [
        ("tumbling/spark", "4.1.4"), ("tumbling/tidegate-sparks-source", "4.1.4"),
        ("tumbling/spark", "4.3.0"), ("tumbling/tidegate-sparks-source", "4.3.0"),
        ("tumbling/tidegate", "4.3.0"),
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| Spark 4.1.4 | 1,000 | 2,000 | refused |",
        "| Spark 4.3.0 | 3,000 | 4,000 | 5,000 |",
    ]


def test_a_batch_is_taken_apart_by_sparks_own_log():
    events = [
        {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 5, "Stage IDs": [9]},
        {
            "Event": "SparkListenerJobStart", "Job ID": 1, "Submission Time": 100, "Stage IDs": [0, 1],
            "Properties": {"streaming.sql.batchId": "7"},
        },
        *(
            {
                "Event": "SparkListenerStageCompleted",
                "Stage Info": {"Stage ID": stage, "Submission Time": begun, "Completion Time": ended},
            }
            for stage, begun, ended in [(9, 0, 99), (0, 100, 190), (1, 191, 391)]
        ),
        {"Event": "SparkListenerJobEnd", "Job ID": 1, "Completion Time": 392},
    ]  # fmt: skip
    jobs = hops.jobs_in(json.dumps(event) for event in events)
    assert jobs == {7: hops.Job(100, 392, [90, 200])}
    took = {
        "queryPlanning": 50,
        "addBatch": 350,
        "walCommit": 2,
        "commitOffsets": 3,
        "triggerExecution": 410,
    }
    assert hops.hops({"durationMs": took}, jobs[7]) == {
        "planning": 50, "reading and packing": 90, "state": 200, "other stages": 0,
        "driver": 60, "logs": 5, "batch": 410,
    }  # fmt: skip
