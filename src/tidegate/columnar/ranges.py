"""Many overlapping ranges of rows merged at once, in time near linear in rows plus ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tidegate.plan.aggregates import Combine

#: NaN is greater than any number: the smallest of several is NaN only if all are.
_UFUNC: dict[Combine, Any] = {"sum": np.add, "min": np.fmin, "max": np.maximum}

#: Blocks up to this size are accumulated column by column, longer ones row by row.
_SHORT = 16

#: So many ranges are merged at a time: what is made on the way then stays in the processor's cache.
_AT_ONCE = 1 << 17

#: Rows that are asked about lie near each other if the blocks in between have so many rows for each.
_NEAR = 4

_RANGE, _RANK, _NODE = "__tidegate_range", "__tidegate_rank", "__tidegate_node"


Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Pieces:
    """Ranges `low … high` (both included) of `rows`, each for the result `asking`; none is empty.

    Without `rows` they are ranges of all rows. With a `level`, ranges are heads: each begins where a
    block of 2^level rows does, and ends in it.
    """

    rows: np.ndarray | None
    low: np.ndarray
    high: np.ndarray
    asking: np.ndarray
    level: int | None = None


def merge_columns(
    columns: Columns, how: Mapping[str, Combine], low: np.ndarray, high: np.ndarray
) -> Columns:
    """Merge rows `low … high` (both included) of each column that merges by itself.

    Rows are cut into blocks of a power of two, of such a size that a range meets two neighbours: it is
    the tail of one and the head of the next (a disjoint sparse table). So running results inside
    blocks, from the left and from the right, answer every range with one operation. Nothing outside
    a range ever touches its value, so a NaN or a huge number stays where it belongs.
    """
    merged = {name: values[low] for name, values in columns.items()}
    for begin in range(0, len(low), _AT_ONCE):
        some = slice(begin, begin + _AT_ONCE)
        part = {name: values[some] for name, values in merged.items()}
        _merge_some(columns, how, low[some], high[some], part)
    return merged


def _merge_some(
    columns: Columns, how: Mapping[str, Combine], low: np.ndarray, high: np.ndarray, merged: Columns
) -> None:
    """Merge the ranges of more than one row."""
    for level, asking in _by_level(low, high):
        tails, heads = (_Blocks.of(ends[asking], level) for ends in (low, high))
        for name, values in columns.items():
            ufunc = _UFUNC[how[name]]
            tail, head = tails.from_rows(values, ufunc), heads.up_to_rows(values, ufunc)
            merged[name][asking] = ufunc(tail, head)


def _by_level(low: np.ndarray, high: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The ranges of more than one row by the size of their blocks, which is 2^level."""
    across, apart = binary_digits(low ^ high) - 1, binary_digits(high - low)
    # Blocks longer than the range where one ends inside it; else those of half the size, and one does.
    level = np.minimum(across, apart).astype(np.int8)
    order = np.argsort(level, kind="stable")
    edges = np.searchsorted(level[order], np.arange(level.max(initial=-1) + 2))
    for number in np.flatnonzero(np.diff(edges)).tolist():
        yield number, order[edges[number] : edges[number + 1]]


def binary_digits(numbers: np.ndarray) -> np.ndarray:
    """How many binary digits each number has."""
    exponent = numbers.astype(np.float64).view(np.int64) >> 52
    return np.maximum(exponent - 1022, 0, out=exponent)


@dataclass(frozen=True)
class _Blocks:
    """The blocks of 2^level rows that certain rows lie in, closed up; and where they lie there."""

    level: int
    numbers: slice | np.ndarray
    positions: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, level: int) -> _Blocks:
        block = rows >> level
        first, last = int(block.min()), int(block.max())
        if last - first << level <= _NEAR * len(rows):
            return cls(level, slice(first, last + 1), rows - (first << level))
        asked = np.zeros(last + 1, dtype=bool)
        asked[block] = True
        number = np.cumsum(asked) - 1
        return cls(level, np.flatnonzero(asked), (number[block] << level) | (rows & ((1 << level) - 1)))

    def cut(self, values: np.ndarray) -> np.ndarray:
        """The blocks, one below the other; what fills up the last one lies behind all rows."""
        size = 1 << self.level
        whole = len(values) >> self.level
        blocks = values[: whole << self.level].reshape(-1, size)
        numbers = self.numbers
        last = numbers.stop - 1 if isinstance(numbers, slice) else numbers[-1]
        if last < whole:
            return np.array(blocks[numbers])
        rest = np.resize(values[whole << self.level :], (1, size))
        others = slice(numbers.start, last) if isinstance(numbers, slice) else numbers[:-1]
        return np.concatenate([blocks[others], rest])

    def up_to_rows(self, values: np.ndarray, ufunc: Any) -> np.ndarray:
        """Each row's block merged up to it."""
        blocks = self.cut(values)
        _accumulate(blocks, ufunc)
        return blocks.ravel()[self.positions]

    def from_rows(self, values: np.ndarray, ufunc: Any) -> np.ndarray:
        """Each row's block merged from it on."""
        blocks = self.cut(values)
        _accumulate(blocks[:, ::-1], ufunc)
        return blocks.ravel()[self.positions]


