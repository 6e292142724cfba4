"""What a query writes down about its state is what Spark finds there, run after run."""

from dataclasses import replace

import pytest

import tidegate as tg
from tests.spark.conftest import run, write_batches
from tidegate.connectors import location
from tidegate.dataflow import compile
from tidegate.spark.checkpoint.inspection import states_of
from tidegate.spark.checkpoint.metadata import last_batch, stored_identity
from tidegate.spark.checkpoint.state_summary import StateSummaryFile, summary_of

FIRST = [[(1, "ann", 1.0), (2, "bob", 2.0)], [(70, "ann", 2.0), (75, None, 1.0)], [(140, "cid", 3.0)]]
THEN = [[(200, "ann", 4.0), (150, "bob", 1.0)], [(400, "ann", 1.0), (390, "dan", 5.0)]]


def chain(clicks):
    minutes = clicks.key_by("user").window(tg.hopping("1 minute", "20 seconds")).agg(n=tg.count())
    return minutes.events(time="window_start").window(tg.tumbling("1 hour")).agg(most=tg.max("n"))


def by_minute(clicks, **options):
    return clicks.key_by("user").window(tg.tumbling("1 minute"), **options).agg(n=tg.count())


PROGRAMS = {
    "hopping, then hours": chain,
    "sessions with lateness": lambda clicks: (
        clicks.key_by("user")
        .window(tg.session("1 minute"), allowed_lateness="30 s")
        .agg(n=tg.count())
        .emit(tg.emit.changelog())
    ),
    "in order": lambda clicks: clicks.key_by("user").reorder(),
    "distinct, then folds": lambda clicks: (
        clicks.dedupe(on=["user", "ts"], within="1 hour").key_by("user").agg(n=tg.count())
    ),
    "equal but for late rows": lambda clicks: tg.together(
        minutes=by_minute(clicks), watched=by_minute(clicks, late=tg.late.side_output("late"))
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_note_says_what_spark_finds(name, spark, click_stream, tmp_path):
    checkpoint = location(str(tmp_path / "checkpoint"))
    stream = click_stream(FIRST)
    for more in ([], THEN):
        write_batches(tmp_path / "clicks", more, start=len(FIRST))
        result = PROGRAMS[name](tg.events(stream, time="ts", tolerance="1 minute"))
        sinks = {channel: tg.sinks.discard() for channel in compile(result.node).channels}
        query = run(result, checkpoint, **sinks)
        batch = last_batch(checkpoint)
        noted = summary_of(checkpoint, stored_identity(checkpoint), batch)
        assert noted == states_of(spark, checkpoint)
        assert noted[0].batch == batch
        assert noted[0].buckets > 0
        assert query.metrics["state_rows"] > 0


def test_a_note_of_another_past_is_not_gone_on_from(spark, click_stream, tmp_path):
    checkpoint = location(str(tmp_path / "checkpoint"))
    stream = click_stream(FIRST)
    result = chain(tg.events(stream, time="ts"))
    run(result, checkpoint, main=tg.sinks.discard())
    note = StateSummaryFile.read(checkpoint)
    replace(note, batch=note.batch - 1).write(checkpoint)
    assert summary_of(checkpoint, stored_identity(checkpoint), note.batch) is None
    replace(note, batch=note.batch + 5).write(checkpoint)
    write_batches(tmp_path / "clicks", THEN, start=len(FIRST))
    run(result, checkpoint, main=tg.sinks.discard())
    assert StateSummaryFile.read(checkpoint) is None
    assert summary_of(checkpoint, stored_identity(checkpoint), last_batch(checkpoint)) is None
    assert states_of(spark, checkpoint)[0].buckets > 0
