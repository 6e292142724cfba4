"""What notebooks, prompts and messages show of public objects: a short line, and never a secret."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

import tidegate as tg
from tests.golden import assert_golden
from tidegate import sql
from tidegate.dataflow import compile
from tidegate.kernels.messages import Message
from tidegate.observe.metrics import Metrics
from tidegate.plan.event_time import EventTimeTypes
from tidegate.plan.schema import TIMESTAMP
from tidegate.spark.query import Query
from tidegate.testing import Stream

SCHEMA = pa.schema(
    [
        ("ts", TIMESTAMP),
        ("user", pa.string()),
        ("price", pa.float64()),
        ("ms", pa.int64()),
        ("order", pa.struct([("created", TIMESTAMP)])),
        ("click", pa.struct([("ms", pa.int64())])),
    ]
)
WIDE = pa.schema([("ts", TIMESTAMP), *((f"c{n}", pa.int64()) for n in range(300))])
PASSWORD = "opensesame"

PROGRAM = sql.compile(
    f"""
    CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts)
    WITH (connector = 'kafka', format = 'json', 'kafka.bootstrap.servers' = 'b',
          'kafka.sasl.jaas.config' = '{PASSWORD}', subscribe = 'clicks');
    CREATE SINK counts WITH (connector = 'postgres', dsn = 'password={PASSWORD}', table = 't');
    INSERT INTO counts SELECT user, window_start, window_end, count(*) AS n
    FROM clicks WHERE user <> '' GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
    SELECT * FROM clicks;
    """
)


def events(schema=SCHEMA, **options):
    return tg.events(Stream(schema), **{"time": "ts", "tolerance": "5 s"} | options)


def doubled(rows):
    return rows


KEYED = events().key_by("user")
WINDOWED = KEYED.window(tg.tumbling("1 minute"), late=tg.late.side_output("late"))
RESULT = WINDOWED.agg(n=tg.count(), spend=tg.sum("price"))

OBJECTS = {
    "events": events(),
    "of numbers": events(time="ms", time_type="unixtimestamp_ms"),
    "wide": events(WIDE),
    "united": events().union(events()),
    "mapped": events().map(doubled),
    "keyed": KEYED,
    "windowed": WINDOWED,
    "result": RESULT,
    "changes": RESULT.emit(tg.emit.changelog()),
    "wide result": events(WIDE).agg(**{f"n{n}": tg.count() for n in range(50)}),
    "in order": KEYED.reorder(),
    "distinct": events().dedupe(on=["user", "ts"], within="1 hour"),
    "admitted": events().admit(tg.sla("gold")),
    "joined": WINDOWED.join(events().key_by("user").window(tg.tumbling("1 minute"))),
    "together": tg.together(a=RESULT, b=events().agg(n=tg.count())),
    "processing time": tg.processing_time(),
    "at": tg.at("ms", "unixtimestamp_ms"),
    "event-time types": EventTimeTypes(),
    "tumbling": tg.tumbling("1 minute", "10 s"),
    "hopping": tg.hopping("1 minute", "10 s"),
    "session": tg.session("30 minutes", max_length="1 day"),
    "sliding": tg.sliding("1 minute", "10 s", when="price > 1"),
    "on_watermark": tg.emit.on_watermark(),
    "on_window_close": tg.emit.on_window_close(),
    "final": tg.emit.final(),
    "on_update": tg.emit.on_update(),
    "changelog": tg.emit.changelog(),
    "periodic": tg.emit.periodic("1 s"),
    "drop": tg.late.drop(),
    "reassign": tg.late.reassign("90 s"),
    "side_output": tg.late.side_output("late"),
    "count": tg.count(),
    "quantile": tg.quantile("price", 0.5),
    "var": tg.var("price", population=True),
    "sla": tg.sla("gold", max_lag="1 hour"),
    "fusion": tg.fusion(),
    "pace": tg.pace("500 ms"),
    "memory": tg.sinks.memory(),
    "console": tg.sinks.console(),
    "parquet": tg.sinks.parquet("/out"),
    "duckdb": tg.sinks.duckdb("/out.duckdb", "spend"),
    "postgres": tg.sinks.postgres(f"host=db password={PASSWORD}", "sales.spend"),
    "discard": tg.sinks.discard(),
    "program": PROGRAM,
    "insert": PROGRAM.inserts[0],
    "select": PROGRAM.selects[0],
    "input": PROGRAM.inserts[0].inputs[0],
    "stream": PROGRAM.streams["clicks"],
    "sink": PROGRAM.sinks["counts"],
}


def test_objects_show_themselves_in_a_line():
    assert_golden("texts", "\n".join(f"{name}: {shown!r}" for name, shown in OBJECTS.items()))


@pytest.mark.parametrize("name", OBJECTS)
def test_a_text_is_short_and_keeps_secrets(name):
    text = repr(OBJECTS[name])
    assert len(text) < 250
    assert "\n" not in text
    assert " at 0x" not in text
    assert PASSWORD not in text


def test_a_memory_sink_tells_how_much_it_has():
    sink = tg.sinks.memory()
    sink.batches = {0: pa.table({"n": [1, 2]}), 3: pa.table({"n": [3]})}
    assert repr(sink) == "<MemorySink: 3 rows of 2 batches>"


class SparkQuery:
    """Spark's query, as far as a text asks."""

    def __init__(self, name="spend", active=True, error=None):
        self.name, self.id, self.isActive, self.error = name, "3f1c", active, error

    def exception(self):
        return self.error


