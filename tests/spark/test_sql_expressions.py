"""Expressions in SQL mean what they mean in Spark: the same texts, the same values, the same types."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegate import sql
from tidegate.errors import SqlError
from tidegate.pipeline.load import question
from tidegate.pipeline.sinks import select
from tidegate.pipeline.start import answer

#: `> SELECT …;` in the help of a function.
_EXAMPLE = re.compile(r"^\s*>\s*SELECT\s+(.+?);\s*$", re.MULTILINE | re.DOTALL)
_CHUNK = 120


def examples(spark: Any) -> Iterator[str]:
    """Every example of Spark's own help, without its SELECT."""
    for function in spark._jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos():
        shown = function.getExamples().replace("_FUNC_", function.getName())
        yield from (text.strip() for text in _EXAMPLE.findall(shown))


def plain_examples(spark: Any) -> dict[str, bool]:
    """The examples of one expression over one row, and whether each draws by chance.

    That is: no aggregate, no generator, no window, no table.
    """
    found = {}
    for text in dict.fromkeys(examples(spark)):
        try:
            frame = spark.sql(f"SELECT {text} AS e")
            columns = len(frame.columns)
        except Exception:  # several columns, or one with a name, or a type that PySpark does not know
            continue
        analyzed = frame._jdf.queryExecution().analyzed()
        lines = analyzed.toString().splitlines()
        nodes = [line for line in lines if re.match(r"^[+:\- ]*[A-Z]\w+\b", line)]
        if columns == 1 and len(nodes) == 2 and "OneRowRelation" in nodes[1]:
            found[text] = not analyzed.deterministic()
    return found


def values(frame: Any) -> list[Any]:
    [row] = frame.collect()
    return [repr(value) for value in row]


def in_spark(spark: Any, texts: list[str]) -> dict[str, Any]:
    """What Spark says, of those that it computes; an error of one spoils all, so those are left out."""
    if not texts:
        return {}
    try:
        columns = ", ".join(f"{text} AS e{number}" for number, text in enumerate(texts))
        return dict(zip(texts, values(spark.sql(f"SELECT {columns}")), strict=True))
    except Exception:
        if len(texts) == 1:
            return {}
        half = len(texts) // 2
        return in_spark(spark, texts[:half]) | in_spark(spark, texts[half:])


def test_every_example_of_sparks_help_means_the_same(spark):
    is_random = plain_examples(spark)
    plain = list(is_random)
    items = ",\n".join(f"{text} AS e{number}" for number, text in enumerate(plain))
    program = f"CREATE STREAM one (id BIGINT) WITH (connector = 'rate'); SELECT {items} FROM one"
    [insert] = sql.compile(program).selects
    [step] = insert.inputs[0].steps
    assert [text for _, text in step.columns] == plain

    compared = 0
    for start in range(0, len(plain), _CHUNK):
        chunk = [text for text in plain[start : start + _CHUNK] if not is_random[text]]
        before = in_spark(spark, chunk)
        items = ", ".join(f"{text} AS e{number}" for number, text in enumerate(before))
        program = f"CREATE STREAM one (id BIGINT) WITH (connector = 'rate'); SELECT {items} FROM one"
        [insert] = sql.compile(program).selects
        found = values(select(spark.range(0, 1, 1, 1), insert.inputs[0].steps))
        after = in_spark(spark, list(before))
        # What the clock has changed meanwhile is left out: time goes one way, so all else was the same.
        steady = {text for text in before if after.get(text) == before[text]}
        told = dict(zip(before, found, strict=True))
        assert {text: told[text] for text in steady} == {text: before[text] for text in steady}
        compared += len(steady)
    print(f"{len(plain)} plain examples, {compared} of them with the same value at any time")
    assert len(plain) > 500
    assert compared > 300


