"""Whatever people paste is refused in its place, in our own words, or it means something."""

import re
from random import Random

import pyarrow as pa
import pytest

from tests.support.stub_analyzer import StubAnalyzer
from tidegate.errors import SqlError
from tidegate.sql.compiler import program_of
from tidegate.sql.source import Text
from tidegate.sql.tokens import tokens_of

DECLARED = """\
CREATE STREAM clicks (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'clicks', format = 'json');
CREATE STREAM views (ts TIMESTAMP, user STRING, price DOUBLE, WATERMARK FOR ts AS ts)
WITH (connector = 'files', path = 'views', format = 'json');
CREATE SINK out WITH (connector = 'discard');
"""
WINDOW = "GROUP BY user, TUMBLE(ts, INTERVAL '1' MINUTE)"
TUMBLED = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"

#: What users of Flink, Spark, ksqlDB, Materialize and of databases write, and what is only half written.
STRANGE = (
    "CREATE TABLE t (a INT) WITH ('connector' = 'kafka')",
    "CREATE STREAM s (a INT PRIMARY KEY) WITH (connector = 'rate')",
    "CREATE STREAM s (a INT NOT NULL) WITH (connector = 'rate')",
    "CREATE STREAM s WITH (kafka_topic = 'x', value_format = 'json')",
    "CREATE STREAM s AS SELECT * FROM clicks EMIT CHANGES",
    "CREATE STREAM s (a INT) WITH (connector 'rate')",
    "CREATE STREAM s (a INT",
    "CREATE MATERIALIZED VIEW v AS SELECT * FROM clicks",
    "CREATE VIEW v (a, b) AS SELECT user, price FROM clicks",
    "CREATE OR REPLACE FUNCTION f AS 'x'",
    "CREATE",
    "DROP STREAM clicks",
    "SET 'a' = 'b'",
    "EXPLAIN SELECT * FROM clicks",
    "SHOW TABLES",
    "MERGE INTO out USING clicks ON a = b WHEN MATCHED THEN DELETE",
    "UPDATE clicks SET a = 1",
    "VALUES (1, 2)",
    "BEGIN STATEMENT SET",
    "INSERT OVERWRITE out SELECT * FROM clicks",
    "INSERT INTO out (a, b) SELECT user, price FROM clicks",
    "INSERT INTO out VALUES (1, 2)",
    "INSERT INTO out",
    "SELECT",
    "SELECT FROM clicks",
    "SELECT * FROM",
    "SELECT 1",
    "SELECT *, FROM clicks",
    "SELECT * FROM clicks,",
    "SELECT * FROM clicks, views",
    "SELECT * FROM clicks c, views v WHERE c.user = v.user",
    "SELECT * EXCEPT (price) FROM clicks",
    "SELECT DISTINCT user FROM clicks",
    "SELECT user FROM clicks LIMIT 3",
    "SELECT user FROM clicks ORDER BY user",
    "SELECT user FROM clicks ORDER BY ts DESC",
    "SELECT user FROM clicks FETCH FIRST 3 ROWS ONLY",
    "SELECT user FROM clicks WHERE",
    "SELECT user FROM clicks WHERE (price > 1",
    "SELECT user FROM clicks WHERE price > 1)",
    "SELECT user FROM clicks WHERE user = 'ann",
    'SELECT user FROM clicks WHERE user = "ann',
    "SELECT `user FROM clicks",
    "SELECT user /* FROM clicks",
    "SELECT user FROM db.clicks",
    "SELECT user FROM clicks AS OF TIMESTAMP '2024-01-01'",
    "SELECT user FROM clicks FOR SYSTEM_TIME AS OF ts",
    "SELECT user FROM clicks TABLESAMPLE (10 PERCENT)",
    "SELECT user FROM clicks LATERAL VIEW explode(x) t AS y",
    "SELECT * FROM clicks MATCH_RECOGNIZE (PARTITION BY user)",
    "SELECT * FROM clicks |> WHERE price > 1",
    "SELECT * FROM clicks UNION SELECT * FROM views",
    "SELECT * FROM clicks EXCEPT SELECT * FROM views",
    "SELECT * FROM clicks INTERSECT SELECT * FROM views",
    "SELECT * FROM clicks UNION ALL",
    "SELECT * FROM clicks UNION ALL SELECT user FROM views",
    "SELECT * FROM clicks UNION ALL SELECT * FROM views ORDER BY ts",
    "SELECT * FROM clicks JOIN views",
    "SELECT * FROM clicks NATURAL JOIN views",
    "SELECT * FROM clicks LEFT SEMI JOIN views ON clicks.user = views.user",
    "SELECT * FROM clicks JOIN views WITHIN 1 HOUR ON clicks.user = views.user",
    "SELECT * FROM clicks WHERE EXISTS (SELECT 1 FROM views)",
    "SELECT * FROM clicks WHERE user IN (SELECT user FROM views)",
    "SELECT (SELECT max(price) FROM views) AS m FROM clicks",
    "SELECT user, count(*) FROM clicks WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY user",
    "SELECT user, count(*) AS n FROM clicks GROUP BY user",
    "SELECT count(*) AS n FROM clicks",
    "SELECT user, count(*) AS n FROM clicks GROUP BY ALL",
    "SELECT user, count(*) AS n FROM clicks GROUP BY user, window(ts, '1 hour')",
    "SELECT user, count(*) AS n FROM clicks GROUP BY user, session_window(ts, '1 hour')",
    "SELECT user, window.start, count(*) AS n FROM clicks GROUP BY user, window(ts, '1 hour')",
    f"SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) AS s, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT HOP_END(ts, INTERVAL '1' MINUTE) AS s, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT SESSION_ROWTIME(ts, INTERVAL '1' MINUTE) AS s, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT window_time, count(*) AS n FROM {TUMBLED} GROUP BY window_start, window_end, window_time",
    f"SELECT window_time, count(*) AS n FROM clicks {WINDOW}",
    "SELECT TUMBLE(ts, INTERVAL '1' MINUTE) AS w, count(*) AS n FROM clicks GROUP BY w",
    "SELECT TUMBLE(ts, INTERVAL '1' MINUTE) AS w, count(*) AS n FROM clicks GROUP BY 1",
    "SELECT user, count(*) AS n FROM clicks GROUP BY 7, TUMBLE(ts, INTERVAL '1' MINUTE)",
    "SELECT user, count(*) AS n FROM clicks GROUP BY 2, TUMBLE(ts, INTERVAL '1' MINUTE)",
    "SELECT user, count(*) AS n FROM clicks GROUP BY GROUPING SETS ((user), ())",
    "SELECT user, count(*) AS n FROM clicks GROUP BY CUBE (user)",
    "SELECT user, count(*) AS n FROM clicks GROUP BY ROLLUP (user), TUMBLE(ts, INTERVAL '1' MINUTE)",
    "SELECT user, count(*) AS n FROM clicks GROUP BY user WITH ROLLUP",
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY ts) AS n FROM clicks",
    "SELECT user, lag(price) OVER (ORDER BY ts) AS l FROM clicks",
    "SELECT user, sum(price) OVER w AS s FROM clicks WINDOW w AS (PARTITION BY user)",
    "SELECT user FROM clicks QUALIFY ROW_NUMBER() OVER (ORDER BY ts) = 1",
    "SELECT * FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '1' HOUR))",
    "SELECT user, count(*) AS n FROM clicks GROUP BY user, CUMULATE(ts, INTERVAL '1' MINUTE)",
    "SELECT * FROM TABLE(TUMBLE(DATA => TABLE clicks, SIZE => INTERVAL '1' HOUR))",
    "SELECT * FROM TABLE(TUMBLE(DATA => TABLE clicks, TIME => DESCRIPTOR(ts), SIZE => INTERVAL 1 DAY))",
    "SELECT * FROM TABLE(TUMBLE(clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
    "SELECT * FROM TABLE(FROB(TABLE clicks))",
    "SELECT * FROM TABLE(TUMBLE)",
    "SELECT * FROM TABLE(TUMBLE(",
    "SELECT * FROM TABLE()",
    f"SELECT user, max(price, user) AS m FROM clicks {WINDOW}",
    f"SELECT user, count() AS m FROM clicks {WINDOW}",
    f"SELECT user, count(DISTINCT *) AS m FROM clicks {WINDOW}",
    f"SELECT user, sum(DISTINCT price) AS m FROM clicks {WINDOW}",
    f"SELECT user, max(count(*)) AS m FROM clicks {WINDOW}",
    f"SELECT user, percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS m FROM clicks {WINDOW}",
    f"SELECT user, listagg(user, ',') AS m FROM clicks {WINDOW}",
    f"SELECT user, percentile(price, 2) AS m FROM clicks {WINDOW}",
    f"SELECT user, LATEST_BY_OFFSET(price) AS m, count(*) AS n FROM clicks {WINDOW} HAVING pricee > 1",
    f"SELECT price, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT price + 1 AS p, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT *, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT user, user, count(*) AS n FROM clicks {WINDOW}",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} EMIT",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} EMIT STREAM",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} EMIT CHANGES EMIT FINAL",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} ALLOW LATENESS 5",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} LATE DATA TO nowhere",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} ERRORS TO nowhere",
    f"SELECT user, count(*) AS n FROM clicks {WINDOW} MATCH WITHIN",
    "INSERT INTO out SELECT user FROM clicks ERRORS TO out",
    "WITH RECURSIVE r AS (SELECT * FROM clicks) SELECT * FROM r",
    "WITH r (a) AS (SELECT user FROM clicks) SELECT * FROM r",
    "WITH r AS SELECT * FROM clicks SELECT * FROM r",
    "(SELECT * FROM clicks) ORDER BY ts",
    ")",
    "SELECT user FROM clicks AS",
    "SELECT user AS FROM clicks",
    "SELECT user AS 'name' FROM clicks",
    "SELECT AS x FROM clicks",
    "SELECT user FROM clicks AS c (a, b, d)",
    "\N{SNOWMAN}",
    "SELECT ${x} FROM clicks GROUP",
    "SELECT user user user FROM clicks WHERE usr = 1",
)  # fmt: skip

