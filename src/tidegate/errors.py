"""Every error tidegate raises on purpose.

And one warning, `TidegateWarning`: the program means something, though perhaps not what its author has
in mind.

TidegateError
├── PlanError                  the program cannot mean anything: raised while it is written
│   ├── DurationError          a duration that is not positive or does not parse
│   ├── ColumnNotFound         a column the events do not have
│   ├── TypeMismatch           a column whose type the operation cannot work on
│   ├── NotMergeable           an aggregate that cannot be built from partial results
│   ├── EmissionRefused        a strategy that cannot say what the windows do
│   ├── SqlError               a text that is no program, with the place where it goes wrong
│   └── PipelineError          a pipeline file that says something it cannot, with the line
├── StartError                 the plan is fine, but this query cannot start here
│   ├── ChannelError           sinks and channels do not match
│   ├── CheckpointMismatch     the checkpoint belongs to another program
│   ├── CheckpointDrained      the checkpoint was drained: it is finished
│   └── SessionError           the Spark session lacks something that cannot be set from here
├── ResultOverflow             a result of a batch that does not fit its type, in Spark's ANSI mode
├── WatermarkViolation         a watermark that went back, or came from where it cannot
├── StepError                  a function of a map or a filter failed, or gave back what it must not
├── SourceError                a file that cannot be read as it was declared
├── SinkError                  a table or folder that cannot take what it is given, or must not
├── StateError                 stored state that must not be read as if it were ours
└── CheckpointTaken            another start has taken the checkpoint over
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

#: What programs are written in.
Language = Literal["python", "sql", "yaml"]


@dataclass(frozen=True)
class Term:
    """A part of a message that each language writes in its own way."""

    python: str
    sql: str
    yaml: str


#: A message in parts: text that is the same everywhere, and terms.
Sentence = tuple[str | Term, ...]


class TidegateError(Exception):
    """The root of all errors of this package."""


class PlanError(TidegateError, ValueError):
    """The program is wrong; nothing has been started."""

    def __init__(self, *sentence: str | Term) -> None:
        self._sentence = sentence
        super().__init__(self.written_in("python"))

    def written_in(self, language: Language) -> str:
        """The message for somebody who writes that language."""
        parts = self._sentence
        return "".join(part if isinstance(part, str) else getattr(part, language) for part in parts)


class DurationError(PlanError):
    """A duration is not positive, or its text does not parse."""


class ColumnNotFound(PlanError):
    """A column is named that the events do not have."""


class TypeMismatch(PlanError, TypeError):
    """A column's type does not fit the operation."""


class NotMergeable(PlanError):
    """An aggregate cannot be computed from partial results."""


class EmissionRefused(PlanError):
    """An emission strategy cannot express what happens to the windows below it."""


class SqlError(PlanError):
    """SQL text that is not a program: `line` and `column` (from 1) say where it goes wrong."""

    def __init__(self, problem: str, text: str, line: int, column: int) -> None:
        source = text.split("\n")[line - 1]
        super().__init__(f"line {line}, column {column}: {problem}\n  {source}\n  {' ' * (column - 1)}^")
        self.problem, self.line, self.column = problem, line, column


class PipelineError(PlanError):
    """A pipeline file cannot be read, or says something that it cannot."""


class StartError(TidegateError):
    """The query cannot start."""


class ChannelError(StartError):
    """A sink was given for no channel, or a channel has no sink."""


class CheckpointMismatch(StartError):
    """The checkpoint was written by another plan, bucket count or state format."""


class CheckpointDrained(StartError):
    """The checkpoint was drained, and no query goes on from it."""


class SessionError(StartError):
    """The Spark session cannot run the query as it is."""


class ResultOverflow(TidegateError, ArithmeticError):
    """A result of a batch DataFrame does not fit its type, and the session is in ANSI mode."""


class WatermarkViolation(TidegateError):
    """A watermark went back, or came from where none can come from."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator
        self.reason = reason


class StepError(TidegateError):
    """A function that rows pass failed, or did not give back what it promised."""

    def __init__(self, step: object, reason: str) -> None:
        super().__init__(f"{step} {reason}")
        self.step, self.reason = str(step), reason

    def __reduce__(self) -> tuple[type[StepError], tuple[str, str]]:
        return StepError, (self.step, self.reason)  # it travels from workers to the driver


class SourceError(TidegateError):
    """A file is not what it was declared to be, or no longer what it was; the message names it."""


class SinkError(TidegateError):
    """A table or folder cannot take the rows of a channel; nothing of the batch has been written."""


class StateError(TidegateError):
    """Stored state is not in a form this version and plan can read."""


class CheckpointTaken(TidegateError):
    """Another start has taken the checkpoint over: this query may change nothing more."""


class TidegateWarning(UserWarning):
    """A program that means something, though perhaps not what its author has in mind."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A sentence that lists what exists, nearest match first where there is one."""
    names = list(known)
    close = get_close_matches(given, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}available: {', '.join(map(repr, names)) or 'nothing'}"
