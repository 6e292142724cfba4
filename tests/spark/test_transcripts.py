"""Transcripts as real streaming queries: one for each thing that Spark has a part in."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.spark.files import file_stream, write_files
from tests.transcripts.chains import CHAINED
from tests.transcripts.joins import JOINS
from tests.transcripts.sessions import SESSIONS
from tests.transcripts.sliding import ORDERED, SLIDING
from tidegate.plan.nodes import sources_of
from tidegate.spark import query as queries
from tidegate.testing import BatchResult, Transcript
from tidegate.testing.table import micros_of, to_arrow

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

ON_SPARK = [
    transcript
    for transcript in (*SESSIONS, *SLIDING, *ORDERED, *CHAINED, *JOINS)
    if transcript.name.startswith(NAMES)
]


def run_on_spark(transcript: Transcript, spark: Any, folder: Path) -> list[BatchResult]:
    """What a query over the transcript's batches puts out; an empty last one is Spark's own."""
    streams = []
    for number, source in enumerate(sources_of(transcript.plan)):
        given = (to_arrow(step.rows[number], source.row_schema) for step in transcript.steps)
        write_files(folder / str(number), (rows for rows in given if rows.num_rows))
        streams.append(file_stream(spark, folder / str(number), source.row_schema))
    sinks = {name: tg.sinks.memory() for name in transcript.plan.channels}
    query = queries.start(
        transcript.plan,
        streams,
        str(folder / "checkpoint"),
        sinks,
        trigger={"availableNow": True},
    )
    query.await_termination()
    progress = {entry.batchId: entry for entry in query.spark.recentProgress}
    results = []
    for batch in range(len(transcript.steps)):
        result = BatchResult(watermark_of(progress[batch]))
        result.counts.update(progress[batch].observedMetrics["tidegate"].asDict())
        for name, sink in sinks.items():
            result.put(name, *(sink.batches[batch].to_pylist() if batch in sink.batches else []))
        results.append(result)
    return results


def watermark_of(progress: Any) -> int | None:
    reached = micros_of(datetime.fromisoformat(progress.eventTime["watermark"]))
    return reached or None  # Spark's zero means that there is none yet


@pytest.mark.parametrize("transcript", ON_SPARK, ids=lambda t: t.name)
def test_a_query_does_what_the_transcript_says(
    transcript: Transcript, spark: Any, tmp_path: Path
) -> None:
    assert transcript.complaints(run_on_spark(transcript, spark, tmp_path)) == []


def test_the_transcripts_for_spark_exist() -> None:
    assert len(ON_SPARK) == len(NAMES)
    assert not any(step.now for transcript in ON_SPARK for step in transcript.steps)
