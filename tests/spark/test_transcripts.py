"""Transcripts as real streaming queries: one for each thing that Spark has a part in."""

from pathlib import Path
from typing import Any

import pytest

from tests.transcripts import named, runner

#: Timers, channels, types, restored state, a batch order of rows, several operators, several sources.
#: Of those each has rows in every batch but the last: Spark would take the next ones in their place.
NAMES = (
    "a session goes on across micro-batches",
    "on_update: the earliest of merged sessions",
    "late rows are judged after merging",
    "side_output hands on each row",
    "reassigned rows keep their own gap",
    "a row whose own gap is missing",
    "max_length cuts sessions",
    "a window that looks ahead leaves when the watermark has passed it",
    "a row that comes later changes no window of what had arrived",
    "late rows leave by their channel, whole",
    "null is a key, and rows without a time are errors",
    "a late row that is moved goes on at once, behind what was before the watermark",
    "corrections come in time: the lateness is held back",
    "late rows after the purge are counted",
    "full: what is left alone",
    "a row that is moved to the watermark meets",
    "a row without its event time is an error, on its own side",
    "sessions bridged by a late row are one",
    "two windowed aggregates meet in one query",
)

#: With steps that are not fused: state, channels, two sources, two operators.
UNFUSED = (
    "side_output hands on each row",
    "two windowed aggregates meet in one query",
    "a row without its event time is an error, on its own side",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_query_does_what_the_transcript_says(name: str, spark: Any, tmp_path: Path) -> None:
    assert runner.on_spark(named(name), spark, tmp_path) == []


@pytest.mark.parametrize("name", UNFUSED)
def test_an_unfused_transcript_with_steps_that_change_nothing(
    name: str, spark: Any, tmp_path: Path
) -> None:
    stepped = runner.with_idle_steps(named(name))
    assert runner.on_spark(stepped, spark, tmp_path, fusion="unfused") == []


def test_the_transcripts_for_spark_leave_the_clock_alone() -> None:
    assert not any(step.now for name in NAMES for step in named(name).steps)
