"""Rows that are not kept, on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.connectors.declaration import SinkConnector, declare
from tidegate.connectors.sinks import RowType, Stage

__all__ = ["discard"]


class Nowhere:
    """Tasks need not even put the rows together."""

    def write(self, tables: Iterable[pa.Table]) -> None:
        """Nothing is written."""


@dataclass(frozen=True)
class DiscardSink:
    """Rows that are counted and then let go, on purpose."""

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Nothing is written."""

    def stage(self, rows: RowType) -> Stage:
        return Nowhere()

    def commit(self, receipts: Sequence[bytes], batch_id: int) -> None:
        """Nothing was written."""


def discard() -> DiscardSink:
    """Count rows and drop them.

    >>> tg.sinks.discard()
    DiscardSink()
    """
    return DiscardSink()


declare(SinkConnector(name="discard", meaning="Rows that are only counted.", make=discard))
