"""Draining: what is open is emitted in event-time order, once, and then the checkpoint is finished."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.spark import killed_drain
from tests.spark.conftest import run, seconds, write_batches
from tests.spark.killed_drain import spend_and_visits, stream_of
from tests.spark.kills import SOAK, Victim, commits
from tests.spark.test_windows import disordered
from tidegate.connectors import MemorySink
from tidegate.errors import CheckpointDrained, StartError
from tidegate.spark.checkpoint.inspection import states_of

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda events: events.key_by("user").window(tg.tumbling("10 s")).agg(n=tg.count()),
    "lookahead": lambda events: events.window(tg.sliding("10 s", "15 s")).agg(n=tg.count()),
    "reorder": lambda events: events.reorder(),
    "chain": lambda events: (
        events.key_by("user")
        .window(tg.tumbling("10 s"))
        .agg(n=tg.count())
        .events(time="window_end")
        .window(tg.tumbling("20 s"))
        .agg(n=tg.sum("n"))
    ),
}
TIMES = {"tumbling": "window_end", "lookahead": "ts", "reorder": "ts", "chain": "window_end"}


class Fed:
    """A stream whose files come as the test goes on."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark, self._folder, self._files = spark, folder, 0
        folder.mkdir()

    def add(self, *batches: list[tuple[float, str | None, float]]) -> None:
        write_batches(self._folder, batches, start=self._files)
        self._files += len(batches)

    def stream(self) -> Any:
        reader = self._spark.readStream.schema("ts timestamp, user string, price double")
        return reader.option("maxFilesPerTrigger", 1).parquet(str(self._folder))

    def events(self, tolerance: str = "0 s") -> Any:
        return tg.events(self.stream(), time="ts", tolerance=tolerance)

    def spend(self, lateness: str = "0 s") -> Any:
        window = tg.tumbling("10 s")
        keyed = self.events().key_by("user").window(window, allowed_lateness=lateness)
        return keyed.agg(spend=tg.sum("price"))


@pytest.fixture
def fed(spark: Any, tmp_path: Path) -> Fed:
    return Fed(spark, tmp_path / "clicks")


