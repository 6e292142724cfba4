"""Running folds: their values, what leaves in which form, what is stored, and what is refused."""

import random
from collections import defaultdict

import pyarrow as pa
import pytest

import tidegate as tg
from tests.support.plans import ROWS, SCHEMA, TIMESTAMP, changed_parts, dedupe_plan, hopping, plan_of
from tidegate import connectors
from tidegate.api import emit, sinks
from tidegate.api.aggregates import count
from tidegate.api.events import Events
from tidegate.dataflow import compile
from tidegate.errors import EmissionRefused, PlanError, SinkError
from tidegate.kernels import aggregates as a
from tidegate.kernels.registry import kernels_of
from tidegate.plan.policies import OnWatermark, OnWindowClose, Reassign, Retracting
from tidegate.plan.sources import Derived, Source
from tidegate.plan.time import Micros
from tidegate.plan.windows import AllTime
from tidegate.state.pages import Manifest
from tidegate.testing import Changelog, DryRun, IllegalChange, KernelHost, Stream, consolidate, replay
from tidegate.testing.table import instant_of

ON_UPDATE, CHANGELOG = Retracting(), Retracting(before="-D", after="+I")
TOTALS = (*ROWS, ("total", a.Sum("items")), ("most", a.Max("items")))


def fold(aggregates=ROWS, emission=ON_UPDATE, **options):
    return plan_of(AllTime(), aggregates, emission=emission, **options)


def at(time, user="ann", items=None, **values):
    return {"ts": instant_of(time), "user": user, "items": items, **values}


def changes(result, *names):
    return [(row["op"], *(row[name] for name in names)) for row in result.main]


# -- values ---------------------------------------------------------------------------------------


def test_each_batch_says_what_it_changed():
    host = KernelHost(fold(TOTALS))
    first = host.batch([at(1, items=2), at(2, "bob"), at(3, items=5)])
    assert sorted(changes(first, "user", "n", "total", "most")) == [
        ("+I", "ann", 2, 7, 5),
        ("+I", "bob", 1, None, None),
    ]
    then = host.batch([at(4, items=1)])
    assert changes(then, "user", "n", "total", "most") == [
        ("-U", "ann", 2, 7, 5),
        ("+U", "ann", 3, 8, 5),
    ]
    assert host.batch([]).main == []


def test_rows_that_leave_a_result_as_it_is_say_nothing():
    host = KernelHost(fold((("most", a.Max("items")),)))
    host.batch([at(1, items=9)])
    assert host.batch([at(2, items=3), at(3, items=9)]).main == []
    assert changes(host.batch([at(2, items=10)]), "most") == [("-U", 9), ("+U", 10)]


def test_a_changelog_takes_out_and_puts_in():
    host = KernelHost(fold(emission=CHANGELOG))
    host.batch([at(1)])
    first, *others = changes(host.batch([at(2), at(2, "bob")]), "user", "n")
    assert first == ("-D", "ann", 1)
    assert sorted(others) == [("+I", "ann", 2), ("+I", "bob", 1)]


def test_no_row_is_ever_late():
    host = KernelHost(fold())
    host.batch([at(1_000_000)])
    got = host.batch([at(-1_000_000), at(1_000_000), at(0)])
    assert got.watermark_micros == 1_000_000
    assert changes(got, "n") == [("-U", 1), ("+U", 4)]
    assert got.counts == {"rows_in": 3}


def test_no_watermark_is_needed():
    host = KernelHost(fold(), as_spark=True)
    host.batch([at(-5)])
    got = host.batch([at(-7)])
    assert (got.watermark_micros, changes(got, "n")) == (None, [("-U", 1), ("+U", 2)])


def test_a_row_without_a_time_is_an_error():
    got = KernelHost(fold()).batch([at(1) | {"ts": None}])
    assert got.main == []
    assert got.channels["errors"] == [{"reason": "event time 'ts' is null", "row": '{"user":"ann"}'}]
    assert got.counts == {"rows_in": 1, "errors": 1}


