"""The command line in the process of the tests, with their Spark session."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tidegate.cli import explain, run, sql, state, validate


def share_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `tidegate.cli.main` start no Spark of its own, and leave the signals of this process alone."""

    @contextmanager
    def shared(_arguments: Any) -> Iterator[Any]:
        yield spark

    @contextmanager
    def deferred(_arguments: Any) -> Iterator[Any]:
        yield lambda: spark

    monkeypatch.setattr(state, "session", shared)
    for module in (run, sql, explain, validate):
        monkeypatch.setattr(module, "deferred_session", deferred)
    for module in (run, sql, state):
        monkeypatch.setattr(module, "end_on_sigterm", lambda: None)
