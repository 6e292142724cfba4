"""Watermarks as pieces: made by sources, aligned between them, passed on through a graph."""

import random
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import tidegate as tg
from tidegate import testing
from tidegate.dataflow import compile
from tidegate.dataflow.watermarks import (
    SparkWatermarkGenerator,
    WatermarkAligner,
    WatermarkGenerator,
    WatermarkPropagator,
)
from tidegate.errors import DurationError, PlanError, TidegateError, WatermarkViolation
from tidegate.optimize import optimize

# -- one source -----------------------------------------------------------------------------------


def test_the_watermark_is_the_highest_time_minus_the_tolerance():
    generator = WatermarkGenerator(7)
    assert generator.watermark is None
    assert [generator.observe(times) for times in ([7, 1, 4], [17], [2], [])] == [0, 10, 10, 10]
    assert (generator.highest, generator.emitted) == (17, 2)
    assert (generator.observe([27]), generator.emitted) == (20, 3)


def test_without_times_there_is_none():
    generator = WatermarkGenerator(0)
    assert generator.observe([]) is None
    assert (generator.highest, generator.watermark, generator.emitted) == (None, None, 0)


def test_it_may_lie_before_1970():
    assert WatermarkGenerator(5).observe([-100]) == -105


def test_times_may_come_from_anywhere():
    generator = WatermarkGenerator(1)
    assert generator.observe(time for time in (3, 1, 2)) == 2


def test_spark_counts_whole_milliseconds_and_rounds_the_tolerance_up():
    generator = SparkWatermarkGenerator(1_500)
    assert [generator.observe([time]) for time in (2_000, 7_999, 7_000, 8_000)] == [
        None,
        5_000,
        5_000,
        6_000,
    ]
    assert generator.emitted == 2


def test_it_never_goes_back_whatever_comes():
    chance = random.Random(1)
    generator, before, seen = WatermarkGenerator(13), None, []
    for _ in range(300):
        times = [chance.randrange(-1000, 1000) for _ in range(chance.randrange(3))]
        seen += times
        after = generator.observe(times)
        assert after == (max(seen) - 13 if seen else None)
        assert before is None or after >= before
        before = after


def test_time_that_goes_on_without_rows_does_not_go_back_either():
    generator = WatermarkGenerator(3)
    assert [generator.advance(time) for time in (20, 10, 21)] == [17, 17, 18]
    assert generator.emitted == 2


# -- several sources ------------------------------------------------------------------------------


def test_the_lowest_counts():
    aligner = WatermarkAligner(("a", "b"))
    assert aligner.update("a", 10) is None  # the other is silent so far
    assert aligner.update("b", 5) == 5
    assert aligner.update("b", 20) == 10
    assert aligner.update("a", 15) == 15
    assert aligner.watermark == 15


def test_without_sources_there_is_none():
    assert WatermarkAligner(()).watermark is None


def test_one_source_is_its_own_watermark():
    aligner = WatermarkAligner(("a",))
    assert (aligner.watermark, aligner.update("a", -3)) == (None, -3)


def test_a_source_that_has_no_watermark_yet_still_holds_the_others():
    aligner = WatermarkAligner(("a", "b"))
    assert aligner.update("a", None) is None
    assert aligner.update("b", 5) is None
    assert aligner.update("a", 7) == 5


def test_an_idle_source_does_not_count():
    aligner = WatermarkAligner(("a", "b", "c"))
    aligner.update("a", 10)
    aligner.update("b", 3)
    assert aligner.idle("c") == 3
    assert aligner.idle("b") == 10
    assert aligner.update("a", 12) == 12


def test_the_watermark_stays_where_all_are_idle():
    aligner = WatermarkAligner(("a", "b"))
    assert aligner.idle("a") is None
    assert aligner.idle("b") is None
    aligner.update("a", 4)
    assert aligner.watermark == 4
    assert aligner.idle("a") == 4


def test_a_source_that_comes_back_counts_again_but_takes_nothing_back():
    aligner = WatermarkAligner(("a", "b"))
    aligner.update("b", 3)
    aligner.idle("b")
    assert aligner.update("a", 10) == 10
    assert aligner.update("b", 5) == 10  # behind the others: its rows are late
    assert aligner.update("a", 20) == 10
    assert aligner.update("b", 15) == 15


