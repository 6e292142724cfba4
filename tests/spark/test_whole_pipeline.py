"""The whole pipeline of the example: every row is accounted for, and results are those of the rules.

The rules are those of `tidegate.testing`: row by row, and without any code of the kernels.
"""

import importlib.util
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tidegate
from tests.oracle.admission_rules import AdmissionRules
from tests.oracle.fold_rules import DedupeRules
from tests.oracle.join_rules import join_rules_of
from tests.spark import needs
from tidegate.dataflow import compile
from tidegate.kernels.shedding import PARTS, Load
from tidegate.plan.nodes import Together
from tidegate.testing.table import micros_of

EXAMPLE = Path(tidegate.__file__).parents[2] / "examples" / "whole_pipeline.py"
MINUTES, ROWS = 4, 500

Row = dict[str, Any]


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("whole_pipeline", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(row: Row) -> tuple[Any, ...]:
    """What tells one delivery of a message from all others."""
    return row["producer"], row["seq"], row["received_at"]


class Expected:
    """What must become of each batch, given which rows were shed: that is up to the load."""

    def __init__(self, plan: Together, shed: set[tuple[Any, ...]]) -> None:
        admit, dedupe, pairs, visits, _ = compile(plan).operators
        self.admission, self.dedupe = AdmissionRules(admit), DedupeRules(dedupe)
        self.joins = {"pairs": join_rules_of(pairs), "visits": join_rules_of(visits)}
        self.kinds = {"pairs": ("impression", "click"), "visits": ("click", "order")}
        self.shed = shed
        self.channels: dict[str, list[Row]] = {}
        self.counts: Counter[str] = Counter()
        self.totals: dict[tuple[str, str], list[int]] = {}

    def run(self, batches: Iterable[list[Row]]) -> None:
        """All batches, each under the watermark of those before it."""
        highest = None
        for rows in [*batches, []]:
            watermark = None if highest is None else micros_of(highest - timedelta(seconds=10))
            self._batch(rows, watermark)
            highest = max((row["ts"] for row in rows if row["ts"] is not None), default=highest)

    def _batch(self, rows: list[Row], watermark: int | None) -> None:
        admitted = self._through(self.admission, [rows], watermark)
        kept = [row for row in admitted if told(row) not in self.shed]
        self.counts["shed"] += len(admitted) - len(kept)
        clean = [
            {name: value for name, value in row.items() if name != "price"}
            | {"cents": round(row["price"] * 100)}
            for row in kept
            if row["kind"] != "debug" and row["user"] != "user-0"
        ]
        self.counts["filtered"] += len(kept) - len(clean)
        distinct = self._through(self.dedupe, [clean], watermark)
        for row in distinct:
            total = self.totals.setdefault((row["producer"], row["kind"]), [0, 0])
            total[0] += 1
            total[1] += row["cents"]
        for name, rules in self.joins.items():
            sides = [[row for row in distinct if row["kind"] == kind] for kind in self.kinds[name]]
            self.channels.setdefault(name, []).extend(self._through(rules, sides, watermark))

    def _through(self, rules: Any, inputs: list[list[Row]], watermark: int | None) -> list[Row]:
        """What passes an operator; what it sets apart and counts is noted."""
        result = rules.batch(inputs, watermark, 0)
        passed: list[Row] = result.channels.pop("main", [])
        for channel, rows in result.channels.items():
            self.channels.setdefault(channel, []).extend(rows)
        self.counts.update(result.counts)
        return passed


def frozen(rows: Iterable[Row], *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in rows)


@needs.admission_control
def test_every_row_is_accounted_for_and_results_follow_the_rules(
    spark: Any, tmp_path: Path, example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As busy as can be, whatever this machine does: rows go from the second batch on.
    full = {name: weight for name, (weight, _) in PARTS.items()}
    monkeypatch.setattr(Load, "parts", lambda _: full)
    batches = example.generate(MINUTES, ROWS)

    metrics = example.run(spark, tmp_path, batches, ROWS)

    where = example.account(tmp_path, metrics)
    sent = sum(map(len, batches))
    assert sent == metrics["rows_in"] == sum(where.values())
    assert [name for name, count in where.items() if count == 0] == []

    shed = example.written(tmp_path, "shed").to_dicts()
    stream = spark.readStream.schema(example.SCHEMA).parquet(str(tmp_path / "events"))
    expected = Expected(example.pipeline(stream, ROWS).node, set(map(told, shed)))
    expected.run(batch.to_dicts() for batch in batches)

    # By what was written; what nobody writes is what the rules leave out.
    def count(channel: str) -> int:
        return len(example.written(tmp_path, channel))

    table = {(producer, kind): [n, cents] for producer, kind, n, cents in example.totals(tmp_path)}
    left_out = expected.counts["filtered"] + expected.counts["duplicates_filtered"]
    apart = sum(map(count, ("errors", "rejected", "shed", "too_old")))
    assert sent == apart + left_out + sum(n for n, _ in table.values())
    assert expected.counts["shed"] == len(shed) == where["shed"]
    assert "critical" not in {row["priority"] for row in shed}
    assert expected.counts["filtered"] == where["filtered"]
    assert expected.counts["duplicates_filtered"] == where["duplicates"]
    assert expected.totals == table

    names = {
        "rejected": ("producer", "seq", "received_at", "reason"),
        "too_old": ("producer", "seq", "received_at"),
        "late_pairs": ("producer", "seq", "kind"),
        "late_visits": ("producer", "seq", "kind"),
        "pairs": tuple(expected.channels["pairs"][0]),
        "visits": tuple(expected.channels["visits"][0]),
    }
    for channel, columns in names.items():
        found = example.written(tmp_path, channel)
        wanted = frozen(expected.channels[channel], *columns)
        assert frozen(found.to_dicts(), *columns) == wanted, channel
        assert wanted, channel
    assert metrics["joined_pairs"] == count("pairs") + count("visits")
    assert metrics["late_rows"] == sum(map(count, ("too_old", "late_pairs", "late_visits")))
