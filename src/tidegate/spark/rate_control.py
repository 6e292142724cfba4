"""Rate control: how a query tells its readers how many rows the next micro-batch should have.

A reader lives in a process of its own beside the driver. It writes down what it hands out; the query,
which knows when that was written to the sinks, writes down what it should hand out next. Both do so in
a folder on the driver that the reader's columns name in their metadata: wherever the DataFrame goes,
its query finds the reader.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from tidegate.connectors import location
from tidegate.connectors.metadata_files import read_metadata, write_metadata
from tidegate.errors import StartError
from tidegate.observe.batch_size import AdaptiveBatcher
from tidegate.plan.time import Micros, render

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The key of columns' metadata, and there the folder and the pace.
_MARK = "tidegate.pace"

#: Whether the query that controls a reader is still active, by the folder of their files.
_HELD: dict[str, Callable[[], bool]] = {}

#: In the file, the rows of a query whose sources are only watched.
_WHOLE = "all"


@dataclass(frozen=True)
class Pace:
    """How long micro-batches are to take, and between which bounds their rows may be chosen for it."""

    target: Micros
    least: int = 1_000
    most: int = 1_000_000
    start: int | None = None

    def __post_init__(self) -> None:
        self.batcher()  # refuses what makes no sense

    def __repr__(self) -> str:
        start = "" if self.start is None else f", {self.start:,} at first"
        return f"<Pace {render(self.target)} a batch, {self.least:,} to {self.most:,} rows{start}>"

    def batcher(self, rows: int | None = None) -> AdaptiveBatcher:
        """The controller, from so many rows on."""
        start = self.start if rows is None else rows
        return AdaptiveBatcher(self.target / 1e6, self.least, self.most, start)

    def rows(self, checkpoint: str | PathLike[str]) -> int:
        """What a query with this checkpoint chose last, or else what it begins with.

        For sources whose limit is fixed when they are made, such as Kafka's `maxOffsetsPerTrigger`.
        """
        return self.batcher(Choices(location(fspath(checkpoint))).read().get(_WHOLE)).rows


@dataclass(frozen=True)
class Choices:
    """What a query chose last for each source, kept in its checkpoint folder."""

    checkpoint: str

    @property
    def path(self) -> str:
        return posixpath.join(self.checkpoint, "tidegate.pace.json")

    def read(self) -> dict[str, int]:
        return read_metadata(self.path, dict) or {}

    def write(self, choices: dict[str, int]) -> None:
        write_metadata(self.path, choices)


@dataclass(frozen=True)
class Taken:
    """What a reader handed out, and when it was asked."""

    rows: int
    at: float


@dataclass(frozen=True)
class ControlFiles:
    """The folder in which a query and one of its readers exchange files."""

    folder: str

    def ask(self, rows: int) -> None:
        """What the query wants of the reader."""
        write_metadata(self._asked, rows)

    def asked(self) -> int | None:
        return read_metadata(self._asked, int)

    def tell(self, taken: Taken) -> None:
        """What the reader has handed out."""
        write_metadata(self._taken, asdict(taken))

    def taken(self) -> Taken | None:
        return read_metadata(self._taken, lambda stored: Taken(**stored))

    @property
    def _asked(self) -> str:
        return posixpath.join(self.folder, "asked.json")

    @property
    def _taken(self) -> str:
        return posixpath.join(self.folder, "taken.json")


def now() -> float:
    """Seconds of a clock that all processes of a machine share, and that nobody can set."""
    return time.monotonic()


def marked(rows: DataFrame, mark: dict[str, Any] | None) -> DataFrame:
    """The same rows, whose columns say who controls their reader."""
    from pyspark.sql import functions as F

    from tidegate.spark.sources.event_time import quoted

    if mark is None:
        return rows
    columns = (F.col(quoted(name)).alias(name, metadata={_MARK: mark}) for name in rows.columns)
    return rows.select(*columns)


def mark_of(rows: DataFrame) -> dict[str, Any] | None:
    """What the columns say, as long as one of them is still as it was read."""
    marks = (field.metadata.get(_MARK) for field in rows.schema)
    return next((mark for mark in marks if mark), None)


def mark(control: ControlFiles, pace: Pace) -> dict[str, Any]:
    known = {name: value for name, value in asdict(pace).items() if value is not None}
    return {"folder": control.folder, "pace": known}


@dataclass
class ControlledSource:
    """A reader, what is asked of it, and which batch of it was looked at last."""

    batcher: AdaptiveBatcher
    control: ControlFiles | None
    seen: Taken | None = None

    def observe(self, rows: int, begun: float, ended: float) -> None:
        if self.control is None:
            self.batcher.observe(rows, ended - begun)
            return
        taken = self.control.taken()
        # A batch without rows of this reader, or one that is replayed, was not taken anew.
        if taken is not None and taken != self.seen:
            self.seen = taken
            self.batcher.observe(taken.rows, ended - taken.at)

    def ask(self) -> None:
        if self.control is not None:
            self.control.ask(self.batcher.asked)


@dataclass
class RateControl:
    """The readers of a query that can be controlled, or the query itself if none can."""

    controlled: dict[str, ControlledSource]
    choices: Choices
    _kept: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, paced: Iterable[Paced], checkpoint: str) -> RateControl:
        """Go on from what an earlier run has chosen."""
        choices = Choices(checkpoint)
        kept = choices.read()
        controlled = {
            name: ControlledSource(own.batcher(kept.get(name)), control) for name, own, control in paced
        }
        return cls(controlled, choices, kept)

    def begin(self) -> None:
        """Tell the readers how many rows to begin with; what earlier queries took is not looked at."""
        for one in self.controlled.values():
            one.seen = one.control.taken() if one.control else None
            one.ask()

    def observe(self, rows: int, begun: float) -> None:
        """A batch of so many rows, which the query began to write then, is written."""
        ended = now()
        for one in self.controlled.values():
            one.observe(rows, begun, ended)
            one.ask()
        self._keep()

    def throttle(self, factor: float) -> None:
        """Ask for only a part, between 0 and 1, of what the latency would allow; 1 lifts it."""
        for one in self.controlled.values():
            one.batcher.throttle(factor)
            one.ask()

    def metrics(self) -> dict[str, float]:
        """Those of the controller; with the number of the source where there are several."""
        several = len(self.controlled) > 1
        return {
            f"{metric}.{name}" if several else metric: value
            for name, one in self.controlled.items()
            for metric, value in one.batcher.metrics().items()
        }

    def _keep(self) -> None:
        choices = {name: one.batcher.rows for name, one in self.controlled.items()}
        if choices != self._kept:
            self.choices.write(choices)
            self._kept = choices


#: The number of a source, its pace, and the files by which it is controlled, if it can be.
Paced = tuple[str, Pace, ControlFiles | None]


def paced_sources(frames: Iterable[DataFrame], pace: Pace | None) -> Iterator[Paced]:
    """The sources of a query that have a pace, by their numbers."""
    marks = {str(number): found for number, rows in enumerate(frames) if (found := mark_of(rows))}
    if marks and pace is not None:
        raise StartError(
            "start(pace=…) is for sources that are only watched, but this query reads a folder with a "
            "pace of its own: leave one of them out"
        )
    if pace is not None:
        yield _WHOLE, pace, None
    folders = set()
    for name, found in marks.items():
        # A stream that is read in two places of a query has one reader.
        if found["folder"] not in folders:
            _check_free(found["folder"])
            yield name, Pace(**found["pace"]), ControlFiles(found["folder"])
        folders.add(found["folder"])


def _check_free(folder: str) -> None:
    if folder in _HELD and _HELD[folder]():
        raise StartError(
            "another active query reads the same read_folder(pace=…), and each wants other batches: "
            "call read_folder() once for each query"
        )


def hold_sources(paced: Iterable[Paced], is_active: Callable[[], bool]) -> None:
    """Keep other queries away from the sources of one, as long as that is active."""
    _HELD.update({control.folder: is_active for _, _, control in paced if control})