def accumulated(blocks: np.ndarray, ufunc: Any) -> np.ndarray:
    """Running results inside each block."""
    running = blocks.copy()
    _accumulate(running, ufunc)
    return running


def _accumulate(blocks: np.ndarray, ufunc: Any) -> None:
    """Running results inside each block, in place."""
    size = blocks.shape[1]
    # Values beyond a range may overflow; nobody reads them.
    with np.errstate(over="ignore", invalid="ignore"):
        if size > _SHORT:
            ufunc.accumulate(blocks, axis=1, out=blocks)
            return
        for position in range(1, size):
            ufunc(blocks[:, position - 1], blocks[:, position], out=blocks[:, position])


def running(values: np.ndarray, block: np.ndarray, ufunc: Any) -> np.ndarray:
    """Running results that begin anew in each block (Hillis and Steele: doubling steps)."""
    result = values.copy()
    step = 1
    while step < len(values):
        same = block[step:] == block[:-step]
        if not same.any():
            break
        joined = ufunc(result[step:], result[:-step])
        result[step:] = np.where(same, joined, result[step:])
        step *= 2
    return result


def fold_pieces(
    columns: Columns, how: Mapping[str, Combine], own: np.ndarray, pieces: Sequence[Pieces]
) -> Columns:
    """Merge the row that each result has of its own with the pieces it asks for."""
    folded = {name: values[own] for name, values in columns.items()}
    for piece in pieces:
        for name, values in _merge_piece(columns, how, piece).items():
            folded[name][piece.asking] = _UFUNC[how[name]](folded[name][piece.asking], values)
    return folded


def count_pieces(results: int, pieces: Sequence[Pieces]) -> np.ndarray:
    """How many rows each result is merged from, its own among them."""
    count = np.ones(results, dtype=np.int64)
    for piece in pieces:
        count[piece.asking] += piece.high - piece.low + 1
    return count


def _merge_piece(columns: Columns, how: Mapping[str, Combine], piece: Pieces) -> Columns:
    if piece.rows is None:
        return merge_columns(columns, how, piece.low, piece.high)
    merged = {}
    for name, values in columns.items():
        assert piece.level is not None
        blocks = values[piece.rows].reshape(-1, 1 << piece.level)
        _accumulate(blocks, _UFUNC[how[name]])
        merged[name] = blocks.ravel()[piece.high]
    return merged


def merge_tree(
    rows: pl.DataFrame,
    merge: Callable[[pl.DataFrame, str], pl.DataFrame],
    low: np.ndarray,
    high: np.ndarray,
) -> pl.DataFrame:
    """Merge rows `low … high` (both included) when only whole states can be merged.

    A binary tree over the rows: every range is the union of at most two nodes a level, so a range
    of n rows costs 2·log n merges instead of n. `merge(states, group)` merges states per group.
    """
    if not len(low):
        return rows.clear()
    picked: list[pl.DataFrame] = []
    left, right = low.copy(), high + 1
    ranges = np.arange(len(low))
    level = rows
    order = 0
    while len(ranges):
        odd_left, odd_right = (left & 1) == 1, (right & 1) == 1
        # Nodes from the left side come in row order, those from the right side in reverse.
        for mask, node, rank in ((odd_left, left, order), (odd_right, right - 1, 10_000 - order)):
            picked.append(
                level[node[mask]].with_columns(
                    **{_RANGE: pl.Series(ranges[mask]), _RANK: pl.lit(rank, dtype=pl.Int32)}
                )
            )
        left, right = (left + odd_left) >> 1, (right - odd_right) >> 1
        open_ = left < right
        left, right, ranges = left[open_], right[open_], ranges[open_]
        order += 1
        if len(ranges):
            parents = pl.Series(np.arange(len(level)) >> 1)
            level = merge(level.with_columns(parents.alias(_NODE)), _NODE).sort(_NODE).drop(_NODE)
    nodes = pl.concat(picked).sort(_RANGE, _RANK, maintain_order=True).drop(_RANK)
    return merge(nodes, _RANGE).sort(_RANGE).drop(_RANGE)
