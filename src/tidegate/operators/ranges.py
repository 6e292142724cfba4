"""Many overlapping ranges of rows merged at once, in time near linear in rows plus ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from tidegate.plan.aggregate import Combine

_UFUNC: dict[Combine, Any] = {"sum": np.add, "min": np.fmin, "max": np.fmax}

_RANGE, _RANK, _NODE = "__tidegate_range", "__tidegate_rank", "__tidegate_node"


@dataclass(frozen=True)
class Pieces:
    """Ranges `low … high` (both included) of `rows`, for the rows `asking`; none is empty.

    With a `block`, ranges are heads: each begins where a block of that many rows does, and ends in it.
    """

    rows: np.ndarray
    low: np.ndarray
    high: np.ndarray
    asking: np.ndarray
    block: int | None = None


def merge_columns(
    columns: Mapping[str, np.ndarray],
    how: Mapping[str, Combine],
    block: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    in_first_block: np.ndarray,
) -> dict[str, np.ndarray]:
    """Merge rows `low … high` (both included) of each column that merges by itself.

    Rows are cut into blocks one window wide (van Herk, Gil and Werman). A window meets at most two
    neighbouring blocks: it is the tail of one and the head of the next. So running results inside
    each block, from the left and from the right, answer every window with one operation;
    `in_first_block` says whether a window's first row lies in the first of its two blocks. Nothing
    outside a window ever touches its value, so a NaN or a huge number stays where it belongs.
    """
    tail_first, head_last = block[low], block[high]
    across = tail_first != head_last
    only_tail = ~across & in_first_block
    merged = {}
    for name, values in columns.items():
        ufunc = _UFUNC[how[name]]
        head = running(values, block, ufunc)
        tail = running(values[::-1], block[::-1], ufunc)[::-1]
        both = ufunc(tail[low], head[high])
        merged[name] = np.where(across, both, np.where(only_tail, tail[low], head[high]))
    return merged


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


def merge_segments(
    columns: Mapping[str, np.ndarray],
    how: Mapping[str, Combine],
    low: np.ndarray,
    high: np.ndarray,
) -> dict[str, np.ndarray]:
    """Merge rows `low … high` (both included) of each column that merges by itself.

    A binary tree over the rows, level by level: a range of n rows is put together from 2·log n
    nodes. For ranges of any shape; where all have one width in time, `merge_columns` does less.
    """
    merged = {name: values[low] for name, values in columns.items()}
    levels = dict(columns)
    ranges, left, right = np.arange(len(low)), low + 1, high + 1
    while True:
        open_ = left < right
        ranges, left, right = ranges[open_], left[open_], right[open_]
        if not len(ranges):
            return merged
        odd_left, odd_right = (left & 1) == 1, (right & 1) == 1
        for name, level in levels.items():
            ufunc = _UFUNC[how[name]]
            for odd, node in ((odd_left, left), (odd_right, right - 1)):
                into = ranges[odd]
                merged[name][into] = ufunc(merged[name][into], level[node[odd]])
            levels[name] = _pairs(level, ufunc)
        left, right = (left + odd_left) >> 1, (right - odd_right) >> 1


def _pairs(level: np.ndarray, ufunc: Any) -> np.ndarray:
    """Neighbours merged two by two; one without a neighbour is never asked for."""
    even = len(level) & ~1
    return ufunc(level[0:even:2], level[1:even:2])


def fold_pieces(
    columns: Mapping[str, np.ndarray],
    how: Mapping[str, Combine],
    pieces: Sequence[Pieces],
    count: int,
) -> dict[str, np.ndarray]:
    """Merge the pieces that each of `count` things is made up of; each has at least one."""
    folded = {name: np.empty(count, dtype=values.dtype) for name, values in columns.items()}
    begun = np.zeros(count, dtype=bool)
    for piece in pieces:
        rows = {name: values[piece.rows] for name, values in columns.items()}
        if piece.block is None:
            merged = merge_segments(rows, how, piece.low, piece.high)
        else:
            merged = merge_heads(rows, how, piece.block, piece.high)
        goes_on = begun[piece.asking]
        new, old = piece.asking[~goes_on], piece.asking[goes_on]
        for name, values in merged.items():
            folded[name][new] = values[~goes_on]
            folded[name][old] = _UFUNC[how[name]](folded[name][old], values[goes_on])
        begun[new] = True
    return folded


def merge_heads(
    columns: Mapping[str, np.ndarray], how: Mapping[str, Combine], block: int, high: np.ndarray
) -> dict[str, np.ndarray]:
    """Merge, of the block of rows that each `high` lies in, those up to it."""
    merged = {}
    for name, values in columns.items():
        blocks = np.resize(values, (-(-len(values) // block), block))  # what it repeats lies behind all
        merged[name] = _UFUNC[how[name]].accumulate(blocks, axis=1).ravel()[high]
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
