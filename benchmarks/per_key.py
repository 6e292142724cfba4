"""A tumbling window the way Spark's users write it: `transformWithStateInPandas`, once per key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUT = "user string, window_start timestamp, window_end timestamp, n long, spend double"


class TumblingPerKey(StatefulProcessor):
    """One state row and one timer for each window of the key."""

    def __init__(self, size: int) -> None:
        self.size = size * 1000

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.windows = handle.getMapState("windows", "start long", "n long, spend double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[Any]:
        for start, (n, spend) in self._partials(rows).items():
            known = self.windows.getValue((start,))
            if known is None:
                self.handle.registerTimer(start + self.size)
            else:
                n, spend = n + known[0], spend + known[1]
            self.windows.updateValue((start,), (n, spend))
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        end = expiredTimerInfo.getExpiryTimeInMs()
        start = end - self.size
        n, spend = self.windows.getValue((start,))
        self.windows.removeKey((start,))
        edges = {"window_start": pd.to_datetime([start], unit="ms")}
        edges["window_end"] = pd.to_datetime([end], unit="ms")
        yield pd.DataFrame({"user": [key[0]], **edges, "n": [n], "spend": [spend]})

    def close(self) -> None:
        pass

    def _partials(self, rows: Iterator[pd.DataFrame]) -> dict[int, tuple[int, float]]:
        # A plain loop: most keys have a handful of rows, for which grouping in pandas is slower.
        partials: dict[int, tuple[int, float]] = {}
        for frame in rows:
            millis = frame["ts"].to_numpy().astype("datetime64[ms]").astype("int64")
            starts = (millis // self.size * self.size).tolist()
            for start, price in zip(starts, frame["price"].tolist(), strict=True):
                n, spend = partials.get(start, (0, 0.0))
                partials[start] = (n + 1, spend + price)
        return partials


def tumbling_per_key(events: DataFrame, size: int) -> DataFrame:
    keyed = events.groupBy("user")
    return keyed.transformWithStateInPandas(TumblingPerKey(size), OUTPUT, "Append", "EventTime")
