"""Every error tidegate raises on purpose.

There is one warning, `TidegateWarning`: the program is valid, but may not do what its author expects.

TidegateError
├── PlanError                  the program is wrong: raised while it is built
│   ├── DurationError          a duration that is not positive or does not parse
│   ├── ColumnNotFound         a column that the events do not have
│   ├── TypeMismatch           a column whose type the operation does not support
│   ├── NotMergeable           an aggregate that cannot be built from partial results
│   ├── EmissionRefused        an emit strategy that does not fit the windows
│   ├── SqlError               SQL text that is not a valid program, with the position
│   └── PipelineError          a pipeline file that is not valid, with the line
├── StartError                 the plan is fine, but this query cannot start here
│   ├── ChannelError           sinks and channels do not match
│   ├── CheckpointMismatch     the checkpoint belongs to another program
│   ├── CheckpointDrained      the checkpoint was drained: it is finished
│   └── SessionError           the Spark session lacks a setting that tidegate cannot change
│       └── NotInstalled       a server or executors lack tidegate, a library or your module
├── ResultOverflow             a result of a batch that does not fit its type, in Spark's ANSI mode
├── WatermarkViolation         a watermark went back, or was set on an operator that reads others
├── StepError                  a function of a map or a filter failed, or returned something wrong
├── SourceError                a file that does not match its declaration
├── SinkError                  a table or folder that cannot take the rows of a channel
├── StateError                 stored state that this version or program cannot read
└── CheckpointTaken            another start has taken over the checkpoint
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

#: The languages of programs.
Language = Literal["python", "sql", "yaml"]


@dataclass(frozen=True)
class Term:
    """A part of a message that differs by language."""

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
        """The message for a program in that language."""
        parts = self._sentence
        return "".join(part if isinstance(part, str) else getattr(part, language) for part in parts)


class DurationError(PlanError):
    """A duration is not positive, or its text does not parse."""


class ColumnNotFound(PlanError):
    """The events do not have the column."""


class TypeMismatch(PlanError, TypeError):
    """A column's type does not fit the operation."""


class NotMergeable(PlanError):
    """An aggregate cannot be computed from partial results."""


class EmissionRefused(PlanError):
    """An emit strategy does not fit the windows."""


class SqlError(PlanError):
    """SQL text is not a valid program; `line` and `column` (from 1) say where."""

    def __init__(self, problem: str, text: str, line: int, column: int) -> None:
        source = text.split("\n")[line - 1]
        super().__init__(f"line {line}, column {column}: {problem}\n  {source}\n  {' ' * (column - 1)}^")
        self.problem, self.line, self.column = problem, line, column


class PipelineError(PlanError):
    """A pipeline file cannot be read, or is not valid."""


class StartError(TidegateError):
    """The query cannot start."""


class ChannelError(StartError):
    """A sink has no channel, or a channel has no sink."""


class CheckpointMismatch(StartError):
    """The checkpoint belongs to another program, bucket count or state format."""


class CheckpointDrained(StartError):
    """The checkpoint was drained: it is finished, and no query continues from it."""


class SessionError(StartError):
    """The Spark session cannot run the query as it is."""


class NotInstalled(SessionError):
    """The Python of executors, or of a server, lacks tidegate, a library or one of your modules."""


class ResultOverflow(TidegateError, ArithmeticError):
    """A result of a batch DataFrame does not fit its type, and the session is in ANSI mode."""


class WatermarkViolation(TidegateError):
    """A watermark went back, or was set on an operator that reads others."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator
        self.reason = reason


class StepError(TidegateError):
    """A function of a step failed, or returned something other than it promised."""

    def __init__(self, step: object, reason: str) -> None:
        super().__init__(f"{step} {reason}")
        self.step, self.reason = str(step), reason

    def __reduce__(self) -> tuple[type[StepError], tuple[str, str]]:
        return StepError, (self.step, self.reason)  # it travels from workers to the driver


class SourceError(TidegateError):
    """A file does not match its declaration, or has changed; the message names it."""


class SinkError(TidegateError):
    """A table or folder cannot take the rows of a channel; nothing of the batch has been written."""


class StateError(TidegateError):
    """This version or program cannot read the stored state."""


class CheckpointTaken(TidegateError):
    """Another start has taken over the checkpoint: this query may not change anything any more."""


class TidegateWarning(UserWarning):
    """A valid program that may not do what its author expects."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint with the closest match, if there is one, and all known names."""
    names = list(known)
    close = get_close_matches(given, names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}available: {', '.join(map(repr, names)) or 'nothing'}"
