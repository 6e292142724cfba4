"""Snapshots of running folds, which `query.snapshot()` and `tidegate state --export` make."""

from __future__ import annotations

from tidegate.kernels.snapshot import Snapshot, decode


def read_snapshot(data: bytes) -> Snapshot:
    """What a snapshot holds: `keys` and `state`, names with types, and `rows` of both, sorted by key.

    A file that is none, or is not whole, is refused with a `StateError` that says what is wrong.
    """
    return decode(data)
