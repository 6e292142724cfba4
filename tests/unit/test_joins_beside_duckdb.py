"""Outer joins with keys that are null, and keys of two names: DuckDB's own joins as a second witness."""

from __future__ import annotations

from itertools import product
from typing import Any

import duckdb
import pytest

from tests.support.plans import LEFT_ROWS, RIGHT_ROWS, hopping, join_plan
from tidegate.testing import KernelHost
from tidegate.testing.table import Row, instant_of, to_arrow

SIZE = 10
USERS = ("ann", "bob", None)
SHOPS = (1, None)

#: Left and right keys: under two names, under one, and one of each.
KEYS = {
    "two names": (("user",), ("note",)),
    "one name": (("user",), ("user",)),
    "some of both": (("user", "shop"), ("note", "shop")),
}
EVERY_HOW = pytest.mark.parametrize("how", ["inner", "left", "right", "full"])


def rows_of_both_sides() -> tuple[list[Row], list[Row]]:
    """Every combination of keys in two windows, of some two rows; each side lacks some of them."""
    found: list[tuple[int, Any, Any]] = [
        (window * SIZE + number % SIZE, user, shop)
        for number, (window, user, shop) in enumerate(product((0, 1), USERS, SHOPS))
    ]
    left = [
        {"ts": instant_of(time), "user": user, "shop": shop, "items": number, "note": "left"}
        for number, (time, user, shop) in enumerate([*found, *found[::4]])
        if user != "ann" or time >= SIZE
    ]
    right = [
        {"at": instant_of(time), "user": user, "shop": shop, "price": float(number), "note": user}
        for number, (time, user, shop) in enumerate([*found, *found[::3]])
        if user != "bob" or time < SIZE
    ]
    return left, right


def ours(rows: tuple[list[Row], list[Row]], **options: Any) -> list[tuple[Any, ...]]:
    """The join's results, some rows a batch; with the columns that both systems name alike."""
    host = KernelHost(join_plan(hopping(SIZE), hopping(SIZE), tolerance=(SIZE, SIZE), **options))
    left, right = rows
    batches = [(left[::2], right[1::2]), (left[1::2], right[::2])]
    results = [*(host.batch(*batch) for batch in batches), host.end()]
    names = [*key_columns(options["keys"], options["right_keys"]), "items", "price"]
    return in_one_order(tuple(row[name] for name in names) for found in results for row in found.main)


def theirs(
    rows: tuple[list[Row], list[Row]],
    how: str,
    keys: tuple[str, ...],
    right_keys: tuple[str, ...],
    nulls_match: tuple[bool, ...],
) -> list[tuple[Any, ...]]:
    left, right = to_arrow(rows[0], LEFT_ROWS), to_arrow(rows[1], RIGHT_ROWS)
    on = [
        f'l."{one}" {"IS NOT DISTINCT FROM" if match else "="} r."{other}"'
        for one, other, match in zip(keys, right_keys, nulls_match, strict=True)
    ]
    shared = {one for one, other in zip(keys, right_keys, strict=True) if one == other}
    shown = [
        f'coalesce(l."{name}", r."{name}")' if name in shared else f'{side}."{name}"'
        for name, side in key_columns(keys, right_keys).items()
    ]
    pane = f"epoch_us(l.ts) // {SIZE} = epoch_us(r.at) // {SIZE}"
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        query = f"SELECT {', '.join([*shown, 'items', 'price'])} FROM l {how} JOIN r ON {pane} AND "
        return in_one_order(connection.execute(query + " AND ".join(on)).fetchall())


def key_columns(keys: tuple[str, ...], right_keys: tuple[str, ...]) -> dict[str, str]:
    """The key columns of pairs, each with the side it comes from; keys of one name once."""
    return dict.fromkeys(right_keys, "r") | dict.fromkeys(keys, "l")


def in_one_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@EVERY_HOW
@pytest.mark.parametrize(("keys", "right_keys"), KEYS.values(), ids=KEYS)
def test_outer_joins_are_those_of_sql(how: str, keys: Any, right_keys: Any) -> None:
    rows = rows_of_both_sides()
    for nulls_match in product((True, False), repeat=len(keys)):
        options = {"keys": keys, "right_keys": right_keys, "nulls_match": nulls_match}
        expected = theirs(rows, how, **options)
        assert ours(rows, how=how, **options) == expected
        assert expected


def test_the_witness_tells_the_rules_apart() -> None:
    """Null keys and missing sides are among the rows, so each rule shows in the answer."""
    rows = rows_of_both_sides()
    strict, lenient = (theirs(rows, "full", ("user",), ("note",), (match,)) for match in (False, True))
    assert strict != lenient
    assert any(row[0] is None and row[1] is not None for row in strict)
    assert any(row[0] is not None and row[1] is None for row in strict)