def test_a_source_that_goes_back_is_a_violation():
    aligner = WatermarkAligner(("a", "b"))
    aligner.update("a", 10)
    with pytest.raises(WatermarkViolation) as raised:
        aligner.update("a", 9)
    assert (raised.value.operator, raised.value.reason) == ("a", "its watermark went back from 10 to 9")
    assert str(raised.value) == "a: its watermark went back from 10 to 9"
    assert isinstance(raised.value, TidegateError)
    assert aligner.update("a", 10) is None  # standing still is none, and nothing was changed
    assert aligner.update("b", 11) == 10


def test_idle_does_not_excuse_going_back():
    aligner = WatermarkAligner(("a",))
    aligner.update("a", 10)
    aligner.idle("a")
    with pytest.raises(WatermarkViolation):
        aligner.update("a", 9)


def test_a_source_must_be_known():
    aligner = WatermarkAligner(("a", "b"))
    for refused in (lambda: aligner.update("c", 1), lambda: aligner.idle("c")):
        with pytest.raises(PlanError) as raised:
            refused()
        assert str(raised.value) == "no source 'c'; there are a, b"


def test_alignment_is_the_minimum_of_those_that_count_and_never_goes_back():
    chance = random.Random(2)
    names = ("a", "b", "c")
    aligner, reached, idle, highest = WatermarkAligner(names), {}, set(), None
    for _ in range(500):
        name = chance.choice(names)
        if chance.random() < 0.2:
            idle.add(name)
            got = aligner.idle(name)
        else:
            idle.discard(name)
            reached[name] = reached.get(name, 0) + chance.randrange(5)
            got = aligner.update(name, reached[name])
        counting = [other for other in names if other not in idle]
        if counting and all(other in reached for other in counting):
            lowest = min(reached[other] for other in counting)
            highest = lowest if highest is None else max(highest, lowest)
        assert got == highest


# -- a graph --------------------------------------------------------------------------------------

DIAMOND = {
    "clicks": (),
    "orders": (),
    "windows": ("clicks",),
    "join": ("windows", "orders"),
    "ordered": ("join",),
    "alarms": ("orders",),
}
DELAYS = {"windows": 10, "join": 5, "alarms": 100}


def test_an_operator_has_the_minimum_of_its_inputs_less_what_it_holds_back():
    graph = WatermarkPropagator(DIAMOND, DELAYS)
    assert graph.advance("clicks", 50) == {"clicks": 50, "windows": 40}
    assert graph.input_of("join") is None
    reached = graph.advance("orders", 30)
    assert reached == {
        "clicks": 50,
        "windows": 40,
        "orders": 30,
        "join": 25,
        "ordered": 25,
        "alarms": -70,
    }
    assert graph.advance("orders", 90)["join"] == 35
    assert graph.inputs() == {"windows": 50, "join": 40, "ordered": 35, "alarms": 90}


def test_operators_may_be_named_in_any_order():
    chance = random.Random(4)
    expected = None
    for _ in range(20):
        names = list(DIAMOND)
        chance.shuffle(names)
        graph = WatermarkPropagator({name: DIAMOND[name] for name in names}, DELAYS)
        graph.advance("clicks", 50)
        got = graph.advance("orders", 30)
        expected = expected or got
        assert got == expected


def test_the_watermark_of_the_graph_is_the_lowest_of_its_ends():
    graph = WatermarkPropagator(DIAMOND, DELAYS)
    graph.advance("orders", 300)
    assert graph.watermark is None  # one end has none yet
    graph.advance("clicks", 50)
    assert graph.watermark == 35  # that of `ordered`; `alarms` is at 200
    graph.advance("clicks", 1000)
    assert graph.watermark == 200


def test_without_operators_or_before_the_first_word_there_is_none():
    assert WatermarkPropagator({}).watermark is None
    alone = WatermarkPropagator({"a": ()})
    assert (alone.watermark, alone.input_of("a")) == (None, None)
    assert alone.advance("a", 3) == {"a": 3}
    assert alone.watermark == 3


def test_going_back_is_a_violation_and_changes_nothing():
    graph = WatermarkPropagator(DIAMOND, DELAYS)
    graph.advance("clicks", 50)
    before = graph.advance("orders", 30)
    with pytest.raises(WatermarkViolation) as raised:
        graph.advance("orders", 29)
    assert raised.value.operator == "orders"
    assert raised.value.reason == "its watermark went back from 30 to 29"
    assert graph.advance("orders", 30) == before


