"""The note in a checkpoint: what a query belongs to, and when that can still change."""

import json

import pytest

from tests.plans import dedupe_plan, hopping, plan_of
from tidegate.errors import CheckpointMismatch, PlanError
from tidegate.operators import blobs
from tidegate.plan.identity import identity_of
from tidegate.spark.checkpoint import NOTE, claim, stored_identity
from tidegate.spark.lower import lower


def test_a_start_that_never_ran_a_batch_binds_nobody(tmp_path):
    """A sink that is refused leaves the note behind; the program may be changed with it."""
    query = claim(str(tmp_path), {"plan": "first"})
    assert claim(str(tmp_path), {"plan": "second"}) == query
    assert stored_identity(str(tmp_path)) == {"plan": "second"}


def test_a_query_that_has_begun_stays_what_it_is(tmp_path):
    query = claim(str(tmp_path), {"plan": "first"})
    (tmp_path / "offsets").mkdir()
    assert claim(str(tmp_path), {"plan": "first"}) == query
    with pytest.raises(CheckpointMismatch, match="plan: stored 'first', now 'second'"):
        claim(str(tmp_path), {"plan": "second"})
    assert json.loads((tmp_path / NOTE).read_text())["identity"] == {"plan": "first"}


def test_a_query_of_others_is_left_alone(tmp_path):
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointMismatch, match="did not start"):
        claim(str(tmp_path), {"plan": "first"})


@pytest.mark.parametrize("buckets", [0, -1])
def test_state_has_one_bucket_at_least(buckets):
    with pytest.raises(PlanError, match=f"buckets={buckets}: state needs one"):
        lower(plan_of(hopping(10)), [None], buckets)


def test_ids_that_were_remembered_without_a_secret_are_refused(tmp_path):
    """Nobody would find them again, and every message would pass once more."""
    now = identity_of(dedupe_plan(10), 4, blobs.VERSION)
    claim(str(tmp_path), {part: value for part, value in now.items() if part != "ids"})
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointMismatch, match="ids: stored 'nothing', now 'keyed digests'"):
        claim(str(tmp_path), now)
