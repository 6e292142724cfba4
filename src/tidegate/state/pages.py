"""A bucket's state: immutable pages of columns, and a manifest that lists them.

Pages are written once and never changed, so a copy kept in the worker's memory is right whenever
the manifest still lists its id. Ids carry a random part: a page of an attempt that failed is
never mistaken for the one that was committed.

A batch only writes what it brought (a small page per time range) and reads what falls due. The
newest pages are compacted once there are many, but never a big one with a few small ones, so a row is
rewritten a logarithmic number of times. Order is kept: later pages overrule earlier ones.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from tidegate.columnar import ipc, key_index
from tidegate.errors import StateError

#: The column of key codes.
KEY = "__tidegate_key"
_MANIFEST = "manifest"

#: Positions of rows lie between these.
FIRST_POSITION, LAST_POSITION = -(1 << 62), 1 << 62
_FAN_IN = 8
_MAX_RANGES = 4
_SPARE_KEYS = 50_000


class PageStore(Protocol):
    """Where one bucket's pages live between batches."""

    def has(self, name: str) -> bool: ...
    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, page: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class MemoryPages(dict[str, bytes]):
    """Pages in a dictionary: for batch queries and for tests."""

    has = dict.__contains__
    put = dict.__setitem__

    def remove(self, name: str) -> None:
        del self[name]


@dataclass(frozen=True)
class Page:
    """What the manifest says of a page: its table, its age, the positions it covers, its size."""

    id: str
    table: str
    generation: int
    low: int
    high: int
    rows: int
    bytes: int = 0


@dataclass
class Manifest:
    """The entry point of a bucket's state."""

    plan: str
    watermark: int | None = None
    timer: int | None = None
    pages: list[Page] = field(default_factory=list)
    #: Hexadecimal; only where an operator has asked for one.
    secret: str | None = field(default=None, repr=False)

    def to_bytes(self) -> bytes:
        return bytes([ipc.VERSION]) + json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        ipc.check_version(data)
        fields = json.loads(data[1:])
        return cls(**{**fields, "pages": [Page(**page) for page in fields["pages"]]})


@dataclass
class Resident:
    """What a worker remembers of a bucket: key codes and decoded pages."""

    keys: key_index.KeyIndex = field(default_factory=key_index.KeyIndex)
    pages: dict[str, pl.DataFrame] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return self.keys.size + sum(int(page.estimated_size()) for page in self.pages.values())


