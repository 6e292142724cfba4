"""Admission: whatever comes, in whatever batches, the kernel does what is written down row by row."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import SCHEMA, TIMESTAMP
from tidegate.kernels.admission import token_buckets
from tidegate.optimize import optimize
from tidegate.plan.inputs import KeyBy
from tidegate.plan.pass_through import Admit
from tidegate.plan.sla import LARGEST_LEVEL, Budget, declare_sla
from tidegate.plan.sources import Source
from tidegate.plan.time import Micros
from tidegate.state import pages as state
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

often = settings(max_examples=settings.default.max_examples * 10)
ROWS = SCHEMA.append(pa.field("came", TIMESTAMP))

#: A rate at which tokens come every few microseconds, so that small times are enough.
FAST = 100_000


@st.composite
def limits(draw, arrival):
    cost = draw(st.sampled_from([1, 1, "0.5", "1.7", 3]))
    return declare_sla(
        max_rate=draw(st.sampled_from([FAST, 3 * FAST, "70000.5", 1_000_000, 10**8, 1])),
        capacity=draw(st.sampled_from([3, 4, 5, "5.25", 20])),
        token_cost=cost,
        max_lag=draw(st.sampled_from([None, "30 us", "0 s"])),
        jitter_budget=draw(st.sampled_from([None, "20 us", "0 s"])),
        arrival=arrival,
    )


def _row(values):
    time, user, came = values
    return {"ts": instant_of(time), "user": user, "came": came if came is None else instant_of(came)}


@cache  # made once, looked over once: see `programs.batches`
def rows_near(now):
    near = st.integers(now - 60, now + 5)
    rows = st.tuples(near, st.sampled_from(["a", "b", None]), st.none() | near).map(_row)
    return st.lists(rows, max_size=15)


@st.composite
def batches(draw):
    """Rows that come now, or with times of arrival of their own, in any order."""
    steps, now = [], 0
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([0, 1, 10, 25, 300]))
        steps.append(
            p.Step(
                draw(rows_near(now)),
                pause=now,
                worker=draw(st.integers(0, 1)),
                restart=draw(st.booleans()),
                fails_first=draw(st.integers(0, 5)) == 0,
            )
        )
    return steps


@pytest.mark.parametrize("arrival", [None, "came"])
@often
@given(data=st.data())
def test_each_batch_admits_what_the_rules_say(arrival, data):
    keys = data.draw(st.sampled_from([("user",), ()]))
    plan = optimize(Admit(KeyBy(Source(ROWS, "ts", Micros(0)), keys), data.draw(limits(arrival))))
    host, oracle = KernelHost(plan, buckets=data.draw(st.integers(1, 3))), Oracle(plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_FAN_IN", 2)
        patch.setattr(token_buckets, "_NARROWEST", data.draw(st.integers(1, 4)))
        patch.setattr(token_buckets, "_WIDEST", data.draw(st.integers(4, 16)))
        patch.setattr(token_buckets, "_APART", data.draw(st.integers(1, 4)))
        for step in data.draw(batches()):
            host.now = step.pause
            if step.restart:
                host.restart()
            if step.fails_first:
                host.failed_batch(step.rows, worker=step.worker)
            got = host.batch(step.rows, worker=step.worker)
            expected = oracle.batch(step.rows, got.watermark_micros, host.now)
            p.assert_same(p.Program(plan, []), [expected], [got])


@dataclass
class Bucket:
    """One bucket, one row after the other."""

    budget: Budget
    level: int
    since: int

    def take(self, time):
        self.level += self.budget.refill * (time - self.since)
        self.level, self.since = min(self.level, self.budget.capacity), time
        held = self.level
        if held >= self.budget.cost:
            self.level -= self.budget.cost
        return held


@often
@given(data=st.data())
def test_buckets_are_those_of_row_by_row(data):
    """Also at the largest numbers, where sums over all rows no longer fit."""
    chance = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    capacity = data.draw(st.sampled_from([1, 2, 5, 100, LARGEST_LEVEL]))
    cost = data.draw(st.integers(1, capacity))
    refill = data.draw(st.integers(1, capacity))
    budget = Budget(1, refill, capacity, cost)
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=6))
    fair = max(1, cost // refill)  # the gap at which as much flows in as is taken
    widest = data.draw(st.sampled_from([0, fair // 3 + 1, 2 * fair, 2 * fair, 9 * fair, 1 << 50]))
    streams = [np.cumsum(chance.integers(0, widest, size, endpoint=True)) for size in sizes]
    level = chance.integers(0, capacity, len(sizes), endpoint=True)
    since = np.array([int(times[0]) - 3 if len(times) else 0 for times in streams])

    got = token_buckets.spend(budget, np.concatenate(streams), np.cumsum(sizes), level, since)

    buckets = [Bucket(budget, int(held), int(at)) for held, at in zip(level, since, strict=True)]
    held = [
        bucket.take(time)
        for bucket, times in zip(buckets, streams, strict=True)
        for time in times.tolist()
    ]
    assert got.held.tolist() == held
    assert got.admitted.tolist() == [one >= cost for one in held]
    assert got.level.tolist() == [bucket.level for bucket in buckets]
