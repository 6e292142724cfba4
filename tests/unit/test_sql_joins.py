"""Window joins in SQL: the API's node, and names of both sides."""

import pyarrow as pa
import pytest

import tidegate as tg
from tests.support.plan_facts import facts
from tests.unit.test_sql import BY_USER, CLICKS, query, shown
from tidegate.api.events import Events
from tidegate.errors import SqlError
from tidegate.plan.nodes import Join
from tidegate.plan.sources import declare_source
from tidegate.sql import Projection

LEFT = BY_USER.window(tg.tumbling("10 s"))
RIGHT = Events((), declare_source(CLICKS, "ts")).key_by("user").window(tg.hopping("20 s", "10 s"))
SIDES = """
    FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS c
    {} JOIN TABLE(HOP(TABLE views, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) AS v
"""


STRICT = {"nulls_match": (False,)}


@pytest.mark.parametrize(
    ("kind", "on", "options"),
    [
        ("", "ON c.user = v.user", STRICT),
        ("INNER", "ON v.user == c.user", STRICT),
        ("", "ON v.USER = C.User", STRICT),
        ("", "ON (c.user = v.user)", STRICT),
        ("LEFT", "ON c.user = v.user", {"how": "left"} | STRICT),
        ("RIGHT OUTER", "ON c.user = v.user", {"how": "right"} | STRICT),
        ("FULL", "ON c.user = v.user MATCH OVERLAP", {"how": "full"} | STRICT),
        ("", "ON c.user <=> v.user MATCH WITHIN", {"match": "within"}),
        ("", "ON c.user IS NOT DISTINCT FROM v.user", {}),
        (
            "LEFT",
            "ON c.user = v.user AND c.price < v.price",
            {"how": "left", "where": "`price_left` < `price_right`"} | STRICT,
        ),
        (
            "FULL",
            "ON c.user = v.user AND NOT (c.price < v.price OR v.ts >= c.ts AND c.shop <> v.shop)",
            {
                "how": "full",
                "where": "NOT ((`price_left` < `price_right`) OR "
                "((`ts_right` >= `ts_left`) AND (`shop_left` <> `shop_right`)))",
            }
            | STRICT,
        ),
    ],
)
def test_joins_are_those_of_the_api(kind, on, options):
    insert = query(f"SELECT * {SIDES.format(kind)} {on}")
    assert facts(insert.plan) == facts(Join(LEFT.node, RIGHT.node, **options))
    assert [read.stream.name for read in insert.inputs] == ["clicks", "views"]
    assert insert.steps == ()


def test_null_equals_null_in_the_keys_that_say_so():
    insert = query(f"SELECT * {SIDES.format('')} ON c.user = v.user AND c.shop <=> v.shop")
    assert insert.plan.left.input.keys == ("user", "shop")
    assert insert.plan.nulls_match == (False, True)


def test_what_is_about_one_side_is_computed_by_spark():
    insert = query(
        f"SELECT c.price {SIDES.format('LEFT')} ON lower(c.user) = v.user AND v.shop BETWEEN 1 AND 3 "
        "AND c.price < v.price * 2 AND c.price IN (1, 2)",
        key_1=pa.string(),
        on_1=pa.bool_(),
        on_1_2=pa.float64(),
        _0=pa.float64(),
    )
    left, right = ([step.columns[4:] for step in read.steps] for read in insert.inputs)
    assert left == [(("key_1", "lower(c.user)"), ("on_1", "c.price IN (1, 2)"))]
    assert right == [(("on_1", "v.shop BETWEEN 1 AND 3"), ("on_1_2", "v.price * 2"))]
    assert insert.plan.where == "`on_1_right` AND `price_left` < `on_1_2` AND `on_1_left`"
    assert shown(insert) == (("price", "`price_left`"),)


def test_what_only_spark_can_tell_of_both_sides_is_a_filter_behind_an_inner_join():
    insert = query(
        f"SELECT c.user {SIDES.format('')} ON c.user = v.user AND v.ts - c.ts < INTERVAL '5' SECOND"
    )
    assert insert.plan.where is None
    assert [step.where for step in insert.steps] == [
        "`ts_right` - `ts_left` < INTERVAL '5' SECOND",
        None,
    ]


def test_names_of_both_sides():
    insert = query(
        f"SELECT c.user, v.user AS same, c.price - V.Price AS cheaper, v.window_end AS till "
        f"{SIDES.format('')} ON c.user = v.user WHERE c.price > v.price"
    )
    [step] = insert.steps
    assert step.where == "`price_left` > `price_right`"
    assert step.columns == (
        ("user", "`user`"),
        ("same", "`user`"),
        ("cheaper", "`price_left` - `price_right`"),
        ("till", "`right_window_end`"),
    )


