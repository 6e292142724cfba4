"""Adaptive batching, on simulated sources: batches take a fixed time and a time for each row."""

import math
import random
from itertools import pairwise

import pytest

from tidegate.errors import PlanError
from tidegate.observe.batch_size import AdaptiveBatcher

#: What a batch takes besides its rows, and how much the time varies by chance.
SOURCES = [(fixed, noise) for fixed in (0.0, 0.3, 0.7) for noise in (0.0, 0.05, 0.1)]
EVERY_SOURCE = pytest.mark.parametrize(("fixed", "noise"), SOURCES)
EVERY_CHANCE = pytest.mark.parametrize("chance", range(8))

#: Batches of so many rows take a second.
RIGHT = 50_000


class Source:
    """A source with as many rows as asked for, unless it has fewer."""

    def __init__(self, fixed, noise, chance):
        self.fixed, self.noise, self.random = fixed, noise, random.Random(chance)

    def takes(self, rows):
        """The time that so many rows take on average."""
        return self.fixed + (1 - self.fixed) * rows / RIGHT

    def run(self, batcher, count, *, available=10**9):
        """The sizes of so many batches."""
        sizes = []
        for _ in range(count):
            rows = min(batcher.rows, available)
            sizes.append(rows)
            batcher.observe(rows, self.takes(rows) * self.random.uniform(1 - self.noise, 1 + self.noise))
        return sizes


