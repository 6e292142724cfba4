"""Rows kept on the driver: of programs in Python, which can read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

__all__ = ["memory"]


@dataclass
class MemorySink:
    """Rows kept on the driver: for tests and small results."""

    batches: dict[int, pa.Table] = field(default_factory=dict)
    in_process: ClassVar[bool] = True

    def __call__(self, rows: Any, batch_id: int) -> None:
        self.write_rows(rows.toArrow(), batch_id)

    def write_rows(self, rows: pa.Table, batch_id: int) -> None:
        """Keep the rows of a batch; a batch that is written again takes the place of its first try."""
        self.batches[batch_id] = rows

    def to_arrow(self) -> pa.Table | None:
        """All rows so far, in the order of their batches; None before any came."""
        tables = [self.batches[batch_id] for batch_id in sorted(self.batches)]
        return pa.concat_tables(tables) if tables else None

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far, as dictionaries."""
        table = self.to_arrow()
        return [] if table is None else table.to_pylist()

    def __repr__(self) -> str:
        rows = sum(table.num_rows for table in list(self.batches.values()))
        return f"<MemorySink: {rows:,} rows of {len(self.batches):,} batches>"


def memory() -> MemorySink:
    """Keep rows on the driver; `rows()` and `to_arrow()` read them.

    >>> tg.sinks.memory().rows()
    []
    """
    return MemorySink()
