"""Tasks that are committed twice, by the thousand: what Spark's two formats of state make of it."""

import random
from collections.abc import Sequence

import pytest

import tidegate as tg
from tests.spark.kills import kills
from tests.support.plans import SCHEMA, dedupe_plan, hopping, join_plan, plan_of, session
from tests.support.task_attempts import Attempt, AttemptHost, Format
from tidegate.api import emit
from tidegate.errors import StateError
from tidegate.optimize import optimize
from tidegate.plan.nodes import Plan
from tidegate.testing import Stream
from tidegate.testing.host import KernelHost
from tidegate.testing.results import differences
from tidegate.testing.table import Row, instant_of

EXECUTORS = 3
#: Always the same; `make soak` has more of them, and thousands of tasks that are committed twice.
SEEDS = range(3 * kills(20))


def chained() -> Plan:
    clicks = tg.events(Stream(SCHEMA), time="ts", tolerance="2 us").key_by("user", "shop")
    inner = clicks.window(tg.tumbling("8 us")).agg(n=tg.count(), price=tg.sum("price"))
    outer = inner.events(time="window_end").key_by("user").window(tg.tumbling("16 us"))
    return optimize(outer.agg(n=tg.sum("n"), most=tg.max("price")).node)


def fold() -> Plan:
    clicks = tg.events(Stream(SCHEMA), time="ts").key_by("user")
    return optimize(clicks.agg(n=tg.count(), last=tg.last("note")).emit(tg.emit.changelog()).node)


PLANS = {
    "hopping": plan_of(hopping(12, 4), emission=emit.changelog(), lateness=6, tolerance=3),
    "sessions": plan_of(session(5), emission=emit.on_update(), lateness=4, tolerance=3),
    "dedupe": dedupe_plan(40, tolerance=4),
    "join": join_plan(hopping(10), hopping(10), how="full", lateness=(5, 5), tolerance=(2, 2)),
    "chain": chained(),
    "fold": fold(),
}


def random_rows(dice: random.Random, plan: Plan, number: int) -> list[list[Row]]:
    """The rows of a batch for each source, in the neighbourhood of its time."""
    return [
        [random_row(dice, source.schema.names, number * 5) for _ in range(dice.randint(0, 6))]
        for source in plan.sources
    ]


def random_row(dice: random.Random, names: Sequence[str], time: int) -> Row:
    at = instant_of(max(0, time + dice.randint(-6, 6)))
    values = {
        "ts": at,
        "at": at,
        "user": dice.choice(["ann", "bob", "cid", None]),
        "shop": dice.randint(0, 2),
        "price": float(dice.randint(0, 9)),
        "items": dice.randint(0, 9),
        "note": dice.choice(["x", "y"]),
    }
    return {name: values[name] for name in names}


class Story:
    """One run with accidents, beside one that nobody disturbs."""

    def __init__(self, plan: Plan, state_format: Format, seed: int) -> None:
        self.plan = plan
        self.dice = random.Random(seed)
        self.host = AttemptHost(plan, state_format)
        self.undisturbed = KernelHost(plan, buckets=2)
        #: Attempts of drivers and executors that were suspended: they may store them at any time.
        self.asleep: list[Attempt] = []

    def tell(self, batches: int) -> None:
        for number in range(batches):
            rows = random_rows(self.dice, self.plan, number)
            expected = self.undisturbed.batch(*rows)
            attempts = self._attempts(rows)
            for attempt in attempts:
                assert differences(self.plan, expected, attempt.result) == []
            self._store(attempts)
            first = {slot: self.dice.choice(attempts) for slot in self.host.slots}
            self.host.commit(first, *rows)
            self._accidents()

    def _attempts(self, rows: list[list[Row]]) -> list[Attempt]:
        count = self.dice.choice([1, 1, 2, 3])
        executors = self.dice.sample(range(EXECUTORS), count)
        if self.dice.random() < 0.2:
            self.asleep.append(self.host.attempt(executors[0], *rows))
        return [self.host.attempt(executor, *rows) for executor in executors]

    def _store(self, attempts: list[Attempt]) -> None:
        """All of them commit; in which order is another for each task."""
        for slot in self.host.slots:
            for attempt in self.dice.sample(attempts, len(attempts)):
                self.host.store(attempt, [slot])
        for attempt in attempts:
            self.host.keep(attempt)

    def _accidents(self) -> None:
        for executor in range(EXECUTORS):
            if self.dice.random() < 0.15:
                self.host.lose(executor)
        if self.asleep and self.dice.random() < 0.3:
            self.host.store(self.asleep.pop(self.dice.randrange(len(self.asleep))))