class EndedQuery:
    @property
    def isActive(self):
        raise ConnectionRefusedError("the JVM has gone")


def query_of(spark, batch=-1, highest=None):
    metrics = Metrics(compile(RESULT.node))
    if highest is not None:
        metrics.record(batch, [Message.high_water_mark(0, 0, highest)], 0)
    writer = SimpleNamespace(metrics=metrics, last=batch, metrics_file=None)
    return Query(spark, SimpleNamespace(writer=writer))


NOON = 1_767_268_800_000_000 + 5_000_000


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (query_of(SparkQuery()), "<Query spend: running, no batch yet, no watermark yet>"),
        (
            query_of(SparkQuery(), 12, NOON),
            "<Query spend: running, batch 12, watermark 2026-01-01 12:00:00>",
        ),
        (query_of(SparkQuery(None, active=False), 0), "<Query 3f1c: ended, batch 0, no watermark yet>"),
        (
            query_of(SparkQuery(active=False, error="no"), 3),
            "<Query spend: failed, batch 3, no watermark yet>",
        ),
        (query_of(EndedQuery(), 3), "<Query of a session that has ended, batch 3, no watermark yet>"),
    ],
)
def test_a_query_tells_how_far_it_is(query, text):
    assert repr(query) == text


class Count(tg.Aggregate):
    """Not ours, though called so."""

    def output_type(self, column_type):
        return pa.int64()

    def partial(self, value, time):
        return {"n": time.count()}

    def merge(self, state):
        return {"n": state["n"].sum()}

    def finish(self, state):
        return state["n"]


def stored(**aggregates):
    return KEYED.agg(**aggregates).node.identity()["aggregates"]


def test_checkpoints_know_aggregates_by_names():
    assert stored(n=tg.count(), p=tg.quantile("price", 0.5)) == [
        {"name": "n", "aggregate": "count", "column": None, "arguments": {}, "type": "int64"},
        {
            "name": "p",
            "aggregate": "quantile",
            "column": "price",
            "arguments": {"q": 0.5},
            "type": "double",
        },
    ]


def test_an_aggregate_of_the_program_is_told_from_ours_of_the_same_name():
    [own] = stored(n=Count(None))
    assert own["aggregate"] == "own count"
