"""Window joins in SQL: the API's node, and names of both sides."""

import pytest

import tidegate as tg
from tests.same_plans import facts
from tests.unit.test_sql import BY_USER, CLICKS, query
from tidegate.api.events import Events
from tidegate.errors import SqlError
from tidegate.plan.declare import declare_source
from tidegate.plan.nodes import Join

LEFT = BY_USER.window(tg.tumbling("10 s"))
RIGHT = Events((), declare_source(CLICKS, "ts")).key_by("user").window(tg.hopping("20 s", "10 s"))
SIDES = """
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS c
    {} JOIN TABLE(HOP(TABLE views, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) AS v
"""


@pytest.mark.parametrize(
    ("kind", "on", "options"),
    [
        ("", "ON c.user = v.user", {}),
        ("INNER", "ON v.user = c.user", {}),
        ("LEFT", "ON c.user = v.user", {"how": "left"}),
        ("RIGHT OUTER", "ON c.user = v.user", {"how": "right"}),
        ("FULL", "ON c.user = v.user MATCH OVERLAP", {"how": "full"}),
        ("", "ON c.user = v.user MATCH WITHIN", {"match": "within"}),
        (
            "LEFT",
            "ON c.user = v.user AND c.price < v.price AND v.shop = 1",
            {"how": "left", "where": "price_left < price_right AND shop_right = 1"},
        ),
    ],
)
def test_joins_are_those_of_the_api(kind, on, options):
    insert = query(f"SELECT * {SIDES.format(kind)} {on}")
    assert facts(insert.plan) == facts(Join(LEFT.node, RIGHT.node, **options))
    assert [read.stream.name for read in insert.inputs] == ["clicks", "views"]
    assert insert.columns is None


def test_names_of_both_sides():
    insert = query(
        f"SELECT c.user, v.user AS same, c.price - v.price AS cheaper, v.window_end AS till "
        f"{SIDES.format('')} ON c.user = v.user WHERE c.price > v.price"
    )
    assert insert.having == "price_left > price_right"
    assert insert.columns == (
        ("user", "user"),
        ("same", "user"),
        ("cheaper", "price_left - price_right"),
        ("till", "right_window_end"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"SELECT * {SIDES.format('')} ON c.price > v.price",
            "a join needs ON with a key: left.column = right.column",
        ),
        (f"SELECT * {SIDES.format('CROSS')}", "a join needs ON with a key"),
        (
            "SELECT * FROM clicks c JOIN views v ON c.user = v.user",
            "both sides of a join are in windows: FROM TABLE(TUMBLE(TABLE a, …)) AS a",
        ),
        (
            f"SELECT * {SIDES.format('')} ON c.user = v.user EMIT CHANGES",
            "EMIT goes with aggregates; pairs leave as they are found",
        ),
        (
            f"SELECT count(*) AS n {SIDES.format('')} ON c.user = v.user GROUP BY c.user",
            "join first, in a view, and group what it gives",
        ),
        (f"SELECT * {SIDES.format('LEFT SEMI')} ON c.user = v.user", "a join is one of INNER, LEFT"),
        (f"SELECT * {SIDES.format('')} ON c.user = v.shop", "must be of the same types"),
    ],
)
def test_refused_joins(text, message):
    with pytest.raises(SqlError, match="line") as found:
        query(text)
    assert message in str(found.value)
