"""Payloads that cannot be decoded arrive in `errors` whole: with a reason, and where they came from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.spark import needs
from tests.spark.conftest import run
from tests.spark.test_rows import finished, json_rows, write_lines
from tidegate.pipeline.load import load
from tidegate.pipeline.start import answer, start
from tidegate.spark.sources import declared as readers
from tidegate.spark.sources.decoding import Decoder, struct_of
from tidegate.spark.sources.invalid_rows import INVALID, ORIGIN
from tidegate.sql.program import SinkTable

#: As Spark's source of Kafka has them.
MESSAGES = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
COLUMNS = "ts timestamp, user string, price double, cart struct<items:int,`odd.name`:string>"
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
GOOD = b'{"ts":"2024-05-01T12:00:01Z","user":"ann","price":1.5,"cart":{"items":2}}'
NOT_JSON = "the payload is not a JSON object"

#: A payload, why it is invalid, and why it is if fields must be of their types.
PAYLOADS: list[tuple[bytes | None, str | None, str | None]] = [
    (GOOD, None, None),
    (b"this is not json", NOT_JSON, NOT_JSON),
    (b'{"ts":"2024-05-01T12:00:01Z","user":"a', NOT_JSON, NOT_JSON),
    (b'[{"user":"ann"},{"user":"bob"}]', NOT_JSON, NOT_JSON),
    (b"null", NOT_JSON, NOT_JSON),
    (b"3", NOT_JSON, NOT_JSON),
    (b"", "the payload is empty", "the payload is empty"),
    (b" \n", "the payload is empty", "the payload is empty"),
    (None, *["the message is a tombstone: it has no value"] * 2),
    (b'{"user":"\xff"}', *["the payload is not valid UTF-8"] * 2),
    (b"\x00\xff\xfe", *["the payload is not valid UTF-8"] * 2),
    (b"{}", None, None),
    (b'{"user":null,"price":null,"other":1}', None, None),
    (b'{"price":"three"}', None, "field 'price' is not of type double: three"),
    (
        b'{"price":true,"ts":"soon"}',
        None,
        "field 'ts' is not of type timestamp: soon; field 'price' is not of type double: true",
    ),
    (b'{"cart":{"items":"many"}}', None, "field 'cart.items' is not of type int: many"),
    (
        b'{"cart":[1]}',
        None,
        "field 'cart' is not of type struct<items:int,odd.name:string>: [1]",
    ),
]


def messages(*payloads: bytes | None, key: bytes | None = b"k") -> pa.Table:
    rows = [
        {"key": key, "value": value, "topic": "clicks", "partition": 3, "offset": offset}
        | {"timestamp": AT, "timestampType": 0}
        for offset, value in enumerate(payloads)
    ]
    return pa.Table.from_pylist(rows, MESSAGES)


def decoded(spark: Any, table: pa.Table, *, strict: bool) -> list[Any]:
    rows = Decoder(struct_of(COLUMNS), "json", {}, strict).messages(spark.createDataFrame(table))
    found: list[Any] = rows.collect()
    return found


@pytest.mark.parametrize("strict", [False, True])
def test_messages_say_what_is_wrong_with_them(spark: Any, strict: bool) -> None:
    found = decoded(spark, messages(*(payload for payload, *_ in PAYLOADS)), strict=strict)
    expected = [hard if strict else soft for _, soft, hard in PAYLOADS]
    assert [row[INVALID] for row in found] == expected
    first = found[0].asDict(recursive=True)
    assert (first["user"], first["price"], first["cart"]) == ("ann", 1.5, {"items": 2, "odd.name": None})


def test_what_is_not_text_is_told_apart(spark: Any) -> None:
    binary, text, none = (
        decoded(spark, messages(value, key=key), strict=False)[0][ORIGIN].asDict()
        for key, value in ((b"\xff", b"\xff\xfe"), ("ü".encode(), "ü".encode()), (None, None))
    )
    assert (binary["key"], binary["key_base64"]) == (None, "/w==")
    assert (binary["payload"], binary["payload_base64"]) == (None, "//4=")
    assert (text["key"], text["payload"]) == ("ü", "ü")
    assert text["key_base64"] is text["payload_base64"] is None
    assert {binary["topic"], text["topic"], none["topic"]} == {"clicks"}
    assert none["payload"] is none["payload_base64"] is none["key"] is None


# -- pipelines ------------------------------------------------------------------------------------

KAFKA = """
name: spend
streams:
  clicks:
    connector: kafka
    format: json
    columns: {ts: timestamp, user: string, price: double}
    eventtime: {column: ts, tolerance: 1 second}
    invalid_fields: FIELDS
    options: {kafka.bootstrap.servers: nobody, subscribe: clicks}
query:
  from: clicks
  where: price > 1
  operators:
    - {key_by: [user], window: {tumbling: 10 seconds}, aggregates: {spend: {sum: price}}}
sinks:
  main: {connector: files, format: json, path: out}
  errors: {connector: files, format: json, path: errors}
