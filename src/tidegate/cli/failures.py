"""Errors as users see them: what failed, in a few lines, and the exit code that scripts go by."""

from __future__ import annotations

import re
import sys

from tidegate.errors import TidegateError

OK, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130

#: Where Java's stack begins, and what Spark puts behind the cause.
_STACK = re.compile(r"\n\s*(?:at [\w.$]+\(|JVM stacktrace:|Driver stacktrace:|=== Streaming Query ===)")
#: What Python's stack ends with, where an error went through the JVM: `package.module.Error: …`.
_RAISED = re.compile(r"^(?:\w+\.)+\w+: ", re.MULTILINE)


class QueryFailed(TidegateError):
    """A query that ran, and failed."""


def exit_code(error: Exception) -> int:
    """What is wrong with files and folders can be put right before the next start."""
    wrong = isinstance(error, TidegateError | OSError) and not isinstance(error, QueryFailed)
    return WRONG if wrong else FAILED


def report(error: Exception) -> None:
    ours = isinstance(error, TidegateError | OSError)
    told = str(error) if ours else f"{cause(error)} (--debug shows where)"
    print(f"tidegate: {told}", file=sys.stderr)


def cause(error: BaseException) -> str:
    """What went wrong, without the stack of whoever noticed it."""
    text = _STACK.split(str(error), maxsplit=1)[0]
    if "Traceback (most recent call last)" in text:
        text = _RAISED.split(text)[-1]
    return text.strip() or type(error).__name__
