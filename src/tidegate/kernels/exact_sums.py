"""Sums and means of wide integers and decimals: exact, and never a wrong number.

A number is kept as digits of 32 bits, each added up by itself in 64 bits. So sums have room beyond their
result's type, merge column by column like any other sum, and what does not fit the type in the end is
known to be too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import polars as pl
import pyarrow as pa

from tidegate.plan.aggregates import Aggregate, Combine, State
from tidegate.plan.identity import Values

_BASE = 1 << 32
#: Decimals of so many digits fit 64 bits.
_LONG_DIGITS = 18
#: Spark divides with this many digits behind the point, and rounds then.
_QUOTIENT_SCALE = 39
#: Up to this scale rounding twice gives what rounding once does, for any number of rows.
_ROUNDED_ONCE = 20
#: Numbers below this can be multiplied by ten thousand in 128 bits.
_ROOM = 10**34


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of the sum of decimals, as Spark has it."""
    return pa.decimal128(min(38, kind.precision + 10), kind.scale)


def mean_type(kind: pa.DataType) -> pa.DataType:
    """The type of the mean of decimals, as Spark has it."""
    return pa.decimal128(min(38, kind.precision + 4), min(38, kind.scale + 4))


def exact_sum(of: Aggregate, kind: pa.DataType) -> ExactSum:
    """The sum of 64-bit integers or of decimals."""
    return (WideSum if _is_wide(kind) else ExactSum)(of, kind)


def exact_mean(of: Aggregate, kind: pa.DataType) -> ExactSum:
    """The mean of decimals."""
    return (WideMean if _is_wide(kind) else ExactMean)(of, kind)


def _is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.precision > _LONG_DIGITS)


