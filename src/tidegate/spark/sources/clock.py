"""The clock: a streaming source of ticks, and of heartbeats for sources that have gone silent.

A tick is a row without a level: it makes a micro-batch happen, and processing time move on, when no
data arrives. A heartbeat is a row of an idle source whose level, minus the source's tolerance, is
where the others are: with it the idle source does not hold the watermark back.

Offsets hold all that rows are made of, so that a replay from Spark's offset log repeats them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from tidegate.connectors import location
from tidegate.errors import PlanError
from tidegate.spark.versions import OffsetReader

NAME = "tidegate_clock"

#: The source that ticks are of.
TICK = -1

#: Spark asks a hundred times a second; the progress file, maybe far away, is read less often.
_READ_EVERY = 100_000

_ROWS = pa.schema([("source", pa.int32()), ("level", pa.timestamp("us", tz="UTC"))])

#: {"tick": micros, "levels": {source: micros}}
Offset = dict[str, Any]
#: {source: {"watermark": micros or null, "seen_at": micros}}
Progress = Mapping[str, Mapping[str, Any]]


def clock(spark: SparkSession, **options: str) -> DataFrame:
    """Rows (source int, level timestamp): ticks have source -1 and no level, heartbeats have both.

    `tick`: microseconds between ticks; without it there are none. `idle`: JSON, for each source that
    may fall idle the microseconds of silence after which it does. `tolerances`: JSON, the
    microseconds of every source. `progress`: the file in which the driver writes down, after each
    batch, every source's watermark and when it last had rows.
    """
    if "progress" in options:
        options["progress"] = location(options["progress"])
    Settings.of(options)
    spark.dataSource.register(ClockSource)
    return spark.readStream.format(NAME).options(**options).load()


@dataclass(frozen=True)
class Settings:
    """The options of the source, understood and checked."""

    tick: int | None = None
    idle: Mapping[str, int] = field(default_factory=dict)
    tolerances: Sequence[int] = ()
    progress: str | None = None

    def __post_init__(self) -> None:
        if self.tick is not None and self.tick <= 0:
            raise PlanError(f"clock: a tick must be greater than zero, got {self.tick}")
        if self.idle and self.progress is None:
            raise PlanError("clock: who is idle is seen in the progress file; name it")
        for source in self.idle:
            if not (source.isdigit() and int(source) < len(self.tolerances)):
                raise PlanError(f"clock: source {source} is not one of {len(self.tolerances)} sources")

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        return cls(
            tick=int(options["tick"]) if "tick" in options else None,
            idle=json.loads(options.get("idle", "{}")),
            tolerances=json.loads(options.get("tolerances", "[]")),
            progress=options.get("progress"),
        )


def heartbeats(settings: Settings, progress: Progress, now: int, started: int) -> dict[str, int]:
    """The levels that bring idle sources to where the lowest of the others is."""
    silent = {
        source
        for source, longest in settings.idle.items()
        if now - progress.get(source, {}).get("seen_at", started) > longest
    }
    marks = {source: entry["watermark"] for source, entry in progress.items()}
    active = [mark for source, mark in marks.items() if source not in silent and mark is not None]
    if not active:
        return {}
    lowest = min(active)
    # One that is further already is left alone: a batch that changes nothing would be wasted.
    behind = (source for source in silent if marks.get(source) is None or marks[source] < lowest)
    return {source: lowest + settings.tolerances[int(source)] for source in behind}


def moved(start: Offset, tick: int, levels: Mapping[str, int]) -> Offset:
    """The offset after `start`, never behind it, written in one way only: Spark compares texts."""
    merged = dict(start["levels"])
    for source, level in levels.items():
        merged[source] = max(level, merged.get(source, level))
    in_order = dict(sorted(merged.items(), key=lambda entry: int(entry[0])))
    return {"tick": max(tick, start["tick"]), "levels": in_order}


def rows_between(start: Offset, end: Offset) -> list[tuple[int, int | None]]:
    """One row for all ticks, and one for each level that changed."""
    ticks: list[tuple[int, int | None]] = [(TICK, None)] if end["tick"] > start["tick"] else []
    before = start["levels"]
    return ticks + [(int(s), level) for s, level in end["levels"].items() if level != before.get(s)]


def wall_micros() -> int:
    return time.time_ns() // 1_000


class ClockReader(OffsetReader):
    """Lives in a process of its own beside the driver, as long as the query runs."""

    def __init__(self, settings: Settings, now: Callable[[], int] = wall_micros) -> None:
        self._settings = settings
        self._now = now
        self._started = now()
        self._last_tick: int | None = None
        self._reached = self.initialOffset()
        self._progress: Progress = {}
        self._read_at: int | None = None

    def initialOffset(self) -> Offset:
        # Not the present tick: a replay of the first batch must begin where it began before.
        return {"tick": 0, "levels": {}}

    def stand_still(self) -> None:
        # Time stops, so that the run ends. Heartbeats continue: they follow the data, which ends.
        self._last_tick = self._tick(self._now())

    def next_offset(self, start: Offset | None, *, everything: bool) -> Offset:
        now = self._now()
        tick = self._tick(now) if self._last_tick is None else self._last_tick
        # Without a start, a level may be repeated after a restart: it changes nothing.
        self._reached = moved(start or self._reached, tick, self._heartbeats(now))
        return self._reached

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        rows = rows_between(start, end)
        return [InputPartition(rows)] if rows else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        sources, levels = zip(*partition.value, strict=True)
        yield pa.record_batch([pa.array(sources, pa.int32()), pa.array(levels, _ROWS[1].type)], _ROWS)

    def _tick(self, now: int) -> int:
        # A time, not a number of ticks: the tick may change from one start to the next.
        return now - now % self._settings.tick if self._settings.tick else 0

    def _heartbeats(self, now: int) -> dict[str, int]:
        if not self._settings.idle:
            return {}
        just_read = self._read_at is not None and abs(now - self._read_at) < _READ_EVERY
        # A run over what is available now asks once a batch only, and may not ask again.
        if self._last_tick is not None or not just_read:
            self._progress, self._read_at = self._read_progress(), now
        return heartbeats(self._settings, self._progress, now, self._started)

    def _read_progress(self) -> Progress:
        filesystem, path = fs.FileSystem.from_uri(self._settings.progress)
        try:
            with filesystem.open_input_stream(path) as stream:
                return json.loads(stream.read())
        except (FileNotFoundError, ValueError):
            return self._progress  # not there yet, or being written right now


class ClockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "source int, level timestamp"

    def streamReader(self, schema: StructType) -> ClockReader:
        return ClockReader(Settings.of(self.options))
