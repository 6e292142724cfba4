"""A batch that a stop interrupts: Spark must take the interruption for what it is.

Spark looks for it in the text of the Python error, with the regular expression
`py4j.protocol.Py4JJavaError: An error occurred while calling((.|…)*)(java.lang.InterruptedException|…)`.
Java matches such a group by one call inside another for every character. A text of some ten thousand,
two Java stacks and a Python one, overflows the stack: the thread of the query dies of a
`StackOverflowError` instead of being stopped. So Spark is given what it looks for, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INTERRUPTED = frozenset(
    {
        "java.lang.InterruptedException",
        "java.io.InterruptedIOException",
        "java.nio.channels.ClosedByInterruptException",
    }
)
_CANCELLED = "org.apache.spark.SparkException"


class BatchInterrupted(Exception):
    """The query was stopped while it wrote a batch. The reason is Java's: `<class>: <message>`."""

    def __init__(self, reason: str) -> None:
        told = "py4j.protocol.Py4JJavaError: An error occurred while calling the sinks"
        super().__init__(f"{told}: {reason}")


@contextmanager
def told_in_short() -> Iterator[None]:
    """Raise interruptions as `BatchInterrupted`; other errors stay as they are."""
    try:
        yield
    except Exception as error:
        reason = _reason(error)
        if reason is None:
            raise
        # Not as its consequence: that would put the long text in front of the short one.
        raise BatchInterrupted(reason) from None


def _reason(error: BaseException) -> str | None:
    """The Java error that says so: of this error, or of one that it comes from."""
    found = (java for one in _chain(error) for java in _java_chain(one))
    return next((text for text in map(_interruption, found) if text is not None), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _java_chain(error: BaseException) -> Iterator[Any]:
    java = getattr(error, "java_exception", None)  # of a classic session's errors
    while java is not None:
        yield java
        java = java.getCause()


def _interruption(java: Any) -> str | None:
    name = java.getClass().getName()
    told = str(java.toString())
    if name in _INTERRUPTED:
        return told
    # By the name of the job group: Spark compares it with the query's own.
    return told if name == _CANCELLED and "cancelled" in told else None
