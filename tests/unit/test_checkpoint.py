"""The note in a checkpoint: what a query belongs to, and when that can still change."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support.plans import dedupe_plan, hopping, logical_plan, plan_of
from tidegate.columnar import ipc
from tidegate.dataflow import compile
from tidegate.dataflow.identity import identity_of
from tidegate.errors import CheckpointMismatch, PlanError
from tidegate.plan.policies import Reassign
from tidegate.plan.time import Micros
from tidegate.spark.checkpoint.metadata import METADATA, register_query, stored_identity
from tidegate.spark.lower import lower
from tidegate.spark.session import state_format

FIRST, SECOND = (identity_of(compile(logical_plan(hopping(size))), 4, ipc.VERSION) for size in (10, 20))
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def test_a_start_that_never_ran_a_batch_binds_nobody(tmp_path):
    """A sink that is refused leaves the note behind; the program may be changed with it."""
    query = register_query(str(tmp_path), FIRST)
    assert register_query(str(tmp_path), SECOND) == query
    assert stored_identity(str(tmp_path)) == SECOND


def test_a_query_that_has_begun_stays_what_it_is(tmp_path):
    query = register_query(str(tmp_path), FIRST)
    (tmp_path / "offsets").mkdir()
    assert register_query(str(tmp_path), FIRST) == query
    with pytest.raises(CheckpointMismatch, match=r"aggregate, window: stored 'tumbling\(10 us\)', now"):
        register_query(str(tmp_path), SECOND)
    assert stored_identity(str(tmp_path)) == FIRST


def test_what_may_change_is_written_down_anew(tmp_path):
    query = register_query(str(tmp_path), FIRST)
    (tmp_path / "offsets").mkdir()
    patient = identity_of(compile(logical_plan(hopping(10), late=Reassign(Micros(5)))), 4, ipc.VERSION)
    assert register_query(str(tmp_path), patient) == query
    assert stored_identity(str(tmp_path)) == patient != FIRST


def test_a_note_of_an_earlier_version_is_told_from_a_damaged_one(tmp_path):
    (tmp_path / METADATA).write_text(
        json.dumps({"query": "q", "identity": {"window": "tumbling(10 s)"}})
    )
    with pytest.raises(CheckpointMismatch, match="an earlier version of tidegate wrote the checkpoint"):
        register_query(str(tmp_path), FIRST)


def test_a_query_of_others_is_left_alone(tmp_path):
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointMismatch, match="did not start"):
        register_query(str(tmp_path), FIRST)


@pytest.mark.parametrize("buckets", [0, -1])
def test_state_has_one_bucket_at_least(buckets):
    with pytest.raises(PlanError, match=f"buckets={buckets}: state needs one"):
        lower(compile(plan_of(hopping(10))), buckets)


def test_ids_that_were_remembered_without_a_secret_are_refused(tmp_path):
    """Nobody would find them again, and every message would pass once more."""
    now = identity_of(compile(dedupe_plan(10)), 4, ipc.VERSION)
    own = {part: value for part, value in now.operators["dedupe"].items() if part != "ids"}
    register_query(str(tmp_path), replace(now, operators={"dedupe": own}))
    (tmp_path / "offsets").mkdir()
    with pytest.raises(CheckpointMismatch, match="dedupe, ids: stored 'nothing', now 'keyed digests'"):
        register_query(str(tmp_path), now)


class Conf(dict):
    """The settings of a session, some of which may not be changed."""

    def __init__(self, forbidden=(), **settings):
        super().__init__(settings)
        self.forbidden = forbidden

    def set(self, key, value):
        if key in self.forbidden:
            raise RuntimeError(f"{key} is not for you")
        self[key] = value


@pytest.mark.parametrize("own", [None, "1", "2"])
@pytest.mark.parametrize("wanted", [1, 2])
def test_a_session_has_its_own_format_of_state_again_afterwards(own, wanted):
    conf = Conf() if own is None else Conf(**{FORMAT: own})
    with state_format(SimpleNamespace(conf=conf), wanted) as used:
        assert used == wanted
        assert conf.get(FORMAT, "1") == str(wanted)
        with state_format(SimpleNamespace(conf=conf), 3 - wanted) as inner:
            assert inner == 3 - wanted
        assert conf.get(FORMAT, "1") == str(wanted)
    assert conf.get(FORMAT, "1") == (own or "1")
    with pytest.raises(KeyError), state_format(SimpleNamespace(conf=conf), wanted):
        raise KeyError("whatever happens")
    assert conf.get(FORMAT, "1") == (own or "1")


def test_a_session_that_forbids_the_format_is_left_as_it_is_and_a_warning_says_so(caplog):
    session = SimpleNamespace(conf=Conf([FORMAT], **{FORMAT: "1"}))
    with caplog.at_level(logging.WARNING), state_format(session, 2) as used:
        assert used == 1
    [warning] = caplog.messages
    assert warning.startswith(f"this session does not let {FORMAT} be set to 2: ")
    assert "tidegate repair" in warning
    with state_format(session, 1) as used:
        assert used == 1
    assert len(caplog.messages) == 1
