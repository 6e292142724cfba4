"""The event-time stage and the sliding window of the documents, each as a loop over rows.

The stage keeps rows in a heap and releases them in order, up to the watermark. The window answers each
row that it receives. `docs/glossary.md` says which programs give the same answers.
"""

from heapq import heappop, heappush
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate import testing

# The stage, too, drops rows at the watermark: with a tolerance of zero that is what is compared.
pytestmark = pytest.mark.filterwarnings("ignore::tidegate.errors.TidegateWarning")

EVENTS = testing.Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("row", pa.int64())]))

times = st.lists(st.lists(st.integers(0, 30), max_size=6), min_size=1, max_size=5)
tolerances = st.integers(0, 8)
durations = st.integers(0, 10)


def numbered(times):
    """Batches of (time, number) rows; each row has a number of its own."""
    numbers = count()
    return [[(ts, next(numbers)) for ts in batch] for batch in times]


def without_ties(times):
    """The same times, each only once."""
    seen = set()
    return [[ts for ts in batch if not (ts in seen or seen.add(ts))] for batch in times]


def in_order(batches, tolerance):
    """The event-time stage: for each batch the rows that it releases, and the watermark after them."""
    buffer, arrivals, watermark, highest = [], count(), None, None
    for batch in batches:
        for ts, row in batch:
            if watermark is None or ts > watermark:
                highest = ts if highest is None else max(highest, ts)
                heappush(buffer, (ts, next(arrivals), row))
        if highest is not None:
            reached = highest - tolerance
            watermark = reached if watermark is None else max(watermark, reached)
        released = []
        while buffer and buffer[0][0] <= watermark:
            ts, _, row = heappop(buffer)
            released.append((ts, row))
        yield released, watermark


def counts(stage, lookback, lookahead=None):
    """The sliding window: each row that was released, and how many rows are around it."""
    rows, pending, answers = [], [], []

    def answer(ts, row, end):
        answers.append((row, sum(ts - lookback <= other <= end for other, _ in rows)))

    for released, watermark in stage:
        rows += released
        for ts, row in released:
            if lookahead is None:
                answer(ts, row, ts)
            else:
                pending.append((ts, row))
        while pending and pending[0][0] + lookahead <= watermark:
            ts, row = pending.pop(0)
            answer(ts, row, ts + lookahead)
    return answers


def emitted(windows, batches):
    """What a program emits. The watermark takes effect between batches, so an empty one follows."""
    run = testing.DryRun(windows.agg(rows=tg.count()))
    given = ([{"ts": testing.at(ts), "row": row} for ts, row in batch] for batch in [*batches, []])
    return [(row["row"], row["rows"]) for rows in given for row in run.batch(rows).main]


def events(tolerance):
    return tg.events(EVENTS, time="ts", tolerance=f"{tolerance} s")


@given(times, tolerances, durations)
def test_a_lookahead_of_zero_equals_the_stage_and_a_window_without_lookahead(times, tolerance, lookback):
    batches, windows = numbered(times), events(tolerance).window(tg.sliding(f"{lookback} s", "0 s"))
    assert emitted(windows, batches) == counts(in_order(batches, tolerance), lookback)


@given(times, tolerances, durations, durations)
def test_a_lookahead_equals_the_stage_and_a_window_with_it(times, tolerance, lookback, lookahead):
    sliding = tg.sliding(f"{lookback} s", f"{lookahead} s")
    batches, windows = numbered(times), events(tolerance).window(sliding)
    assert emitted(windows, batches) == counts(in_order(batches, tolerance), lookback, lookahead)


@settings(max_examples=settings.default.max_examples // 2)
@given(times.map(without_ties), tolerances, durations)
def test_reorder_first_equals_them_if_no_two_times_are_equal(times, tolerance, lookback):
    batches, ordered = numbered(times), events(tolerance).reorder().events(time="ts")
    windows = ordered.window(tg.sliding(f"{lookback} s"))
    assert emitted(windows, batches) == counts(in_order(batches, tolerance), lookback)


def test_rows_of_equal_time_count_each_other_with_a_lookahead_of_zero_but_not_after_reorder():
    batches = [[(4, 1), (4, 2)], [(9, 3)]]
    ordered = events(5).reorder().events(time="ts").window(tg.sliding("3 s"))
    assert emitted(ordered, batches) == [(1, 1), (2, 2)]
    assert emitted(events(5).window(tg.sliding("3 s", "0 s")), batches) == [(1, 2), (2, 2)]
    assert counts(in_order(batches, 5), 3) == [(1, 2), (2, 2)]