def test_all_rows_together_without_a_key():
    host = KernelHost(fold(TOTALS, keys=()), buckets=3)
    host.batch([at(1, "ann", 1), at(1, "bob", 2)])
    got = host.batch([at(1, "eve", 3)])
    assert got.main == [
        {"n": 2, "total": 3, "most": 2, "op": "-U"},
        {"n": 3, "total": 6, "most": 3, "op": "+U"},
    ]


def test_null_is_a_key_like_any_other():
    host = KernelHost(fold(keys=("user", "shop")))
    host.batch([at(1, None), at(1, None, shop=1)])
    assert changes(host.batch([at(1, None)]), "user", "shop", "n") == [
        ("-U", None, None, 1),
        ("+U", None, None, 2),
    ]


def test_first_and_last_go_by_time_then_by_arrival():
    host = KernelHost(fold((("first", a.First("items")), ("last", a.Last("items")))))
    host.batch([at(5, items=1), at(9, items=2)])
    host.restart()
    host.batch([at(9, items=3), at(5, items=4)])
    got = host.batch([at(7, items=5), at(4, items=6)])
    assert changes(got, "first", "last") == [("-U", 1, 3), ("+U", 6, 3)]


def test_values_are_those_of_a_plain_fold_over_restarts_failures_and_workers():
    chance = random.Random(5)
    host = KernelHost(fold(TOTALS), buckets=3)
    table, truth = Changelog(("user",)), defaultdict(list)
    for number in range(60):
        rows = [
            at(chance.randrange(-900, 900), str(chance.randrange(30)), chance.randrange(100))
            for _ in range(chance.randrange(12))
        ]
        for row in rows:
            truth[row["user"]].append(row["items"])
        if number % 7 == 0:
            host.restart()
        if number % 5 == 0:
            host.failed_batch([*rows, at(0, "0", 1000)])
        table.apply(host.batch(rows, worker=number % 2, packs=1 + number % 3).main)
        assert sorted(
            (row["user"], row["n"], row["total"], row["most"]) for row in table.rows
        ) == sorted((user, len(items), sum(items), max(items)) for user, items in truth.items())
    assert len(truth) == 30


def test_the_row_taken_back_is_the_one_that_went_out_to_the_bit():
    host = KernelHost(fold((("total", a.Sum("price")), ("mean", a.Mean("price")))))
    table, chance = Changelog(("user",)), random.Random(1)
    for number in range(40):
        table.apply(host.batch([at(number, price=chance.random()) for _ in range(3)], packs=3).main)
        if number % 3 == 0:
            host.restart()
    assert len(table.rows) == 1


# -- taking turns ---------------------------------------------------------------------------------


def test_periodic_speaks_once_an_interval_for_each_key():
    host = KernelHost(fold(emission=Retracting(interval=Micros(10))))
    assert changes(host.batch([at(1)]), "n") == [("+I", 1)]
    host.now = 5
    assert changes(host.batch([at(2), at(2, "bob")]), "user", "n") == [("+I", "bob", 1)]
    host.now = 10
    host.restart()
    assert sorted(changes(host.batch([at(3, "eve")]), "user", "n")) == [
        ("+I", "eve", 1),
        ("+U", "ann", 2),
        ("-U", "ann", 1),
    ]
    host.now = 12
    assert host.batch([at(4), at(4, "bob")]).main == []
    assert sorted(changes(host.end(), "user", "n")) == [
        ("+U", "ann", 3),
        ("+U", "bob", 2),
        ("-U", "ann", 2),
        ("-U", "bob", 1),
    ]


def test_a_key_that_waits_is_woken_by_the_watermark():
    host = KernelHost(fold(emission=Retracting(interval=Micros(10))))
    host.batch([at(1)])
    host.batch([at(20)])
    host.now = 10
    assert changes(host.batch([]), "n") == [("-U", 1), ("+U", 2)]


# -- what is stored -------------------------------------------------------------------------------


def pages_of(host):
    return {page.id: page for page in Manifest.from_bytes(host.stored[0, 0]["manifest"]).pages}


