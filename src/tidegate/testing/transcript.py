"""Behaviour as transcripts: what comes in, the watermark in force, what goes out, batch by batch.

    rows
      ts | user
      1  | ann
    watermark none

    rows
      ts | user
      12 | ann
    watermark 1
    main
      user | window_start | window_end | n
      ann  | 0            | 10         | 1

Each `rows` begins a micro-batch; without a table the batch is empty. That of a join begins with
`left`, and `right` has the rows of the other side. Then, as needed: `now` (the processing time),
`advance_to` (the watermark to move on to before the batch), `watermark` (the one in force during the
batch, or none), a table for every channel that rows leave through (channels that are not mentioned must
stay silent), and counters, `late_rows 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from typing import Any

import pyarrow as pa

from tidegate.dataflow import Dataflow, compile
from tidegate.errors import did_you_mean
from tidegate.plan.channels import MAIN
from tidegate.plan.nodes import Plan
from tidegate.testing.host import KernelHost
from tidegate.testing.results import BatchResult, Close, closeness, told_apart
from tidegate.testing.table import Row, instant, micros_of, rows, shown

#: What the rows of each source are called.
_INPUTS = {"rows": 0, "left": 0, "right": 1}


@dataclass(frozen=True)
class Step:
    """One micro-batch of a transcript."""

    #: The rows of each source.
    rows: list[list[Row]]
    #: Zero where it is not given.
    now: int
    #: The watermark that the batch is to find, where it is not left to the rows.
    advance_to: int | None
    #: What must come out. A watermark that is not given is not compared, nor a counter.
    expected: BatchResult
    names_watermark: bool


@dataclass(frozen=True)
class Transcript:
    """A plan, and a script with its input and expected output."""

    name: str
    plan: Plan
    script: str

    @cached_property
    def dataflow(self) -> Dataflow:
        return compile(self.plan)

    @property
    def tables(self) -> Sequence[pa.Schema]:
        """The columns of the input tables."""
        return [source.row_schema for source in self.dataflow.sources]

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """The columns of the output tables."""
        return self.dataflow.channels

    @property
    def counters(self) -> Sequence[str]:
        """The counters that a script can check."""
        return self.dataflow.counters

    @property
    def close(self) -> dict[str, Close]:
        """The result columns that may differ in the last bits."""
        return closeness(self.plan)

    @cached_property
    def steps(self) -> list[Step]:
        """The micro-batches of the script."""
        return [_step(sections, self) for sections in _batches(self.script)]

    def complaints(self, results: Sequence[BatchResult]) -> list[str]:
        """How results differ from the script, in sentences; empty if they agree."""
        if len(results) != len(self.steps):
            return [f"{self.name}: {len(self.steps)} batches in the script, {len(results)} happened"]
        return [
            f"{self.name}, batch {number}, {complaint}"
            for number, (step, result) in enumerate(zip(self.steps, results, strict=True), 1)
            for complaint in _complaints(self, step, result)
        ]


def run(
    transcript: Transcript, host: KernelHost, between: Callable[[], Any] = lambda: None
) -> list[BatchResult]:
    """Run the batches of a transcript on a host; `between` is called after each batch."""
    results = []
    for step in transcript.steps:
        host.now = step.now
        if step.advance_to is not None:
            host.advance_to(step.advance_to)
        results.append(host.batch(*step.rows))
        between()
    return results


def _batches(script: str) -> list[list[tuple[str, str, str]]]:
    """Batches of sections: the word that opens one, what follows it on its line, the table below."""
    batches: list[list[tuple[str, str, str]]] = []
    for line in dedent(script).splitlines():
        if not line.strip():
            continue
        if line[0].isspace():
            word, rest, table = batches[-1].pop()
            batches[-1].append((word, rest, f"{table}\n{line}"))
            continue
        word, _, rest = line.strip().partition(" ")
        if word in ("rows", "left"):
            batches.append([])
        batches[-1].append((word, rest.strip(), ""))
    return batches


def _step(sections: Sequence[tuple[str, str, str]], transcript: Transcript) -> Step:
    tables, channels, counters = transcript.tables, transcript.channels, transcript.counters
    taken: list[list[Row]] = [[] for _ in tables]
    now, advance_to, watermark, named = 0, None, None, False
    expected = BatchResult()
    for word, rest, table in sections:
        if word in _INPUTS:
            number = _INPUTS[word]
            taken[number] = rows(table, tables[number])
        elif word == "now":
            now = micros_of(instant(rest))
        elif word == "advance_to":
            advance_to = micros_of(instant(rest))
        elif word == "watermark":
            named, watermark = True, None if rest == "none" else micros_of(instant(rest))
        elif word in counters and rest:  # `errors` is a counter and a channel
            expected.counts[word] = int(rest)
        elif word in channels:
            expected.put(word, *rows(table, channels[word]))
        else:
            known = (*_INPUTS, "now", "advance_to", "watermark", *channels, *counters)
            raise ValueError(f"{word!r} is no part of this transcript; {did_you_mean(word, known)}")
    expected.watermark_micros = watermark
    return Step(taken, now, advance_to, expected, named)


def _complaints(transcript: Transcript, step: Step, result: BatchResult) -> list[str]:
    found = []
    wanted = step.expected
    if step.names_watermark and wanted.watermark_micros != result.watermark_micros:
        found.append(f"watermark: expected {_time(wanted)}, got {_time(result)}")
    for channel, schema in transcript.channels.items():
        rows_of = (batch.channels.get(channel, []) for batch in (wanted, result))
        close = transcript.close if channel == MAIN else {}
        found += [f"{channel}: {line}" for line in told_apart(schema.names, close, *rows_of)]
    counts = Counter({name: result.counts[name] for name in wanted.counts})
    if counts != wanted.counts:
        found.append(f"counters: expected {dict(wanted.counts)}, got {dict(counts)}")
    return found


def _time(result: BatchResult) -> str:
    """A watermark as scripts write it."""
    return "none" if result.watermark is None else shown(result.watermark)
