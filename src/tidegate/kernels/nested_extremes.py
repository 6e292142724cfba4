"""The smallest and the largest of structs and lists, for which Polars has no aggregate of its own."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

from tidegate.plan.aggregates import Aggregate, State


class OfNested(Aggregate):
    """The smallest or the largest of structs or lists, compared part by part, null first."""

    def __init__(self, of: Aggregate, *, largest: bool) -> None:
        super().__init__(of.column)
        self.of, self.largest = of, largest

    @property
    def name(self) -> str:
        return self.of.name

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return self.of.output_type(column_type)

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {self.name: self._pick(value)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        return {self.name: self._pick(state[self.name])}

    def finish(self, state: State) -> pl.Expr:
        return state[self.name]

    def _pick(self, value: pl.Expr) -> pl.Expr:
        ordered = value.drop_nulls().sort()
        return ordered.last() if self.largest else ordered.first()