@EVERY_CHANCE
@EVERY_SOURCE
@pytest.mark.parametrize("start", [RIGHT // 10, RIGHT * 10], ids=["small", "large"])
def test_the_target_is_reached_within_ten_batches_and_held(fixed, noise, chance, start):
    source, batcher = Source(fixed, noise, chance), AdaptiveBatcher(1.0, start=start)
    source.run(batcher, 10)
    for rows in source.run(batcher, 200):
        assert source.takes(rows) == pytest.approx(1.0, rel=0.2)


@EVERY_CHANCE
@EVERY_SOURCE
def test_it_does_not_swing(fixed, noise, chance):
    source, batcher = Source(fixed, noise, chance), AdaptiveBatcher(1.0, start=RIGHT)
    sizes = source.run(batcher, 200)
    turns = sum(
        (after - now) * (now - before) < 0
        for before, now, after in zip(sizes, sizes[1:], sizes[2:], strict=False)
    )
    assert turns <= (0 if not noise else 20)


@EVERY_SOURCE
def test_steps_are_bounded(fixed, noise):
    source = Source(fixed, noise, 1)
    for start in (1_000, 10_000_000):
        sizes = source.run(AdaptiveBatcher(1.0, start=start), 30)
        for before, after in pairwise(sizes):
            assert before / 2 - 1 <= after <= before * 2


def test_bounds_hold():
    source = Source(0.0, 0.0, 1)
    assert source.run(AdaptiveBatcher(1.0, least=200_000, most=300_000, start=1), 20)[-1] == 200_000
    assert source.run(AdaptiveBatcher(1.0, least=1, most=3_000, start=10**9), 20)[-1] == 3_000


def test_a_target_that_no_batch_can_hold_means_the_smallest():
    source = Source(0.0, 0.05, 1)
    source.takes = lambda rows: 3 + rows / RIGHT
    assert source.run(AdaptiveBatcher(1.0, least=500, start=RIGHT), 20)[-1] == 500


def test_a_source_with_few_rows_does_not_make_batches_small():
    source, batcher = Source(0.3, 0.05, 1), AdaptiveBatcher(1.0, start=RIGHT)
    source.run(batcher, 50, available=10)
    assert batcher.rows == RIGHT


def test_a_source_that_gets_slower_gets_smaller_batches():
    batcher = AdaptiveBatcher(1.0, start=RIGHT)
    Source(0.2, 0.05, 1).run(batcher, 20)
    slower = Source(0.2, 0.05, 2)
    slower.takes = lambda rows: 0.2 + 0.8 * rows / (RIGHT / 5)
    slower.run(batcher, 12)
    assert slower.takes(batcher.rows) == pytest.approx(1.0, rel=0.2)


def test_empty_batches_say_nothing():
    batcher = AdaptiveBatcher(1.0, start=RIGHT)
    batcher.observe(RIGHT, 1.0)
    assert batcher.observe(0, 0.2) == RIGHT
    assert not batcher.points


def test_the_first_batch_says_nothing():
    """It waits for the processes that do the work."""
    batcher = AdaptiveBatcher(1.0, start=RIGHT)
    assert batcher.observe(RIGHT, 10.0) == RIGHT
    assert batcher.observe(RIGHT, 1.0) == RIGHT


class WarmingUp(Source):
    """Takes twice as long at first, less and less of it, and the first batch six times."""

    def __init__(self, fixed, noise, chance):
        super().__init__(fixed, noise, chance)
        self.batches = 0

    def takes(self, rows):
        return super().takes(rows) * (1 + math.exp(-self.batches / 3)) + 5 * (not self.batches)

    def run(self, batcher, count, *, available=10**9):
        sizes = []
        for _ in range(count):
            sizes += super().run(batcher, 1, available=available)
            self.batches += 1
        return sizes


@EVERY_CHANCE
@EVERY_SOURCE
@pytest.mark.parametrize("start", [RIGHT // 10, RIGHT * 10], ids=["small", "large"])
def test_a_source_that_warms_up_meanwhile(fixed, noise, chance, start):
    source, batcher = WarmingUp(fixed, noise, chance), AdaptiveBatcher(1.0, start=start)
    source.run(batcher, 20)
    for _ in range(100):
        source.run(batcher, 1)
        assert source.takes(batcher.rows) == pytest.approx(1.0, rel=0.2)


def test_a_batch_that_was_held_up_changes_little():
    source, batcher = Source(0.3, 0.05, 1), AdaptiveBatcher(1.0, start=RIGHT)
    source.run(batcher, 20)
    before = batcher.rows
    batcher.observe(before, 4.0)
    assert batcher.rows == pytest.approx(before, rel=0.1)


def test_a_throttled_source_is_asked_for_less_and_goes_on_where_it_was():
    source, batcher = Source(0.3, 0.05, 1), AdaptiveBatcher(1.0, start=RIGHT)
    source.run(batcher, 20)
    before = batcher.rows
    batcher.throttle(0.1)
    assert batcher.asked == round(before / 10)
    source.run(batcher, 20, available=batcher.asked)
    batcher.throttle(1)
    assert batcher.asked == before
    batcher.throttle(0)
    assert batcher.asked == 1


@pytest.mark.parametrize("factor", [-0.1, 1.1])
def test_a_throttle_is_a_part(factor):
    with pytest.raises(PlanError, match=f"a factor from 0 to 1, got {factor}"):
        AdaptiveBatcher(1.0).throttle(factor)


def test_what_it_does_can_be_seen():
    batcher = AdaptiveBatcher(1.0, start=RIGHT)
    batcher.observe(RIGHT, 2.0)
    batcher.observe(RIGHT, 2.0)
    batcher.throttle(0.5)
    assert batcher.metrics() == {
        "batch_rows": RIGHT // 2,
        "batch_rows_asked": RIGHT // 4,
        "batch_rows_least": 1_000,
        "batch_rows_most": 10_000_000,
        "batch_target_seconds": 1.0,
        "batch_points": 1,
    }


def test_targets_and_bounds_must_make_sense():
    with pytest.raises(PlanError, match="target latency of batches must be positive, got 0 s"):
        AdaptiveBatcher(0)
    with pytest.raises(PlanError, match="batches of 5 to 4 rows: give bounds in order"):
        AdaptiveBatcher(1, least=5, most=4)
