"""`tidegate state` without Spark: from the note that a query writes after each batch."""

import json

import pytest

from tests.support.plans import hopping, plan_of
from tidegate import cli
from tidegate.cli import state as command
from tidegate.dataflow import compile
from tidegate.dataflow.identity import identity_of
from tidegate.kernels.messages import Message
from tidegate.observe.metrics import Metrics
from tidegate.spark.checkpoint.metadata import Drained, register_query
from tidegate.spark.checkpoint.state_summary import StateSummary, StateSummaryFile

PLAN = plan_of(hopping(60_000_000))
IDENTITY = identity_of(compile(PLAN), 2, 2)

NOON = 1_767_268_800_000_000
HELD = {"rows": 3, "open": 2, "keys": 1, "pages": 2, "bytes": 700, "due": NOON, "watermark": NOON - 1}


class StartedSpark(Exception):
    """What no test here may see."""


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch):
    def start(_arguments):
        raise StartedSpark

    monkeypatch.setattr(command, "session", start)
    monkeypatch.setattr(command, "end_on_sigterm", lambda: None)


@pytest.fixture
def checkpoint(tmp_path):
    register_query(tmp_path.as_uri(), IDENTITY)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "7").touch()
    return tmp_path


def note(checkpoint, batch, *buckets):
    StateSummaryFile(batch, {0: dict(enumerate(buckets))}).write(checkpoint.as_uri())


def shown(checkpoint, capsys, *options):
    assert cli.main(["state", str(checkpoint), *options]) == 0
    return capsys.readouterr().out


def test_the_note_is_shown(checkpoint, capsys):
    note(checkpoint, 7, HELD, HELD | {"due": None, "watermark": NOON}, HELD | {"pages": 0})
    assert shown(checkpoint, capsys).splitlines() == [
        "operator 1: aggregate",
        "  kind: aggregate",
        "  reads: sources",
        "  keys: user: string",
        "  window: tumbling(1 minute)",
        "  allowed lateness: 0 seconds",
        "  emission: on_watermark",
        "  aggregates: n=count(*): int64",
        "  open: 4",
        "  keys in state: 2",
        "  size: 1.4 KB in 4 pages of 2 buckets",
        "  watermark: 2026-01-01T12:00:00+00:00",
        "  next due: 2026-01-01T12:00:00+00:00",
        "",
        "after batch 7",
    ]
    [operator] = json.loads(shown(checkpoint, capsys, "--json"))
    assert (operator["open"], operator["keys"], operator["bytes"], operator["batch"]) == (4, 2, 1400, 7)
    rows = operator["identity"]["inputs"]["rows"]
    assert rows["window"] == {"kind": "hopping", "size": 60_000_000, "slide": 60_000_000, "offset": 0}
    assert [one["name"] for one in operator["identity"]["aggregates"]] == ["n"]


def test_a_drained_checkpoint_says_so(checkpoint, capsys):
    note(checkpoint, 7, HELD)
    drained = Drained.begin(checkpoint.as_uri())
    told = "a drain was interrupted: the next start completes it"
    assert shown(checkpoint, capsys).splitlines()[-3:] == ["after batch 7", "", told]
    drained.end(checkpoint.as_uri())
    told = f"drained at {drained.began}, with batch 8: the checkpoint is finished"
    assert shown(checkpoint, capsys).splitlines()[-3:] == ["after batch 7", "", told]


def test_a_query_that_keeps_nothing_says_so(checkpoint, capsys):
    note(checkpoint, 7)
    assert "  open: 0\n" in shown(checkpoint, capsys)


@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        lambda checkpoint: note(checkpoint, 6, HELD),
        lambda checkpoint: note(checkpoint, 7, HELD, HELD | {"open": None, "keys": None}),
    ],
    ids=["no note", "an old note", "a bucket that is too large to be counted"],
)
def test_what_the_note_does_not_have_is_left_to_spark(checkpoint, make, capsys):
    make(checkpoint)
    assert cli.main(["state", str(checkpoint)]) == 1
    assert "StartedSpark" in capsys.readouterr().err


def test_a_damaged_note_is_told(checkpoint, capsys):
    (checkpoint / "tidegate.state.json").write_text("{")
    assert cli.main(["state", str(checkpoint)]) == 2
    assert "tidegate.state.json is damaged" in capsys.readouterr().err


# -- the note of a running query ---------------------------------------------------------------------


def kept(bucket=0, vertex=0, **held):
    return [Message.state(bucket, vertex, held)]


def a_run(checkpoint):
    metrics = Metrics(compile(PLAN))
    return metrics, StateSummary(checkpoint.as_uri(), metrics)


def test_a_run_goes_on_from_the_note_before_it(tmp_path):
    metrics, summary = a_run(tmp_path)
    summary.begin(0)
    metrics.record(0, kept(**HELD) + kept(bucket=1, **HELD), 0)
    summary.write(0)
    metrics, summary = a_run(tmp_path)
    summary.begin(1)
    assert metrics.totals()["state_rows"] == 6
    metrics.record(1, kept(**HELD | {"rows": 10}), 0)
    summary.write(1)
    [buckets] = StateSummaryFile.read(tmp_path.as_uri()).kept.values()
    assert {bucket: held["rows"] for bucket, held in buckets.items()} == {0: 10, 1: 3}
    assert metrics.totals()["state_rows"] == 13


@pytest.mark.parametrize("batch", [3, 4])
def test_the_batch_of_the_note_may_be_run_again(tmp_path, batch):
    StateSummaryFile(3, {0: {0: HELD}}).write(tmp_path.as_uri())
    metrics, summary = a_run(tmp_path)
    summary.begin(batch)
    assert metrics.totals()["state_rows"] == 3


def test_operators_that_differ_in_nothing_keep_apart_what_each_has(tmp_path):
    metrics, summary = a_run(tmp_path)
    summary.begin(0)
    metrics.record(0, kept(**HELD) + kept(vertex=1, **HELD | {"rows": 9}), 0)
    summary.write(0)
    metrics, summary = a_run(tmp_path)
    summary.begin(1)
    metrics.record(1, kept(vertex=1, **HELD | {"rows": 8}), 0)
    summary.write(1)
    kept_now = StateSummaryFile.read(tmp_path.as_uri()).kept
    assert {vertex: buckets[0]["rows"] for vertex, buckets in kept_now.items()} == {0: 3, 1: 8}


@pytest.mark.parametrize("batch", [2, 5], ids=["back", "ahead"])
def test_a_note_that_does_not_fit_is_removed_and_none_is_written(tmp_path, batch):
    StateSummaryFile(3, {0: {0: HELD}}).write(tmp_path.as_uri())
    metrics, summary = a_run(tmp_path)
    summary.begin(batch)
    metrics.record(batch, kept(**HELD), 0)
    summary.write(batch)
    assert StateSummaryFile.read(tmp_path.as_uri()) is None
