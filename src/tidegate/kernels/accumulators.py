"""All aggregates of one operator: their state is a set of named columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from tidegate.columnar.ranges import (
    Columns,
    Pieces,
    count_pieces,
    fold_pieces,
    merge_columns,
    merge_tree,
)
from tidegate.plan.aggregates import Aggregate, Combine

#: The event time of a packed row, as an integer.
TIME = "__tidegate_time"

#: Beside results: which of them are null since they do not fit their types, if any.
OVERFLOW = "__tidegate_overflow"

_ASKING = "__tidegate_asking"

#: Numbers are added in 64 bits, whatever their type; results are cast to their declared types.
_WIDE = {"Int8": "Int64", "Int16": "Int64", "Int32": "Int64", "Float32": "Float64"}


class Accumulators:
    """The state columns of named aggregates, `name.part`, and what can be done with them."""

    def __init__(self, aggregates: Sequence[tuple[str, Aggregate]]) -> None:
        self.aggregates = tuple(aggregates)

    @cached_property
    def names(self) -> list[str]:
        """The columns of results."""
        return [*(name for name, _ in self.aggregates), *([OVERFLOW] if self._overflows else [])]

    @cached_property
    def columns(self) -> list[str]:
        """The columns of rows that aggregates read."""
        return sorted({agg.column for _, agg in self.aggregates if agg.column is not None})

    @cached_property
    def state_columns(self) -> frozenset[str]:
        return frozenset(f"{name}.{part}" for name, parts in self._parts.items() for part in parts)

    @cached_property
    def columnwise(self) -> bool:
        """Does every state merge column by column?"""
        return all(agg.columnwise for _, agg in self.aggregates)

    @cached_property
    def _parts(self) -> dict[str, list[str]]:
        return {
            name: list(agg.partial(pl.col(agg.column or TIME), pl.col(TIME)))
            for name, agg in self.aggregates
        }

    def partial(self, rows: pl.DataFrame, by: Sequence[str], *extra: pl.Expr) -> pl.DataFrame:
        """The states of groups of rows."""
        kinds = {c: str(rows.schema[c]) for c in self.columns}
        narrow = [pl.col(c).cast(getattr(pl, _WIDE[k])) for c, k in kinds.items() if k in _WIDE]
        return rows.with_columns(narrow).group_by(by).agg(*self._partial_exprs(), *extra)

    def merge(self, states: pl.DataFrame, by: Sequence[str], *extra: pl.Expr) -> pl.DataFrame:
        """The states of groups of states, which are given in the order they arrived."""
        return states.group_by(by).agg(*self._merge_exprs(self.aggregates), *extra)

    def finish(self, states: pl.DataFrame, *keep: str | pl.Expr) -> pl.DataFrame:
        """The results, beside the columns to keep."""
        results = [agg.finish(self._state(name)).alias(name) for name, agg in self.aggregates]
        if self._overflows:
            some = pl.any_horizontal(told.is_not_null() for told in self._overflows)
            told = pl.concat_str(self._overflows, separator="; ", ignore_nulls=True)
            results.append(pl.when(some).then(told).alias(OVERFLOW))
        return states.select(*keep, *results)

    def merge_ranges(
        self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray, order: np.ndarray
    ) -> pl.DataFrame:
        """The states of overlapping ranges (both ends included) of rows in an order."""
        fast = self._columnwise(rows)
        merged = _merge_once(
            rows,
            fast,
            order,
            lambda columns: merge_columns(columns, fast, low, high),
            lambda: high - low + 1,
        )
        if not self._slow(fast):
            return merged
        tree = self._merge_slow(self._slow_states(rows, fast)[order], fast, low, high)
        return pl.concat([merged, tree], how="horizontal")

    def merge_pieces(
        self, rows: pl.DataFrame, order: np.ndarray, own: np.ndarray, pieces: Sequence[Pieces]
    ) -> pl.DataFrame:
        """The states of pieces of rows in an order, in that of time, and of one row behind them."""
        fast = self._columnwise(rows)
        merged = _merge_once(
            rows,
            fast,
            order,
            lambda columns: fold_pieces(columns, fast, own, pieces),
            lambda: count_pieces(len(own), pieces),
        )
        if not self._slow(fast):
            return merged
        states = self._slow_states(rows, fast)[order]
        last = Pieces(None, own, own, np.arange(len(own)))
        together = pl.concat(self._slow_piece(states, fast, piece) for piece in (*pieces, last))
        slow = together.group_by(_ASKING).agg(self._merge_exprs(self._slow(fast)))
        return pl.concat([merged, slow.sort(_ASKING).drop(_ASKING)], how="horizontal")

    def _slow_piece(
        self, states: pl.DataFrame, fast: Mapping[str, Combine], piece: Pieces
    ) -> pl.DataFrame:
        given = states if piece.rows is None else states[piece.rows]
        merged = self._merge_slow(given, fast, piece.low, piece.high)
        return merged.with_columns(pl.Series(_ASKING, piece.asking))

    def _slow_states(self, rows: pl.DataFrame, fast: Mapping[str, Combine]) -> pl.DataFrame:
        """The states of aggregates that merge only as a whole."""
        slow = self._slow(fast)
        return rows.select(f"{name}.{part}" for name, _ in slow for part in self._parts[name])

    def _merge_slow(
        self, states: pl.DataFrame, fast: Mapping[str, Combine], low: np.ndarray, high: np.ndarray
    ) -> pl.DataFrame:
        exprs = self._merge_exprs(self._slow(fast))
        return merge_tree(states, lambda nodes, group: nodes.group_by(group).agg(exprs), low, high)

    @cached_property
    def _overflows(self) -> list[pl.Expr]:
        """For each aggregate that can overflow: what is said where it does."""
        found = ((name, agg, agg.overflow(self._state(name))) for name, agg in self.aggregates)
        return [
            pl.when(overflow).then(pl.lit(f"{agg} overflows, so {name!r} is null"))
            for name, agg, overflow in found
            if overflow is not None
        ]

    def _slow(self, fast: Mapping[str, Combine]) -> list[tuple[str, Aggregate]]:
        return [
            (name, agg) for name, agg in self.aggregates if f"{name}.{self._parts[name][0]}" not in fast
        ]

    def _columnwise(self, rows: pl.DataFrame) -> dict[str, Combine]:
        """The columns that merge by themselves and that NumPy can hold as they are."""
        fast: dict[str, Combine] = {}
        for name, agg in self.aggregates:
            parts = {f"{name}.{part}": how for part, how in agg.columnwise.items()}
            if parts and all(_numeric(rows[column]) for column in parts):
                fast |= parts
        return fast

    def _partial_exprs(self) -> list[pl.Expr]:
        return [
            expr.alias(f"{name}.{part}")
            for name, agg in self.aggregates
            for part, expr in agg.partial(pl.col(agg.column or TIME), pl.col(TIME)).items()
        ]

    def _merge_exprs(self, aggregates: Sequence[tuple[str, Aggregate]]) -> list[pl.Expr]:
        return [
            expr.alias(f"{name}.{part}")
            for name, agg in aggregates
            for part, expr in agg.merge(self._state(name)).items()
        ]

    def _state(self, name: str) -> Mapping[str, pl.Expr]:
        return {part: pl.col(f"{name}.{part}") for part in self._parts[name]}


def _numeric(column: pl.Series) -> bool:
    return column.dtype in (pl.Int64, pl.Int32, pl.Float64, pl.Float32) and not column.null_count()


def _merge_once(
    rows: pl.DataFrame,
    how: Mapping[str, Combine],
    order: np.ndarray,
    merge: Callable[[Columns], Columns],
    count: Callable[[], np.ndarray],
) -> pl.DataFrame:
    """Columns of rows merged in an order.

    Columns with the same numbers, as counts often have, are merged once. Those that only count rows
    need no merging: how many rows there are is known.
    """
    columns: Columns = {}
    sources = {}
    for name, values in ((name, rows[name].to_numpy()) for name in how):
        alike = (other for other in columns if how[other] == how[name])
        sources[name] = next((other for other in alike if _same(columns[other], values)), name)
        columns.setdefault(sources[name], values)
    ones = {name for name, values in columns.items() if how[name] == "sum" and _all_ones(values)}
    merged = merge({name: values[order] for name, values in columns.items() if name not in ones})
    merged |= {name: count() for name in ones}
    return pl.DataFrame({name: merged[source] for name, source in sources.items()})


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _all_ones(values: np.ndarray) -> bool:
    return values.dtype == np.int64 and bool((values[:1] == 1).all() and (values == 1).all())
