"""Many overlapping ranges of rows merged at once, in time near linear in rows plus ranges."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from tidegate.plan.aggregate import Combine

_UFUNC: dict[Combine, Any] = {"sum": np.add, "min": np.fmin, "max": np.fmax}

_RANGE, _RANK, _NODE = "__tidegate_range", "__tidegate_rank", "__tidegate_node"


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
