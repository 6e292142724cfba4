"""All aggregates of one operator: their state is a set of named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from tidegate.columnar.pairs import Pairs
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

_ASKING, _ROW = "__tidegate_asking", "__tidegate_row_number"

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
        return _grouped(self._widened(rows), by, *self._partial_exprs(), *extra)

    def of_rows(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The states of rows, each by itself, in their order."""
        alone = {name: agg.of_row(pl.col(agg.column or TIME)) for name, agg in self.aggregates}
        if None in alone.values():
            # Groups of one row each: that their numbers are in order makes it eight times as fast.
            number = pl.Series(_ROW, np.arange(len(rows))).set_sorted()
            return self.partial(rows.with_columns(number), [_ROW]).sort(_ROW).drop(_ROW)
        states = {
            f"{name}.{part}": expr
            for name, state in alone.items()
            for part, expr in (state or {}).items()
        }
        return self._widened(rows).with_columns(**states).select(list(states))

    def _widened(self, rows: pl.DataFrame) -> pl.DataFrame:
        kinds = {c: str(rows.schema[c]) for c in self.columns}
        narrow = [pl.col(c).cast(getattr(pl, _WIDE[k])) for c, k in kinds.items() if k in _WIDE]
        return rows.with_columns(narrow)

    def merge(self, states: pl.DataFrame, by: Sequence[str], *extra: pl.Expr) -> pl.DataFrame:
        """The states of groups of states, which are given in the order they arrived."""
        return _grouped(states, by, *self._merge_exprs(self.aggregates), *extra)

    def finish(self, states: pl.DataFrame, *keep: str | pl.Expr) -> pl.DataFrame:
        """The results, beside the columns to keep."""
        results = [agg.finish(self._state(name)).alias(name) for name, agg in self.aggregates]
        if self._overflows:
            some = pl.any_horizontal(told.is_not_null() for told in self._overflows)
            told = pl.concat_str(self._overflows, separator="; ", ignore_nulls=True)
            results.append(pl.when(some).then(told).alias(OVERFLOW))
        return states.select(*keep, *results)

    def in_order(self, states: pl.DataFrame, order: np.ndarray) -> StatesInOrder:
        """States in an order, to merge ranges of them."""
        how: dict[str, Combine] = {}
        slow: list[tuple[str, Aggregate]] = []
        for name, agg in self.aggregates:
            parts = {f"{name}.{part}": part_how for part, part_how in agg.columnwise.items()}
            if parts and all(_numeric(states[column]) for column in parts):
                how |= parts
            else:
                slow.append((name, agg))
        named = [f"{name}.{part}" for name, _ in slow for part in self._parts[name]]
        rest = states.select(named)[order] if slow else None
        return StatesInOrder(*_distinct(states, how, order), rest, self._merge_exprs(slow))

    @cached_property
    def _overflows(self) -> list[pl.Expr]:
        """For each aggregate that can overflow: what is said where it does."""
        found = ((name, agg, agg.overflow(self._state(name))) for name, agg in self.aggregates)
        return [
            pl.when(overflow).then(pl.lit(f"{agg} overflows, so {name!r} is null"))
            for name, agg, overflow in found
            if overflow is not None
        ]

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


def _grouped(rows: pl.DataFrame, by: Sequence[str], *aggregates: pl.Expr) -> pl.DataFrame:
    pairs = Pairs.of(rows, by)
    return rows.group_by(by).agg(*aggregates) if pairs is None else pairs.group_by(rows, *aggregates)


def _numeric(column: pl.Series) -> bool:
    return column.dtype in (pl.Int64, pl.Int32, pl.Float64, pl.Float32) and not column.null_count()


@dataclass(frozen=True)
class StatesInOrder:
    """States of rows in an order. Columns that merge by themselves are arrays, the others a frame."""

    columns: Columns
    how: Mapping[str, Combine]
    #: By which of the columns each one is answered: those with the same numbers are merged once.
    #: None: it counts rows, so nothing needs to be merged.
    sources: Mapping[str, str | None]
    slow: pl.DataFrame | None
    merge_slow: list[pl.Expr]

    def ranges(self, low: np.ndarray, high: np.ndarray) -> pl.DataFrame:
        """The states of overlapping ranges (both ends included)."""
        merged = self._frame(merge_columns(self.columns, self.how, low, high), high - low + 1)
        if self.slow is None:
            return merged
        return pl.concat([merged, self._tree(self.slow, low, high)], how="horizontal")

    def pieces(self, own: np.ndarray, pieces: Sequence[Pieces]) -> pl.DataFrame:
        """The states of pieces, given in the order of time, and of one row behind them."""
        count = count_pieces(len(own), pieces) if None in self.sources.values() else own
        merged = self._frame(fold_pieces(self.columns, self.how, own, pieces), count)
        if self.slow is None:
            return merged
        last = Pieces(None, own, own, np.arange(len(own)))
        together = pl.concat(self._slow_piece(self.slow, piece) for piece in (*pieces, last))
        slow = together.group_by(_ASKING).agg(self.merge_slow).sort(_ASKING).drop(_ASKING)
        return pl.concat([merged, slow], how="horizontal")

    def _frame(self, merged: Columns, count: np.ndarray) -> pl.DataFrame:
        sources = self.sources.items()
        return pl.DataFrame({name: count if one is None else merged[one] for name, one in sources})

    def _slow_piece(self, states: pl.DataFrame, piece: Pieces) -> pl.DataFrame:
        given = states if piece.rows is None else states[piece.rows]
        asking = pl.Series(_ASKING, piece.asking)
        return self._tree(given, piece.low, piece.high).with_columns(asking)

    def _tree(self, states: pl.DataFrame, low: np.ndarray, high: np.ndarray) -> pl.DataFrame:
        return merge_tree(
            states, lambda nodes, group: nodes.group_by(group).agg(self.merge_slow), low, high
        )


def _distinct(
    states: pl.DataFrame, how: Mapping[str, Combine], order: np.ndarray
) -> tuple[Columns, Mapping[str, Combine], dict[str, str | None]]:
    """Columns that differ, in an order, and which of them answers for each."""
    columns: Columns = {}
    sources: dict[str, str | None] = {}
    for name, values in ((name, states[name].to_numpy()) for name in how):
        if how[name] == "sum" and _all_ones(values):
            sources[name] = None
            continue
        alike = (other for other in columns if how[other] == how[name])
        sources[name] = same = next((one for one in alike if _same(columns[one], values)), name)
        columns.setdefault(same, values)
    ordered = {name: values[order] for name, values in columns.items()}
    return ordered, {name: how[name] for name in ordered}, sources


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and np.array_equal(one, other)


def _all_ones(values: np.ndarray) -> bool:
    return values.dtype == np.int64 and bool((values[:1] == 1).all() and (values == 1).all())
