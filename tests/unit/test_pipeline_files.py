"""Pipeline files: what they may say, what they mean, and what they answer to mistakes."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

import tidegate
from tests.support.plan_facts import facts
from tests.support.plans import SECOND, hopping, logical_plan, reorder_plan, session, sliding
from tidegate.dataflow import compile
from tidegate.errors import PipelineError, PlanError, StartError
from tidegate.kernels import aggregates as a
from tidegate.pipeline.build import program_of
from tidegate.pipeline.file import parse
from tidegate.pipeline.load import load, question
from tidegate.pipeline.path_checks import check_places
from tidegate.pipeline.schema import schema_text
from tidegate.plan.policies import OnWindowClose, Reassign, Retracting, SideOutput
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import Derived, Source, Union
from tidegate.plan.time import Micros, ProcessingTime
from tidegate.sql import Projection
from tidegate.sql import compile as compile_sql
from tidegate.sql.types import named_type

STREAMS = """\
streams:
  clicks: &clicks
    connector: files
    format: json
    path: clicks
    columns: {ts: timestamp, user: string, shop: bigint, price: double, items: bigint, note: string}
    eventtime: {column: ts}
options: {eventtime.lateTolerance: 5 seconds}
"""
OPERATORS = """\
query:
  from: clicks
  operators:
    - key_by: [user]
      window: {tumbling: 10 s}
      aggregates: {n: count}
"""
REST = """\
sinks:
  main: {connector: discard}
