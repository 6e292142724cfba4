"""Rows that are not kept, on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.connectors.declaration import SinkConnector, declare

__all__ = ["discard"]


@dataclass(frozen=True)
class DiscardSink:
    """Rows that are counted and then let go, on purpose."""

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Nothing is written."""


def discard() -> DiscardSink:
    """Count rows and drop them.

    >>> tg.sinks.discard()
    DiscardSink()
    """
    return DiscardSink()


declare(SinkConnector(name="discard", meaning="Rows that are only counted.", make=discard))
