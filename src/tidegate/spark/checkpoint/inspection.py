"""What a checkpoint holds, read from the state store of a stopped query."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.columnar import ipc
from tidegate.connectors import location
from tidegate.dataflow.identity import fingerprint, window_of
from tidegate.errors import StateError
from tidegate.kernels import snapshot
from tidegate.kernels.sessions.store import SessionStore
from tidegate.kernels.state_size import count_keys, count_open
from tidegate.kernels.windows.slices import Slicing
from tidegate.plan.identity import Values
from tidegate.plan.schema import RESERVED_PREFIX
from tidegate.plan.windows import Hopping
from tidegate.spark.checkpoint.metadata import (
    check_state_is_readable,
    last_batch,
    operators_in,
    stored_format,
    stored_identity,
    stored_pages,
)
from tidegate.spark.checkpoint.state_summary import OperatorState
from tidegate.spark.session import SAFE_FORMAT, state_format
from tidegate.state.pages import KEY, BucketState, Manifest, MemoryPages, state_of

#: The stored pages of an operator's buckets.
Buckets = dict[int, MemoryPages]


def states_of(spark: SparkSession, checkpoint: str) -> list[OperatorState]:
    """The state of each operator of a plan, each after those it reads."""
    batch = last_batch(location(checkpoint))
    operators = _operators_of(spark, checkpoint)
    return [_state(title, own, kept, batch) for title, own, kept in operators]


def snapshot_of(spark: SparkSession, checkpoint: str) -> bytes:
    """The state of the running fold that a query ends in, as of its last committed batch."""
    kept = [buckets for _, own, buckets in _operators_of(spark, checkpoint) if _folds(own)]
    if len(kept) > 1:
        raise StateError(
            f"{checkpoint} holds {len(kept)} running folds side by side, and a snapshot is of one: "
            "give each a query of its own"
        )
    folds = [_fold(BucketState(pages, _plan(pages))) for one in kept for pages in one.values()]
    if not folds:
        raise StateError(
            f"{checkpoint} holds no running fold: its query has none, or has not had a batch with rows"
        )
    keys, state = map(pa.concat_tables, zip(*folds, strict=True))
    return snapshot.encode(keys, state)


def _folds(own: Values) -> bool:
    window = window_of(own)
    return window is not None and window.endless


def _fold(bucket: BucketState) -> tuple[pa.Table, pa.Table]:
    """The keys of a bucket, and what is kept of each; how that is done is our own affair."""
    folds = SessionStore(bucket).all()
    assert folds is not None, "a bucket that keeps nothing is not stored"
    entries = ipc.to_arrow(folds)
    keys = bucket.known_keys.take(entries.column(KEY))
    keys, state = (
        table.select([name for name in table.column_names if not name.startswith(RESERVED_PREFIX)])
        for table in (keys, entries)
    )
    return keys, state.select(sorted(state.column_names))


def _operators_of(spark: SparkSession, checkpoint: str) -> list[tuple[str, Values, Buckets]]:
    """What messages call each operator, what is written down about it, and what it keeps."""
    place = location(checkpoint)
    check_state_is_readable(place)
    identity = stored_identity(place)
    if identity is None:
        raise StateError(f"{checkpoint} is no checkpoint of tidegate: there is no tidegate.json in it")
    # Spark numbers operators from the end of the query.
    with state_format(spark, stored_format(place) or SAFE_FORMAT):
        stored = [_stored(spark, place, number) for number in reversed(operators_in(place))]
    # State says what it was written by, if there is any.
    kept = {_plan(pages): buckets for buckets in stored for pages in buckets.values()}
    owns = {operator: identity.own(operator) for operator in identity.operators}
    return [
        (identity.title(operator), own, kept.get(fingerprint(own), {})) for operator, own in owns.items()
    ]


def _stored(spark: SparkSession, checkpoint: str, operator: int) -> Buckets:
    buckets: Buckets = defaultdict(MemoryPages)
    for bucket, name, page in stored_pages(spark, checkpoint, operator).toLocalIterator():
        buckets[bucket][name] = bytes(page)
    return buckets


def _state(title: str, identity: Values, buckets: Buckets, batch: int) -> OperatorState:
    state = OperatorState(identity, batch=batch)
    held = {bucket: BucketState(pages, _plan(pages)) for bucket, pages in buckets.items()}
    marks = [one.manifest.watermark for one in held.values()]
    state.watermark = max((mark for mark in marks if mark), default=None)
    for bucket, bucket_state in held.items():
        with state_of(title, bucket):
            _add(state, bucket_state)
        pages = buckets[bucket]
        state.bytes += sum(len(page) for name, page in pages.items() if name != "manifest")
    return state


def _plan(pages: MemoryPages) -> str:
    if "manifest" not in pages:
        raise StateError(
            "pages are stored without a manifest: two writers may have broken the state. "
            "`tidegate repair CHECKPOINT` goes back to the last version that is whole"
        )
    return Manifest.from_bytes(pages["manifest"]).plan


def _add(total: OperatorState, bucket: BucketState) -> None:
    manifest = bucket.manifest
    total.buckets += 1
    total.pages += len(manifest.pages)
    slicing, lateness = _ending(total.identity)
    total.open += count_open(bucket, slicing, lateness, total.watermark)
    total.keys += count_keys(bucket)
    if manifest.timer is not None:
        due = manifest.timer * 1000
        total.next_due = due if total.next_due is None else min(due, total.next_due)


def _ending(own: Values) -> tuple[Slicing | None, int]:
    """When windows end: the slices of those of fixed size, and the allowed lateness."""
    window = window_of(own)
    if window is None:
        return None, 0
    [rows] = own["inputs"].values()
    return Slicing(window) if isinstance(window, Hopping) else None, rows["allowed_lateness"]