def test_only_sources_are_given_watermarks():
    graph = WatermarkPropagator(DIAMOND, DELAYS)
    with pytest.raises(WatermarkViolation) as raised:
        graph.advance("join", 5)
    assert raised.value.operator == "join"
    assert raised.value.reason == "it reads others, which give it its watermark"


def test_an_operator_that_reads_what_does_not_exist_is_refused():
    with pytest.raises(PlanError) as raised:
        WatermarkPropagator({"a": ("b",)})
    assert str(raised.value) == "operator 'a' reads 'b', which does not exist"


@pytest.mark.parametrize(
    "circle",
    [
        {"a": ("a",)},
        {"a": ("b",), "b": ("a",)},
        {"s": (), "a": ("s", "c"), "b": ("a",), "c": ("b",)},
    ],
)
def test_circles_are_refused(circle):
    with pytest.raises(PlanError, match=r"operators read each other in a circle: .* ← "):
        WatermarkPropagator(circle)


def test_outputs_never_go_back_whatever_sources_do():
    chance = random.Random(6)
    graph, reached, before = WatermarkPropagator(DIAMOND, DELAYS), {"clicks": 0, "orders": 0}, {}
    for _ in range(300):
        source = chance.choice(list(reached))
        reached[source] += chance.randrange(20)
        after = graph.advance(source, reached[source])
        assert all(after[name] >= before[name] for name in before)
        if len(after) == len(DIAMOND):
            assert after["join"] == min(reached["clicks"] - 10, reached["orders"]) - 5
        before = after


# -- as programs write them -----------------------------------------------------------------------

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_times_are_datetimes_and_lengths_are_durations():
    for tolerance in ("1 minute", MINUTE):
        generator = tg.WatermarkGenerator(tolerance)
        assert generator.observe([NOON - MINUTE, NOON, NOON - 2 * MINUTE]) == NOON - MINUTE
        assert generator.observe([NOON - MINUTE]) == NOON - MINUTE  # out of order
        assert (generator.highest, generator.emitted) == (NOON, 1)
        assert generator.advance(NOON + MINUTE) == NOON
        assert generator.highest == NOON  # a heartbeat is no event
        assert generator.advance_to(NOON - MINUTE) == NOON
        assert generator.advance_to(NOON + MINUTE) == NOON + MINUTE
        assert generator.emitted == 3


def test_the_tolerance_is_zero_if_not_given():
    assert tg.WatermarkGenerator().observe([NOON]) == NOON


def test_watermarks_are_in_utc_whatever_the_zone_of_times():
    generator = tg.WatermarkGenerator()
    assert generator.observe([datetime(2026, 1, 1, 12)]) == NOON
    later = generator.observe([datetime(2026, 1, 1, 14, 1, tzinfo=timezone(timedelta(hours=2)))])
    assert (later, later.tzinfo) == (NOON + MINUTE, UTC)
    paris = ZoneInfo("Europe/Paris")
    night = tg.WatermarkGenerator("2 hours")  # an hour after clocks went back from 3 to 2
    assert night.observe([datetime(2025, 10, 26, 3, tzinfo=paris)]) == datetime(
        2025, 10, 26, 0, tzinfo=UTC
    )
    assert tg.WatermarkAligner(["a"]).update("a", datetime(2026, 1, 1, 12)).tzinfo is UTC
    assert tg.WatermarkPropagator({"a": []}).advance("a", datetime(2026, 1, 1, 12)) == {"a": NOON}


@pytest.mark.parametrize("tolerance", [-1, "-1 s", timedelta(seconds=-1), "soon", None])
def test_a_tolerance_is_a_length(tolerance):
    with pytest.raises(DurationError, match="tolerance"):
        tg.WatermarkGenerator(tolerance)


def test_a_union_goes_by_the_lower_of_its_sources_and_an_idle_one_does_not_hold_it():
    web, shop = tg.WatermarkGenerator("1 minute"), tg.WatermarkGenerator("0 s")
    union = tg.WatermarkAligner(["web", "shop"])
    assert union.update("web", web.observe([NOON])) is None
    assert union.update("shop", shop.observe([NOON - 5 * MINUTE])) == NOON - 5 * MINUTE
    assert union.update("web", web.observe([NOON - 3 * MINUTE])) == NOON - 5 * MINUTE
    assert union.idle("shop") == NOON - MINUTE
    assert union.update("shop", shop.observe([NOON - 2 * MINUTE])) == NOON - MINUTE  # nothing goes back
    assert union.update("shop", shop.observe([NOON])) == NOON - MINUTE
    assert union.update("web", web.observe([NOON + 2 * MINUTE])) == NOON


