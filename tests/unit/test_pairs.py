"""Groups of pairs by one integer are those of the pairs."""

import random

import polars as pl
import pytest

from tidegate.columnar.pairs import Pairs

PAIRS = {
    "dense": [(0, 5), (1, 4), (0, 5), (1, 5)],
    "sparse": [(7, 1 << 40), (7, 5), (100_000, 5), (7, 5)],
    "negative": [(3, -9), (0, -9), (3, 8), (3, -9)],
    "one": [(2, 2)],
    "no span": [(1, 6), (2, 6), (1, 6)],
    "largest": [(0, -(1 << 60)), (1, (1 << 60) - 2), (1, 0)],
}


@pytest.mark.parametrize("kind", [pl.Int32, pl.Int64], ids=str)
@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_groups_are_those_of_the_pairs(pairs, kind):
    rows = pl.DataFrame(pairs, {"a": kind, "b": pl.Int64}, orient="row").with_row_index("row")
    packed = Pairs.of(rows, ["a", "b"])
    assert packed is not None
    grouped = packed.group_by(rows, pl.len().alias("n"), pl.col("row"))
    by_hand = rows.group_by("a", "b").agg(pl.len().alias("n"), pl.col("row"))
    assert grouped.schema == by_hand.schema
    assert sorted(grouped.rows()) == sorted(by_hand.rows())


def test_many_pairs():
    chance = random.Random(3)
    pairs = [(chance.randrange(50), chance.randrange(-20, 20)) for _ in range(3000)]
    rows = pl.DataFrame(pairs, {"a": pl.Int32, "b": pl.Int64}, orient="row")
    grouped = Pairs.of(rows, ["a", "b"]).group_by(rows, pl.len().alias("n"))
    assert sorted(grouped.rows()) == sorted(rows.group_by("a", "b").len("n").rows())


@pytest.mark.parametrize(
    "rows",
    [
        pl.DataFrame({"a": [0, 1], "b": [-(1 << 61), 1 << 61]}),
        pl.DataFrame({"a": [-(1 << 63), 0], "b": [0, 1]}),
        pl.DataFrame({"a": ["x"], "b": [1]}),
        pl.DataFrame({"a": [1, None], "b": [1, 2]}),
        pl.DataFrame({"a": [], "b": []}, {"a": pl.Int32, "b": pl.Int64}),
    ],
    ids=["too far apart", "too large", "text", "null", "empty"],
)
def test_what_does_not_fit_in_one_integer(rows):
    assert Pairs.of(rows, ["a", "b"]) is None
    assert Pairs.of(rows, ["a"]) is None