@pytest.mark.parametrize(
    ("kind", "left_user", "right_user"),
    [
        ("LEFT", "`user`", "(CASE WHEN `right_window_start` IS NOT NULL THEN `user` END)"),
        ("RIGHT", "(CASE WHEN `left_window_start` IS NOT NULL THEN `user` END)", "`user`"),
        (
            "FULL",
            "(CASE WHEN `left_window_start` IS NOT NULL THEN `user` END)",
            "(CASE WHEN `right_window_start` IS NOT NULL THEN `user` END)",
        ),
    ],
)
def test_keys_of_a_missing_side_are_null(kind, left_user, right_user):
    insert = query(
        f"SELECT c.user AS a, v.user AS b {SIDES.format(kind)} ON c.user = v.user WHERE v.user IS NULL"
    )
    [step] = insert.steps
    assert step.columns == (("a", left_user), ("b", right_user))
    assert step.where == f"{right_user} IS NULL"


def test_only_names_of_columns_are_replaced():
    insert = query(
        "CREATE VIEW v AS SELECT ts AS day, user AS x, price AS hour FROM views; "
        "SELECT extract(day FROM c.ts) AS a, c.ts + INTERVAL '1' HOUR AS b, X'1F' AS d, hour, "
        "transform(array(c.price), x -> x + v.hour) AS e, 'c.price' AS f, hour(v.day) AS g "
        "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' DAY)) AS c "
        "JOIN TABLE(TUMBLE(TABLE v, DESCRIPTOR(day), INTERVAL '1' DAY)) AS v ON c.user = v.x"
    )
    assert shown(insert) == (
        ("a", "extract(day FROM `ts`)"),
        ("b", "`ts` + INTERVAL '1' HOUR"),
        ("d", "X'1F'"),
        ("hour", "hour"),
        ("e", "transform(array(`price`), x -> x + `hour`)"),
        ("f", "'c.price'"),
        ("g", "hour(`day`)"),
    )


def test_a_star_of_one_side_is_its_columns():
    insert = query(f"SELECT v.* {SIDES.format('')} ON c.user = v.user")
    assert shown(insert) == (
        ("ts", "`ts_right`"),
        ("user", "`user`"),
        ("shop", "`shop_right`"),
        ("price", "`price_right`"),
        ("window_start", "`right_window_start`"),
        ("window_end", "`right_window_end`"),
    )


def test_a_view_is_in_a_join_what_it_is_alone():
    insert = query("""
        CREATE VIEW swapped AS SELECT ts AS StartTime, price AS shop, shop AS price, user FROM views;
        SELECT s.price AS p, s.starttime, S.SHOP
        FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS c
        JOIN TABLE(TUMBLE(TABLE swapped, DESCRIPTOR(starttime), INTERVAL '10' SECOND)) AS s
        ON c.user = s.user
    """)
    assert insert.inputs[1].steps == (
        Projection(
            "views", None, (("StartTime", "ts"), ("shop", "price"), ("price", "shop"), ("user", "user"))
        ),
    )
    assert insert.plan.right.schema.names == ["StartTime", "shop", "price", "user"]
    assert [str(kind) for kind in insert.plan.right.schema.types][1:3] == ["double", "int64"]
    assert shown(insert) == (
        ("p", "`price_right`"),
        ("starttime", "`StartTime`"),
        ("SHOP", "`shop_right`"),
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
        (
            f"SELECT c.ts {SIDES.format('LEFT')} ON c.user = v.user "
            "AND CASE WHEN v.shop = 1 THEN 'x' END",
            "is String; a condition is true or false",
        ),
        (f"SELECT price {SIDES.format('')} ON c.user = v.user", "'price' is a column of both sides"),
        (f"SELECT x.* {SIDES.format('')} ON c.user = v.user", "no stream or view 'x' in FROM"),
        (f"SELECT c.prize {SIDES.format('')} ON c.user = v.user", "did you mean 'price'?"),
        (f"SELECT c.ts {SIDES.format('')} ON c.usr = v.user", "no column 'c.usr'"),
        (f"SELECT c.ts {SIDES.format('')} ON shop = v.shop", "'shop' is a column of both sides"),
        (f"SELECT c.ts {SIDES.format('')} USING (user)", "USING: write ON left.column = right.column"),
        (
            f"SELECT c.ts {SIDES.format('LEFT')} ON c.user = v.user AND v.price - c.price < 5",
            "a LEFT JOIN compares an expression of one side with one of the other",
        ),
        (
            f"SELECT c.ts {SIDES.format('').replace('AS v', 'AS c')} ON c.user = c.user",
            "both sides are called 'c': give them names with AS",
        ),
    ],
)
def test_refused_joins(text, message):
    with pytest.raises(SqlError, match="line") as found:
        query(text, on_1=pa.string())
    assert message in str(found.value)
