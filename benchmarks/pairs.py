"""How many pairs a join must give: counted from the data, by neither engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.cases import Case, Join, Session, Window
from benchmarks.data import EPOCH, Dataset, folder

#: A key and a time as one number: more microseconds than any data set lasts.
_APART = 1 << 40


@dataclass(frozen=True)
class Stretches:
    """From when to when each row can meet others, its key in both numbers."""

    start: np.ndarray
    end: np.ndarray


def wanted(case: Case) -> int:
    """The pairs of a case's data; sessions of the closing events are still open."""
    assert isinstance(case.window, Join)
    closing = not isinstance(case.window.left, Session)
    left, right = (_rows(dataset, closing) for dataset in case.datasets)
    return count(case.window, left, right)


def count(join: Join, left: pa.Table, right: pa.Table) -> int:
    """The right rows that begin before a left one ends, less those that end before it begins."""
    users = pa.concat_tables([left, right])["user"].combine_chunks().dictionary_encode()
    codes = users.indices.to_numpy().astype(np.int64)
    one = _stretches(codes[: left.num_rows], _micros(left), join.left)
    two = _stretches(codes[left.num_rows :], _micros(right), join.right)
    # Sessions may touch, panes may not.
    before_end, before_start = ("right", "left") if isinstance(join.left, Session) else ("left", "right")
    begun = np.searchsorted(np.sort(two.start), one.end, side=before_end)
    over = np.searchsorted(np.sort(two.end), one.start, side=before_start)
    return int((begun - over).sum())


def _rows(dataset: Dataset, closing: bool) -> pa.Table:
    rows = pq.read_table(folder(dataset), columns=["ts", "user"])
    return rows if closing else rows.filter(pc.less(rows["ts"], pc.max(rows["ts"])))


def _micros(rows: pa.Table) -> np.ndarray:
    """Since an hour before the first event, so that no window begins below zero."""
    return rows["ts"].cast(pa.int64()).to_numpy() - (EPOCH - 3600) * 1_000_000


def _stretches(key: np.ndarray, time: np.ndarray, window: Window | Session) -> Stretches:
    at = key * _APART + time
    if isinstance(window, Session):
        return _sessions(at, window.gap * 1_000_000)
    size, slide = window.size * 1_000_000, window.slide * 1_000_000
    last = at - time % slide  # where the last window of the row begins
    return Stretches(last - size + slide, last + size)


def _sessions(at: np.ndarray, gap: int) -> Stretches:
    """Each row's session; rows of different keys are always more than a gap apart."""
    at = np.sort(at)
    first = np.diff(at, prepend=at[0] - gap - 1) > gap
    session = np.cumsum(first) - 1
    last = np.append(first[1:], True)
    return Stretches(at[first][session], at[last][session] + gap)
