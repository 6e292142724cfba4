"""Windows the way Spark's users write them: `transformWithStateInPandas`, once per key."""

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
    return _per_key(events, TumblingPerKey(size))


class SessionPerKey(StatefulProcessor):
    """The key's open sessions as a list that is read, merged and written back."""

    def __init__(self, gap: int) -> None:
        self.gap = gap * 1_000_000

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.sessions = handle.getListState("sessions", "first long, last long, n long, spend double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[Any]:
        pieces = [tuple(session) for session in self.sessions.get()]
        for frame in rows:
            micros = frame["ts"].to_numpy().astype("datetime64[us]").astype("int64").tolist()
            prices = frame["price"].tolist()
            pieces += [(at, at, 1, price) for at, price in zip(micros, prices, strict=True)]
        self._keep(self._merge(sorted(pieces)))
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        watermark = timerValues.getCurrentWatermarkInMs() * 1000
        sessions = [tuple(session) for session in self.sessions.get()]
        ended = [session for session in sessions if session[1] + self.gap <= watermark]
        self._keep([session for session in sessions if session[1] + self.gap > watermark])
        if ended:
            first, last, n, spend = zip(*ended, strict=True)
            edges = {"window_start": pd.to_datetime(first, unit="us")}
            edges["window_end"] = pd.to_datetime([at + self.gap for at in last], unit="us")
            users = [key[0]] * len(ended)
            yield pd.DataFrame({"user": users, **edges, "n": list(n), "spend": list(spend)})

    def close(self) -> None:
        pass

    def _merge(self, pieces: list[tuple[int, int, int, float]]) -> list[tuple[int, int, int, float]]:
        merged = pieces[:1]
        for first, last, n, spend in pieces[1:]:
            start, end, count, total = merged[-1]
            if first <= end + self.gap:
                merged[-1] = (start, max(end, last), count + n, total + spend)
            else:
                merged.append((first, last, n, spend))
        return merged

    def _keep(self, sessions: list[tuple[int, int, int, float]]) -> None:
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        if sessions:
            self.sessions.put(sessions)
            # A session that ends inside a millisecond is due at the next one.
            self.handle.registerTimer(-(-(min(session[1] for session in sessions) + self.gap) // 1000))
        else:
            self.sessions.clear()


def session_per_key(events: DataFrame, gap: int) -> DataFrame:
    return _per_key(events, SessionPerKey(gap))


def _per_key(events: DataFrame, processor: StatefulProcessor) -> DataFrame:
    keyed = events.groupBy("user")
    return keyed.transformWithStateInPandas(processor, OUTPUT, "Append", "EventTime")