@pytest.mark.parametrize("emission", [ON_UPDATE, Retracting(interval=Micros(1))], ids=str)
def test_a_batch_writes_what_it_touches_and_not_what_there_is(emission):
    host = KernelHost(fold(emission=emission))
    host.batch([at(1, str(number)) for number in range(5000)])
    before = pages_of(host)
    host.now = 5
    host.batch([at(2, "7"), at(2, "new")])
    written = [page for id_, page in pages_of(host).items() if id_ not in before]
    assert sum(page.rows for page in written) == 2


def test_entries_do_not_pile_up():
    host = KernelHost(fold())
    for number in range(200):
        host.batch([at(number, str(number % 3))])
    assert sum(page.rows for page in pages_of(host).values()) < 100


def test_a_fold_asks_for_no_timer_unless_a_key_waits_for_its_turn():
    for emission, due in ((ON_UPDATE, None), (Retracting(interval=Micros(10)), 2)):
        host = KernelHost(fold(emission=emission))
        host.batch([at(1)])
        host.batch([at(1)])
        assert host._buckets[0, 0].due == due


# -- in a chain -----------------------------------------------------------------------------------


def test_messages_that_are_sent_again_are_folded_once():
    plan = fold(TOTALS, keys=("note",), feed=Derived(dedupe_plan(1000, on=("user", "shop")), "ts"))
    assert [vertex.name for vertex in compile(plan).vertices] == ["1 dedupe", "2 fold"]
    assert compile(plan).vertices[-1].delay == 0
    host, table, chance = KernelHost(plan, buckets=2), Changelog(("note",)), random.Random(2)
    sent = [
        at(number, f"p{number % 3}", number, shop=number, note="ab"[number % 2]) for number in range(300)
    ]
    for start in range(0, 300, 20):
        again = chance.sample(sent[: start + 20], min(start, 30))
        batch = [*sent[start : start + 20], *again]
        chance.shuffle(batch)
        host.failed_batch(batch)
        host.restart()
        table.apply(host.batch(batch, packs=2).main)
    assert sorted((row["note"], row["n"], row["total"]) for row in table.rows) == [
        ("a", 150, sum(range(0, 300, 2))),
        ("b", 150, sum(range(1, 300, 2))),
    ]


def test_results_of_windows_can_be_folded():
    windows = plan_of(hopping(10), emission=OnWindowClose())
    plan = fold((("windows", a.Count(None)), ("rows", a.Sum("n"))), feed=Derived(windows, "window_end"))
    host, table = KernelHost(plan, buckets=2), Changelog(("user",))
    for time in (1, 2, 11, 25, 26):
        table.apply(host.batch([at(time)]).main)
    table.apply(host.end().main)
    assert table.rows == [{"user": "ann", "windows": 3, "rows": 5}]


# -- plans ----------------------------------------------------------------------------------------


def test_columns_are_keys_aggregates_and_op():
    plan = fold(TOTALS, keys=("user", "shop"))
    assert plan.schema.names == ["user", "shop", "n", "total", "most", "op"]
    assert plan.result_key == ("user", "shop")
    assert plan_of(hopping(10)).result_key == ("user", "window_start", "window_end")


def test_a_key_may_have_the_name_of_a_bound():
    schema = pa.schema([("ts", TIMESTAMP), ("window_start", pa.string())])
    host = KernelHost(fold(schema=schema, keys=("window_start",)))
    got = host.batch([{"ts": instant_of(1), "window_start": "x"}])
    assert changes(got, "window_start", "n") == [("+I", "x", 1)]


def test_op_is_taken():
    with pytest.raises(PlanError, match="'op'"):
        fold((("op", a.Count(None)),))


@pytest.mark.parametrize(
    "emission", [OnWatermark(), OnWindowClose(), OnWindowClose(final=True)], ids=str
)
def test_other_strategies_are_refused(emission):
    with pytest.raises(EmissionRefused) as raised:
        fold(emission=emission)
    assert str(raised.value) == (
        f"{emission} without a window: a running fold never closes, so it has no last result to wait "
        "for; use tg.emit.on_update(), changelog() or periodic(…)"
    )