#: Words of a parser, of its classes, and of Python.
FOREIGN_WORDS = re.compile(
    r"Expecting|ParseError|sqlglot|\bexp\.|Expression|Traceback|<class|object at|Token\(|Span\("
)


@pytest.mark.parametrize("statement", STRANGE)
def test_strange_texts_are_refused_in_our_own_words(statement):
    text = DECLARED + statement
    with pytest.raises(SqlError) as found:
        program_of(Text(text), analyzer=StubAnalyzer({}))
    error = found.value
    lines = text.split("\n")
    assert DECLARED.count("\n") < error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert not FOREIGN_WORDS.search(error.problem), error.problem
    assert len(error.problem) < 400


JOINED = """
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS c
LEFT JOIN TABLE(TUMBLE(TABLE views, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS v
ON c.user = v.user AND (c.price < v.price OR NOT v.ts > c.ts) AND v.price IN (1, 2)
"""
SOUND = (
    f"SELECT c.user AS u, v.*, c.price - v.price AS d {JOINED} WHERE v.user IS NULL",
    f"CREATE VIEW p AS SELECT c.user AS u, c.ts AS at, v.price AS x {JOINED}; SELECT u, count(*) AS n, "
    "max(x) AS m FROM p GROUP BY u, TUMBLE(at, INTERVAL '2' DAY) HAVING n > 1 AND m < 3 EMIT FINAL",
    "WITH a AS (SELECT ts, lower(user) AS who, price FROM clicks WHERE price > 1), "
    "b AS (SELECT * FROM a UNION ALL SELECT ts, user, price FROM views) "
    "SELECT who, count(DISTINCT who, price) AS n, sum(price) FILTER (WHERE price > 2) AS s, "
    "round(sum(price) / count(*), 2) AS r FROM b AS q WHERE q.price < 9 "
    "GROUP BY who, HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) HAVING s > 1 EMIT CHANGES "
    "ALLOW LATENESS INTERVAL '1' HOUR LATE DATA TO out",
    "SELECT *, count(*) - 1 AS n, upper(c.user) AS u FROM clicks c WHERE price IS NOT DISTINCT FROM 1 "
    "GROUP BY user, slidingwindow('ss', 10, 5) ERRORS TO out",
    "SELECT s.user, window_start, window_end, count(*) AS n FROM TABLE(SESSION(TABLE clicks "
    "PARTITION BY user, DESCRIPTOR(ts), INTERVAL '5' SECOND)) AS s "
    "GROUP BY s.user, window_start, window_end",
)


@pytest.mark.parametrize("statement", SOUND)
def test_a_program_with_some_words_out_of_place_is_refused_or_means_something(statement):
    """Words that are left out, doubled or swapped: nothing but an SqlError comes of it."""
    chance, told = Random(17), StubAnalyzer({"who": pa.string()})
    words = [token.text for token in tokens_of(statement)]
    assert program_of(Text(DECLARED + statement), analyzer=told).selects
    for _ in range(300):
        changed = list(words)
        for _ in range(chance.randint(1, 3)):
            place, other = chance.randrange(len(changed)), chance.randrange(len(words))
            changed[place : place + chance.randint(0, 1)] = chance.choice([[], [words[other]]])
        try:
            program_of(Text(DECLARED + " ".join(changed)), analyzer=told)
        except SqlError as error:
            refused = error.problem
        except KeyError as unasked:  # a type that the test does not tell
            refused = str(unasked)
        else:
            continue
        assert not FOREIGN_WORDS.search(refused)