ROWS = """\
{"ts": "2024-05-01T12:00:01.5Z", "a": "2024-05-01T12:00:00Z", "p": 1, "k": "abab", "j": "{\\"x\\": 2}"}
{"ts": "2024-05-01T12:00:02.75Z", "a": "2024-05-01T12:00:00.1Z", "p": 2, "k": "ab", "j": "{\\"x\\": 3}"}
{"ts": "2024-05-01T12:00:07.125Z", "a": null, "p": null, "k": null, "j": null}
"""
STREAM = """
CREATE STREAM rows (
    ts TIMESTAMP, a TIMESTAMP, p INT, k STRING, j STRING, WATERMARK FOR ts AS ts
) WITH (connector = 'files', path = 'rows', format = 'json');
"""
AGGREGATES = {
    "seconds": "sum(extract(second FROM ts))",
    "millis": "max(timestampdiff(MILLISECOND, a, ts))",
    "lag": "max(ts - a)",
    "tenth": "sum(0.1 * p)",
    "kinds": "count(DISTINCT k, p)",
    "both": "count(k, p)",
    "place": "max(instr(k, 'b'))",
    "year": "min(to_char(ts, 'yyyy'))",
    "x": "sum(CAST(get_json_object(j, '$.x') AS INT))",
    "some": "sum(p) FILTER (WHERE k LIKE 'a%' AND p BETWEEN 1 AND 1)",
}


def in_folder(folder: Path, **streams: str) -> None:
    for name, rows in streams.items():
        folder.joinpath(name).mkdir()
        folder.joinpath(name, "1.json").write_text(rows, "utf-8")


def asked(spark: Any, folder: Path, text: str) -> list[dict[str, Any]]:
    """What a query says about the rows that are there."""
    insert = question(text, folder, spark=spark)
    return [row.asDict() for row in answer(spark, insert).collect()]


def test_types_are_sparks_own_and_values_are_whole(spark, tmp_path):
    in_folder(tmp_path, rows=ROWS)
    items = ", ".join(f"{text} AS {name}" for name, text in AGGREGATES.items())
    found = asked(spark, tmp_path, f"{STREAM} SELECT {items} FROM rows GROUP BY tumblingwindow('mi', 1)")
    schema = "ts timestamp, a timestamp, p int, k string, j string"
    spark.read.schema(schema).json(str(tmp_path / "rows")).createOrReplaceTempView("known_rows")
    [known] = spark.sql(f"SELECT {items} FROM known_rows").collect()
    assert found == [known.asDict()]
    assert float(known["seconds"]) == pytest.approx(11.375)


@pytest.mark.parametrize(
    ("written", "place", "problem"),
    [
        ("max(frob(p))", "frob(p)", "Spark says: Cannot resolve routine `frob`"),
        ("max(lower(k, p))", "lower(k, p)", "Spark says: The `lower` requires 1 parameters"),
        ("max(null)", "null", "null has no type: write CAST(null AS type)"),
        ("max(make_interval(1))", "make_interval(1)", "of Spark's type interval, which"),
        ("max(parse_json(j))", "parse_json(j)", "of Spark's type variant, which windows cannot hold"),
        ("max(TIME'10:00:00')", "TIME'10:00:00'", "of Spark's type time(6), which windows cannot hold"),
        ("max(k COLLATE UTF8_LCASE)", "k COLLATE", "string collate UTF8_LCASE, which"),
        ("max(p +)", "p +", "Spark says: Syntax error at or near"),
    ],
)
def test_what_spark_refuses_is_refused_in_its_place(spark, capfd, written, place, problem):
    text = f"{STREAM}SELECT {written} AS it FROM rows GROUP BY tumblingwindow('mi', 1)"
    with pytest.raises(SqlError) as found:
        sql.compile(text, spark=spark)
    error = found.value
    assert problem in error.problem
    assert "\n" not in error.problem
    assert "SQLSTATE" not in error.problem
    assert text.split("\n")[error.line - 1][error.column - 1 :].startswith(place)
    assert error.line == STREAM.count("\n") + 1
    assert "SQLQueryContextLogger" not in capfd.readouterr().err, "nobody else tells of it"


# -- joins: what Spark says about the same rows ----------------------------------------------------

