"""Where event times come from: the registry of types, what plans refuse, and users' parsers."""

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.errors import ColumnNotFound, PlanError, TypeMismatch
from tidegate.plan.event_time import EVENT_TIME_TYPES, At, EventTime, EventTimeTypes
from tidegate.spark.sources.event_time import parsed

SECONDS = ["unixtimestamp", "unixtimestamp_s"]
BUILT_IN = sorted(["date", "iso8601", "timestamp", *SECONDS, "unixtimestamp_ms", "unixtimestamp_us"])
INSTANT = pa.timestamp("us", tz="UTC")

ORDER = pa.struct([("ts", pa.int64()), ("note", pa.string())])
ROW = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("millis", pa.int64()),
        ("tiny", pa.int8()),
        ("fraction", pa.float64()),
        ("exact", pa.decimal128(20, 6)),
        ("flag", pa.bool_()),
        ("order", ORDER),
    ]
)


def plain(column: str, kind: str = "timestamp") -> EventTime:
    return EventTime(((None, At(column, kind)),))


def day(values: pa.Array) -> pa.Array:
    """Raises on anything that is not a day."""
    return pc.strptime(values, "%d.%m.%Y", "us")


# -- the registry -------------------------------------------------------------------------------


def test_the_built_in_types():
    assert EventTimeTypes().list() == BUILT_IN
    assert EVENT_TIME_TYPES.list() == BUILT_IN
    assert all(EVENT_TIME_TYPES.resolve(name).parse is None for name in BUILT_IN)


def test_a_type_is_added_and_replaced():
    types = EventTimeTypes()
    types.register("day", day)
    assert "day" in types.list()
    assert types.resolve("day").parse is day
    types.register("day", pc.strptime, accepts=pa.types.is_string)
    assert types.resolve("day").parse is pc.strptime
    assert not types.resolve("day").accepts(pa.int64())


def test_registries_do_not_share_what_users_add():
    EventTimeTypes().register("mine", day)
    assert "mine" not in EventTimeTypes().list()


def test_an_unknown_type_names_the_nearest():
    with pytest.raises(PlanError, match="no event-time type 'iso8610'; did you mean 'iso8601'"):
        EventTimeTypes().resolve("iso8610")


@pytest.mark.parametrize(
    ("name", "parse", "message"),
    [
        ("iso8601", day, "event-time type 'iso8601' is built in; take another name"),
        ("", day, "needs a name, got ''"),
        (7, day, "needs a name, got 7"),
        ("day", "%d.%m.%Y", "'day': the parser must be a function, got '%d.%m.%Y'"),
    ],
)
def test_refused_registrations(name, parse, message):
    types = EventTimeTypes()
    with pytest.raises(PlanError, match=message):
        types.register(name, parse)
    assert types.list() == BUILT_IN


def test_built_in_types_travel_to_workers():
    kind = EVENT_TIME_TYPES.resolve("unixtimestamp_s")
    assert pickle.loads(pickle.dumps(kind)) == kind


# -- what plans refuse --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("ts", "timestamp"),
        ("local", "timestamp"),
        ("text", "iso8601"),
        ("millis", "unixtimestamp_ms"),
        ("tiny", "unixtimestamp_us"),
        ("tiny", "unixtimestamp_s"),
        ("tiny", "unixtimestamp"),
        ("fraction", "unixtimestamp"),
        ("exact", "unixtimestamp"),
        ("fraction", "unixtimestamp_s"),
        ("exact", "unixtimestamp_s"),
    ],
)
def test_columns_that_fit(column, kind):
    plain(column, kind).validate(ROW, EVENT_TIME_TYPES)


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        (
            "text",
            "unixtimestamp_ms",
            "event time column 'text' has type string, but event-time type 'unixtimestamp_ms' reads "
            'whole numbers; use time_type="iso8601"',
        ),
        ("fraction", "unixtimestamp_ms", 'reads whole numbers; use time_type="unixtimestamp_s"'),
        ("exact", "unixtimestamp_us", 'reads whole numbers; use time_type="unixtimestamp_s"'),
        ("ts", "iso8601", 'reads text; use time_type="timestamp"'),
        (
            "millis",
            "timestamp",
            'timestamps; use time_type="unixtimestamp_s" or "unixtimestamp_ms" or "unixtimestamp_us"',
        ),
        ("text", "unixtimestamp", "type 'unixtimestamp' reads numbers; use time_type=\"iso8601\""),
        ("flag", "unixtimestamp_s", "has type bool.* reads numbers; cast it, or register a parser"),
        ("order", "timestamp", "'order' has type struct<.*reads timestamps; cast it"),
    ],
)
def test_types_that_do_not_fit(column, kind, message):
    with pytest.raises(TypeMismatch, match=message):
        plain(column, kind).validate(ROW, EVENT_TIME_TYPES)


