"""Slices share work between windows; the answers are those of keeping each window by itself."""

import os
import random

import pytest

from tests.oracle import Oracle
from tests.property import programs as p
from tests.support.plans import plan_of
from tidegate.kernels import aggregates as a
from tidegate.plan.time import Micros
from tidegate.plan.windows import Hopping
from tidegate.testing import KernelHost
from tidegate.testing.table import instant_of

LONGEST = 40
# Columns that merge by themselves, and a state that only merges as a whole.
AGGREGATES = (("n", a.Count(None)), ("total", a.Sum("items")), ("all", a.Collect("items")))


def rows_for(seed: int, count: int = 25):
    chance = random.Random(seed)
    times = [chance.randrange(-60, 120) for _ in range(count)]
    return [
        {"ts": instant_of(time), "user": chance.choice(["a", None]), "items": chance.randrange(100)}
        for time in times
    ]


def slides(size: int) -> list[int]:
    """All of them in a thorough run; otherwise a sample that, over the sizes, meets every slide."""
    everything = range(1, LONGEST + 1)
    if os.environ.get("TIDEGATE_PROFILE") == "thorough":
        return list(everything)
    near = {1, 2, size - 1, size, size + 1, size // 2}
    return [slide for slide in everything if slide in near or (slide * 7 + size) % 13 == 0]


@pytest.mark.parametrize("size", range(1, LONGEST + 1))
def test_every_size_and_slide(size):
    for slide in slides(size):
        offset = (size * 31 + slide * 17) % 101 - 50
        plan = plan_of(Hopping(Micros(size), Micros(slide), Micros(offset)), AGGREGATES)
        program = p.Program(plan, [p.Step(rows_for(size * 100 + slide))])
        host, oracle = KernelHost(plan), Oracle(plan)
        [step] = program.steps
        p.assert_same(
            program,
            [oracle.batch(step.rows, None), oracle.end()],
            [host.batch(step.rows), host.end()],
        )
