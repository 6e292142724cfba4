"""Fusion on and off: every transcript with steps before each operator that change nothing."""

import pytest

from tests.support.python_stage_host import PythonStageHost
from tests.support.steps import FUSIONS, in_circles, with_steps
from tests.transcripts.chains import CHAINED
from tests.transcripts.joins import JOINS
from tests.transcripts.sessions import SESSIONS
from tests.transcripts.sliding import ORDERED, SLIDING
from tests.transcripts.windows import TRANSCRIPTS
from tidegate.optimize import optimize
from tidegate.plan.feeds import crossings
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
    assert transcript.complaints(run(transcript, PythonStageHost(transcript.plan))) == []


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_fusion_on_or_off_it_does_what_the_transcript_says(transcript, fusion):
    plan = optimize(with_steps(transcript.plan, in_circles), FUSIONS[fusion])
    for inlet in plan.inlets:
        assert len(crossings(inlet.feed)) == {"fused": 1, "unfused": 4}[fusion]
    assert complaints(transcript, PythonStageHost(plan, buckets=2)) == []


def test_there_is_a_transcript_whose_rows_lack_their_gap():
    assert [transcript.name.startswith(OWN_GAPS) for transcript in ALL].count(True) == 1
