"""Who owns a checkpoint: the last that claimed it, whoever else is still alive or wakes up again."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.support.plans import hopping, plan_of
from tidegate.api import sinks
from tidegate.connectors.metadata_files import create_metadata, names_in, read_metadata
from tidegate.dataflow import compile
from tidegate.dataflow.identity import identity_of
from tidegate.errors import CheckpointTaken
from tidegate.kernels.registry import kernels_of
from tidegate.spark.checkpoint.metadata import register_query, stored_identity
from tidegate.spark.checkpoint.ownership import FOLDER, Owner, Ownership, owner_of
from tidegate.spark.host import HostedKernel, Work
from tidegate.spark.start_options import described


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return (tmp_path / "check point").as_uri()


def started(checkpoint: str) -> Ownership:
    claimed = Ownership.next(checkpoint)
    claimed.take({"main": "parquet files in file:///out"})
    return claimed


def test_the_owner_stays_one_until_another_start_takes_over(checkpoint: str) -> None:
    first = started(checkpoint)
    first.check()
    second = started(checkpoint)
    second.check()
    with pytest.raises(CheckpointTaken) as error:
        first.check()
    owner = owner_of(checkpoint)
    assert owner is not None
    assert (owner.host, owner.pid) == (socket.gethostname(), os.getpid())
    assert str(error.value) == (
        f"the checkpoint {checkpoint} has another owner: process {os.getpid()} on "
        f"{socket.gethostname()} took it over at {owner.since}. This query has ended, and has changed "
        "nothing since. If both are to run, give each a checkpoint of its own"
    )


def test_nobody_owns_a_new_checkpoint(checkpoint: str) -> None:
    assert owner_of(checkpoint) is None
    assert Ownership.next(checkpoint).name.startswith("00000001-")


def test_a_start_that_fails_leaves_the_checkpoint_to_who_has_it(checkpoint: str) -> None:
    first = started(checkpoint)
    failed = started(checkpoint)
    failed.release()
    first.check()
    assert started(checkpoint).name > failed.name[:8]


def test_of_starts_at_the_same_moment_one_wins_and_the_others_say_so(checkpoint: str) -> None:
    """All look before any of them writes: the most that can go wrong."""
    for _ in range(20):
        claims = [Ownership.next(checkpoint) for _ in range(8)]
        together = Barrier(len(claims))

        def take(claimed: Ownership, together: Barrier = together) -> str:
            together.wait()
            try:
                claimed.take()
            except CheckpointTaken as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(len(claims)) as pool:
            told = list(pool.map(take, claims))
        # Some may have been owners for a moment; at the end there is one, and it was told so.
        owners = [claimed for claimed in claims if not fenced(claimed)]
        assert owners == [max(claims, key=lambda claimed: claimed.name)]
        assert told[claims.index(owners[0])] == ""
        assert all("took it over" in text for text in told if text)


def fenced(claimed: Ownership) -> bool:
    try:
        claimed.check()
    except CheckpointTaken:
        return True
    return False


def test_a_start_that_slept_before_its_claim_is_too_late(checkpoint: str) -> None:
    asleep = Ownership.next(checkpoint)
    started(checkpoint)
    owner = started(checkpoint)
    with pytest.raises(CheckpointTaken):
        asleep.take()
    owner.check()
    assert asleep.name not in names_in(owner.folder)


def test_old_claims_are_forgotten_and_still_fenced_off(checkpoint: str) -> None:
    claims = [started(checkpoint) for _ in range(50)]
    assert len(names_in(claims[0].folder)) == 20
    assert [fenced(claimed) for claimed in claims] == [True] * 49 + [False]


def test_a_process_that_is_gone_or_another_of_its_number_is_not_alive() -> None:
    own = Owner.this_process({})
    assert own.is_alive is True
    assert replace(own, process_started=own.process_started - 60).is_alive is False
    assert replace(own, pid=2**22 + 1).is_alive is False
    assert replace(own, host="elsewhere").is_alive is None


def test_a_query_that_ended_is_not_alive_though_its_process_is(checkpoint: str) -> None:
    claimed = started(checkpoint)
    claimed.end()
    claimed.end()
    owner = owner_of(checkpoint)
    assert owner is not None
    assert owner.is_alive is False
    claimed.check()  # nobody else has taken over
    assert owner.sinks == {"main": "parquet files in file:///out"}
    claimed.release()
    claimed.end()  # a checkpoint that is gone is not made again
    assert names_in(claimed.folder) == []


def test_a_claim_names_sinks_without_what_could_be_a_secret() -> None:
    table = sinks.postgres("postgresql://me:secret@host/db?password=secret", "sales.spend")
    assert described(table) == "PostgreSQL table sales.spend"
    assert described(sinks.parquet("/out")) == "parquet files in file:///out"
    assert described(sinks.memory()) == "MemorySink"
    assert described(hosted) == "function"


# -- tasks ----------------------------------------------------------------------------------------


def hosted(ownership: Ownership | None) -> HostedKernel:
    [kernel] = kernels_of(compile(plan_of(hopping(10))))
    nothing: Any = SimpleNamespace()
    return HostedKernel(Work(kernel, 0, "operator 1", ownership), "operator", "plan", nothing, nothing)


def test_a_task_ends_with_an_error_before_spark_commits_its_state(checkpoint: str) -> None:
    first = started(checkpoint)
    hosted(first).close()
    started(checkpoint)
    with pytest.raises(CheckpointTaken, match="took it over"):
        hosted(first).close()


@pytest.mark.parametrize("failure", [OSError("no route to host"), pa.ArrowInvalid("no such scheme")])
def test_a_task_that_cannot_look_leaves_it_to_the_driver(checkpoint: str, failure: Exception) -> None:
    first = started(checkpoint)
    started(checkpoint)
    with patch("tidegate.spark.checkpoint.ownership.names_in", side_effect=failure):
        hosted(first).close()
        with pytest.raises(type(failure)):
            first.check()


def test_a_task_on_a_machine_without_the_folder_leaves_it_to_the_driver(tmp_path: Path) -> None:
    hosted(Ownership((tmp_path / "elsewhere" / FOLDER).as_uri(), "00000001-x.json")).close()


def test_a_task_without_a_known_checkpoint_checks_nothing() -> None:
    hosted(None).close()


# -- the first start ------------------------------------------------------------------------------


def test_a_note_is_created_once_whoever_tries(tmp_path: Path) -> None:
    uri, together = (tmp_path / "below" / "note.json").as_uri(), Barrier(8)

    def create(number: int) -> bool:
        together.wait()
        return create_metadata(uri, number)

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(create, range(8)))
    assert created.count(True) == 1
    assert read_metadata(uri, int) == created.index(True)
    assert names_in((tmp_path / "below").as_uri()) == ["note.json"]


def test_first_starts_at_the_same_moment_agree_on_the_id_of_the_query(tmp_path: Path) -> None:
    together = Barrier(8)
    identity = identity_of(compile(plan_of(hopping(10))), 4, 1)

    def first(_: int) -> str:
        together.wait()
        return register_query(tmp_path.as_uri(), identity)

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(first, range(8)))
    assert len(ids) == 1
    assert json.loads((tmp_path / "tidegate.json").read_text())["query"] == ids.pop()
    assert stored_identity(tmp_path.as_uri()) == identity
