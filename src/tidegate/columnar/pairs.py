"""Two columns of integers as one: a single integer is grouped in half the time that a pair takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

_WORD = "__tidegate_word"
#: Words lie below this, whatever their sign.
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Pairs:
    """How pairs of integers are numbered: line after line, the second ones next to each other."""

    schema: pl.Schema
    #: The lowest second one, and how many there are from it to the highest.
    low: int
    span: int

    @classmethod
    def of(cls, rows: pl.DataFrame, names: Sequence[str]) -> Pairs | None:
        """None if these columns are not two, or do not fit in one integer."""
        columns = rows.select(names)
        if columns.width != 2 or not len(rows) or not all(kind.is_integer() for kind in columns.dtypes):
            return None
        first, second = columns.get_columns()
        if first.null_count() or second.null_count():
            return None
        lowest, highest, low, high = (one for own in (first, second) for one in _bounds(own))
        span = high - low + 1
        largest = (max(abs(lowest), abs(highest)) + 1) * span
        return cls(columns.schema, low, span) if largest < _LARGEST else None

    def group_by(self, rows: pl.DataFrame, *aggregates: pl.Expr) -> pl.DataFrame:
        """What `rows.group_by(names).agg(aggregates)` gives."""
        first, second = self.schema
        word = pl.col(first).cast(pl.Int64) * self.span + (pl.col(second).cast(pl.Int64) - self.low)
        groups = rows.with_columns(word.alias(_WORD)).group_by(_WORD).agg(*aggregates)
        line, place = pl.col(_WORD) // self.span, pl.col(_WORD) % self.span + self.low
        pair = (
            line.cast(self.schema[first]).alias(first),
            place.cast(self.schema[second]).alias(second),
        )
        return groups.select(*pair, pl.exclude(_WORD))


def _bounds(numbers: pl.Series) -> tuple[int, int]:
    values = numbers.to_numpy()
    return int(values.min()), int(values.max())
