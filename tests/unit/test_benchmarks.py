"""The parts of the benchmark that need no Spark: the generator, the table of cases, the report."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from benchmarks import __main__ as main
from benchmarks import data, report
from benchmarks.cases import Case, catalogue

SMALL = data.Skewed(events=3000, rows=1000, rate=100, keys=50)
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


def result(case: Case, mean: float, rows: int = 7) -> dict:
    events = case.rows * case.window.copies + (case.complete and case.emission == "changelog")
    return {
        "case": case.name,
        "workload": case.workload,
        "engine": case.engine,
        "steady": {
            "mean_ms": mean,
            "median_ms": mean,
            "events_per_s": case.rows / mean * 1000,
            "parts_ms": {"addBatch": mean},
        },
        "emitted": {"rows": rows if case.complete else changes(case), "events": events, "spend": 1.5},
        "batch_rows": [case.rows, 1, 0],
        "state": {"rocksdbSstFileSize": 2_500_000},
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


def test_the_report_is_json_and_prints():
    whole = assembled(dict.fromkeys(catalogue(), 1))
    assert json.loads(json.dumps(whole)) == whole
    out = io.StringIO()
    report.show(whole, Console(file=out, width=132))
    assert "hopping-60-1/tidegate" in out.getvalue()
    assert ">= 2,000,000 events/s" in out.getvalue()


def test_the_chart_is_drawn_even_of_a_few_cases(tmp_path: Path):
    from benchmarks import chart

    for name, times in {"all": dict.fromkeys(catalogue(), 1), "few": {"small/spark": 1}}.items():
        chart.draw(assembled(times), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_cases_are_chosen_by_the_beginning_of_their_name(capsys: pytest.CaptureFixture[str]):
    assert main.main(["--list", "--only", "slice", "tumbling/spark"]) == 0
    assert capsys.readouterr().out.split() == ["tumbling/spark", "slice/per-key", "slice/tidegate"]
    with pytest.raises(SystemExit, match="no case begins with nonsense"):
        main.main(["--only", "nonsense"])