checkpoint: checkpoint
"""


@pytest.fixture
def topic(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of messages that stands for Kafka."""
    folder = tmp_path / "topic"
    folder.mkdir()

    def loaded(reading: readers.Reading, options: Any) -> Any:
        assert reading.connector == "kafka"
        return reading.reader.schema(spark.createDataFrame(messages()).schema).parquet(str(folder))

    monkeypatch.setattr(readers, "_loaded", loaded)
    return folder


def told(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Reasons and rows of the errors, in the order of their offsets."""
    rows = [(row["reason"], json.loads(row["row"])) for row in json_rows(folder)]
    return sorted(rows, key=lambda row: row[1].get("offset", 0))


PAYLOADS_OF_A_TOPIC = [
    GOOD,
    b"this is not json",
    None,
    b"\xff",
    b'{"ts":"2024-05-01T12:00:02Z","user":"bob","price":"three"}',
    b"{}",
    b'{"ts":"2024-05-01T12:00:03Z","user":"bob","price":0.5}',
    b'{"ts":"2024-05-01T12:01:00Z","user":"zoe","price":2}',
]


@pytest.mark.parametrize("fields", ["null", "errors"])
def test_a_pipeline_sends_broken_messages_to_its_errors(
    spark: Any, tmp_path: Path, topic: Path, fields: str
) -> None:
    """Whatever its condition says, which they cannot meet."""
    (tmp_path / "spend.yaml").write_text(KAFKA.replace("FIELDS", fields))
    pq.write_table(messages(*PAYLOADS_OF_A_TOPIC), topic / "0.parquet")
    query = finished(spark, tmp_path / "spend.yaml")
    origin = {"topic": "clicks", "partition": 3, "timestamp": "2024-05-01T12:00:00.000000Z", "key": "k"}
    expected = [
        ("the payload is not a JSON object", origin | {"offset": 1, "payload": "this is not json"}),
        ("the message is a tombstone: it has no value", origin | {"offset": 2}),
        ("the payload is not valid UTF-8", origin | {"offset": 3, "payload_base64": "/w=="}),
    ]
    if fields == "errors":
        payload = PAYLOADS_OF_A_TOPIC[4]
        assert payload is not None
        reason = "field 'price' is not of type double: three"
        expected.append((reason, origin | {"offset": 4, "payload": payload.decode()}))
    assert told(tmp_path / "errors") == expected
    assert query.metrics["errors"] == len(expected)
    assert [(row["user"], row["spend"]) for row in json_rows(tmp_path / "out")] == [("ann", 1.5)]


def test_a_message_without_a_time_is_shown_whole(spark: Any, tmp_path: Path, topic: Path) -> None:
    everything = KAFKA.replace("  where: price > 1\n", "").replace("FIELDS", "null")
    (tmp_path / "spend.yaml").write_text(everything)
    pq.write_table(messages(b"{}", b'{"user":"ann"}'), topic / "0.parquet")
    finished(spark, tmp_path / "spend.yaml")
    found = told(tmp_path / "errors")
    assert [(reason, row["offset"], row["payload"]) for reason, row in found] == [
        ("event time 'ts' is null", 0, "{}"),
        ("event time 'ts' is null", 1, '{"user":"ann"}'),
    ]


PASSING = """
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE)
WITH (connector = 'kafka', format = 'json', 'kafka.bootstrap.servers' = 'nobody', subscribe = 'clicks',
  invalid_fields = 'errors');
CREATE SINK users WITH (connector = 'files', format = 'json', path = 'users');
INSERT INTO users SELECT upper(user) AS user FROM clicks WHERE price > 1;
"""


def test_rows_that_only_pass_have_errors_too(spark: Any, tmp_path: Path, topic: Path) -> None:
    (tmp_path / "users.sql").write_text(PASSING)
    pq.write_table(messages(*PAYLOADS_OF_A_TOPIC), topic / "0.parquet")
    [job] = load(tmp_path / "users.sql")
    errors = SinkTable("errors", "files", {"format": "json", "path": str(tmp_path / "errors")})
    insert = replace(job.insert, sinks={**job.insert.sinks, "errors": errors})
    query = start(spark, replace(job, insert=insert), once=True)
    query.await_termination()
    assert json_rows(tmp_path / "users") == [{"user": "ANN"}, {"user": "ZOE"}]
    assert [row["offset"] for _, row in told(tmp_path / "errors")] == [1, 2, 3, 4]
    assert query.metrics["rows_out"] == 2
    assert query.metrics["errors"] == query.metrics["rows_out.errors"] == 4
    assert query.metrics["rows_in"] == 6


def test_without_a_sink_for_errors_they_are_counted(spark: Any, tmp_path: Path, topic: Path) -> None:
    (tmp_path / "users.sql").write_text(PASSING)
    pq.write_table(messages(*PAYLOADS_OF_A_TOPIC), topic / "0.parquet")
    query = finished(spark, tmp_path / "users.sql")
    assert query.metrics["errors"] == 4
    assert json_rows(tmp_path / "users") == [{"user": "ANN"}, {"user": "ZOE"}]


def test_an_answer_leaves_them_out(spark: Any, tmp_path: Path, topic: Path) -> None:
    (tmp_path / "users.sql").write_text(PASSING)
    pq.write_table(messages(*PAYLOADS_OF_A_TOPIC), topic / "0.parquet")
    [job] = load(tmp_path / "users.sql")
    assert sorted(row.user for row in answer(spark, job.insert).collect()) == ["ANN", "ZOE"]


# -- files ----------------------------------------------------------------------------------------

PACED = pytest.mark.parametrize(
    "pace", [False, pytest.param(True, marks=needs.admission_control)], ids=["", "paced"]
)
FILES = """
name: spend
streams:
  clicks:
    connector: files
    format: FORMAT
    path: clicks
    columns: {ts: timestamp, user: string, price: double}
    eventtime: {column: ts, tolerance: 1 second}
    invalid_fields: FIELDS
    PACE
