"""Windows the way Spark's users write them: `transformWithStateInPandas`, once per key."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OUTPUT = "user string, window_start timestamp, window_end timestamp, n long, spend double"
ROW_OUTPUT = "ts timestamp, user string, price double, n long, spend double, most double"


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
            pieces += [(at, at, 1, price) for at, price in _events(frame)]
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


class LookbackPerKey(StatefulProcessor):
    """The key's latest rows as a list that is read, extended, trimmed and written back.

    Nobody takes away the rows of a key that does not come again: timers would, and cost more.
    """

    def __init__(self, lookback: int, tolerance: int) -> None:
        self.lookback = lookback * 1_000_000
        #: Rows of later batches are at most the tolerance older than the key's newest.
        self.kept = (lookback + tolerance) * 1_000_000

    def init(self, handle: Any) -> None:
        self.recent = handle.getListState("recent", "at long, price double")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        times, prices = _columns(self.recent.get())
        for frame in rows:
            fresh = _events(frame)
            totals = [self._arrive(times, prices, at, price) for at, price in fresh]
            yield _results(key[0], fresh, totals)
        # Only now: inside a batch rows come in any order, one file's after another's.
        begin = bisect_left(times, times[-1] - self.kept)
        self.recent.put(list(zip(times[begin:], prices[begin:], strict=True)))

    def close(self) -> None:
        pass

    def _arrive(
        self, times: list[int], prices: array[float], at: int, price: float
    ) -> tuple[int, float, float]:
        """Put a row in its place in time, and look back from there."""
        place = bisect_right(times, at)
        times.insert(place, at)
        prices.insert(place, price)
        return _totals(prices, bisect_left(times, at - self.lookback), place + 1)


class LookaheadPerKey(StatefulProcessor):
    """The key's rows as a list, each for as long as a result may need it; a timer for the next result.

    Nobody takes away the rows of a key that does not come again: more timers would, and cost more.
    """

    def __init__(self, lookback: int, lookahead: int) -> None:
        self.lookback, self.lookahead = lookback * 1_000_000, lookahead * 1_000_000

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.rows = handle.getListState("rows", "at long, price double, done boolean")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[Any]:
        fresh = [(at, price, False) for frame in rows for at, price in _events(frame)]
        self.rows.appendList(fresh)
        due = self._due(min(at for at, *_ in fresh))
        timers = list(self.handle.listTimers())
        if not timers or due < timers[0]:
            for timer in timers:
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(due)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        complete = timerValues.getCurrentWatermarkInMs() * 1000 - self.lookahead
        rows = sorted(self.rows.get())
        times, prices = _columns((at, price) for at, price, _ in rows)
        # Those that are done are the oldest ones: they were complete at an earlier watermark.
        begin, end = sum(done for *_, done in rows), bisect_right(times, complete)
        totals = [self._around(times, prices, at) for at in times[begin:end]]
        self._keep(rows[bisect_left(times, complete - self.lookback) :], complete)
        if end < len(rows):
            self.handle.registerTimer(self._due(times[end]))
        yield _results(key[0], [(at, price) for at, price, _ in rows[begin:end]], totals)

    def close(self) -> None:
        pass

    def _around(self, times: list[int], prices: array[float], at: int) -> tuple[int, float, float]:
        low, high = bisect_left(times, at - self.lookback), bisect_right(times, at + self.lookahead)
        return _totals(prices, low, high)

    def _keep(self, rows: list[tuple[int, float, bool]], complete: int) -> None:
        if rows:
            self.rows.put([(at, price, at <= complete) for at, price, _ in rows])
        else:
            self.rows.clear()

    def _due(self, at: int) -> int:
        """When the result of a row is complete; inside a millisecond, that is at the next one."""
        return -(-(at + self.lookahead) // 1000)


def sliding_per_key(
    events: DataFrame, lookback: int, lookahead: int | None, tolerance: int
) -> DataFrame:
    if lookahead is None:
        return _per_key(events, LookbackPerKey(lookback, tolerance), ROW_OUTPUT)
    return _per_key(events, LookaheadPerKey(lookback, lookahead), ROW_OUTPUT)


def _per_key(events: DataFrame, processor: StatefulProcessor, output: str = OUTPUT) -> DataFrame:
    keyed = events.groupBy("user")
    return keyed.transformWithStateInPandas(processor, output, "Append", "EventTime")


def _events(frame: pd.DataFrame) -> list[tuple[int, float]]:
    """Time in microseconds, and price."""
    micros = frame["ts"].to_numpy().astype("datetime64[us]").astype("int64").tolist()
    return list(zip(micros, frame["price"].tolist(), strict=True))


def _columns(rows: Iterator[tuple[int, float]]) -> tuple[list[int], array[float]]:
    known = list(rows)
    return [at for at, _ in known], array("d", [price for _, price in known])


def _totals(prices: array[float], low: int, high: int) -> tuple[int, float, float]:
    # NumPy, as the windows of the most frequent keys have tens of thousands of rows.
    window = np.frombuffer(prices)[low:high]
    return high - low, float(window.sum()), float(window.max())


def _results(
    user: str, rows: Sequence[tuple[int, float]], totals: Sequence[tuple[int, float, float]]
) -> pd.DataFrame:
    times, prices = zip(*rows, strict=True)
    n, spend, most = zip(*totals, strict=True)
    own = {"ts": np.array(times, "datetime64[us]"), "user": [user] * len(rows), "price": list(prices)}
    return pd.DataFrame({**own, "n": list(n), "spend": list(spend), "most": list(most)})
