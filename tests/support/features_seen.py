"""What tests marked `versions` have seen of a version of Spark, as JSON for `scripts.matrix`.

A feature is there if all its tests pass. It is refused if one of them has seen it refused, as it should
be where Spark cannot do it; the property then says which version has it.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

FEATURE, REFUSED = "feature", "refused"
THERE, FAILED = "yes", "failed"


def register(config: pytest.Config) -> None:
    """Let the process that hears of all tests write the file that was asked for."""
    file = config.getoption("--features", None)
    if file and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Seen(Path(file)))


def name_feature(item: pytest.Item) -> None:
    """Let reports of a test say which feature it is about, in whatever process it runs."""
    marker = item.get_closest_marker("versions")
    if marker is not None:
        item.user_properties.append((FEATURE, marker.args[0]))


class Seen:
    """Listens to the reports of tests."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._features: dict[str, str] = {}
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        known = self._outcomes.get(report.nodeid)
        self._outcomes[report.nodeid] = "failed" if known == "failed" else report.outcome
        told = {name: str(value) for name, value in report.user_properties}
        if FEATURE in told and not report.skipped:
            seen = told.get(REFUSED, THERE) if report.passed else FAILED
            self._see(told[FEATURE], seen)

    def _see(self, feature: str, seen: str) -> None:
        known = self._features.get(feature, THERE)
        self._features[feature] = (
            FAILED if FAILED in (known, seen) else seen if known == THERE else known
        )

    def pytest_sessionfinish(self) -> None:
        tests = [*self._outcomes.values()]
        counts = {name: tests.count(name) for name in ("passed", "skipped", "failed")}
        seen = {"spark": version("pyspark"), "tests": counts, "features": self._features}
        self._file.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n", "utf-8")
