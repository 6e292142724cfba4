"""Fusion on and off: every transcript with steps before each operator that change nothing."""

import pytest

from tests.chain_transcripts import CHAINED
from tests.crossing_host import CrossingHost
from tests.join_transcripts import JOINS
from tests.session_transcripts import SESSIONS
from tests.sliding_transcripts import ORDERED, SLIDING
from tests.stepped import FUSIONS, in_circles, with_steps
from tests.transcripts import TRANSCRIPTS
from tidegate.optimize import optimize
from tidegate.testing import run

ALL = [*TRANSCRIPTS, *SESSIONS, *SLIDING, *ORDERED, *CHAINED, *JOINS]
EVERY_TRANSCRIPT = pytest.mark.parametrize("transcript", ALL, ids=lambda transcript: transcript.name)

#: What a row was before steps is not known any more where one of them may have changed its gap.
OWN_GAPS = "a row whose own gap is missing"


def complaints(transcript, host):
    found = transcript.complaints(run(transcript, host))
    if transcript.name.startswith(OWN_GAPS):
        return [line for line in found if "errors: " not in line]
    return found


@EVERY_TRANSCRIPT
def test_crossings_without_steps_do_what_the_transcript_says(transcript):
    assert transcript.complaints(run(transcript, CrossingHost(transcript.plan))) == []


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_fusion_on_or_off_it_does_what_the_transcript_says(transcript, fusion):
    plan = optimize(with_steps(transcript.plan, in_circles), FUSIONS[fusion])
    for given in plan.inputs:
        assert len(given.feed.python_stages) == {"fused": 1, "unfused": 4}[fusion]
    assert complaints(transcript, CrossingHost(plan, buckets=2)) == []


def test_there_is_a_transcript_whose_rows_lack_their_gap():
    assert [transcript.name.startswith(OWN_GAPS) for transcript in ALL].count(True) == 1
