"""Every transcript in every way of running it without Spark; and wrong transcripts are noticed."""

from dataclasses import replace

import pytest

from tests.support.steps import FUSIONS
from tests.transcripts import TRANSCRIPTS, joins, runner, windows
from tidegate.optimize import optimize
from tidegate.testing import KernelHost, Transcript, run

EVERY_TRANSCRIPT = pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda one: one.name)

#: Spark's watermarks are whole milliseconds, and so are those of a dry run.
IN_MILLISECONDS = [
    transcript
    for transcript in TRANSCRIPTS
    if not any((step.expected.watermark_micros or 0) % 1000 for step in transcript.steps)
]


def test_every_transcript_has_a_name_of_its_own():
    assert len({transcript.name for transcript in TRANSCRIPTS}) == len(TRANSCRIPTS)


# -- the ways of running them ----------------------------------------------------------------------


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("buckets", [1, 4])
def test_the_kernel_does_what_the_transcript_says(transcript, buckets):
    assert runner.on_kernels(transcript, buckets) == []


@EVERY_TRANSCRIPT
def test_and_after_a_restart_between_any_two_batches(transcript):
    assert runner.after_restarts(transcript) == []


@EVERY_TRANSCRIPT
def test_the_oracle_agrees_with_the_transcript(transcript):
    assert runner.on_the_oracle(transcript) == []


@pytest.mark.parametrize("transcript", IN_MILLISECONDS, ids=lambda one: one.name)
def test_a_dry_run_does_what_the_transcript_says(transcript):
    assert runner.in_a_dry_run(transcript) == []


@EVERY_TRANSCRIPT
def test_python_stages_without_steps_do_what_the_transcript_says(transcript):
    assert runner.on_python_stages(transcript) == []


@EVERY_TRANSCRIPT
@pytest.mark.parametrize("fusion", ["fused", "unfused"])
def test_fusion_on_or_off_it_does_what_the_transcript_says(transcript, fusion):
    assert runner.through_steps(transcript, fusion) == []


@EVERY_TRANSCRIPT
def test_nothing_is_left_of_it(transcript):
    """One-sided keys, unmatched rows and rows of closed sessions included."""
    assert runner.left_at_the_end(transcript) == []


# -- what they run on ------------------------------------------------------------------------------


@pytest.mark.parametrize(("fusion", "stages"), [("fused", 1), ("unfused", 4)])
def test_steps_are_fused_into_one_python_stage_or_not_at_all(fusion, stages):
    for transcript in TRANSCRIPTS:
        plan = optimize(runner.with_idle_steps(transcript).plan, FUSIONS[fusion])
        assert [len(one.upstream.python_stages) for one in plan.inputs] == [stages] * len(plan.inputs)


def test_one_transcript_has_rows_that_lack_their_gap():
    names = [transcript.name for transcript in TRANSCRIPTS]
    assert [name.startswith(runner.OWN_GAP_MISSING) for name in names].count(True) == 1


# -- wrong transcripts -----------------------------------------------------------------------------

WINDOW, JOIN = windows.TRANSCRIPTS[0], joins.TRANSCRIPTS[0]
WRONG = {
    "a result": (WINDOW, "ann  | 0            | 10         | 1", "ann  | 0            | 10         | 2"),
    "a key": (WINDOW, "ann  | 0 ", "bob  | 0 "),
    "a window": (WINDOW, "| 10         | 1", "| 20         | 1"),
    "a watermark": (WINDOW, "watermark 10", "watermark 11"),
    "no watermark": (WINDOW, "watermark 9", "watermark none"),
    "a row of a join": (JOIN, "| 1  | 9", "| 2  | 9"),
    "a window of a join": (JOIN, "| 0                 |", "| 1                 |"),
    "a number of pairs": (JOIN, "joined_pairs 1", "joined_pairs 2"),
    "a number of rows": (JOIN, "right_rows 2", "right_rows 1"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_transcript_is_noticed(mistake):
    transcript, right, wrong = WRONG[mistake]
    assert right in transcript.script
    changed = replace(transcript, script=transcript.script.replace(right, wrong))
    assert runner.on_kernels(changed)
    assert runner.in_a_dry_run(changed)


def test_a_row_too_many_and_a_row_too_few_are_noticed():
    extra = WINDOW.script.rstrip() + "\n          eve  | 0            | 10         | 1\n"
    fewer = WINDOW.script[: WINDOW.script.index("main")]
    for script, complaint in ((extra, "missing"), (fewer, "not expected")):
        [found] = runner.on_kernels(replace(WINDOW, script=script))
        assert found.startswith(f"{WINDOW.name}, batch 3, main: {complaint}")


def test_a_counter_that_differs_is_noticed():
    script = "rows\n  ts | user\n  1 | ann\nrows_in 2\nlate_rows 1\n"
    [found] = runner.on_kernels(Transcript("counts", WINDOW.plan, script))
    assert found == (
        "counts, batch 1, counters: expected {'rows_in': 2, 'late_rows': 1}, "
        "got {'rows_in': 1, 'late_rows': 0}"
    )


def test_a_batch_that_did_not_happen_is_noticed():
    [found] = WINDOW.complaints(run(WINDOW, KernelHost(WINDOW.plan))[:-1])
    assert found == f"{WINDOW.name}: 3 batches in the script, 2 happened"