class ExactSum(Aggregate):
    """The sum of whole numbers of 64 bits, or of decimals that are such numbers with a point."""

    digits: ClassVar[int] = 2
    columnwise: ClassVar[Mapping[str, Combine]] = {"n": "sum", "d0": "sum", "d1": "sum"}

    def __init__(self, of: Aggregate, kind: pa.DataType) -> None:
        super().__init__(of.column)
        self.of = of
        self.kind = kind

    @property
    def name(self) -> str:
        return self.of.name

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return self.of.output_type(column_type)

    def identity(self) -> Values:
        return super().identity() | {"partials": "digits of 32 bits"}

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        count = {"n": value.count().cast(pl.Int64)}
        return count | {name: digit.sum() for name, digit in self._digits(value).items()}

    def of_row(self, value: pl.Expr) -> dict[str, pl.Expr]:
        count = {"n": value.is_not_null().cast(pl.Int64)}
        return count | {name: digit.fill_null(0) for name, digit in self._digits(value).items()}

    def _digits(self, value: pl.Expr) -> dict[str, pl.Expr]:
        whole = value.to_physical() if pa.types.is_decimal(self.kind) else value
        if self.digits == 2:
            whole = whole.cast(pl.Int64)
        *lower, top = (whole // _BASE**place if place else whole for place in range(self.digits))
        parts = [*(digit & (_BASE - 1) for digit in lower), top]
        return {f"d{place}": part.cast(pl.Int64) for place, part in enumerate(parts)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        digits = _carried([state[f"d{place}"].sum() for place in range(self.digits)])
        return {"n": state["n"].sum()} | {f"d{place}": digit for place, digit in enumerate(digits)}

    def finish(self, state: State) -> pl.Expr:
        return _as_type(self._total(state), self.output_type(self.kind))

    def overflow(self, state: State) -> pl.Expr:
        return (state["n"] > 0) & self.finish(state).is_null()

    def _total(self, state: State) -> pl.Expr:
        """The sum as a whole number of 128 bits; null where it does not fit the type of sums."""
        *lower, top = _carried([state[f"d{place}"] for place in range(self.digits)])
        whole = top.cast(pl.Int128)
        for digit in reversed(lower):
            whole = whole * _BASE + digit
        if pa.types.is_decimal(self.kind):
            fits = _below(whole, 10 ** sum_type(self.kind).precision)
        else:
            fits = top.is_between(-(_BASE >> 1), (_BASE >> 1) - 1)
        if self.digits * 32 == 128:  # beyond these bits the number above is not the sum
            fits &= top.is_between(-(_BASE >> 1), (_BASE >> 1) - 1)
        return pl.when((state["n"] > 0) & fits).then(whole)


class WideSum(ExactSum):
    """The sum of decimals of up to 38 digits."""

    digits = 4
    columnwise: ClassVar[Mapping[str, Combine]] = dict.fromkeys(("n", "d0", "d1", "d2", "d3"), "sum")


class ExactMean(ExactSum):
    """The mean of decimals: their exact sum, divided once."""

    def finish(self, state: State) -> pl.Expr:
        parts = pl.struct(sum=self._total(state), n=state["n"])
        return parts.map_batches(self._quotients, return_dtype=pl.Int128).reinterpret(
            dtype=self._decimal
        )

    @property
    def _decimal(self) -> pl.Decimal:
        kind = mean_type(self.kind)
        return pl.Decimal(kind.precision, kind.scale)

    def _quotients(self, parts: pl.Series) -> pl.Series:
        frame, kind = parts.struct.unnest(), mean_type(self.kind)
        more = kind.scale - self.kind.scale
        small = _below(pl.col("sum"), _ROOM).all()
        if kind.scale <= _ROUNDED_ONCE and frame.select(small).item():
            rounded = _half_up(pl.col("sum") * 10**more, pl.col("n"))
            return frame.select(_fitting(rounded, kind).alias("mean"))["mean"]
        pairs = zip(frame["sum"].to_list(), frame["n"].to_list(), strict=True)
        means = [None if total is None else _mean(total, n, self.kind.scale, kind) for total, n in pairs]
        return pl.Series("mean", means, dtype=pl.Int128)


class WideMean(ExactMean, WideSum):
    """The mean of decimals of up to 38 digits."""


def _carried(digits: list[pl.Expr]) -> list[pl.Expr]:
    """The same number with digits that have 32 bits, but for the first one, which has the sign."""
    carried, carry = [], pl.lit(0, dtype=pl.Int64)
    for digit in digits[:-1]:
        carried.append((digit + carry) & (_BASE - 1))
        carry = (digit + carry) // _BASE
    return [*carried, digits[-1] + carry]


def _as_type(whole: pl.Expr, kind: pa.DataType) -> pl.Expr:
    if pa.types.is_decimal(kind):
        return whole.reinterpret(dtype=pl.Decimal(kind.precision, kind.scale))
    return whole.cast(pl.Int64)


def _below(whole: pl.Expr, limit: int) -> pl.Expr:
    """Is a number smaller than this, whatever its sign?"""
    return whole.is_between(pl.lit(1 - limit, dtype=pl.Int128), pl.lit(limit - 1, dtype=pl.Int128))


def _fitting(whole: pl.Expr, kind: pa.DataType) -> pl.Expr:
    return pl.when(_below(whole, 10**kind.precision)).then(whole)


def _half_up(number: pl.Expr, divisor: pl.Expr) -> pl.Expr:
    """The quotient, rounded to the nearest whole number; halves go away from zero."""
    size, divisor = number.abs(), divisor.cast(pl.Int128)
    quotient = size // divisor
    rest = size - quotient * divisor
    return (quotient + (rest >= divisor - rest).cast(pl.Int128)) * number.sign()


def _mean(total: int, n: int, scale: int, kind: pa.DataType) -> int | None:
    """The mean of unscaled numbers, by way of the scale that Spark divides with."""
    quotient = _rounded(total * 10 ** (_QUOTIENT_SCALE - scale), n)
    mean = _rounded(quotient, 10 ** (_QUOTIENT_SCALE - kind.scale))
    return mean if abs(mean) < 10**kind.precision else None


def _rounded(number: int, divisor: int) -> int:
    quotient, rest = divmod(abs(number), divisor)
    rounded = quotient + (2 * rest >= divisor)
    return rounded if number >= 0 else -rounded
