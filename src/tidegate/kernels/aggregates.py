"""The aggregates that come with tidegate. A new one is a class here, and a line in public_aggregates.py.

A class is its own declaration: its constructor is the public function, whose parameters pipeline files
have as keys; `sql` has the names that SQL has for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar.hashing import hash_array
from tidegate.errors import PlanError
from tidegate.kernels.exact_sums import exact_mean, exact_sum, mean_type, sum_type
from tidegate.kernels.nested_extremes import OfNested
from tidegate.plan.aggregates import Aggregate, Combine, SqlCall, State
from tidegate.plan.schema import is_key_type

_COUNT = pa.int64()


class OfColumn(Aggregate):
    """An aggregate that always has a column."""

    def __init__(self, column: str) -> None:
        super().__init__(column)


class Count(Aggregate):
    """The number of rows, or of non-null values of a column.

    >>> print(tg.count())
    count(*)
    """

    sql = (SqlCall(("count",)),)
    columnwise: ClassVar[Mapping[str, Combine]] = {"n": "sum"}
    compares = False

    def __init__(self, column: str | None = None) -> None:
        super().__init__(column)

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return _COUNT

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"n": (pl.len() if self.column is None else value.count()).cast(pl.Int64)}

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        present = pl.lit(True) if self.column is None else value.is_not_null()
        return {"n": present.cast(pl.Int64)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"n": state["n"].sum()}

    def finish(self, state: State) -> pl.Expr:
        return state["n"]


class Sum(OfColumn):
    """The sum of a numeric column: 64-bit for integers, double for floats, exact for decimals.

    >>> print(tg.sum("price"))
    sum(price)
    """

    sql = (SqlCall(("sum",)),)
    columnwise: ClassVar[Mapping[str, Combine]] = {"n": "sum", "sum": "sum"}

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        if column_type is not None and pa.types.is_decimal(column_type):
            return sum_type(column_type)
        if column_type is not None and pa.types.is_integer(column_type):
            return pa.int64()
        return _require(column_type, pa.types.is_floating, "sum() adds up numbers", pa.float64())

    def for_type(self, column_type: pa.DataType | None) -> Aggregate:
        # Narrow integers have room: 64 bits hold the sum of four billion of them.
        wide = column_type == pa.int64() or (column_type and pa.types.is_decimal(column_type))
        return exact_sum(self, column_type) if wide else self

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"n": value.count().cast(pl.Int64), "sum": value.sum()}

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        return {"n": value.is_not_null().cast(pl.Int64), "sum": value.fill_null(0)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"n": state["n"].sum(), "sum": state["sum"].sum()}

    def finish(self, state: State) -> pl.Expr:
        return pl.when(state["n"] > 0).then(state["sum"])


class Mean(Sum):
    """The arithmetic mean, as a double; of decimals as a decimal.

    >>> print(tg.mean("price"))
    mean(price)
    """

    sql = (SqlCall(("avg", "mean")),)

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        if column_type is not None and pa.types.is_decimal(column_type):
            return mean_type(column_type)
        return _require(column_type, _is_number, "mean() needs numbers", pa.float64())

    def for_type(self, column_type: pa.DataType | None) -> Aggregate:
        decimal = column_type is not None and pa.types.is_decimal(column_type)
        return exact_mean(self, column_type) if decimal else self

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return super().partial(value.cast(pl.Float64), time)

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        return super().of_row(value.cast(pl.Float64))

    def finish(self, state: State) -> pl.Expr:
        return pl.when(state["n"] > 0).then(state["sum"] / state["n"])


class Min(OfColumn):
    """The smallest value of a column that has an order; NaN is greater than any number.

    >>> print(tg.min("price"))
    min(price)
    """

    sql = (SqlCall(("min",)),)
    columnwise: ClassVar[Mapping[str, Combine]] = {"min": "min"}

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        message = f"{self.name}() needs values that have an order"
        return _require(column_type, is_key_type, message, column_type)

    def for_type(self, column_type: pa.DataType | None) -> Aggregate:
        nested = column_type is not None and pa.types.is_nested(column_type)
        return OfNested(self, largest=isinstance(self, Max)) if nested else self

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"min": value.min()}

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        return {"min": value}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"min": state["min"].min()}

    def finish(self, state: State) -> pl.Expr:
        return state["min"]


class Max(Min):
    """The largest value of a column that has an order; NaN is greater than any number.

    >>> print(tg.max("price"))
    max(price)
    """

    sql = (SqlCall(("max",)),)
    columnwise: ClassVar[Mapping[str, Combine]] = {"max": "max"}

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"max": value.nan_max()}

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        return {"max": value}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"max": state["max"].nan_max()}

    def finish(self, state: State) -> pl.Expr:
        return state["max"]


class Var(OfColumn):
    """The sample variance, or that of a whole population.

    >>> print(tg.var("price", population=True))
    var(price, population=True)
    """

    # By Chan's pairwise update: stable where sums of squares cancel.

    sql: ClassVar[tuple[SqlCall, ...]] = (
        SqlCall(("var_samp", "variance")),
        SqlCall(("var_pop",), {"population": True}),
    )
    meanings: ClassVar[Mapping[str, str]] = {"population": "whether the rows are the whole population"}

    def __init__(self, column: str, *, population: bool = False) -> None:
        super().__init__(column)
        self.population = population

    def parameters(self) -> dict[str, object]:
        return {"population": True} if self.population else {}

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return _require(column_type, _is_number, f"{self.name}() needs numbers", pa.float64())

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        value = value.cast(pl.Float64)
        return {
            "n": value.count().cast(pl.Int64),
            "mean": value.mean().fill_null(0.0),
            "m2": ((value - value.mean()) ** 2).sum(),
        }

    def merge(self, state: State) -> dict[str, pl.Expr]:
        n, mean, m2 = state["n"], state["mean"], state["m2"]
        total = n.sum()
        center = pl.when(total > 0).then((n * mean).sum() / total).otherwise(0.0)
        # Written with the raw sums again: an aggregated expression does not broadcast in a group.
        spread = n * (mean - (n * mean).sum() / n.sum()) ** 2
        return {"n": total, "mean": center, "m2": (m2 + spread.fill_nan(0.0)).sum()}

    def finish(self, state: State) -> pl.Expr:
        degrees = state["n"] - (0 if self.population else 1)
        return pl.when(degrees > 0).then(state["m2"] / degrees)


class Stddev(Var):
    """The sample standard deviation, or that of a whole population.

    >>> print(tg.stddev("price"))
    stddev(price)
    """

    sql = (SqlCall(("stddev_samp", "stddev", "std")), SqlCall(("stddev_pop",), {"population": True}))

    def finish(self, state: State) -> pl.Expr:
        return super().finish(state).sqrt()


class First(OfColumn):
    """The first value by event time, then by arrival.

    >>> print(tg.first("page"))
    first(page)
    """

    sql = (SqlCall(("first", "first_value")),)

    compares = False

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        assert column_type is not None
        return column_type

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        present = value.is_not_null()
        return self._pick(value.filter(present), time.filter(present))

    def merge(self, state: State) -> dict[str, pl.Expr]:
        present = state["time"].is_not_null()
        return self._pick(state["value"].filter(present), state["time"].filter(present))

    def finish(self, state: State) -> pl.Expr:
        return state["value"]

    def _pick(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        # A stable sort keeps arrival order among equal times.
        return {
            "value": value.sort_by(time, maintain_order=True).first(),
            "time": time.min(),
        }


class Last(First):
    """The last value by event time, then by arrival.

    >>> print(tg.last("page"))
    last(page)
    """

    sql = (SqlCall(("last", "last_value")),)

    def _pick(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {
            "value": value.sort_by(time, maintain_order=True).last(),
            "time": time.max(),
        }


class CountDistinct(OfColumn):
    """The exact number of distinct values.

    >>> print(tg.count_distinct("user"))
    count_distinct(user)
    """

    @property
    def name(self) -> str:
        return "count_distinct"

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return _require(
            column_type,
            is_key_type,
            "count_distinct() compares values, and maps are never equal",
            _COUNT,
        )

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"seen": value.drop_nulls().unique().sort()}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"seen": _flatten(state["seen"]).unique().sort()}

    def finish(self, state: State) -> pl.Expr:
        return state["seen"].list.len().cast(pl.Int64)


class Collect(OfColumn):
    """All values as a list, ordered by event time, then by value.

    >>> print(tg.collect("page"))
    collect(page)
    """

    sql = (SqlCall(("collect_list", "array_agg")),)

    compares = False  # of equal times, any order of values will do

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        assert column_type is not None
        return pa.list_(column_type)

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        present = value.is_not_null()
        return self._ordered(value.filter(present), time.filter(present))

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return self._ordered(_flatten(state["values"]), _flatten(state["times"]))

    def finish(self, state: State) -> pl.Expr:
        # Over only nulls there is nothing to collect, and the result is null, as everywhere.
        return pl.when(state["values"].list.len() > 0).then(state["values"])

    def _ordered(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"values": value.sort_by(time, value), "times": time.sort()}


class ApproxCountDistinct(OfColumn):
    """The number of distinct values with a standard error of 1.6 % (HyperLogLog).

    >>> print(tg.approx_count_distinct("user"))
    approx_count_distinct(user)
    """

    # The state lists `register · 64 + rank`, sorted, one entry for each register that is not zero:
    # merges are exact, and the state of few values is small.

    sql = (SqlCall(("approx_count_distinct",)),)
    bits: ClassVar[int] = 12

    @property
    def name(self) -> str:
        return "approx_count_distinct"

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return _require(
            column_type, is_key_type, f"{self.name}() compares values, and maps are never equal", _COUNT
        )

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        hashed = value.drop_nulls().map_batches(self._entries, return_dtype=pl.Int32)
        return {"registers": _highest_rank(hashed)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {"registers": _highest_rank(_flatten(state["registers"]))}

    def finish(self, state: State) -> pl.Expr:
        registers = 1 << self.bits
        ranks = state["registers"].list
        used = ranks.len().cast(pl.Int64)
        zeros = registers - used
        powers = ranks.eval(pl.lit(2.0) ** (-(pl.element() % 64).cast(pl.Float64)))
        alpha = 0.7213 / (1 + 1.079 / registers)
        raw = alpha * registers**2 / (zeros + powers.list.sum())
        linear = registers * (pl.lit(float(registers)) / zeros).log()
        small = (raw <= 2.5 * registers) & (zeros > 0)
        return pl.when(small).then(linear).otherwise(raw).round().cast(pl.Int64)

    def _entries(self, values: pl.Series) -> pl.Series:
        hashes = hash_array(values.to_arrow(compat_level=pl.CompatLevel.oldest()))
        register = (hashes >> np.uint64(64 - self.bits)).astype(np.int32)
        rest = (hashes << np.uint64(self.bits)) | np.uint64(1 << (self.bits - 1))
        rank = 64 - np.floor(np.log2(rest.astype(np.float64))).astype(np.int32)
        return pl.Series(register * 64 + np.maximum(rank, 1), dtype=pl.Int32)


class Quantile(OfColumn):
    """The q-quantile, off by at most 1 % of its value (DDSketch).

    >>> print(tg.quantile("latency", 0.99))
    quantile(latency, q=0.99)
    """

    # Logarithmic bins and their counts. Bins add up, so the sketch of a window does not depend on how
    # its rows were cut up.

    sql = (SqlCall(("percentile",)), SqlCall(("approx_percentile", "percentile_approx")))
    meanings: ClassVar[Mapping[str, str]] = {"q": "a number between 0 and 1, such as 0.99"}
    accuracy: ClassVar[float] = 0.01
    #: Magnitudes below this count as zero; it keeps bin numbers within 32 bits.
    smallest: ClassVar[float] = 1e-300

    def __init__(self, column: str, q: float) -> None:
        super().__init__(column)
        if not 0 <= q <= 1:
            raise PlanError(f"quantile of {column!r}: q must lie between 0 and 1, got {q!r}")
        self.q = float(q)

    def parameters(self) -> dict[str, object]:
        return {"q": self.q}

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return _require(column_type, _is_number, "quantile() needs numbers", pa.float64())

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        value = value.cast(pl.Float64).drop_nulls()
        bins = value.filter(value.is_finite()).map_batches(self._bins, return_dtype=pl.Int32)
        return _count_runs(bins.sort(), bins.is_not_null().cast(pl.Int64))

    def merge(self, state: State) -> dict[str, pl.Expr]:
        bins, counts = _flatten(state["bins"]), _flatten(state["counts"])
        return _count_runs(bins.sort(), counts.sort_by(bins))

    def finish(self, state: State) -> pl.Expr:
        rank = (state["counts"].list.sum() - 1) * self.q
        below = state["counts"].list.eval(pl.element().cum_sum())
        # The first bin whose cumulative count exceeds the rank holds the quantile.
        quantile = pl.struct(bins=state["bins"], below=below, rank=rank).map_batches(
            self._value_at_rank, return_dtype=pl.Float64
        )
        return pl.when(state["bins"].list.len() > 0).then(quantile)

    def _gamma(self) -> float:
        return (1 + self.accuracy) / (1 - self.accuracy)

    def _bins(self, values: pl.Series) -> pl.Series:
        numbers = values.to_numpy()
        size = np.maximum(np.abs(numbers), self.smallest)
        # Shifted so that every bin of a positive number is positive: the sign tells the side.
        shift = np.ceil(np.log(self.smallest) / np.log(self._gamma())) - 1
        bins = np.ceil(np.log(size) / np.log(self._gamma())) - shift
        side = np.where(np.abs(numbers) <= self.smallest, 0, np.sign(numbers))
        return pl.Series((bins * side).astype(np.int32), dtype=pl.Int32)

    def _value_at_rank(self, states: pl.Series) -> pl.Series:
        frame = states.struct.unnest().with_row_index("row")
        flat = frame.explode("bins", "below")
        hit = flat.filter(pl.col("below") > pl.col("rank")).group_by("row").agg(pl.col("bins").first())
        bins = frame.select("row").join(hit, on="row", how="left", maintain_order="left")["bins"]
        numbers = bins.cast(pl.Float64).to_numpy()
        gamma = self._gamma()
        shift = np.ceil(np.log(self.smallest) / np.log(gamma)) - 1
        middle = (np.abs(numbers) + shift) * np.log(gamma) + np.log(2 / (gamma + 1))
        middle = np.exp(np.minimum(middle, np.log(np.finfo(float).max)))
        values = np.where(numbers == 0, 0.0, np.sign(numbers) * middle)
        return pl.Series(values, dtype=pl.Float64, nan_to_null=True)


class Median(OfColumn):
    """Refused: the exact median cannot be merged from partial results. The error says what to use."""

    sql = (SqlCall(("median",)),)
    mergeable: ClassVar[bool] = False

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return pa.float64()

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        raise NotImplementedError

    merge = finish = partial  # type: ignore[assignment]


def _flatten(lists: pl.Expr) -> pl.Expr:
    return lists.explode(empty_as_null=False, keep_nulls=False)


def _highest_rank(entries: pl.Expr) -> pl.Expr:
    ordered = entries.unique().sort()
    return ordered.filter((ordered // 64) != (ordered // 64).shift(-1).fill_null(-1))


def _count_runs(ordered: pl.Expr, counts: pl.Expr) -> dict[str, pl.Expr]:
    """Equal neighbours become one, their counts added: a group-by inside a group."""
    last_of_run = (ordered != ordered.shift(-1)).fill_null(True)
    running = counts.cum_sum().filter(last_of_run)
    return {
        "bins": ordered.filter(last_of_run),
        "counts": running - running.shift(1).fill_null(0),
    }


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _require(
    kind: pa.DataType | None, check: Callable[[pa.DataType], bool], message: str, result: pa.DataType
) -> pa.DataType:
    """The result's type, if the column's type passes the check."""
    if kind is None or not check(kind):
        raise TypeError(message)
    return result
