"""Snapshots of running folds, written by `query.snapshot()` and `tidegate state --export`."""

from __future__ import annotations

from tidegate.kernels.snapshot import Snapshot, decode


def read_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot: `keys` and `state` (names with types), and `rows` of both, sorted by key.

    A file that is not a snapshot, or is incomplete, raises a `StateError` that says what is wrong.
    """
    return decode(data)
