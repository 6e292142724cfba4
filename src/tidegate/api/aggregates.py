"""Aggregates over windows. Nulls are ignored. If all values are null, the result is null, a count 0."""

from __future__ import annotations

from tidegate.kernels import aggregates as a
from tidegate.plan.aggregates import Aggregate


def count(column: str | None = None) -> Aggregate:
    """The number of rows, or of non-null values of a column.

    >>> print(tg.count())
    count(*)
    """
    return a.Count(column)


def sum(column: str) -> Aggregate:
    """The sum of a numeric column: 64-bit for integers, double for floats, exact for decimals.

    >>> print(tg.sum("price"))
    sum(price)
    """
    return a.Sum(column)


def min(column: str) -> Aggregate:
    """The smallest value of a column that has an order.

    >>> print(tg.min("price"))
    min(price)
    """
    return a.Min(column)


def max(column: str) -> Aggregate:
    """The largest value of a column that has an order.

    >>> print(tg.max("price"))
    max(price)
    """
    return a.Max(column)


def mean(column: str) -> Aggregate:
    """The arithmetic mean.

    >>> print(tg.mean("price"))
    mean(price)
    """
    return a.Mean(column)


def var(column: str, *, population: bool = False) -> Aggregate:
    """The sample variance, or that of a whole population.

    >>> print(tg.var("price", population=True))
    var(price, population=True)
    """
    return a.Var(column, population)


def stddev(column: str, *, population: bool = False) -> Aggregate:
    """The sample standard deviation, or that of a whole population.

    >>> print(tg.stddev("price"))
    stddev(price)
    """
    return a.Stddev(column, population)


def first(column: str) -> Aggregate:
    """The first value by event time, then by arrival.

    >>> print(tg.first("page"))
    first(page)
    """
    return a.First(column)


def last(column: str) -> Aggregate:
    """The last value by event time, then by arrival.

    >>> print(tg.last("page"))
    last(page)
    """
    return a.Last(column)


def count_distinct(column: str) -> Aggregate:
    """The exact number of distinct values.

    >>> print(tg.count_distinct("user"))
    count_distinct(user)
    """
    return a.CountDistinct(column)


def approx_count_distinct(column: str) -> Aggregate:
    """The number of distinct values with a standard error of 1.6 % (HyperLogLog).

    >>> print(tg.approx_count_distinct("user"))
    approx_count_distinct(user)
    """
    return a.ApproxCountDistinct(column)


def quantile(column: str, q: float) -> Aggregate:
    """The q-quantile, off by at most 1 % of its value (DDSketch).

    >>> print(tg.quantile("latency", 0.99))
    quantile(latency, q=0.99)
    """
    return a.Quantile(column, q)


def collect(column: str) -> Aggregate:
    """All values as a list, ordered by event time, then by value.

    >>> print(tg.collect("page"))
    collect(page)
    """
    return a.Collect(column)


def median(column: str) -> Aggregate:
    """Refused: the exact median cannot be merged from partial results. The error says what to use."""
    return a.Median(column)