class ResidentBuckets:
    """The buckets a worker process remembers; the least recently used ones are evicted first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buckets: OrderedDict[tuple[str, int], Resident] = OrderedDict()

    def get(self, operator: str, bucket: int) -> Resident:
        resident = self._buckets.setdefault((operator, bucket), Resident())
        self._buckets.move_to_end((operator, bucket))
        return resident

    def trim(self) -> None:
        total = sum(resident.size for resident in self._buckets.values())
        while total > self._max_bytes and self._buckets:
            _, oldest = self._buckets.popitem(last=False)
            total -= oldest.size


RESIDENT = ResidentBuckets(max_bytes=512 << 20)


class BucketState:
    """One bucket's tables during one micro-batch. The column `KEY` holds codes of the known keys.

    A table may have no keys; its pages are then read apart from other tables' pages.
    """

    def __init__(self, store: PageStore, plan: str, resident: Resident | None = None) -> None:
        self._store = store
        self._resident = resident or Resident()
        stored = store.get(_MANIFEST) if store.has(_MANIFEST) else None
        self._stored = stored is not None
        self.manifest = Manifest.from_bytes(stored) if stored else Manifest(plan)
        if self.manifest.plan != plan:
            raise StateError(
                "the checkpoint's state was written by another program: its keys, window, aggregates or "
                "strategy are not those of this one, or the number of buckets is another; use a new "
                "checkpoint location. If only the number of shuffle partitions differs, buckets=… can "
                "be what it was at first"
            )

    @property
    def secret(self) -> bytes:
        """Random bytes that are the bucket's own for as long as it has pages."""
        if self.manifest.secret is None:
            self.manifest.secret = os.urandom(32).hex()
        return bytes.fromhex(self.manifest.secret)

    # -- keys -------------------------------------------------------------------------------

    def remap_codes(self, tables: list[tuple[pa.Table, pa.Table]]) -> list[pl.DataFrame]:
        """Rows with the bucket's codes, from pairs of keys and rows with codes of those keys."""
        if not tables:
            return []
        codes = self._resident.keys.codes_of([own for own, _ in tables])
        return [
            frame.with_columns(pl.Series(KEY, code[frame[KEY].to_numpy()]))
            for code, frame in zip(codes, (ipc.to_polars(rows) for _, rows in tables), strict=True)
        ]

    @property
    def known_keys(self) -> pa.Table:
        """The keys that codes point into."""
        return self._resident.keys.table

    # -- tables -----------------------------------------------------------------------------

    def pages(self, table: str) -> list[Page]:
        return [page for page in self.manifest.pages if page.table == table]

    def load(
        self, table: str, low: int = FIRST_POSITION, high: int = LAST_POSITION
    ) -> list[pl.DataFrame]:
        """The pages that touch positions `low … high`, oldest first; rows outside may be in them."""
        return self.read([p for p in self.pages(table) if p.low <= high and p.high >= low])

    def read(self, pages: list[Page]) -> list[pl.DataFrame]:
        """The pages' rows, from memory where they are remembered."""
        memory = self._resident.pages
        absent = [page for page in pages if page.id not in memory]
        fetched = [self._fetch(page) for page in absent]
        keyless = [ipc.to_polars(rows) for own, rows in fetched if not own.num_columns]
        frames = keyless or self.remap_codes(fetched)
        memory.update(zip((page.id for page in absent), frames, strict=True))
        return [memory[page.id] for page in pages]

    def of_keys(self, pages: list[pl.DataFrame], codes: np.ndarray) -> list[pl.DataFrame]:
        """The rows of these keys; only the key column of a page is searched."""
        if not pages:
            return []
        wanted = np.zeros(self.known_keys.num_rows, dtype=bool)
        wanted[codes] = True
        hits = (np.flatnonzero(wanted[page[KEY].to_numpy()]) for page in pages)
        return [page[hit] for page, hit in zip(pages, hits, strict=True)]

    def append(self, table: str, rows: pl.DataFrame, position: str, width: int = LAST_POSITION) -> None:
        """Keep rows, in pages that each cover `width` positions (more if pages were too many)."""
        newest = max((page.generation for page in self.pages(table)), default=0)
        self._write_all(table, rows, position, width, newest + 1)

    def drop_below(self, table: str, position: int) -> None:
        """Drop pages that lie wholly below the position."""
        for page in self.pages(table):
            if page.high < position:
                self._remove(page)

    def compact(
        self,
        table: str,
        merge: Callable[[list[pl.DataFrame]], pl.DataFrame],
        position: str,
        width: int = LAST_POSITION,
        most: int = LAST_POSITION,
    ) -> None:
        """Merge the newest pages once there are many of them; older pages stay before them.

        A generation of more than `most` rows stays as well.
        """
        run = _compaction_run(self.pages(table), most)
        if len({page.generation for page in run}) >= _FAN_IN:
            rows = merge(self.read(run))
            for page in run:
                self._remove(page)
            self._write_all(table, rows, position, width, run[0].generation)

    def replace(self, table: str, rows: pl.DataFrame | None, position: str) -> None:
        """Keep these rows of a table and no others."""
        for page in self.pages(table):
            self._remove(page)
        if rows is not None:
            self._write_all(table, rows, position, LAST_POSITION, 1)

    def commit(self) -> None:
        """Make the batch's changes part of the stored state."""
        if self.manifest.pages:
            self._store.put(_MANIFEST, self.manifest.to_bytes())
        elif self._stored:
            self._store.remove(_MANIFEST)  # a bucket without windows costs nothing
        listed = {page.id for page in self.manifest.pages}
        self._resident.pages = {k: v for k, v in self._resident.pages.items() if k in listed}
        if self._mostly_dead_keys():
            self._resident.keys, self._resident.pages = key_index.KeyIndex(), {}

    def _mostly_dead_keys(self) -> bool:
        stored = sum(page.rows for page in self.manifest.pages)
        return len(self._resident.keys) > 4 * stored + _SPARE_KEYS

    # -- pages ------------------------------------------------------------------------------

    def _fetch(self, page: Page) -> tuple[pa.Table, pa.Table]:
        stored = self._store.get(page.id)
        if stored is None:
            raise StateError(
                f"{missing(page)}. Two writers may have broken the state: `tidegate repair CHECKPOINT` "
                "goes back to the last version that is whole"
            )
        page_keys, rows = ipc.decode(stored)
        return page_keys, rows

    def _write_all(
        self, table: str, rows: pl.DataFrame, position: str, width: int, generation: int
    ) -> None:
        if not len(rows):
            return
        low, high = _bounds(rows, position)
        while high // width - low // width >= _MAX_RANGES:
            width *= 2
        for part in _split(rows, position, width):
            stored = ipc.encode(own_keys(self.known_keys, part), compressed=True)
            low, high = _bounds(part, position)
            page = Page(os.urandom(6).hex(), table, generation, low, high, len(part), len(stored))
            self._store.put(page.id, stored)
            self._resident.pages[page.id] = part
            self.manifest.pages.append(page)

    def _remove(self, page: Page) -> None:
        self.manifest.pages.remove(page)
        self._resident.pages.pop(page.id, None)
        self._store.remove(page.id)