def test_a_users_type_takes_what_it_accepts():
    types = EventTimeTypes()
    types.register("any", day)
    types.register("words", day, accepts=pa.types.is_string)
    plain("flag", "any").validate(ROW, types)
    plain("text", "words").validate(ROW, types)
    with pytest.raises(TypeMismatch, match="event-time type 'words' reads only what it accepts"):
        plain("millis", "words").validate(ROW, types)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (plain("tss"), ColumnNotFound, "event time: no column 'tss'; did you mean 'ts'"),
        (plain("ts", "isO"), PlanError, "no event-time type 'isO'"),
        (EventTime((("ordr", At("ts")),)), ColumnNotFound, "no message 'ordr'; did you mean 'order'"),
        (EventTime((("text", At("ts")),)), TypeMismatch, "'text' has type string; it must be a struct"),
        (
            EventTime((("order", At("tss")),)),
            ColumnNotFound,
            "message 'order' has no field 'tss'; did you mean 'ts'",
        ),
        (
            EventTime((("order", At("note", "unixtimestamp_s")),)),
            TypeMismatch,
            "event time column 'order.note' has type string",
        ),
    ],
)
def test_what_does_not_exist(spec, error, message):
    with pytest.raises(error, match=message):
        spec.validate(ROW, EVENT_TIME_TYPES)


def test_every_part_is_checked():
    good, bad = ("order", At("ts", "unixtimestamp_s")), ("order", At("ts"))
    EventTime((good, good)).validate(ROW, EVENT_TIME_TYPES)
    with pytest.raises(TypeMismatch, match=r"'order\.ts' has type int64"):
        EventTime((good, bad)).validate(ROW, EVENT_TIME_TYPES)


@pytest.mark.parametrize("wrong", [lambda: EventTime(()), lambda: At(""), lambda: At("ts", None)])
def test_an_event_time_says_where_it_is(wrong):
    with pytest.raises(PlanError, match="event time: "):
        wrong()


@pytest.mark.parametrize(
    ("spec", "native"),
    [
        (plain("ts"), True),
        (plain("text", "iso8601"), False),
        (EventTime((("order", At("ts")),)), False),
        (EventTime(((None, At("ts")), (None, At("local")))), False),
    ],
)
def test_only_a_single_timestamp_column_stays_as_it_is(spec, native):
    assert spec.native is native


# -- users' parsers -----------------------------------------------------------------------------


def micros(times: pa.Array) -> list[int | None]:
    assert times.type == INSTANT
    return times.cast(pa.int64()).to_pylist()


def test_a_parser_reads_all_values_at_once():
    calls = []

    def counted(values):
        calls.append(len(values))
        return day(values)

    assert micros(parsed("day", counted, pa.array(["01.01.1970", "02.01.1970"]))) == [0, 86_400_000_000]
    assert calls == [2]


@pytest.mark.parametrize("broken", [{0}, {6}, {0, 1, 5}, set(range(7))])
def test_a_parser_that_raises_loses_only_what_it_cannot_read(broken):
    values = ["?" if i in broken else f"0{i + 1}.01.1970" for i in range(7)]
    expected = [None if i in broken else i * 86_400_000_000 for i in range(7)]
    assert micros(parsed("day", day, pa.array(values))) == expected


def test_nothing_to_read_does_not_trouble_the_parser():
    assert micros(parsed("none", lambda _: 1 / 0, pa.array([], pa.string()))) == []


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1], pa.timestamp("s")), [1_000_000]),
        (pa.array([1], pa.timestamp("ms", tz="Europe/Berlin")), [1_000]),
        (pa.array([1_999], pa.timestamp("ns", tz="UTC")), [1]),
        (pa.array([1_999], pa.timestamp("ns")), [1]),
        (pa.array([1 << 62], pa.timestamp("s")), [None]),  # beyond 64-bit microseconds
        (pa.nulls(1), [None]),
        (pa.chunked_array([pa.array([5], INSTANT)]), [5]),
    ],
)
def test_whatever_timestamps_a_parser_gives(times, expected):
    assert micros(parsed("any", lambda _: times, pa.array(["x"]))) == expected


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (pa.array([1, 2]), "must give an Arrow array of timestamps, gave int64"),
        ([1, 2], "must give an Arrow array of timestamps, gave list"),
        (pa.array([1], INSTANT), "must give a time for each value: gave 1 for 2"),
    ],
)
def test_a_parser_that_breaks_its_contract_is_named(times, message):
    with pytest.raises(TypeMismatch, match=f"the parser of event-time type 'odd' {message}"):
        parsed("odd", lambda _: times, pa.array(["x", "y"]))