def told(sink: MemorySink, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of what a sink has, in its order; times count from noon."""
    return [
        tuple(seconds(row[name]) if hasattr(row[name], "timestamp") else row[name] for name in columns)
        for row in sink.rows()
    ]


def note(checkpoint: Path) -> Any:
    return json.loads((checkpoint / "tidegate.drained.json").read_text())


# -- what is emitted ------------------------------------------------------------------------------


@pytest.mark.versions("draining")
def test_draining_gives_the_windows_of_the_document(fed: Fed, tmp_path: Path) -> None:
    fed.add([(100, "u", 1.0), (110, "u", 2.0), (115, "u", 4.0)])
    main = tg.sinks.memory()
    query = run(PROGRAMS["lookahead"](fed.events("1 s")), tmp_path / "checkpoint", main=main)
    assert main.rows() == []
    query.stop(drain=True)
    assert told(main, "ts", "n") == [(100, 3), (110, 3), (115, 2)]


@pytest.mark.parametrize("name", ["tumbling", "reorder", "chain"])
@pytest.mark.filterwarnings("ignore::tidegate.errors.TidegateWarning")  # no two rows share a time
def test_a_drained_query_has_emitted_the_batch_answer(
    spark: Any, fed: Fed, tmp_path: Path, name: str
) -> None:
    """And what the drain has emitted is in event-time order, and counted."""
    fed.add(*disordered(60, 20))
    main = tg.sinks.memory()
    query = run(PROGRAMS[name](fed.events("30 s")), tmp_path / "checkpoint", main=main)
    early = len(main.rows())
    query.stop(drain=True)
    batch = tg.events(spark.read.parquet(str(tmp_path / "clicks")), time="ts")
    answer = PROGRAMS[name](batch).to_df().toArrow().to_pylist()
    assert Counter(map(repr, main.rows())) == Counter(map(repr, answer))
    drained = [row[TIMES[name]] for row in main.rows()[early:]]
    assert drained == sorted(drained)
    assert len(drained) > 1
    assert query.metrics["rows_out"] == len(answer)


def test_what_periodic_has_kept_back_is_emitted_and_balances(fed: Fed, tmp_path: Path) -> None:
    fed.add([(1, "a", 1.0)], [(2, "a", 1.0), (3, "b", 1.0)])
    counts = fed.events().key_by("user").window(tg.tumbling("1 minute")).agg(n=tg.count())
    main = tg.sinks.memory()
    query = run(counts.emit(tg.emit.periodic("1 hour")), tmp_path / "checkpoint", main=main)
    assert told(main, "user", "op", "n") == [("a", "+I", 1), ("b", "+I", 1)]
    query.stop(drain=True)
    assert told(main, "user", "op", "n")[2:] == [("a", "-U", 1), ("a", "+U", 2)]


def test_several_results_of_one_query_are_drained_together(spark: Any, fed: Fed, tmp_path: Path) -> None:
    fed.add([(1, "a", 5.0), (2, "b", 1.0)], [(15, "a", 2.0), (16, "b", 3.0), (17, "b", 4.0)])
    sinks = {"spend": tg.sinks.memory(), "visits": tg.sinks.memory()}
    query = run(spend_and_visits(fed.stream()), tmp_path / "checkpoint", sinks=sinks)
    query.stop(drain=True)
    batch = spark.read.parquet(str(tmp_path / "clicks"))
    assert_drained(spend_and_visits, batch, {name: sink.rows() for name, sink in sinks.items()})
    assert query.metrics["rows_out"] == sum(len(sink.rows()) for sink in sinks.values())


def assert_drained(program: Any, batch: Any, found: dict[str, list[Any]]) -> None:
    """Each result is, row by row, what the program says of a batch of the same rows."""
    keyed = tg.events(batch, time="ts").key_by("user")
    expected = {
        "spend": keyed.window(tg.tumbling("10 s")).agg(spend=tg.sum("price")),
        "visits": keyed.window(tg.session("5 s")).agg(clicks=tg.count()),
    }
    for name, result in expected.items():
        answer = result.to_df().toArrow().to_pylist()
        assert answer
        assert Counter(map(repr, found[name])) == Counter(map(repr, answer))


# -- a finished checkpoint ------------------------------------------------------------------------


def test_no_query_goes_on_from_a_drained_checkpoint(fed: Fed, tmp_path: Path) -> None:
    main, checkpoint = tg.sinks.memory(), tmp_path / "checkpoint"
    fed.add([(1, "a", 5.0)], [(2, "a", 2.0)])
    query = run(fed.spend(), checkpoint, main=main)
    query.stop(drain=True)
    noted, last = note(checkpoint), commits(checkpoint) - 1
    assert noted == {"batch": last + 1, "began": noted["began"], "done": True}
    fed.add([(30, "a", 1.0)])
    for program in (fed.spend(), fed.spend("1 minute")):  # whatever the program is now
        with pytest.raises(CheckpointDrained) as error:
            run(program, checkpoint, main=main)
    assert str(error.value) == (
        f"the checkpoint {checkpoint.as_uri()} was drained at {noted['began']}, with batch {last + 1}: "
        "it is finished, and no query goes on from it. Take a new checkpoint location. A query with a "
        "new checkpoint reads its sources from where their own options let it begin: give it only what "
        f"the drained query has not read (its offsets are in {checkpoint.as_uri()}/offsets/{last}). "
        "Folders and tables of results belong to the drained query, so the new one needs others; tables "
        "of plain rows can go on"
    )
    assert isinstance(error.value, StartError)
    query.stop(drain=True)
    query.stop()
    assert told(main, "user", "spend") == [("a", 7.0)], "once, however often it is asked for"


def test_a_query_that_has_had_no_batch_has_nothing_to_emit(fed: Fed, tmp_path: Path) -> None:
    main = tg.sinks.memory()
    run(fed.spend(), tmp_path / "checkpoint", main=main).stop(drain=True)
    assert main.rows() == []
    fed.add([(1, "a", 5.0)])
    with pytest.raises(CheckpointDrained, match=r"with batch 0: .* has not read \(nothing\)"):
        run(fed.spend(), tmp_path / "checkpoint", main=main)
    run(fed.spend(), tmp_path / "new", main=main).stop(drain=True)
    assert told(main, "user", "spend") == [("a", 5.0)]


def test_a_plain_stop_finishes_nothing(fed: Fed, tmp_path: Path) -> None:
    main = tg.sinks.memory()
    fed.add([(1, "a", 5.0)])
    run(fed.spend(), tmp_path / "checkpoint", main=main).stop()
    fed.add([(2, "a", 2.0)])
    query = run(fed.spend(), tmp_path / "checkpoint", main=main)
    query.stop()
    query.stop(drain=True)  # afterwards, too
    assert told(main, "user", "spend") == [("a", 7.0)]


# -- while batches run ----------------------------------------------------------------------------


def test_a_running_query_can_be_drained(fed: Fed, tmp_path: Path) -> None:
    """Each micro-batch is in the results whole, or not at all."""
    main = tg.sinks.memory()
    fed.add(*([(at, "a", 1.0), (at, "b", 1.0)] for at in range(8)))
    query = PROGRAMS["tumbling"](fed.events()).start(checkpoint=tmp_path / "checkpoint", main=main)
    while query.metrics["rows_in"] < 2:
        assert query.is_active
    query.stop(drain=True)
    [(a, first), (b, second)] = sorted(told(main, "user", "n"))
    assert (a, b) == ("a", "b")
    assert first == second
    assert first + second == query.metrics["rows_in"]


# -- drains that are interrupted ------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_drain_whose_sink_fails_can_be_repeated(fed: Fed, tmp_path: Path, when: str) -> None:
    """By the same handle, or by the next start: the same rows under the same number."""
    main, attempts = tg.sinks.memory(), []

    def failing(rows: Any, batch_id: int) -> None:
        attempts.append((batch_id, [row["spend"] for row in rows.collect()]))
        if when == "after":
            main(rows, batch_id)
        raise RuntimeError("the sink fails")

    fed.add([(1, "a", 5.0), (2, "b", 1.0)])
    query = run(fed.spend(), tmp_path / "checkpoint", main=failing)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the sink fails"):
            query.stop(drain=True)
    assert not query.is_active
    fed.add([(3, "a", 9.0)])
    with pytest.raises(RuntimeError, match="the sink fails"):
        run(fed.spend(), tmp_path / "checkpoint", main=failing)
    with pytest.raises(CheckpointDrained, match="had been interrupted: this start has completed it"):
        run(fed.spend(), tmp_path / "checkpoint", main=main)
    assert sorted(told(main, "user", "spend")) == [("a", 5.0), ("b", 1.0)]
    number = note(tmp_path / "checkpoint")["batch"]
    assert {(batch, *sorted(rows)) for batch, rows in attempts} == {(number, 1.0, 5.0)}
    with pytest.raises(CheckpointDrained) as error:
        run(fed.spend(), tmp_path / "checkpoint", main=failing)
    assert "interrupted" not in str(error.value)
    assert len(attempts) == 3


def test_another_program_does_not_complete_an_interrupted_drain(fed: Fed, tmp_path: Path) -> None:
    def failing(rows: Any, batch_id: int) -> None:
        raise RuntimeError("the sink fails")

    fed.add([(1, "a", 5.0)])
    query = run(fed.spend(), tmp_path / "checkpoint", main=failing)
    with pytest.raises(RuntimeError, match="the sink fails"):
        query.stop(drain=True)
    with pytest.raises(tg.errors.CheckpointMismatch, match="another program"):
        run(fed.spend("1 minute"), tmp_path / "checkpoint", main=tg.sinks.memory())
    assert note(tmp_path / "checkpoint")["done"] is False


@pytest.mark.kills
@pytest.mark.parametrize(
    ("channel", "when"),
    [
        ("visits", "writing"),
        pytest.param(
            "spend", "written", marks=pytest.mark.skipif(not SOAK, reason="half a minute: make soak")
        ),
    ],
)
def test_a_drain_that_is_killed_is_completed_by_the_next_start(
    spark: Any, fed: Fed, tmp_path: Path, channel: str, when: str
) -> None:
    """It is killed between the sinks: one has the rows, the other has none."""
    fed.add([(1, "a", 5.0), (2, "b", 1.0)], [(3, "a", 2.0), (4, "b", 3.0)])
    victim = Victim(killed_drain.__name__, tmp_path, (channel, when))
    with victim.running() as process:
        while victim.hear(process) != f"{when} {killed_drain.DRAIN}":
            pass
    assert [any((tmp_path / name).glob("batch-*")) for name in ("spend", "visits")] == [True, False]
    fed.add([(5, "a", 100.0)])
    sinks = {name: tg.sinks.parquet(tmp_path / name) for name in ("spend", "visits")}
    for told_so in ("had been interrupted", "was drained"):
        with pytest.raises(CheckpointDrained, match=told_so):
            run(spend_and_visits(stream_of(spark, str(tmp_path))), tmp_path / "checkpoint", sinks=sinks)
    written = {name: spark.read.parquet(str(tmp_path / name)) for name in sinks}
    found = {name: rows.toArrow().to_pylist() for name, rows in written.items()}
    batch = spark.read.parquet(*(str(tmp_path / "clicks" / f"{file:05d}.parquet") for file in range(2)))
    assert_drained(spend_and_visits, batch, found)


def test_draining_reaches_tables_exactly_once(fed: Fed, tmp_path: Path) -> None:
    import duckdb

    fed.add([(1, "a", 1.0), (2, "b", 1.0)])
    sink = tg.sinks.duckdb(tmp_path / "out.duckdb", "totals")
    query = run(PROGRAMS["tumbling"](fed.events()), tmp_path / "checkpoint", main=sink)
    query.stop(drain=True)
    (tmp_path / "checkpoint" / "tidegate.drained.json").write_text(
        json.dumps(note(tmp_path / "checkpoint") | {"done": False})  # killed after the table's commit
    )
    with pytest.raises(CheckpointDrained, match="this start has completed it"):
        run(PROGRAMS["tumbling"](fed.events()), tmp_path / "checkpoint", main=sink)
    with duckdb.connect(str(tmp_path / "out.duckdb")) as database:
        found = database.execute("select user, n from totals order by user").fetchall()
        numbers = database.execute("select batch_id from tidegate_batches").fetchall()
    assert found == [("a", 1), ("b", 1)]
    assert numbers == [(note(tmp_path / "checkpoint")["batch"],)]
    with pytest.raises(tg.errors.SinkError, match="belongs to another query"):
        run(PROGRAMS["tumbling"](fed.events()), tmp_path / "new", main=sink)


# -- where it is refused --------------------------------------------------------------------------


def test_folders_with_odd_names_are_each_one_folder(spark: Any, tmp_path: Path) -> None:
    """Arrow reads `%20` in a URI as a blank, Spark takes it as it stands: both must mean one place."""
    place = tmp_path / "my täglich 100% #1"
    place.mkdir()
    fed = Fed(spark, place / "in")
    checkpoint, out = place / "check point", tg.sinks.parquet(place / "what comes out")
    fed.add([(1, "a", 5.0)], [(12, "a", 1.0)])
    query = run(fed.spend(), checkpoint, main=out)
    with pytest.raises(tg.errors.StateError, match="whose path has blanks or special characters"):
        query.stop(drain=True)
    fed.add([(13, "a", 1.0)], [(25, "a", 0.0)])
    run(fed.spend(), checkpoint, main=out)
    assert sorted(one.name for one in place.iterdir()) == ["check point", "in", "what comes out"]
    assert {"tidegate.json", "offsets", "commits", "state"} <= {one.name for one in checkpoint.iterdir()}
    rows = pq.read_table(sorted((place / "what comes out").glob("batch-*.parquet"))).to_pylist()
    assert [row["spend"] for row in rows] == [5.0, 2.0]
    with pytest.raises(tg.errors.StateError, match="whose path has blanks or special characters"):
        states_of(spark, str(checkpoint))
    with pytest.raises(tg.errors.CheckpointMismatch, match="another program"):
        run(fed.spend("1 minute"), checkpoint, main=out)


def test_files_of_a_drain_have_the_types_of_those_before_it(spark, click_stream, tmp_path):
    import pyarrow.dataset as ds

    clicks = click_stream([[(1, "ann", 1.0)], [(40, "ann", 2.0)]])
    totals = tg.events(clicks, time="ts").key_by("user").window(tg.tumbling("10 s")).agg(n=tg.count())
    query = totals.start(
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
        main=tg.sinks.parquet(tmp_path / "out"),
    )
    query.await_termination()
    query.stop(drain=True)
    files = [ds.dataset(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(files) == 2
    assert files[0].schema.equals(files[1].schema)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(row.window_start.second for row in found.collect()) == [0, 40]
