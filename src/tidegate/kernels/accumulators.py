"""All aggregates of one operator: their state is a set of named columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl

from tidegate.columnar.ranges import Columns, Pieces, fold_pieces, merge_columns, merge_tree
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

    def merge_ranges(self, rows: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> pl.DataFrame:
        """The states of overlapping ranges of rows (both ends included)."""
        fast = self._columnwise(rows)
        merged = _merge_once(rows, fast, lambda columns: merge_columns(columns, fast, low, high))
        tree = self._merge_slow(rows, fast, low, high)
        return merged if tree is None else pl.concat([merged, tree], how="horizontal")

    def merge_pieces(
        self, rows: pl.DataFrame, own: np.ndarray, pieces: Sequence[Pieces]
    ) -> pl.DataFrame:
        """The states of pieces of rows, given in the order of time, and of one row behind them."""
        fast = self._columnwise(rows)
        merged = _merge_once(rows, fast, lambda columns: fold_pieces(columns, fast, own, pieces))
        if not self._slow(fast):
            return merged
        each = np.arange(len(own))
        last = Pieces(own, each, each, each)
        together = pl.concat(self._slow_piece(rows, fast, piece) for piece in (*pieces, last))
        slow = together.group_by(_ASKING).agg(self._merge_exprs(self._slow(fast)))
        return pl.concat([merged, slow.sort(_ASKING).drop(_ASKING)], how="horizontal")

    def _slow_piece(
        self, rows: pl.DataFrame, fast: Mapping[str, Combine], piece: Pieces
    ) -> pl.DataFrame:
        merged = self._merge_slow(rows[piece.rows], fast, piece.low, piece.high)
        assert merged is not None
        return merged.with_columns(pl.Series(_ASKING, piece.asking))

    def _merge_slow(
        self, rows: pl.DataFrame, fast: Mapping[str, Combine], low: np.ndarray, high: np.ndarray
    ) -> pl.DataFrame | None:
        """The states of ranges, of the aggregates that merge only as a whole."""
        slow = self._slow(fast)
        if not slow:
            return None
        states = rows.select(f"{name}.{part}" for name, _ in slow for part in self._parts[name])
        return merge_tree(
            states,
            lambda nodes, group: nodes.group_by(group).agg(self._merge_exprs(slow)),
            low,
            high,
        )

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
    rows: pl.DataFrame, how: Mapping[str, Combine], merge: Callable[[Columns], Columns]
) -> pl.DataFrame:
    """Columns merged; columns with the same numbers, as counts often have, are merged once."""
    columns: Columns = {}
    sources = {}
    for name, values in ((name, rows[name].to_numpy()) for name in how):
        alike = (other for other in columns if how[other] == how[name])
        sources[name] = next((other for other in alike if _same(columns[other], values)), name)
        columns.setdefault(sources[name], values)
    merged = merge(columns)
    return pl.DataFrame({name: merged[source] for name, source in sources.items()})


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)