checkpoint: checkpoint
"""
FILE = STREAMS + OPERATORS + REST


def program(text: str, **environment: str):
    return program_of(*parse(text, "p.yaml", environment))


def plan(operators: str, rest: str = REST, streams: str = STREAMS):
    indented = "".join(f"    {line}\n" for line in operators.splitlines())
    text = f"{streams}query:\n  from: clicks\n  operators:\n{indented}{rest}"
    return program(text).inserts[0].plan


# -- what files mean -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["late rows", "checkpoint", "zu spät"])
def test_a_channel_may_have_any_name(name):
    late = OPERATORS.replace("aggregates", f"late: {{side_output: {name}}}\n      aggregates")
    sinks = REST.replace("checkpoint:", f"  {name}: {{connector: discard}}\ncheckpoint:", 1)
    [insert] = program(STREAMS + late + sinks).inserts
    assert list(compile(insert.plan).channels) == ["main", "errors", name]
    assert list(insert.sinks) == ["main", name]


LATE = REST.replace("checkpoint:", "  late: {connector: discard}\ncheckpoint:", 1)


@pytest.mark.parametrize(
    ("operators", "rest", "expected"),
    [
        (
            "- key_by: [user]\n  window: {tumbling: 10 s}\n  aggregates: {n: count}",
            REST,
            logical_plan(hopping(10 * SECOND), tolerance=5 * SECOND),
        ),
        (
            "- window: {hopping: 60 s, slide: 10 s, offset: 2 s}\n  allowed_lateness: 30 s\n"
            "  late: {side_output: late}\n  emit: changelog\n"
            "  aggregates: {n: count, p99: {quantile: price, q: 0.99}, "
            "sd: {stddev: price, population: true}, total: {sum: items}}",
            LATE,
            logical_plan(
                hopping(60 * SECOND, 10 * SECOND, 2 * SECOND),
                (
                    ("n", a.Count(None)),
                    ("p99", a.Quantile("price", 0.99)),
                    ("sd", a.Stddev("price", population=True)),
                    ("total", a.Sum("items")),
                ),
                keys=(),
                emission=Retracting(before="-D", after="+I"),
                late=SideOutput("late"),
                lateness=30 * SECOND,
                tolerance=5 * SECOND,
            ),
        ),
        (
            "- key_by: [user, shop]\n  window: {session: 10 min, max_length: 1 day}\n"
            "  late: {reassign: 90 s}\n  emit: {periodic: 2 s}\n  aggregates: {last: {last: note}}",
            REST,
            logical_plan(
                session(600 * SECOND, 86_400 * SECOND),
                (("last", a.Last("note")),),
                keys=("user", "shop"),
                emission=Retracting(interval=Micros(2 * SECOND)),
                late=Reassign(Micros(90 * SECOND)),
                tolerance=5 * SECOND,
            ),
        ),
        (
            "- key_by: [user]\n  window: {sliding: 30 s, lookahead: 1 min, when: price >= 5}\n"
            "  aggregates: {n: count}",
            REST,
            logical_plan(sliding(30 * SECOND, 60 * SECOND, when="price >= 5"), tolerance=5 * SECOND),
        ),
        (
            "- window: {tumbling: 1 min}\n  aggregates: {n: count}\n  emit: final\n"
            "- time: window_end\n  window: {tumbling: 1 hour}\n  aggregates: {most: {max: n}}",
            REST,
            logical_plan(
                hopping(3600 * SECOND),
                (("most", a.Max("n")),),
                keys=(),
                feed=Derived(
                    logical_plan(
                        hopping(60 * SECOND),
                        keys=(),
                        emission=OnWindowClose(final=True),
                        tolerance=5 * SECOND,
                    ),
                    "window_end",
                ),
            ),
        ),
    ],
    ids=["tumbling", "hopping", "session", "sliding", "chain"],
)
def test_operators_are_the_plan_that_the_api_builds(operators, rest, expected):
    assert facts(plan(operators, rest)) == facts(expected)


def test_rows_can_be_put_in_order():
    expected = reorder_plan(keys=("user",), tolerance=5 * SECOND)
    assert facts(plan("- {reorder: true, key_by: [user]}")) == facts(expected)


SQL_SELECT = """
SELECT user, window_start, window_end, count(*) AS n, sum(price) AS spend FROM clicks
GROUP BY user, TUMBLE(ts, INTERVAL '10' SECOND)
EMIT CHANGES ALLOW LATENESS INTERVAL '30' SECOND LATE DATA TO late
"""


def test_sql_operators_and_sql_in_a_file_are_one_plan():
    operators = plan(
        "- key_by: [user]\n  window: {tumbling: 10 s}\n  allowed_lateness: 30 s\n  emit: changelog\n"
        "  late: {side_output: late}\n  aggregates: {n: count, spend: {sum: price}}",
        LATE,
    )
    block = "".join(f"  {line}\n" for line in SQL_SELECT.splitlines())
    inside = program(f"{STREAMS}sql: |\n{block}{LATE}").inserts[0]
    alone = compile_sql(
        """
        CREATE STREAM clicks (ts TIMESTAMP, user STRING, shop BIGINT, price DOUBLE, items BIGINT,
            note STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
        WITH (connector = 'files', path = 'clicks', format = 'json');
        CREATE SINK spend WITH (connector = 'discard');
        CREATE SINK late WITH (connector = 'discard');
        INSERT INTO spend
        """
        + SQL_SELECT
    ).inserts[0]
    assert facts(operators) == facts(inside.plan) == facts(alone.plan)
    assert inside.steps == ()
    assert list(inside.sinks) == ["main", "late"]


def test_rows_that_only_pass_may_have_a_sink_for_errors():
    rest = REST.replace("checkpoint:", "  errors: {connector: discard}\ncheckpoint:", 1)
    [insert] = program(f"{STREAMS}sql: SELECT user FROM clicks\n{rest}").inserts
    assert insert.plan is None
    assert list(insert.sinks) == ["main", "errors"]


def test_streams_say_what_becomes_of_fields_of_another_type():
    strict = STREAMS.replace("path: clicks\n", "path: clicks\n    invalid_fields: errors\n")
    for streams, expected in ((STREAMS, None), (strict, "errors")):
        [stream] = program(streams + OPERATORS + REST).streams.values()
        assert stream.options.get("invalid_fields") == expected


def test_streams_are_united():
    union = program(
        STREAMS.replace("options:", "  taps: *clicks\noptions:")
        + OPERATORS.replace("from: clicks", "from: [clicks, taps]\n  where: price > 0")
        + REST
    ).inserts[0]
    assert isinstance(union.plan.upstream, Union)
    assert [(one.stream.name, one.steps) for one in union.inputs] == [
        ("clicks", (Projection(where="price > 0"),)),
        ("taps", (Projection(where="price > 0"),)),
    ]


def test_times_are_read_as_declared():
    streams = STREAMS.replace("ts: timestamp", "ts: bigint").replace(
        "{column: ts}",
        "{column: ts, type: unixtimestamp_ms, tolerance: 1 s, idle_after: 1 min, max_future: 1 h}",
    )
    source = plan(OPERATORS_ONLY, streams=streams).upstream
    assert isinstance(source, Source)
    assert (source.time, source.tolerance) == ("event_time", SECOND)
    assert (source.idle_after, source.max_future) == (60 * SECOND, 3600 * SECOND)


def test_unixtimestamp_is_another_name_for_seconds():
    streams = STREAMS.replace("ts: timestamp", "ts: double").replace(
        "{column: ts}", "{column: ts, type: unixtimestamp}"
    )
    source = plan(OPERATORS_ONLY, streams=streams).upstream
    assert "ts as unixtimestamp" in source.label()


OPERATORS_ONLY = "- window: {tumbling: 10 s}\n  aggregates: {n: count}"


def test_event_time_can_be_left_aside():
    streams = STREAMS.replace("{eventtime.lateTolerance: 5 seconds}", "{eventtime.enabled: false}")
    assert plan(OPERATORS_ONLY, streams=streams).upstream.declared == ProcessingTime(Micros(SECOND))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BIGINT", pa.int64()),
        ("decimal(12, 3)", pa.decimal128(12, 3)),
        ("decimal", pa.decimal128(10, 0)),
        ("timestamp", TIMESTAMP),
        ("interval day to second", pa.duration("us")),
        ("varchar(10)", pa.string()),
        ("struct<`a b`: int>", pa.struct([("a b", pa.int32())])),
        ("array<string>", pa.list_(pa.string())),
        ("map<string, array<int>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        (
            "struct<Id: bigint, at: struct<ms: bigint>>",
            pa.struct([("Id", pa.int64()), ("at", pa.struct([("ms", pa.int64())]))]),
        ),
    ],
)
def test_types_are_sparks(name, expected):
    assert named_type(name) == expected


@pytest.mark.parametrize(
    "name", ["strin", "array<int, int>", "struct<int>", "map<string>", "", "decimal(50)", "`", "int int"]
)
def test_other_types_are_refused(name):
    with pytest.raises(PlanError, match="no type"):
        named_type(name)


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("window:", "windwo:", "[0].windwo: unknown key 'windwo'; did you mean 'window'?"),
        (
            "{tumbling: 10 s}",
            "{tumblin: 10 s}",
            "[0].window: 'tumblin' is not known here; did you mean 'tumbling'?",
        ),
        ("{tumbling: 10 s}", "tumbling", "query.operators[0].window: 'tumbling' is not known here"),
        (
            "{tumbling: 10 s}",
            "{tumbling: 10}",
            "line 13: query.operators[0].window.tumbling: input should be a valid string, got 10",
        ),
        (
            "{tumbling: 10 s}",
            "{tumbling: 10 sek}",
            "line 12: query.operators[0]: tumbling(size): cannot read '10 sek'",
        ),
        ("{n: count}", "{n: cuont}", "'cuont' is not known here; did you mean 'count'?"),
        ("{n: count}", "{n: {smu: price}}", "unknown key 'smu'; did you mean 'sum'?"),
        ("{n: count}", "{n: {sum: price, min: price}}", "an aggregate is one function of one column"),
        ("{n: count}", "{n: {sum: price, q: 0.5}}", "sum has no parameter q"),
        ("{n: count}", "{n: {quantile: price}}", "quantile needs q"),
        ("{n: count}", "{n: {sum: prise}}", "no column 'prise'; did you mean 'price'?"),
        (
            "from: clicks",
            "from: click",
            "line 10: query.from: no stream 'click'; did you mean 'clicks'?",
        ),
        ("[user]", "user", "query.operators[0].key_by: input should be a valid list, got 'user'"),
        ("connector: discard", "connector: parquet", "line 16: sinks.main: 'parquet' is not known here"),
        ("{connector: discard}", "{}", "sinks.main: 'connector' is missing"),
        ("main: {", "mian: {", "line 16: sinks.mian: no channel 'mian'; did you mean 'main'?"),
        (
            "  main: {connector: discard}",
            "  errors: {connector: discard}",
            "line 15: sinks: channel 'main' has no sink",
        ),
        ("checkpoint: checkpoint", "", "'checkpoint' is missing"),
        (
            "checkpoint: checkpoint",
            "checkpoint: a\ncheckpoint: b",
            "'checkpoint' is given twice, in lines 17 and 18",
        ),
        (
            "checkpoint: checkpoint",
            "checkpoint: ${FOLDER}",
            "line 17: checkpoint: the environment variable FOLDER is not set",
        ),
        ("checkpoint: checkpoint", "checkpoint: [", "not YAML"),
        (
            "checkpoint: checkpoint",
            "checkpoint: a\nsql: SELECT 1",
            "give either 'sql' or 'query', and not both",
        ),
        (
            "checkpoint: checkpoint",
            "checkpoint: a\ntrigger: oncee",
            "trigger: 'oncee' is not known here; did you mean 'once'?",
        ),
        (
            "eventtime.lateTolerance",
            "eventtime.lateTolerence",
            "did you mean 'eventtime.lateTolerance'?",
        ),
        (
            "ts: timestamp",
            "ts: timestam",
            "line 6: streams.clicks.columns.ts: no type 'timestam'; did you mean 'timestamp'?",
        ),
        ("    path: clicks\n", "", "streams.clicks: connector 'files' needs the option 'path'"),
        (
            "    eventtime: {column: ts}\n",
            "",
            "the stream does not say where its event time is: add 'eventtime: {column: …}', or "
            "'eventtime.enabled: false' to the options, which counts rows at the time they arrive",
        ),
        ("{column: ts}", "{column: tz}", "streams.clicks.eventtime: event time: no column 'tz'"),
        (
            "    path: clicks\n",
            "    path: clicks\n    invalid_fields: drop\n",
            "streams.clicks.invalid_fields: ",
        ),
        (
            "    path: clicks\n",
            "    path: clicks\n    options: {maxFiles: 1}\n",
            "connector 'files' has no option 'maxFiles'",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(old, new, message):
    assert old in FILE
    with pytest.raises(PipelineError) as raised:
        program(FILE.replace(old, new, 1))
    assert message in str(raised.value)
    assert str(raised.value).startswith("p.yaml, line ")


def test_every_mistake_is_told_at_once():
    broken = FILE.replace("discard", "nowhere").replace("{n: count}", "{n: sum}")
    with pytest.raises(PipelineError) as raised:
        program(broken)
    assert len(str(raised.value).splitlines()) == 2


def test_a_mistake_in_sql_is_told_with_both_places():
    text = f"{STREAMS}sql: |\n  SELECT user FROM clik\n{REST}"
    with pytest.raises(PipelineError, match=r"p.yaml, line 9: sql: line 1, column 18: .*clik"):
        program(text)


def test_the_second_operator_says_by_which_time_it_goes_on():
    twice = f"{OPERATORS_ONLY}\n{OPERATORS_ONLY}"
    with pytest.raises(PipelineError, match=r"operators\[1\]: say by which time .* 'window_end'"):
        plan(twice)


# -- environment -----------------------------------------------------------------------------------


def test_variables_are_filled_in():
    text = FILE.replace(
        "{connector: discard}", "{connector: postgres, dsn: '${DSN}', table: '${TABLE:-clicks}'}"
    )
    options = program(text, DSN="host=db password=s3cret").inserts[0].sinks["main"].options
    assert options == {"dsn": "host=db password=s3cret", "table": "clicks"}


def test_numbers_may_come_from_the_environment():
    text = FILE.replace("{connector: discard}", "\n    connector: console\n    limit: ${LIMIT:-5}")
    assert program(text).inserts[0].sinks["main"].options == {"limit": "5"}
    assert program(text, LIMIT="7").inserts[0].sinks["main"].options == {"limit": "7"}


def test_a_secret_is_not_shown():
    text = FILE.replace("{connector: discard}", "\n    connector: console\n    limit: ${LIMIT}")
    with pytest.raises(PipelineError) as raised:
        program(text, LIMIT="s3cret")
    assert "s3cret" not in str(raised.value)
    assert "${LIMIT}" in str(raised.value)


# -- files on disk ---------------------------------------------------------------------------------


def test_paths_start_where_the_file_is(tmp_path):
    (tmp_path / "p.yaml").write_text(FILE.replace("discard", "files, format: json, path: out"))
    [job] = load(tmp_path / "p.yaml")
    assert job.name == "p"
    assert job.checkpoint == str(tmp_path / "checkpoint")
    assert job.insert.inputs[0].stream.options["path"] == str(tmp_path / "clicks")
    assert job.insert.sinks["main"].options["path"] == str(tmp_path / "out")


def test_a_file_of_sql_is_a_job_for_each_insert(tmp_path):
    (tmp_path / "p.sql").write_text(
        """
        CREATE STREAM clicks (ts TIMESTAMP, user STRING, WATERMARK FOR ts AS ts)
        WITH (connector = 'files', path = 'clicks', format = 'json');
        CREATE SINK by_user WITH (connector = 'postgres', dsn = '${DSN}', table = 'users');
        CREATE SINK all_rows WITH (connector = 'files', path = 'out', format = 'json');
        INSERT INTO by_user SELECT user, window_start, window_end, count(*) AS n
        FROM clicks GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE);
        INSERT INTO all_rows SELECT ts, user FROM clicks WHERE user <> 'bot';
        """
    )
    first, second = load(tmp_path / "p.sql", {"DSN": "host=db"})
    assert (first.name, second.name) == ("p.by_user", "p.all_rows")
    assert first.checkpoint == str(tmp_path / "p.checkpoint" / "by_user")
    assert first.insert.sinks["main"].options["dsn"] == "host=db"
    assert second.insert.plan is None
    assert second.insert.sinks["main"].options["path"] == str(tmp_path / "out")
    with pytest.raises(PipelineError, match="the environment variable DSN is not set"):
        load(tmp_path / "p.sql", {})


def test_a_mistake_in_a_file_of_sql_is_told_with_the_file(tmp_path):
    (tmp_path / "p.sql").write_text("CREATE SINK s WITH (connector = 'discrad')")
    with pytest.raises(PipelineError, match=r"^p\.sql, line 1, column \d+: .*did you mean 'discard'"):
        load(tmp_path / "p.sql")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipelin.yaml", r"no file '.*pipelin\.yaml'; did you mean 'pipeline\.yaml'"),
        ("pipeline.toml", r"a pipeline is a file that ends in \.yaml, \.yml, \.sql"),
        ("folder.yaml", r"cannot read '.*folder\.yaml'"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name, message):
    (tmp_path / "pipeline.yaml").write_text(FILE)
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(PipelineError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize("text", ["CREATE SINK s WITH (connector = 'discard')", ""])
def test_a_question_asks_something(text):
    with pytest.raises(PlanError, match="SELECT"):
        question(text, Path("."))


def test_places_are_looked_at_before_the_start(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(FILE)
    with pytest.raises(StartError, match=r"stream 'clicks': there is nothing at '.*clicks'"):
        check_places(load(file))
    (tmp_path / "clicks").mkdir()
    check_places(load(file))
    (tmp_path / "a_file").touch()
    file.write_text(FILE.replace("checkpoint: checkpoint", "checkpoint: a_file/checkpoint"))
    with pytest.raises(StartError, match=r"the checkpoint: .* cannot be made, '.*a_file' is a file"):
        check_places(load(file))


# -- the JSON schema -------------------------------------------------------------------------------


def test_the_stored_schema_is_that_of_the_models():
    stored = Path(tidegate.__file__).parent / "pipeline" / "pipeline.schema.json"
    assert json.loads(stored.read_text("utf-8")) == json.loads(schema_text()), (
        "run python -m tidegate.pipeline.schema > src/tidegate/pipeline/pipeline.schema.json"
    )


def test_braces_are_patterns_of_spark(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(FILE.replace("path: clicks", "path: 'clicks/{2025,2026}-*'"))
    with pytest.raises(StartError, match="there is nothing at"):
        check_places(load(file))
    (tmp_path / "clicks" / "2026-11").mkdir(parents=True)
    check_places(load(file))


def test_a_folder_with_brackets_in_its_name_is_found(tmp_path):
    place = tmp_path / "[prod]"
    (place / "clicks").mkdir(parents=True)
    (place / "p.yaml").write_text(FILE)
    check_places(load(place / "p.yaml"))


def test_what_the_environment_fills_in_is_not_shown_with_what_is_around_it():
    sink = "{connector: postgres, table: t, dsn: {host: db, password: '${PW}'}}"
    with pytest.raises(PipelineError, match=r"dsn: .*, got a mapping") as raised:
        program(FILE.replace("{connector: discard}", sink), PW="s3cret")
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: 2026-02-30", r"line 1: name: '2026-02-30': .*put quotes"),
        ("name: {{ name }}", "line 1: name: a key is a plain word"),
        ("name: &a [*a]", "contains itself"),
    ],
)
def test_odd_yaml_is_told_with_the_line(text, message):
    with pytest.raises(PipelineError, match=message):
        program(text)


def test_what_the_environment_fills_in_is_not_shown_where_it_cannot_be_read():
    with pytest.raises(PipelineError, match=r"line 1: name: '\$\{WHEN\}': .*put quotes") as raised:
        program("name: ${WHEN}", WHEN="2026-02-30")
    assert "2026-02-30" not in str(raised.value)
