"""What one micro-batch emitted, and how two answers are compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidegate.kernels import aggregates as a
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Plan
from tidegate.testing.table import Row, instant_of_watermark, rows, text

Close = Callable[[Any, Any], bool]

_NAN = object()


@dataclass
class BatchResult:
    """The rows of one micro-batch by channel, its counters, and the watermark in force."""

    #: As operators count it.
    watermark_micros: int | None = None
    channels: dict[str, list[Row]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def watermark(self) -> datetime | None:
        """The watermark in force during the batch, in UTC; for `end()`, the end of time."""
        return instant_of_watermark(self.watermark_micros)

    @property
    def main(self) -> list[Row]:
        """The rows of the main channel."""
        return self.channels.get(MAIN, [])

    def put(self, channel: str, *rows: Row) -> None:
        """Add rows to a channel."""
        if rows:
            self.channels.setdefault(channel, []).extend(rows)


def differences(plan: Plan, expected: BatchResult, actual: BatchResult) -> list[str]:
    """The differences of two results of a batch, in sentences; empty if they agree.

    The order of rows does not matter; the changelog checks the order of retractions. Sketches may differ
    by their documented bounds.
    """
    found = []
    if expected.watermark_micros != actual.watermark_micros:
        found.append(f"watermark: expected {expected.watermark}, got {actual.watermark}")
    if +expected.counts != +actual.counts:
        found.append(f"counters: expected {dict(+expected.counts)}, got {dict(+actual.counts)}")
    for channel in sorted(expected.channels.keys() | actual.channels.keys()):
        wanted, got = expected.channels.get(channel, []), actual.channels.get(channel, [])
        found += [f"{channel}: {line}" for line in row_differences(plan, channel, wanted, got)]
    return found


def row_differences(
    plan: Plan, channel: str, expected: Sequence[Row], actual: Sequence[Row]
) -> list[str]:
    """The rows one side has and the other has not."""
    close = closeness(plan) if channel == MAIN else {}
    columns = dict.fromkeys(name for row in (*expected, *actual) for name in row)
    return told_apart(list(columns), close, expected, actual)


def told_apart(
    columns: Sequence[str], close: Mapping[str, Close], expected: Sequence[Row], actual: Sequence[Row]
) -> list[str]:
    """The rows that only one side has, by these columns, some of which need not agree to the bit."""
    exact = [name for name in columns if name not in close]
    wanted, got = _grouped(expected, exact), _grouped(actual, exact)
    missing, surplus = [], []
    for identity in dict.fromkeys([*wanted, *got]):
        less, more = _unmatched(wanted.get(identity, []), got.get(identity, []), close)
        missing += less
        surplus += more
    found = [f"missing\n{text(missing)}"] if missing else []
    return found + ([f"not expected\n{text(surplus)}"] if surplus else [])


def assert_rows(
    actual: pa.Table | Sequence[Row], expected: str | Sequence[Row], schema: pa.Schema | None = None
) -> None:
    """Assert that the rows are the expected ones, in any order, compared by the expected columns.

    `expected` can be a table literal. Its types are those of `actual` if that is an Arrow table, such as
    `df.toArrow()` or `tg.sinks.memory().to_arrow()`, and those of `schema` otherwise.

    >>> assert_rows([{"user": "ann", "n": 1}], [{"n": 2}])
    Traceback (most recent call last):
    ...
    AssertionError: missing
    n
    2
    not expected
    n
    1
    """
    if isinstance(actual, pa.Table):
        schema, actual = schema or actual.schema, actual.to_pylist()
    if isinstance(expected, str):
        assert schema is not None, "a table in text is read by the types of a schema"
        expected = rows(expected, schema)
    columns = list(expected[0]) if expected else list(actual[0]) if actual else []
    found = told_apart(columns, {}, expected, [{n: row[n] for n in columns} for row in actual])
    assert not found, "\n".join(found)


def closeness(plan: Plan) -> dict[str, Close]:
    """The aggregates that need not agree to the bit, each with what counts as agreeing."""
    results = plan.outputs.get(MAIN)
    aggregates = () if results is None else results.aggregates
    return {name: close for name, agg in aggregates if (close := _closeness_of(agg))}


def same(one: Any, other: Any) -> bool:
    """Equality for results: a NaN equals a NaN, and a list its equal list."""
    return frozen(one) == frozen(other)


def _closeness_of(aggregate: Aggregate) -> Close | None:
    if isinstance(aggregate, a.Quantile):
        bound = aggregate.accuracy * 1.0001
        return lambda exact, got: math.isclose(
            got, exact, rel_tol=0, abs_tol=abs(exact) * bound + 1e-299
        )
    if isinstance(aggregate, a.ApproxCountDistinct):
        return lambda exact, got: abs(got - exact) <= max(2, 0.08 * exact)
    if isinstance(aggregate, a.Var):  # and the standard deviation
        return lambda exact, got: math.isclose(got, exact, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(aggregate, a.Mean):
        return lambda exact, got: math.isclose(got, exact, rel_tol=1e-12, abs_tol=1e-12)
    return None


def _grouped(rows: Sequence[Row], columns: Sequence[str]) -> dict[Hashable, list[Row]]:
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(frozen(row.get(name)) for name in columns), []).append(row)
    return groups


def _unmatched(
    expected: Sequence[Row], actual: Sequence[Row], close: Mapping[str, Close]
) -> tuple[list[Row], list[Row]]:
    missing, left = [], list(actual)
    for row in expected:
        match = next((other for other in left if _agree(row, other, close)), None)
        if match is None:
            missing.append(row)
        else:
            left.remove(match)
    return missing, left


def _agree(row: Row, other: Row, close: Mapping[str, Close]) -> bool:
    return all(_near(check, row[name], other[name]) for name, check in close.items())


def _near(close: Close, one: Any, other: Any) -> bool:
    special = [one is None or one != one or math.isinf(one), other is None or other != other]
    return same(one, other) if any(special) else close(one, other)


def frozen(value: Any) -> Hashable:
    """A value that compares and hashes as results do."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, frozen(item)) for name, item in value.items())
    if isinstance(value, float):
        return _NAN if value != value else value + 0.0
    return value
