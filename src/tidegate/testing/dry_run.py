"""Programs over batches of rows that a test writes down, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, cast

import pyarrow as pa

from tidegate.errors import PlanError, WatermarkViolation
from tidegate.plan.channels import MAIN, ROWS_IN
from tidegate.plan.nodes import Plan
from tidegate.testing.host import KernelHost
from tidegate.testing.programs import Program, Session, Subject
from tidegate.testing.results import BatchResult, Close, closeness
from tidegate.testing.table import NOON, Row, instant_of, instant_of_watermark, micros_of, rows
from tidegate.testing.transcript import Transcript

#: The rows of a source in a batch: as a table in text, or as dictionaries.
Given = str | Sequence[Row]


@dataclass(frozen=True)
class Stream:
    """Replaces a streaming DataFrame in plans and dry runs: it has columns, but no rows.

    >>> import pyarrow as pa
    >>> clicks = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    >>> tg.events(clicks, time="ts").key_by("user").agg(n=tg.count()).channels
    ('main', 'errors')
    """

    schema: pa.Schema

    isStreaming: ClassVar[bool] = True


class DryRun:
    """Runs a program batch by batch, without Spark, with the same operators and the same watermark.

    The program is a result of the Python API, or a SQL query: what `tg.sql.compile` returns, or one of
    its `inserts` and `selects`. Conditions and expressions of SQL need a session, `spark`.

    `now` is the clock. It stands still until a test sets it; processing time, `periodic` and `admit` use
    it. `watermark` follows from the rows of earlier batches, and a test can set it.

    >>> import pyarrow as pa
    >>> from tidegate.testing import at
    >>> clicks = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    >>> counts = tg.events(clicks, time="ts").window(tg.tumbling("10 s")).agg(n=tg.count())
    >>> run = DryRun(counts)
    >>> run.batch("ts | user \\n 1 | ann \\n 3 | bob").main
    []
    >>> run.watermark = at(10)
    >>> [row["n"] for row in run.batch("").main]
    [2]
    """

    def __init__(self, program: Program, *, spark: Session | None = None) -> None:
        self._subject = Subject.of(program, spark)
        self.now: datetime = NOON
        self._host = (
            None if self._subject.plan is None else KernelHost(self._subject.plan, as_spark=True)
        )

    @property
    def plan(self) -> Plan:
        """The optimized plan."""
        if self._subject.plan is None:
            raise PlanError("the rows of this query only pass: it has no plan")
        return self._subject.plan

    @property
    def channels(self) -> dict[str, pa.Schema]:
        """The output channels, with their columns."""
        return self._subject.channels

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the next batch: the lowest of all sources, if all have one.

        A test can set it. It then counts for all sources, and cannot go back.
        """
        return None if self._host is None else instant_of_watermark(self._host.watermark_micros)

    @watermark.setter
    def watermark(self, watermark: datetime) -> None:
        if self._host is None or any(source.processing_time for source in self._host.sources):
            raise PlanError("only event time has a watermark to set; processing time goes by `now`")
        if not isinstance(watermark, datetime):
            raise TypeError(f"a watermark is a datetime, such as testing.at(60), got {watermark!r}")
        before, after = self._host.watermark_micros, micros_of(watermark)
        if before is not None and after < before:
            raise WatermarkViolation(
                "the dry run", f"its watermark went back from {self.watermark} to {watermark}"
            )
        self._host.advance_to(after)

    def batch(self, *given: Given, **by_stream: Given) -> BatchResult:
        """One micro-batch: the rows of each source, in the order in which the program names them.

        The streams of a SQL query can be given by name; one that is left out has no rows.
        """
        taken = self._taken(given, by_stream)
        if self._host is None:
            return self._passed(taken)
        sources = self._host.sources
        self._host.now = micros_of(self.now)
        own = self._subject.rows_of_sources(taken)
        result = self._host.batch(
            *(
                [row | {source.time: self.now} for row in some] if source.processing_time else some
                for source, some in zip(sources, own, strict=True)
            )
        )
        for number, source in enumerate(sources):
            if source.processing_time:  # ticks move it on, with rows or without
                self._host.generators[number].observe([self._host.now])
        self._host.observe(*([] for _ in sources))
        return self._selected(result)

    def end(self) -> BatchResult:
        """End the stream, as at the end of a batch query: every window closes."""
        return BatchResult() if self._host is None else self._selected(self._host.end())

    def restart(self) -> None:
        """Discard everything except the stored state, as new processes do."""
        if self._host is not None:
            self._host.restart()

    def _taken(self, given: Sequence[Given], by_stream: Mapping[str, Given]) -> dict[str, Sequence[Row]]:
        tables = self._subject.tables
        if not by_stream:
            assert len(given) == len(tables), f"rows for {len(given)} of {len(tables)} sources"
        unknown = [name for name in by_stream if name not in tables]
        assert not unknown, f"no stream {', '.join(unknown)}; there are {', '.join(tables)}"
        assert not (given and by_stream), "give rows in their order, or by the names of streams"
        named = {**dict(zip(tables, given, strict=False)), **by_stream}
        return {name: self._rows(named.get(name, ""), schema) for name, schema in tables.items()}

    def _rows(self, given: Given, schema: pa.Schema) -> Sequence[Row]:
        return rows(given, schema) if isinstance(given, str) else list(given)

    def _selected(self, result: BatchResult) -> BatchResult:
        if MAIN in result.channels:
            result.channels[MAIN] = self._subject.main(result.main)
            if not result.main:
                del result.channels[MAIN]
        return result

    def _passed(self, taken: Mapping[str, Sequence[Row]]) -> BatchResult:
        """Rows that no operator looks at."""
        result = BatchResult()
        [own] = self._subject.rows_of_sources(taken)
        result.put(MAIN, *own)
        result.counts[ROWS_IN] = sum(map(len, taken.values()))
        return result


@dataclass(frozen=True)
class _Script(Transcript):
    """A transcript of a program with what SQL selects around its plan."""

    subject: Subject

    @property
    def tables(self) -> Sequence[pa.Schema]:
        return list(self.subject.tables.values())

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        return self.subject.channels

    @property
    def counters(self) -> Sequence[str]:
        return () if self.subject.plan is None else super().counters

    @property
    def close(self) -> dict[str, Close]:
        if self.subject.plan is None:
            return {}
        kept, close = self.subject.main.kept, closeness(self.plan)
        return {name: close[c] for name, c in kept.items() if c in close} if kept else close


def check(program: Program, script: str, *, spark: Session | None = None) -> None:
    """Run a program through a transcript, without Spark. A difference raises an `AssertionError`.

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
    run = DryRun(program, spark=spark)
    # A query whose rows only pass has no plan, and its transcript asks for none.
    transcript = _Script("transcript", cast("Plan", run._subject.plan), script, run._subject)
    results = []
    for step in transcript.steps:
        run.now = instant_of(step.now) if step.now else run.now
        if step.advance_to is not None:
            run.watermark = instant_of(step.advance_to)
        results.append(run.batch(*step.rows))
    complaints = transcript.complaints(results)
    assert not complaints, "\n".join(complaints)
