"""Aggregates by the textbook: from all rows of a window at once, one function each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pyarrow as pa

from tidegate.kernels import aggregates as a
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.windowed_aggregates import Aggregation
from tidegate.testing.results import frozen
from tidegate.testing.table import Row

#: An aggregate's answer from its parameters and the (event time, value) pairs of a window, in the
#: order they arrived, nulls left out.
Answer = Callable[[Any, list[tuple[int, Any]]], Any]

_COUNTS = (a.Count, a.CountDistinct, a.ApproxCountDistinct)


def answers_of(
    answers: Mapping[type[Aggregate], Answer],
    aggregation: Aggregation,
    rows: Sequence[tuple[int, Row]],
) -> Row:
    """All aggregates over rows with their event times; what does not fit its type is null."""
    types = aggregation.schema
    return {
        name: _fitting(answer(answers, aggregate, rows), types.field(name).type)
        for name, aggregate in aggregation.aggregates
    }


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, Fraction):
        with localcontext(prec=200, rounding=ROUND_HALF_UP):
            # Spark divides with 39 digits behind the point before it rounds.
            quotient = (Decimal(value.numerator) / value.denominator).quantize(Decimal(1).scaleb(-39))
            value = quotient.quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(value, Decimal) and pa.types.is_decimal(kind):
        return value if abs(int(value.scaleb(kind.scale, Context(200)))) < 10**kind.precision else None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def answer(
    answers: Mapping[type[Aggregate], Answer], aggregate: Aggregate, rows: Sequence[tuple[int, Row]]
) -> Any:
    """An aggregate over rows with their event times: nulls are ignored, and over nothing it is null."""
    if aggregate.column is None:
        return answers[type(aggregate)](aggregate, [(time, row) for time, row in rows])
    values = [(time, row.get(aggregate.column)) for time, row in rows]
    present = [(time, value) for time, value in values if value is not None]
    if not present and not isinstance(aggregate, _COUNTS):
        return None
    return answers[type(aggregate)](aggregate, present)


def _values(pairs: Iterable[tuple[int, Any]]) -> list[Any]:
    return [value for _, value in pairs]


def _order(value: Any) -> Any:
    """What values are compared by: null is less, and NaN greater, than all others.

    Structs and lists are compared part by part.
    """
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, False, tuple(map(_order, value.values())))
    if isinstance(value, list | tuple):
        return (1, False, tuple(map(_order, value)))
    return (1, value != value, value)


def _sum(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    values = _values(pairs)
    if isinstance(values[0], float):
        return _float_sum(values)
    with localcontext(prec=200):
        return sum(values)


def _float_sum(values: Sequence[float]) -> float:
    if all(map(math.isfinite, values)):
        return math.fsum(values)
    return sum(value for value in values if not math.isfinite(value))


def _mean(_: Aggregate, pairs: list[tuple[int, Any]]) -> float | Fraction:
    if isinstance(pairs[0][1], Decimal):
        return Fraction(sum(map(Fraction, _values(pairs))), len(pairs))
    return _float_sum([float(value) for value in _values(pairs)]) / len(pairs)


def _var(aggregate: a.Var, pairs: list[tuple[int, Any]]) -> float | None:
    values = [float(value) for value in _values(pairs)]
    degrees = len(values) - (0 if aggregate.population else 1)
    if degrees == 0:
        return None
    mean = _float_sum(values) / len(values)
    return _float_sum([(value - mean) ** 2 for value in values]) / degrees


def _stddev(aggregate: a.Stddev, pairs: list[tuple[int, Any]]) -> float | None:
    variance = _var(aggregate, pairs)
    return None if variance is None else math.sqrt(variance)


def _first(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    return min(pairs, key=lambda pair: pair[0])[1]  # of equal ones `min` takes the first


def _last(_: Aggregate, pairs: list[tuple[int, Any]]) -> Any:
    return max(reversed(pairs), key=lambda pair: pair[0])[1]


def _collect(_: Aggregate, pairs: list[tuple[int, Any]]) -> list[Any]:
    return _values(sorted(pairs, key=lambda pair: (pair[0], _order(pair[1]))))


def _quantile(aggregate: a.Quantile, pairs: list[tuple[int, Any]]) -> float | None:
    values = sorted(float(value) for value in _values(pairs) if math.isfinite(value))
    return values[math.floor((len(values) - 1) * aggregate.q)] if values else None


ANSWERS: Mapping[type[Aggregate], Answer] = {
    a.Count: lambda _, pairs: len(pairs),
    a.Sum: _sum,
    a.Mean: _mean,
    a.Min: lambda _, pairs: min(_values(pairs), key=_order),
    a.Max: lambda _, pairs: max(_values(pairs), key=_order),
    a.Var: _var,
    a.Stddev: _stddev,
    a.First: _first,
    a.Last: _last,
    a.CountDistinct: lambda _, pairs: len(set(map(frozen, _values(pairs)))),
    a.ApproxCountDistinct: lambda _, pairs: len(set(map(frozen, _values(pairs)))),
    a.Collect: _collect,
    a.Quantile: _quantile,
}
