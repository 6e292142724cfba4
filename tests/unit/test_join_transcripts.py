"""The transcripts of joins on kernels, restarts included, and on the oracle; wrong ones are noticed."""

from dataclasses import replace

import pytest

from tests.oracle import Oracle
from tests.transcripts.joins import JOINS, PANES
from tidegate.testing import KernelHost, run

EVERY_TRANSCRIPT = pytest.mark.parametrize("transcript", JOINS, ids=lambda transcript: transcript.name)


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("buckets", [1, 4])
def test_the_kernel_does_what_the_transcript_says(transcript, buckets):
    host = KernelHost(transcript.plan, buckets=buckets)
    assert transcript.complaints(run(transcript, host)) == []


@EVERY_TRANSCRIPT
def test_and_after_a_restart_between_any_two_batches(transcript):
    host = KernelHost(transcript.plan, buckets=2)
    assert transcript.complaints(run(transcript, host, between=host.restart)) == []


@EVERY_TRANSCRIPT
def test_the_oracle_agrees_with_the_transcript(transcript):
    oracle, host = Oracle(transcript.plan), KernelHost(transcript.plan)
    results = []
    for step in transcript.steps:
        results.append(oracle.batch_of(step.rows, host.watermark, step.now))
        host.observe(*step.rows)
    assert transcript.complaints(results) == []


@EVERY_TRANSCRIPT
def test_nothing_is_left_of_it(transcript):
    """One-sided keys, unmatched rows and rows of closed sessions included."""
    host = KernelHost(transcript.plan, buckets=2)
    run(transcript, host)
    host.end()
    assert not any(host.stored.values())


def test_the_names_of_transcripts_are_their_own():
    assert len({transcript.name for transcript in JOINS}) == len(JOINS)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("| 1  | 9", "| 2  | 9"), ("| 0                 |", "| 1                 |"),
     ("joined_pairs 1", "joined_pairs 2"), ("right_rows 2", "right_rows 1")],
    ids=["a row", "a window", "a number of pairs", "a number of rows"],
)  # fmt: skip
def test_a_wrong_transcript_is_noticed(right, wrong):
    transcript = PANES[0]
    assert right in transcript.script
    changed = replace(transcript, script=transcript.script.replace(right, wrong))
    assert changed.complaints(run(changed, KernelHost(changed.plan)))
