"""Generated events: deterministic by seed, written once as the parquet files of each micro-batch."""

from __future__ import annotations

import hashlib
import os
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CACHE = Path(".cache/bench")

#: The first event time: a full hour, in seconds.
EPOCH = 1_699_999_200
DISORDER = 3.0
#: How far the closing event lies ahead: further than any window reaches after an event.
CLOSING_GAP = 120.0

#: How a Zipf law of this exponent and the rates in `cases.py` were found: together they make about
#: 450 thousand tumbling windows of 10 s and 13.5 million hopping windows of 60 s / 1 s from 5 M events.
SKEW = 1.2

SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", tz="UTC")), ("user", pa.string()), ("price", pa.float64())]
)
#: Raised when the generator changes, so that stale files are not taken for new ones.
_FORMAT = 1


class Dataset(Protocol):
    """Micro-batches of events; `files` is how many parquet files each one has."""

    @property
    def files(self) -> int: ...

    @property
    def batches(self) -> int: ...

    def batch(self, index: int) -> pa.Table: ...


@dataclass(frozen=True)
class Steady(ABC):
    """Events at a steady rate, out of order by up to three seconds.

    Batches depend on the seed and their index alone: a shorter data set is a prefix of a longer one.
    """

    events: int
    rows: int
    rate: float
    keys: int
    files: int = 2
    seed: int = 1

    @property
    def batches(self) -> int:
        """The batches of events, and the closing one: a single event that makes all windows due."""
        return self.events // self.rows + 1

    def batch(self, index: int) -> pa.Table:
        if index == self.batches - 1:
            return _table(np.array([self.events / self.rate + CLOSING_GAP]), np.array([0]), np.zeros(1))
        rng = np.random.default_rng([self.seed, index])
        arrival = np.sort(rng.uniform(index, index + 1, self.rows)) * (self.rows / self.rate)
        seconds = arrival - rng.uniform(0, DISORDER, self.rows) + DISORDER
        return _table(seconds, self._keys(rng, seconds), rng.uniform(0, 100, self.rows).round(2))

    @abstractmethod
    def _keys(self, rng: np.random.Generator, seconds: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Skewed(Steady):
    """Few keys have most of the events."""

    def _keys(self, rng: np.random.Generator, seconds: np.ndarray) -> np.ndarray:
        weights = np.arange(1, self.keys + 1) ** -SKEW
        cumulated = np.cumsum(weights) / weights.sum()
        rank = np.searchsorted(cumulated, rng.uniform(0, cumulated[-1], self.rows))
        # Popularity must not follow the number in the name; 2654435761 is prime, so this permutes.
        return rank * 2_654_435_761 % self.keys


@dataclass(frozen=True)
class Even(Steady):
    """All keys have about as many events, but for one that may have a share of its own."""

    hot: float = 0.0
    #: After so many seconds all keys are replaced by others.
    lifetime: int | None = None

    def _keys(self, rng: np.random.Generator, seconds: np.ndarray) -> np.ndarray:
        even = rng.integers(self.keys, size=self.rows)
        keys = np.where(rng.uniform(size=self.rows) < self.hot, 0, even)
        return keys if self.lifetime is None else keys + seconds.astype(int) // self.lifetime * self.keys


@dataclass(frozen=True)
class Resent:
    """Messages with an id each, some of them sent again: in their own batch, or in the next one."""

    events: int
    rows: int
    rate: float
    #: The share of the rows that were there before.
    again: float = 0.05
    files: int = 2
    seed: int = 5

    @property
    def batches(self) -> int:
        return self.events // self.rows

    @property
    def messages(self) -> int:
        """Those of a batch that are new."""
        return self.rows - round(self.rows * self.again)

    def batch(self, index: int) -> pa.Table:
        rng = np.random.default_rng([self.seed, index])
        own, before = self._sent(index), self._sent(max(0, index - 1))
        choice = rng.integers(self.messages, size=self.rows - self.messages)
        here, earlier = np.array_split(choice, 2)
        again = np.concatenate([own[:, here], before[:, earlier]], axis=1)
        places = rng.integers(self.messages, size=len(choice))
        seconds, ids, price = np.insert(own, places, again, axis=1)
        return _table(seconds, ids.astype(int), price)

    def _sent(self, index: int) -> np.ndarray:
        """Seconds, ids and prices of a batch's new messages."""
        rng = np.random.default_rng([self.seed, index, 0])
        arrival = np.sort(rng.uniform(index, index + 1, self.messages)) * (self.rows / self.rate)
        seconds = arrival - rng.uniform(0, DISORDER, self.messages) + DISORDER
        ids = index * self.messages + np.arange(self.messages)
        return np.stack([seconds, ids, rng.uniform(0, 100, self.messages).round(2)])


@dataclass(frozen=True)
class Preloaded:
    """Batches that load distinct keys, then batches that touch some of them, all within one hour.

    The touching batches draw from the first `shared` keys: they are the same for every `loaded`.
    """

    loaded: int
    shared: int
    rows: int
    touched: int
    measured: int
    load_batches: int = 10
    files: int = 2
    seed: int = 2

    @property
    def batches(self) -> int:
        return self.load_batches + self.measured

    def batch(self, index: int) -> pa.Table:
        rng = np.random.default_rng([self.seed, index])
        keys = self._load(index) if index < self.load_batches else self._touch(rng)
        seconds = index * 10 + rng.uniform(0, DISORDER, len(keys))
        return _table(seconds, keys, rng.uniform(0, 100, len(keys)).round(2))

    def _load(self, index: int) -> np.ndarray:
        return np.arange(index, self.loaded, self.load_batches)

    def _touch(self, rng: np.random.Generator) -> np.ndarray:
        chosen = rng.choice(self.shared, self.touched, replace=False)
        again = rng.choice(chosen, self.rows - self.touched)
        return rng.permutation(np.concatenate([chosen, again]))


def folder(dataset: Dataset, cache: Path = CACHE) -> Path:
    """The folder of a data set's files, which are generated if they are not there yet."""
    path = cache / "data" / _name(dataset)
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for index in range(dataset.batches):
            _write(draft, index, dataset.batch(index), dataset.files)
        draft.rename(path)
    return path


def _name(dataset: Dataset) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {dataset!r}".encode()).hexdigest()[:10]
    return f"{type(dataset).__name__.lower()}-{digest}"


def _write(target: Path, index: int, table: pa.Table, files: int) -> None:
    """One micro-batch: its rows dealt out to the files in turn, like partitions of a topic."""
    for part in range(files):
        path = target / f"b{index:04d}-{part}.parquet"
        rows = np.arange(part, table.num_rows, files)
        pq.write_table(table.take(rows), path, compression="snappy")
        # Spark's file source takes the oldest files first.
        os.utime(path, (EPOCH + index, EPOCH + index))


def _table(seconds: np.ndarray, keys: np.ndarray, price: np.ndarray) -> pa.Table:
    micros = (EPOCH * 1_000_000 + seconds * 1e6).astype("int64")
    names = np.char.add("user-", keys.astype(str))
    return pa.table([pa.array(micros).cast(SCHEMA.field("ts").type), pa.array(names), price], SCHEMA)
