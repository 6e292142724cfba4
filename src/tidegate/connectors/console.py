"""Rows printed as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.connectors.declaration import Option, SinkConnector, declare

__all__ = ["console"]

_LIMIT = 20


@dataclass(frozen=True)
class ConsoleSink:
    """Rows printed as tables."""

    limit: int = _LIMIT
    in_process: ClassVar[bool] = True

    def __call__(self, rows: Any, batch_id: int) -> None:
        print(f"-- batch {batch_id}")
        rows.show(self.limit, truncate=False)


def console(limit: int = _LIMIT) -> ConsoleSink:
    """Print rows, batch by batch.

    >>> tg.sinks.console(limit=5)
    ConsoleSink(limit=5)
    """
    return ConsoleSink(limit)


declare(
    SinkConnector(
        name="console",
        meaning="Rows printed batch by batch.",
        options=(
            Option("limit", "The most rows of a batch that are printed.", "integer", default=_LIMIT),
        ),
        make=console,
    )
)
