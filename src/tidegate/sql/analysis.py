"""Spark's analyzer, loaded and started when something is asked for the first time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidegate.plan.analysis import Typed

if TYPE_CHECKING:
    from tidegate.spark.analysis import SparkSession

    #: A session, or a function that starts one.
    Session = SparkSession | Callable[[], SparkSession]


class SparkAnalyzer:
    """Asks a session, which need not be there before."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def types(
        self, schema: pa.Schema, alias: str | None, columns: Sequence[tuple[str, str]]
    ) -> list[Typed]:
        from tidegate.spark.analysis import types_of

        if callable(self._session):
            self._session = self._session()
        return types_of(self._session, schema, alias, columns)