@contextmanager
def state_of(operator: str, bucket: int) -> Iterator[None]:
    """Let errors about stored state name the operator, as users call it, and the bucket."""
    try:
        yield
    except StateError as error:
        raise StateError(f"{operator}, bucket {bucket}: {error}") from error


def missing(page: Page) -> str:
    return f"page {page.id} of the table {page.table!r} is listed in the manifest but not stored"


def damage(pages: Mapping[str, bytes]) -> list[str]:
    """What is wrong with the stored pages of a bucket, in words; empty if they are whole."""
    try:
        listed = Manifest.from_bytes(pages[_MANIFEST]).pages if _MANIFEST in pages else []
    except (StateError, ValueError, TypeError, KeyError) as error:
        return [f"the manifest cannot be read: {error}"]
    gone = [missing(page) for page in listed if page.id not in pages]
    unlisted = pages.keys() - {page.id for page in listed} - {_MANIFEST}
    strange = [f"page {id} is stored but not listed in the manifest" for id in sorted(unlisted)]
    return gone + strange + [found for page in listed if (found := _unreadable(page, pages))]


def _unreadable(page: Page, pages: Mapping[str, bytes]) -> str | None:
    """Why a page cannot be read, if it is there and cannot."""
    try:
        rows = ipc.decode(pages[page.id])[-1] if page.id in pages else None
    except (StateError, ValueError, pa.ArrowException) as error:
        return f"page {page.id} of the table {page.table!r} cannot be read: {error}"
    if rows is not None and rows.num_rows != page.rows:
        return f"page {page.id} of the table {page.table!r} has {rows.num_rows} rows, not {page.rows}"
    return None


def _compaction_run(pages: list[Page], most: int) -> list[Page]:
    """The newest pages, back to the first generation that is too large, or outweighs all after it."""
    sizes: dict[int, int] = {}
    for page in pages:
        sizes[page.generation] = sizes.get(page.generation, 0) + page.rows
    total, oldest = 0, LAST_POSITION
    for generation, rows in sorted(sizes.items(), reverse=True):
        if rows > most or (total and rows > _FAN_IN * total):
            break
        total, oldest = total + rows, generation
    return [page for page in pages if page.generation >= oldest]


def own_keys(known: pa.Table, rows: pl.DataFrame) -> tuple[pa.Table, pa.Table]:
    """The keys that rows use, and the rows with codes of these; no keys if rows have no key column."""
    if KEY not in rows.columns:
        return pa.table({}), ipc.to_arrow(rows)
    codes = rows[KEY].to_numpy()
    if len(codes) * 8 < known.num_rows:  # few of many: sorting them beats marking in a long list
        used, index = np.unique(codes, return_inverse=True)
        own_codes = index.astype(np.int32)
    else:
        marks = np.zeros(known.num_rows, dtype=bool)
        marks[codes] = True
        used, own_codes = np.flatnonzero(marks), (np.cumsum(marks, dtype=np.int32) - 1)[codes]
    own = rows.with_columns(pl.Series(KEY, own_codes))
    return known.take(pa.array(used)), ipc.to_arrow(own)


def _bounds(rows: pl.DataFrame, position: str) -> tuple[int, int]:
    low, high = rows.select(low=pl.col(position).min(), high=pl.col(position).max()).row(0)
    return low, high


def _split(rows: pl.DataFrame, position: str, width: int) -> Iterable[pl.DataFrame]:
    """The rows in ranges of positions, each in pieces of a bounded size."""
    interval = rows[position] // width
    distinct = interval.unique().sort()
    ranges = [rows] if len(distinct) == 1 else [rows.filter(interval == value) for value in distinct]
    for part in ranges:
        most = max(1, len(part) * ipc.MAX_BYTES // max(int(part.estimated_size()), 1))
        yield from part.iter_slices(most)
