"""How much a bucket holds: open windows, keys, pages, bytes."""

from __future__ import annotations

from collections import Counter

import polars as pl

from tidegate.kernels.accumulators import Accumulators
from tidegate.kernels.contract import Kernel
from tidegate.kernels.dedupe import DIGEST
from tidegate.kernels.late import NEVER
from tidegate.kernels.messages import Kept
from tidegate.kernels.registry import Chained
from tidegate.kernels.sessions.kernel import SessionKernel
from tidegate.kernels.sessions.store import SessionStore
from tidegate.kernels.windows.kernel import SliceKernel
from tidegate.kernels.windows.slices import SLICE, Slices, Slicing
from tidegate.plan.joins import SIDES
from tidegate.state.pages import KEY, BucketState

#: The tables that hold rows, or ids of rows.
_ROWS = ("rows", "seen", *SIDES)

#: Up to this many entries are counted after each step; more would slow every batch down.
_FEW = 10_000


def count_open(
    bucket: BucketState, slicing: Slicing | None, lateness: int, watermark: int | None
) -> int:
    """The number of open windows, sessions or rows; what has closed, lateness included, is left out."""
    tables = {page.table for page in bucket.manifest.pages}
    ended = NEVER if watermark is None else watermark - lateness
    if "sessions" in tables:
        live = SessionStore(bucket).where(pl.lit(True), ended)
        return 0 if live is None else len(live)
    if "slices" in tables:
        assert slicing is not None, "slices are those of windows with fixed edges"
        return _open_windows(bucket, slicing, ended)
    return sum(page.rows for page in bucket.manifest.pages if page.table in _ROWS)


def _open_windows(bucket: BucketState, slicing: Slicing, ended: int) -> int:
    slices = pl.concat([page.select(KEY, SLICE) for page in bucket.load("slices")]).unique()
    first = slicing.last_ended(ended) + 1
    last = slicing.last_window(int(slices[SLICE].max()))  # type: ignore[arg-type]
    return sum(map(len, Slices.of(slices, slicing, Accumulators(())).windows_between(first, last)))


def count_keys(bucket: BucketState) -> int:
    """The number of keys, or of ids where there are no keys."""
    frames = [frame for page in bucket.manifest.pages for frame in bucket.read([page])]
    codes = [frame.select(KEY if KEY in frame.columns else DIGEST) for frame in frames]
    return pl.concat(codes).n_unique() if codes else 0


def largest_table(bucket: BucketState) -> int:
    """Entries of the largest table: slices, sessions or rows; rows as last emitted are beside them."""
    rows: Counter[str] = Counter()
    for page in bucket.manifest.pages:
        rows[page.table] += page.rows
    return max(rows.values(), default=0)


def kept(kernel: Kernel, bucket: BucketState) -> Kept:
    """What a bucket keeps after a step. Keys, and what is open, are counted in small buckets only."""
    own = kernel.kernel if isinstance(kernel, Chained) else kernel
    manifest, rows = bucket.manifest, largest_table(bucket)
    held: Kept = {
        "rows": rows,
        "pages": len(manifest.pages),
        "bytes": sum(page.bytes for page in manifest.pages),
        "due": None if manifest.timer is None else manifest.timer * 1000,
        "watermark": manifest.watermark,
        "open": None,
        "keys": None,
    }
    if rows > _FEW:
        return held
    slicing = own.slicing if isinstance(own, SliceKernel) else None
    lateness = own.lateness.lateness if isinstance(own, SliceKernel | SessionKernel) else 0
    return held | {
        "open": count_open(bucket, slicing, lateness, manifest.watermark),
        "keys": count_keys(bucket),
    }
