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
`left`, and `right` has the rows of the other side. Then, as needed: `now` (the
processing time), `watermark` (in force during the batch, or none), a table for every channel that
rows leave through (channels that are not mentioned must stay silent), and counters, `late_rows 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from textwrap import dedent
from typing import Any

from tidegate.dataflow import Dataflow, compile
from tidegate.errors import did_you_mean
from tidegate.plan.nodes import Plan
from tidegate.testing.host import KernelHost
from tidegate.testing.results import BatchResult, row_differences
from tidegate.testing.table import Row, at, instant_of, micros_of, rows, shown

#: What the rows of each source are called.
_INPUTS = {"rows": 0, "left": 0, "right": 1}


@dataclass(frozen=True)
class Step:
    """One micro-batch of a transcript."""

    #: The rows of each source.
    rows: list[list[Row]]
    #: Zero where it is not given.
    now: int
    #: What must come out. A watermark that is not given is not compared, nor a counter.
    expected: BatchResult
    names_watermark: bool


@dataclass(frozen=True)
class Transcript:
    """A plan and a script of what it does."""

    name: str
    plan: Plan
    script: str

    @cached_property
    def dataflow(self) -> Dataflow:
        return compile(self.plan)

    @cached_property
    def steps(self) -> list[Step]:
        """The micro-batches of the script."""
        return [_step(sections, self.dataflow) for sections in _batches(self.script)]

    def complaints(self, results: Sequence[BatchResult]) -> list[str]:
        """How results differ from the script, in sentences; empty where they agree."""
        if len(results) != len(self.steps):
            return [f"{self.name}: {len(self.steps)} batches in the script, {len(results)} happened"]
        return [
            f"{self.name}, batch {number}, {complaint}"
            for number, (step, result) in enumerate(zip(self.steps, results, strict=True), 1)
            for complaint in _complaints(self.plan, step, result)
        ]


def run(
    transcript: Transcript, host: KernelHost, between: Callable[[], Any] = lambda: None
) -> list[BatchResult]:
    """A transcript's batches through a host; `between` is called after each, to restart it perhaps."""
    results = []
    for step in transcript.steps:
        host.now = step.now
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


def _step(sections: Sequence[tuple[str, str, str]], dataflow: Dataflow) -> Step:
    sources, channels = dataflow.sources, dataflow.channels
    taken: list[list[Row]] = [[] for _ in sources]
    now, watermark, named = 0, None, False
    expected = BatchResult()
    for word, rest, table in sections:
        if word in _INPUTS:
            number = _INPUTS[word]
            taken[number] = rows(table, sources[number].row_schema)
        elif word == "now":
            now = micros_of(at(rest))
        elif word == "watermark":
            named, watermark = True, None if rest == "none" else micros_of(at(rest))
        elif word in dataflow.counters and rest:  # `errors` is a counter and a channel
            expected.counts[word] = int(rest)
        elif word in channels:
            expected.put(word, *rows(table, channels[word]))
        else:
            known = (*_INPUTS, "now", "watermark", *channels, *dataflow.counters)
            raise ValueError(f"{word!r} is no part of this transcript; {did_you_mean(word, known)}")
    expected.watermark = watermark
    return Step(taken, now, expected, named)


def _complaints(plan: Plan, step: Step, result: BatchResult) -> list[str]:
    found = []
    wanted = step.expected
    if step.names_watermark and wanted.watermark != result.watermark:
        found.append(f"watermark: expected {_time(wanted.watermark)}, got {_time(result.watermark)}")
    for channel in compile(plan).channels:
        rows_of = (batch.channels.get(channel, []) for batch in (wanted, result))
        found += [f"{channel}: {line}" for line in row_differences(plan, channel, *rows_of)]
    counts = Counter({name: result.counts[name] for name in wanted.counts})
    if counts != wanted.counts:
        found.append(f"counters: expected {dict(wanted.counts)}, got {dict(counts)}")
    return found


def _time(watermark: int | None) -> str:
    """A watermark as scripts write it."""
    return "none" if watermark is None else shown(instant_of(watermark))
