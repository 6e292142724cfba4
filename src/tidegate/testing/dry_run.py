"""Programs over batches of rows that a test writes down, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Protocol

import pyarrow as pa

from tidegate.optimize import optimize
from tidegate.plan.feeds import Source
from tidegate.plan.nodes import Plan
from tidegate.testing.host import KernelHost
from tidegate.testing.results import BatchResult
from tidegate.testing.table import NOON, Row, instant_of, micros_of, rows
from tidegate.testing.transcript import Transcript

#: The rows of a source in a batch: as a table in text, or as dictionaries.
Given = str | Sequence[Row]


@dataclass(frozen=True)
class Stream:
    """Stands for a streaming DataFrame where programs are only looked at, or run dry.

    >>> import pyarrow as pa
    >>> clicks = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    >>> tg.events(clicks, time="ts").key_by("user").agg(n=tg.count()).channels
    ('main', 'errors')
    """

    schema: pa.Schema

    isStreaming: ClassVar[bool] = True


class Program(Protocol):
    """What a query can be of: a result, or several side by side."""

    @property
    def node(self) -> Plan: ...


class DryRun:
    """A program as it runs on Spark, batch by batch: the same operators, and the watermark in between.

    `now` is the clock, and stands still until a test sets it: processing time, `periodic` and `admit` go
    by it.

    >>> import pyarrow as pa
    >>> clicks = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    >>> counts = tg.events(clicks, time="ts").window(tg.tumbling("10 s")).agg(n=tg.count())
    >>> run = DryRun(counts)
    >>> run.batch("ts | user \\n 1 | ann \\n 12 | bob").main
    []
    >>> [row["n"] for row in run.batch("").main]
    [1]
    """

    def __init__(self, program: Program) -> None:
        self.plan = optimize(program.node)
        self.now: datetime = NOON
        self._host = KernelHost(self.plan, as_spark=True)

    @property
    def watermark(self) -> datetime | None:
        """What the next batch works by: the lowest of the sources' watermarks, if all have one."""
        micros = self._host.watermark
        return None if micros is None else instant_of(micros)

    def batch(self, *given: Given) -> BatchResult:
        """One micro-batch: the rows of each source, in the order in which the program names them."""
        self._host.now = micros_of(self.now)
        sources = self._host.sources
        assert len(given) == len(sources), f"rows for {len(given)} of {len(sources)} sources"
        taken = [self._rows(source, own) for source, own in zip(sources, given, strict=True)]
        result = self._host.batch(*taken)
        for number, source in enumerate(sources):
            if source.processing_time:  # ticks move it on, with rows or without
                self._host.generators[number].observe([self._host.now])
        self._host.observe(*([] for _ in sources))
        return result

    def end(self) -> BatchResult:
        """The end of a batch query: nothing comes any more, and everything closes."""
        return self._host.end()

    def restart(self) -> None:
        """Go on with nothing but the stored state, as new processes do."""
        self._host.restart()

    def _rows(self, source: Source, given: Given) -> list[Row]:
        own = rows(given, source.row_schema) if isinstance(given, str) else list(given)
        return [row | {source.time: self.now} for row in own] if source.processing_time else own


def check(program: Program, script: str) -> None:
    """Run a program dry through a transcript; what differs is an `AssertionError` that shows it.

    >>> import pyarrow as pa
    >>> clicks = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    >>> by_user = tg.events(clicks, time="ts").key_by("user")
    >>> counts = by_user.window(tg.tumbling("10 s")).agg(n=tg.count())
    >>> check(counts, '''
    ...     rows
    ...       ts | user
    ...       1  | ann
    ...       12 | bob
    ...     rows
    ...     watermark 12
    ...     main
    ...       user | window_start | window_end | n
    ...       ann  | 0            | 10         | 1
    ... ''')
    """
    run = DryRun(program)
    transcript = Transcript("transcript", run.plan, script)
    results = []
    for step in transcript.steps:
        run.now = instant_of(step.now) if step.now else run.now
        results.append(run.batch(*step.rows))
    complaints = transcript.complaints(results)
    assert not complaints, "\n".join(complaints)