def test_folds_cannot_go_on_as_events():
    with pytest.raises(PlanError) as raised:
        Derived(fold(), "ts")
    assert str(raised.value) == (
        "events(time='ts'): results of on_update take others back, and cannot go on as events; "
        "give the fold a window"
    )


def test_the_physical_operators():
    [kernel] = kernels_of(compile(fold(emission=CHANGELOG)))
    assert kernel.physical_operators() == [
        "FoldPreAggregate[user]",
        "FoldMerge[by key]",
        "FoldEmit[changelog]",
    ]


def test_what_the_state_depends_on():
    assert fold().identity()["inputs"]["rows"]["window"] == {"kind": "all_time"}
    more = [f"'{name}' among the aggregates" for name, _ in TOTALS if (name, _) not in fold().aggregates]
    for parts, other in (
        (["keys"], fold(keys=("shop",))),
        (more, fold(TOTALS)),
        (["emission"], fold(emission=CHANGELOG)),
        ([], fold(tolerance=5)),
    ):
        assert changed_parts(fold(), other) == parts


def test_rows_stamped_as_they_come_need_no_moving():
    """Nothing is late, so there is nothing to move either."""
    assert not isinstance(fold().late, Reassign)


# -- the public way to it -------------------------------------------------------------------------


def events():
    return Events((), Source(SCHEMA, "ts", Micros(0)))


def test_without_a_strategy_it_is_on_update():
    rows = count()
    result = events().key_by("user").agg(n=rows)
    assert result.node.emission == ON_UPDATE
    assert result.emit(emit.changelog()).node.emission == CHANGELOG
    assert result.emit(emit.periodic("5 s")).node.emission.interval == 5_000_000
    assert events().agg(n=rows).node == events().key_by().agg(n=rows).node
    with pytest.raises(EmissionRefused, match="on_window_close without a window"):
        result.emit(emit.on_window_close())
    with pytest.raises(PlanError, match="at least one aggregate"):
        events().key_by("user").agg()


def test_changes_without_a_key_cannot_be_applied_to_a_table(tmp_path):
    plan = fold(keys=())
    target = connectors.Target("query", "main", plan.schema, plan.result_key, plan.retracts)
    with pytest.raises(SinkError, match="changes of a fold without a key cannot be applied"):
        sinks.duckdb(tmp_path / "t.duckdb", "t").prepare(target)


# -- the reader -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[("+I", 1)], [("+I", 2)]], "a second live row"),
        ([[("-U", 1), ("+U", 2)]], "takes back a row that is not there"),
        ([[("+I", 1)], [("-U", 2), ("+U", 3)]], "but what is out is"),
        ([[("+I", 1)], [("-U", 1)]], "an update that never came"),
        ([[("+U", 1)]], "updates nothing"),
    ],
)
def test_a_changelog_of_folds_that_nobody_could_apply(batches, message):
    rows = [[{"user": "ann", "n": n, "op": op} for op, n in batch] for batch in batches]
    with pytest.raises(IllegalChange, match=message):
        replay(rows, ("user",))


@pytest.mark.parametrize("lateness", ["0 s", "5 s"])
def test_the_end_comes_for_folds_that_are_held_back(lateness):
    """A fold that waits for its turn puts out its last value at the end, however far it is behind."""
    stream = Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))
    in_windows = tg.events(stream, time="ts").key_by("user")
    windows = in_windows.window(tg.tumbling("10 s"), allowed_lateness=lateness)
    closed = windows.agg(n=tg.count()).emit(tg.emit.on_window_close())
    total = closed.events(time="window_end").key_by("user").agg(n=tg.sum("n"))
    run = DryRun(total.emit(tg.emit.periodic("1 hour")))
    run.batch("ts | user\n1 | ann\n2 | ann\n30 | ann")
    out = [*run.batch("").main, *run.end().main]
    assert [row["n"] for row in consolidate(out)] == [3]
