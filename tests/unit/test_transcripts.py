"""The transcripts on kernels, restarts included; and wrong transcripts are noticed."""

from dataclasses import replace

import pytest

from tests.oracle import Oracle
from tests.transcripts.sessions import SESSIONS
from tests.transcripts.windows import TRANSCRIPTS
from tidegate.testing import KernelHost, Transcript, run

EVERY_TRANSCRIPT = pytest.mark.parametrize("transcript", [*TRANSCRIPTS, *SESSIONS], ids=lambda t: t.name)


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("as_spark", [True, False])
def test_the_kernel_does_what_the_transcript_says(transcript, buckets, as_spark):
    host = KernelHost(transcript.plan, buckets=buckets, as_spark=as_spark)
    assert transcript.complaints(run(transcript, host)) == []


@EVERY_TRANSCRIPT
def test_and_after_a_restart_between_any_two_batches(transcript):
    host = KernelHost(transcript.plan, buckets=2)
    assert transcript.complaints(run(transcript, host, between=host.restart)) == []


@EVERY_TRANSCRIPT
def test_the_oracle_agrees_with_the_transcript(transcript):
    oracle = Oracle(transcript.plan)
    host = KernelHost(transcript.plan)
    results = []
    for step in transcript.steps:
        results.append(oracle.batch_of(step.rows, host.watermark, step.now))
        host.observe(*step.rows)
    assert transcript.complaints(results) == []


RIGHT = TRANSCRIPTS[0]
WRONG = {
    "a result": ("| ann  | 0            | 10         | 1", "| ann  | 0            | 10         | 2"),
    "a key": ("ann  | 0 ", "bob  | 0 "),
    "a window": ("| 10         | 1", "| 20         | 1"),
    "a watermark": ("watermark 10", "watermark 11"),
    "no watermark": ("watermark 9", "watermark none"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_transcript_is_noticed(mistake):
    old, new = WRONG[mistake]
    old, new = (text.removeprefix("| ") for text in (old, new))
    assert old in RIGHT.script
    wrong = replace(RIGHT, script=RIGHT.script.replace(old, new))
    assert wrong.complaints(run(wrong, KernelHost(wrong.plan)))


def test_a_row_too_many_and_a_row_too_few_are_noticed():
    extra = RIGHT.script.rstrip() + "\n          eve  | 0            | 10         | 1\n"
    fewer = RIGHT.script[: RIGHT.script.index("main")]
    for script, complaint in ((extra, "missing"), (fewer, "not expected")):
        wrong = replace(RIGHT, script=script)
        [found] = wrong.complaints(run(wrong, KernelHost(wrong.plan)))
        assert found.startswith(f"{RIGHT.name}, batch 3, main: {complaint}")


def test_a_counter_that_differs_is_noticed():
    wrong = Transcript("counts", RIGHT.plan, "rows\n  ts | user\n  1 | ann\nrows_in 2\nlate_rows 1\n")
    [found] = wrong.complaints(run(wrong, KernelHost(wrong.plan)))
    assert found == (
        "counts, batch 1, counters: expected {'rows_in': 2, 'late_rows': 1}, "
        "got {'rows_in': 1, 'late_rows': 0}"
    )


def test_a_batch_that_did_not_happen_is_noticed():
    [found] = RIGHT.complaints(run(RIGHT, KernelHost(RIGHT.plan))[:-1])
    assert found == f"{RIGHT.name}: 3 batches in the script, 2 happened"
