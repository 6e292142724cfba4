"""The table of versions and features says what tests saw, and the matrix skips nothing silently."""

import json
import re
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from scripts import matrix
from scripts.versions_page import PAGE, SEEN, shown
from tests.support.features_seen import Seen
from tests.unit.test_docs import ROOT


def test_the_page_says_what_tests_have_seen():
    page = PAGE.read_text("utf-8")
    assert shown(page, json.loads(SEEN.read_text("utf-8"))) == page


def test_every_version_and_every_feature_is_in_the_table():
    seen = json.loads(SEEN.read_text("utf-8"))
    assert [one["spark"] for one in seen] == [*matrix.others(), matrix.newest()]
    marked = {
        name
        for file in (ROOT / "tests" / "spark").glob("test_*.py")
        for name in re.findall(r'pytest\.mark\.versions\("([^"]*)"\)', file.read_text("utf-8"))
    }
    assert all(one["features"].keys() == marked for one in seen)
    assert not any("failed" in one["features"].values() for one in seen)


def test_a_table_shows_what_is_there_what_is_refused_and_what_failed():
    seen = [
        {"spark": "4.0.5", "tests": {"passed": 2, "skipped": 1, "failed": 0}, "features": {"b": "yes"}},
        {
            "spark": "4.3.0",
            "tests": {"passed": 3, "skipped": 0, "failed": 1},
            "features": {"a": "needs 4.2", "b": "failed"},
        },
    ]
    page = "before\n<!-- seen -->\nold\n<!-- /seen -->\nafter\n"
    assert shown(page, seen).splitlines()[1:-2] == [
        "<!-- seen -->",
        "|  | Spark 4.0.5 | Spark 4.3.0 |",
        "| --- | --- | --- |",
        "| a | not tested | needs 4.2 |",
        "| b | yes | failed |",
        "| tests passed | 2 | 3 |",
        "| tests skipped | 1 | 0 |",
        "| tests failed | 0 | 1 |",
    ]


def reported(feature: str, outcome: str, **told: str) -> Any:
    return SimpleNamespace(
        when="call",
        nodeid=f"{feature} {outcome} {told}",
        outcome=outcome,
        passed=outcome == "passed",
        skipped=outcome == "skipped",
        user_properties=[("feature", feature), *told.items()],
    )


def test_a_feature_is_what_its_worst_test_says(tmp_path):
    seen = Seen(tmp_path / "seen.json")
    for report in (
        reported("joins", "passed"),
        reported("joins", "failed"),
        reported("joins", "passed", refused="needs 4.2"),
        reported("limits", "passed", refused="needs 4.2"),
        reported("limits", "passed"),
        reported("windows", "passed"),
        reported("sessions", "skipped"),
    ):
        seen.pytest_runtest_logreport(report)
    seen.pytest_sessionfinish()
    written = json.loads((tmp_path / "seen.json").read_text("utf-8"))
    assert written["features"] == {"joins": "failed", "limits": "needs 4.2", "windows": "yes"}
    assert written["tests"] == {"passed": 5, "skipped": 1, "failed": 1}
    assert written["spark"] == pyspark.__version__


@pytest.mark.parametrize(("ends", "found"), [(matrix.UNREACHABLE, None), (0, "4.0.5")])
def test_only_a_version_that_no_index_has_is_skipped(monkeypatch, capsys, ends, found):
    monkeypatch.setattr(matrix.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=ends))
    made = matrix.environment_of("4.0.5")
    assert (made and made.version) == found
    told = "skipped Spark 4.0.5: it is not installed, and no package index can be reached"
    assert (told in capsys.readouterr().err) == (found is None)


def test_an_environment_that_cannot_be_made_is_an_error(monkeypatch):
    monkeypatch.setattr(matrix.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(SystemExit, match=r"the environment of Spark 4\.0\.5 could not be made"):
        matrix.environment_of("4.0.5")