def test_a_source_that_goes_back_stays_idle_and_nothing_changes():
    aligner = tg.WatermarkAligner(["a", "b"])
    aligner.update("a", NOON)
    aligner.update("b", NOON + MINUTE)
    aligner.idle("a")
    with pytest.raises(WatermarkViolation, match="went back from 2026-01-01 12:00:00"):
        aligner.update("a", NOON - MINUTE)
    assert aligner.update("b", NOON + 2 * MINUTE) == NOON + 2 * MINUTE


def test_sources_may_come_from_anywhere():
    aligner = WatermarkAligner(str(number) for number in range(2))
    assert [aligner.update("0", 1), aligner.update("1", 2)] == [None, 1]


def test_a_graph_of_datetimes():
    graph = tg.WatermarkPropagator(
        {"web": [], "shop": [], "union": ["web", "shop"], "windows": ["union"], "sink": ["windows"]},
        delays={"windows": "10 minutes"},
    )
    assert graph.advance("web", NOON) == {"web": NOON}
    reached = graph.advance("shop", NOON - MINUTE)
    assert (reached["union"], reached["sink"]) == (NOON - MINUTE, NOON - 11 * MINUTE)
    assert graph.watermark == NOON - 11 * MINUTE
    with pytest.raises(WatermarkViolation):
        graph.advance("web", NOON - MINUTE)
    assert graph.inputs() == {
        "union": NOON - MINUTE,
        "windows": NOON - MINUTE,
        "sink": NOON - 11 * MINUTE,
    }


@pytest.mark.parametrize(
    ("inputs", "delays", "message"),
    [
        ({"a": [], "b": "a"}, {}, "operator 'b' reads a list of names, got 'a'"),
        ({"a": []}, {"b": "1 s"}, "a delay for 'b', which does not exist"),
        ({"a": []}, {"a": "-1 s"}, "the delay of 'a' must be zero or more"),
        ({"a": []}, {"a": -1}, "the delay of 'a' must be zero or more"),
    ],
)
def test_graphs_that_are_refused(inputs, delays, message):
    with pytest.raises(PlanError, match=message):
        tg.WatermarkPropagator(inputs, delays)


def test_an_operator_must_be_known():
    graph = tg.WatermarkPropagator({"a": [], "b": ["a"]})
    for refused in (lambda: graph.advance("c", NOON), lambda: graph.input_of("c")):
        with pytest.raises(PlanError, match="no operator 'c'; there are a, b"):
            refused()


# -- queries --------------------------------------------------------------------------------------

STREAM = testing.Stream(pa.schema([("ts", pa.timestamp("us", "UTC")), ("user", pa.string())]))


def minutes(window, **options):
    events = tg.events(STREAM, time="ts", tolerance="1 s").key_by("user")
    return events.window(window, **options).agg(n=tg.count())


def chains():
    hour, lateness = tg.tumbling("1 hour"), {"allowed_lateness": "30 s"}
    yield minutes(tg.hopping("1 min", "10 s"), **lateness).events(time="window_start").agg(n=tg.count())
    ends = minutes(tg.session("1 min"), **lateness).emit(tg.emit.on_window_close())
    yield ends.events(time="window_end").window(hour).agg(n=tg.count())
    sides = [minutes(tg.tumbling(size)).events(time="window_start") for size in ("1 min", "5 min")]
    keyed = [side.key_by("user").window(hour) for side in sides]
    yield keyed[0].join(keyed[1])


@pytest.mark.parametrize("number", range(3))
def test_the_delays_of_a_query_are_those_that_the_propagator_gives_its_graph(number):
    dataflow = compile(optimize(list(chains())[number].node))
    names = [vertex.name for vertex in dataflow.vertices]
    inputs, delays = {"sources": ()}, {}
    for vertex in dataflow.vertices:
        inputs[vertex.name] = tuple(edge.name + " edge" for edge in vertex.edges)
        for edge in vertex.edges:
            inputs[edge.name + " edge"] = ("sources" if edge.vertex is None else names[edge.vertex],)
            delays[edge.name + " edge"] = edge.delay
    graph = WatermarkPropagator(inputs, delays)
    graph.advance("sources", 10**12)
    assert any(vertex.delay for vertex in dataflow.vertices)
    expected = {vertex.name: 10**12 - vertex.delay for vertex in dataflow.vertices}
    assert {name: graph.input_of(name) for name in names} == expected