def breaks(plan: Plan, state_format: Format, seed: int) -> bool:
    try:
        Story(plan, state_format, seed).tell(batches=14)
    except StateError:
        return True
    return False


@pytest.mark.kills
@pytest.mark.parametrize("name", PLANS)
def test_in_format_2_results_are_those_of_a_single_writer(name: str) -> None:
    for seed in SEEDS:
        assert not breaks(PLANS[name], 2, seed), f"seed {seed}"


@pytest.mark.kills
@pytest.mark.parametrize("name", PLANS)
def test_in_format_1_state_breaks_with_an_error_and_never_with_a_wrong_result(name: str) -> None:
    broken = [seed for seed in SEEDS if breaks(PLANS[name], 1, seed)]
    assert broken


@pytest.mark.parametrize("state_format", [1, 2])
def test_two_attempts_that_both_commit_and_executors_that_are_lost_then(state_format: Format) -> None:
    """Speculation: the copy that lost goes on on its executor, what is on disk is the other's."""
    plan = plan_of(hopping(12, 4), emission=emit.changelog())
    host, alone = AttemptHost(plan, state_format), KernelHost(plan, buckets=2)
    dice = random.Random(3)
    batches = [random_rows(dice, plan, number) for number in range(4)]

    def batch(rows: list[list[Row]], *executors: int) -> None:
        attempts = [host.attempt(executor, *rows) for executor in executors]
        expected = alone.batch(*rows)
        for attempt in attempts:
            assert differences(plan, expected, attempt.result) == []
            host.store(attempt)
            host.keep(attempt)
        host.commit(dict.fromkeys(host.slots, attempts[0]), *rows)

    batch(batches[0], 0)
    batch(batches[1], 0, 1)  # both; the changelog of the second overwrites that of the first
    batch(batches[2], 0)  # on the first one's own copy
    for executor in (0, 1):
        host.lose(executor)
    if state_format == 2:
        batch(batches[3], 2)
        return
    with pytest.raises(StateError, match="is listed in the manifest but not stored"):
        batch(batches[3], 2)


@pytest.mark.parametrize("state_format", [1, 2])
def test_a_driver_that_wakes_up_writes_an_old_version(state_format: Format) -> None:
    plan = plan_of(session(50), emission=emit.on_update())
    host, alone = AttemptHost(plan, state_format), KernelHost(plan, buckets=2)
    dice = random.Random(5)
    batches = [random_rows(dice, plan, number) for number in range(6)]
    asleep: list[Attempt] = []
    for number, rows in enumerate(batches[:5]):
        if number == 2:
            asleep.append(host.attempt(0, *rows))
            host.lose(0)
        attempt = host.attempt(1, *rows)
        assert differences(plan, alone.batch(*rows), attempt.result) == []
        host.store(attempt)
        host.keep(attempt)
        host.commit(dict.fromkeys(host.slots, attempt), *rows)
    host.lose(1)
    host.store(asleep[0])
    if state_format == 2:
        assert differences(plan, alone.batch(*batches[5]), host.attempt(2, *batches[5]).result) == []
        return
    with pytest.raises(StateError, match="is listed in the manifest but not stored"):
        host.attempt(2, *batches[5])
