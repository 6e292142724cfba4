"""Load shedding: the score, what follows from it, and which rows go."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tidegate.errors import PlanError
from tidegate.kernels.shedding import Decision, Load, LoadCoordinator, shed
from tidegate.plan.steps import Shed

#: Loads by their scores: CPU and memory in full, and of the queue what is missing.
FULL = Load(cpu=1, memory=1, queue=20_000, latency=2)


def load_of(score):
    return Load(cpu=0.8, memory=0.85, queue=(score - 0.7) / 0.2 * 10_000)


def decisions(*scores, policy="strict"):
    coordinator = LoadCoordinator(policy)
    return [coordinator.decide(batch, load_of(score)) for batch, score in enumerate(scores)]


# -- the score ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("load", "score"),
    [
        (Load(), 0.0),
        (Load(cpu=0.4), 0.175),
        (Load(cpu=0.8), 0.35),
        (Load(cpu=1.0), 0.35),
        (Load(memory=0.425), 0.175),
        (Load(queue=5_000), 0.1),
        (Load(latency=0.25), 0.05),
        (Load(latency=3), 0.1),
        (Load(0.6, 0.68, 1_000, 0.1), 0.2625 + 0.28 + 0.02 + 0.02),
        (FULL, 1.0),
    ],
)
def test_the_score_adds_up_its_parts(load, score):
    decision = LoadCoordinator().decide(0, load)
    assert decision.score == pytest.approx(score)
    assert sum(decision.parts.values()) == decision.score
    assert list(decision.parts) == ["cpu", "memory", "queue", "latency"]


# -- the probability ------------------------------------------------------------------------------


def test_the_probability_is_the_square_of_the_overload_smoothed():
    [first] = decisions(0.85)
    assert first.probability == pytest.approx(0.1 * 0.5**2)
    assert decisions(0.85, 0.85)[1].probability == pytest.approx(0.1 * 0.25 + 0.9 * 0.025)


@pytest.mark.parametrize("score", [0.7, 0.69, 0.1])
def test_up_to_the_threshold_nothing_goes_at_once(score):
    load = Load(cpu=score / 0.35 * 0.8) if score < 0.35 else load_of(score)
    coordinator = LoadCoordinator()
    for batch in range(20):
        coordinator.decide(batch, FULL)
    assert coordinator.decide(20, load).probability == 0


@pytest.mark.parametrize(
    ("scores", "factor"),
    [
        ((0.72, 0.75, 0.80), 1.2),
        ((0.80, 0.80, 0.84), 1.0),
        ((0.88, 0.84, 0.80), 0.8),
        ((0.84, 0.80, 0.80), 1.0),
        ((0.90, 0.72, 0.80, 0.80), 1.2),  # only the last three
        ((0.72, 0.80), 1.0),
    ],
)
def test_a_trend_of_three_scores_counts(scores, factor):
    before = decisions(*scores)[-2].probability
    wanted = ((scores[-1] - 0.7) / 0.3) ** 2 * factor
    assert decisions(*scores)[-1].probability == pytest.approx(0.1 * wanted + 0.9 * before)


def test_some_rows_are_always_left():
    coordinator = LoadCoordinator()
    last = [coordinator.decide(batch, FULL) for batch in range(200)][-1]
    assert last.probability == 0.95


# -- policies -------------------------------------------------------------------------------------


def test_prefer_throttle_drops_nothing_and_asks_for_less():
    strict, throttled = (
        decisions(0.9, 0.9, policy=policy)[1] for policy in ("strict", "prefer_throttle")
    )
    assert (throttled.probability, throttled.throttle) == (0, 1 - strict.probability)
    assert (strict.throttle, throttled.score) == (1, strict.score)


def test_bypass_asks_nobody():
    assert decisions(1.0, policy="bypass") == [Decision(0)]


def test_another_policy_is_refused():
    with pytest.raises(PlanError, match=r"shed\(policy='strikt'\): did you mean 'strict'"):
        Shed("strikt", None, pa.schema([]))


# -- replays --------------------------------------------------------------------------------------


def test_a_batch_keeps_its_decision_also_after_a_restart():
    coordinator = LoadCoordinator()
    for batch in range(5):
        decided = coordinator.decide(batch, FULL)
    assert coordinator.decide(4, Load()) == decided
    coordinator.decide(5, FULL)
    assert coordinator.decide(4, Load()) == decided, "the next one may be decided on already"
    again = LoadCoordinator.from_metadata(json.loads(json.dumps(coordinator.metadata())))
    assert again.decide(4, Load()) == decided
    assert again.decide(5, FULL) == coordinator.decide(5, FULL)


def test_what_was_decided_can_be_seen():
    coordinator = LoadCoordinator()
    assert coordinator.metrics() == {}
    coordinator.decide(0, FULL)
    metrics = coordinator.metrics()
    assert metrics["load_score"] == pytest.approx(1)
    assert metrics["load_score.queue"] == pytest.approx(0.2)
    assert metrics["shed_probability"] == pytest.approx(0.1)


# -- rows -----------------------------------------------------------------------------------------

N = 20_000
ROWS = pa.table(
    {
        "n": np.arange(N),
        "weight": pa.array(["low", "medium", "high", "critical"] * (N // 4)),
        "tags": pa.array([[1, 2]] * N),
    }
)


def test_about_as_many_rows_go_as_should():
    gone = shed(ROWS, Decision(3, probability=0.3))
    assert gone.mean() == pytest.approx(0.3, abs=0.015)


def test_priorities_count():
    gone = shed(ROWS, Decision(3, probability=0.9), "weight").reshape(-1, 4).mean(axis=0)
    assert gone == pytest.approx([0.9, 0.54, 0.27, 0], abs=0.03)
    assert gone[3] == 0


def test_a_priority_that_is_none_counts_as_medium_and_letters_may_be_large():
    words = pa.array(["Low", None, "urgent", "CRITICAL"] * (N // 4))
    rows = ROWS.set_column(1, "weight", words)
    gone = shed(rows, Decision(3, probability=0.9), "weight").reshape(-1, 4).mean(axis=0)
    assert gone == pytest.approx([0.9, 0.54, 0.54, 0], abs=0.03)


def test_a_replay_sheds_the_same_rows_in_any_order_and_any_pieces():
    decision = Decision(7, probability=0.4)
    gone = shed(ROWS, decision)
    order = np.random.default_rng(1).permutation(N)
    assert (shed(ROWS.take(pa.array(order)), decision) == gone[order]).all()
    assert (shed(ROWS.slice(100, 50), decision) == gone[100:150]).all()


def test_another_batch_sheds_other_rows():
    one, other = (shed(ROWS, Decision(batch, probability=0.5)) for batch in (7, 8))
    assert (one == other).mean() == pytest.approx(0.5, abs=0.02)


def test_more_load_sheds_more_rows_of_the_same():
    some, more = (shed(ROWS, Decision(7, probability=share)) for share in (0.2, 0.6))
    assert (more | ~some).all()


def test_without_load_nothing_goes():
    assert not shed(ROWS, Decision(1)).any()