query:
  from: clicks
  where: price is null or price > 1
  operators:
    - {key_by: [user], window: {tumbling: 10 seconds}, aggregates: {n: count}}
sinks:
  main: {connector: discard}
  errors: {connector: files, format: json, path: errors}
checkpoint: checkpoint
"""
#: An option that only Spark's own source of files has.
BY_SPARK = "options: {latestFirst: 'false'}"
JSON_LINES = [
    GOOD.decode(),
    "this is not json",
    "",
    '{"ts":"2024-05-01T12:00:02Z","price":"three"}',
    '{"user":"bob"}',
    "{}",
]
CSV_LINES = [
    "2024-05-01T12:00:01Z,ann,1.5",
    "this is not csv",
    "2024-05-01T12:00:02Z,bob,three",
    ",eve,2",
]

NO_TIME = "event time 'ts' is null"


def errors_of_files(
    spark: Any, folder: Path, lines: list[str], kind: str, fields: str, *, pace: bool
) -> list[tuple[str, dict[str, Any]]]:
    text = FILES.replace("FORMAT", kind).replace("FIELDS", fields)
    (folder / "spend.yaml").write_text(text.replace("PACE", "pace: 1 second" if pace else BY_SPARK))
    write_lines(folder / "clicks", "\n".join(lines))
    finished(spark, folder / "spend.yaml")
    return told(folder / "errors")


@PACED
@pytest.mark.parametrize("fields", ["null", "errors"])
def test_lines_of_json(spark: Any, tmp_path: Path, fields: str, pace: bool) -> None:
    found = errors_of_files(spark, tmp_path, JSON_LINES, "json", fields, pace=pace)
    assert all(row["file"].startswith("file:/") for _, row in found)
    assert all(row["file"].endswith("/clicks/000.txt") for _, row in found)
    by_payload = {row.get("payload") or json.dumps(row["row"]): reason for reason, row in found}
    expected = {
        "this is not json": "the payload is not a JSON object",
        '{"user":"bob"}' if pace else '{"user": "bob"}': NO_TIME,
        "{}": NO_TIME,
    }
    if fields == "errors":
        expected |= {JSON_LINES[3]: "field 'price' is not of type double: three"}
    assert by_payload == expected


@PACED
@pytest.mark.parametrize("fields", ["null", "errors"])
def test_lines_of_csv(spark: Any, tmp_path: Path, fields: str, pace: bool) -> None:
    errors = errors_of_files(spark, tmp_path, CSV_LINES, "csv", fields, pace=pace)
    found = {row.get("payload", "decoded"): reason for reason, row in errors}
    strict = fields == "errors"
    expected = {
        CSV_LINES[1]: "the line does not have 3 columns" if strict else NO_TIME,
        CSV_LINES[3] if pace else "decoded": NO_TIME,
    }
    expected |= {CSV_LINES[2]: "field 'price' is not of type double: three"} if strict else {}
    assert found == expected


def test_read_folder_shows_nothing_of_this_and_its_events_know_it(spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "clicks", "\n".join(JSON_LINES))
    rows = tg.read_folder(
        spark, tmp_path / "clicks", schema="ts timestamp, user string, price double",
        invalid_fields="errors",
    )  # fmt: skip
    assert rows.columns == ["ts", "user", "price"]
    counts = tg.events(rows, time="ts").window(tg.tumbling("10 s")).agg(n=tg.count())
    errors = tg.sinks.memory()
    query = run(counts, tmp_path / "ckpt", main=tg.sinks.discard(), errors=errors)
    found = {json.loads(row["row"])["payload"]: row["reason"] for row in errors.rows()}
    assert found == {
        "this is not json": "the payload is not a JSON object",
        JSON_LINES[3]: "field 'price' is not of type double: three",
        '{"user":"bob"}': NO_TIME,
        "{}": NO_TIME,
    }
    assert query.metrics["errors"] == 4


def test_who_asks_for_corrupt_records_has_them(spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "clicks", "\n".join(JSON_LINES))
    rows = tg.read_folder(
        spark, tmp_path / "clicks", schema="ts timestamp, price double, _corrupt_record string"
    )
    counts = tg.events(rows, time=tg.processing_time()).agg(n=tg.count("_corrupt_record"))
    main = tg.sinks.memory()
    run(counts, tmp_path / "ckpt", main=main)
    assert [row["n"] for row in main.rows()] == [2]