LEFT = """\
{"ts": "2024-05-01T12:00:01Z", "id": 1, "lo": 1, "hi": 10, "note": "one"}
{"ts": "2024-05-01T12:00:02Z", "id": 9, "lo": 2, "hi": 20, "note": "nine"}
{"ts": "2024-05-01T12:00:03Z", "id": null, "lo": 3, "hi": 30, "note": "none"}
{"ts": "2024-05-01T12:00:04Z", "id": 2, "lo": null, "hi": 40, "note": "two"}
"""
RIGHT = """\
{"ts": "2024-05-01T12:00:05Z", "p": 1, "id": 7, "lo": 5, "hi": 15, "note": "a"}
{"ts": "2024-05-01T12:00:06Z", "p": 1, "id": 9, "lo": 6, "hi": null, "note": "b"}
{"ts": "2024-05-01T12:00:07Z", "p": null, "id": null, "lo": 7, "hi": 17, "note": "c"}
{"ts": "2024-05-01T12:00:08Z", "p": 2, "id": 2, "lo": 8, "hi": 18, "note": "d"}
{"ts": "2024-05-01T12:00:09Z", "p": 8, "id": 1, "lo": 9, "hi": 19, "note": "e"}
"""
JOINED = """
CREATE STREAM a (ts TIMESTAMP, id INT, lo INT, hi INT, note STRING, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'a', format = 'json');
CREATE STREAM b (ts TIMESTAMP, p INT, id INT, lo INT, hi INT, note STRING, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'b', format = 'json');
CREATE VIEW v AS SELECT ts AS StartTime, p, id, lo AS hi, hi AS lo FROM b WHERE note <> 'e';
"""


def windowed(table: str, time: str, alias: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), INTERVAL '1' HOUR)) AS {alias}"


@pytest.mark.parametrize(
    ("kind", "right", "on", "rest"),
    [
        ("INNER", "b", "a.id = b.p", "a.id, b.p"),
        ("LEFT", "b", "a.id = b.p", "a.id, b.p, b.note"),
        ("LEFT", "b", "a.id = b.p", "a.id, a.note WHERE b.p IS NULL"),
        ("RIGHT", "b", "a.id = b.id AND a.lo < b.hi", "a.id AS x, b.id AS y, a.note, b.p"),
        ("FULL", "b", "a.id = b.id", "a.id AS x, b.id AS y, coalesce(a.id, b.id) AS z"),
        ("FULL", "b", "a.id <=> b.id AND b.lo % 2 = 0 AND NOT a.note = b.note", "a.id AS x, b.id AS y"),
        ("LEFT", "b", "a.id IS NOT DISTINCT FROM b.p AND a.lo <=> a.lo", "a.id, b.p, a.note"),
        ("INNER", "b", "a.id = b.p AND b.lo - a.lo > 4 AND a.hi > b.lo", "a.id, b.lo - a.lo AS by"),
        ("LEFT", "v", "a.id = v.id AND (v.hi > a.lo OR v.lo IS NULL)", "v.id AS y, V.HI, v.lo"),
        ("FULL", "v", "a.id + 1 = v.p * 1 AND a.id = v.id - 5", "a.id AS x, v.id AS y, v.hi, v.lo"),
    ],
)
def test_joins_give_what_sparks_joins_give(spark, tmp_path, kind, right, on, rest):
    in_folder(tmp_path, a=LEFT, b=RIGHT)
    columns, _, where = rest.partition(" WHERE ")
    filtered = f" WHERE {where}" if where else ""
    time = "starttime" if right == "v" else "ts"
    text = f"SELECT {columns} FROM {windowed('a', 'ts', 'a')} {kind} JOIN {windowed(right, time, right)}"
    found = asked(spark, tmp_path, f"{JOINED}{text} ON {on}{filtered}")

    types = "ts timestamp, {}id int, lo int, hi int, note string"
    for name, own in (("a", ""), ("b", "p int, ")):
        rows = spark.read.schema(types.format(own)).json(str(tmp_path / name))
        rows.createOrReplaceTempView(name)
    view = JOINED.partition("AS SELECT")[2].rpartition(";")[0]
    spark.sql(f"SELECT {view}").createOrReplaceTempView("v")
    known = spark.sql(f"SELECT {columns} FROM a {kind} JOIN {right} ON {on}{filtered}").collect()
    assert sorted(map(repr, found)) == sorted(repr(row.asDict()) for row in known)
    assert found
