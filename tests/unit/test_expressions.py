"""Expressions that Polars gets wrong inside `group_by`: refused, and what is let through is right."""

from __future__ import annotations

import random
from inspect import isabstract
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from tests.support.final_rows import final_rows
from tests.support.plans import TIMESTAMP, hopping, plan_of
from tests.support.samples import sample
from tidegate.errors import PlanError
from tidegate.kernels import aggregates as a
from tidegate.kernels.aggregate_registry import AGGREGATES
from tidegate.plan.aggregates import Aggregate, State
from tidegate.plan.expressions import check_every_expression, misread
from tidegate.testing.table import instant_of

X, Y, Z = pl.col("x"), pl.col("y"), pl.col("z")


def flat(name: str) -> pl.Expr:
    return pl.col(name).explode(empty_as_null=False, keep_nulls=False)


def same(values: pl.Series) -> pl.Series:
    return values


#: What is sorted, and by what: columns as they are, of which the first rows can be taken.
PLAIN = {
    "a column": (X, Y),
    "by an expression": (X, -Y + 1),
    "an expression": (X.cast(pl.String), Y.cast(pl.Float64)),
    "some rows": (X.filter(Y > 20), Y.filter(Y > 20)),
    "rows that are there": (X.filter(X.is_not_null()), Y.filter(X.is_not_null())),
    "rows that are not": (X.filter(~X.is_null()).alias("u"), Y.filter(~X.is_null())),
}
#: What Polars 2.1.0 was seen to get wrong, if the first rows are taken.
MISREAD = {
    "lists": (flat("v"), flat("t")),
    "lists of some rows": (pl.col("v").filter(Y > 20).explode(), pl.col("t").filter(Y > 20).explode()),
    "some of lists": (flat("v").filter(flat("t") > 20), flat("t").filter(flat("t") > 20)),
    "lists, cast": (flat("v").cast(pl.String), flat("t").cast(pl.Float64)),
    "lists, sorted": (flat("v").sort(), flat("t").sort()),
    "lists and back": (X.implode().explode(), Y.implode().explode()),
    "rows twice": (X.append(X), Y.append(Y)),
    "rows by place": (X.gather(Y.arg_sort()), Y.gather(Y.arg_sort())),
    "neighbours": (X.shift(1), Y),
    "by neighbours": (X, Y.shift(1)),
    "by what is sorted": (X, Y.sort()),
    "by what is reversed": (X, Y.reverse()),
    "by ranks": (X, Y.rank("ordinal")),
    "by what is relative": (X, Y - Y.min()),
    "running": (X, Y.cum_sum()),
    "a function": (X.cast(pl.String).map_batches(same, return_dtype=pl.String), Y),
    "by a function": (X, Y.map_batches(same, return_dtype=pl.Int64)),
    "sorted twice": (X.filter(Y > 20).sort_by(Z.filter(Y > 20)), Y.filter(Y > 20).sort()),
}
FROM_THE_START = {
    "first": lambda e: e.first(),
    "first that is there": lambda e: e.first(ignore_nulls=True),
    "head": lambda e: e.head(2),
    "limit": lambda e: e.limit(2),
    "slice": lambda e: e.slice(1, 2),
    "renamed": lambda e: e.alias("u").first(),
    "cast": lambda e: e.cast(pl.String).first(),
    "inside": lambda e: pl.struct(one=e.first(), n=pl.len()),
}
SAFE = {
    "get": lambda e: e.get(0, null_on_oob=True),
    "list.head": lambda e: e.implode().list.head(2),
    "list.slice": lambda e: e.implode().list.slice(1, 2),
    "list.first": lambda e: e.implode().list.first(),
    "last": lambda e: e.last(),
    "tail": lambda e: e.tail(2),
    "slice from the end": lambda e: e.slice(-1, 1),
    "all": lambda e: e,
}


def sorted_by(values: pl.Expr, by: pl.Expr) -> pl.Expr:
    return values.sort_by(by, maintain_order=True)


@pytest.mark.parametrize("end", FROM_THE_START.values(), ids=FROM_THE_START)
@pytest.mark.parametrize("operands", MISREAD.values(), ids=MISREAD)
def test_the_first_rows_of_such_sorts_are_refused(operands: Any, end: Any) -> None:
    assert misread(end(sorted_by(*operands))) is not None


def kind_of_number(number: int) -> int:
    return number


def kind_of_text(number: int) -> str:
    """Some as long as the text that Polars keeps beside the others."""
    return f"{number} in a text of more than twelve bytes" if number % 3 else str(number)


def frame(dice: random.Random, kind: Any, groups: int) -> pl.DataFrame:
    """Rows of groups in any order, with nulls, lists of any length, and times that differ."""
    rows = []
    for number in range(dice.randint(groups, 4 * groups)):
        length = dice.randint(0, 3)
        rows.append(
            {
                "k": dice.randrange(groups),
                "x": kind(dice.randint(0, 99)) if dice.random() < 0.8 else None,
                "y": number * 37 % 101,
                "z": dice.randint(0, 3),
                "v": [kind(dice.randint(0, 99)) for _ in range(length)],
                "t": [(number * 37 + place) % 101 for place in range(length)],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def grouped(rows: pl.DataFrame, expression: pl.Expr) -> dict[int, Any]:
    return dict(rows.group_by("k").agg(expression.alias("r")).iter_rows())


def each_alone(rows: pl.DataFrame, expression: pl.Expr) -> dict[int, Any]:
    """The same without groups: what several values are is a list."""
    kind = rows.group_by("k").agg(expression.alias("r")).schema["r"]
    found = {}
    for (key,), part in rows.group_by("k"):
        values = part.select(expression.alias("r"))["r"]
        found[key] = values.to_list() if kind == pl.List(values.dtype) else values.to_list()[0]
    return found


@pytest.mark.parametrize("kind", [kind_of_number, kind_of_text])
@pytest.mark.parametrize(
    ("operands", "ends"),
    [
        *(pytest.param(pair, FROM_THE_START | SAFE, id=name) for name, pair in PLAIN.items()),
        *(pytest.param(pair, SAFE, id=name) for name, pair in MISREAD.items()),
    ],
)
def test_what_is_let_through_is_right(operands: Any, ends: Any, kind: Any) -> None:
    dice = random.Random(11)
    frames = [frame(dice, kind, groups) for groups in (1, 3, 40)]
    for end in ends.values():
        expression = end(sorted_by(*operands))
        assert misread(expression) is None
        for rows in frames:
            assert grouped(rows, expression) == each_alone(rows, expression)


# -- aggregates -----------------------------------------------------------------------------------


class Earliest(Aggregate):
    """The values of the earliest rows, kept as lists; `take` says how the first are taken."""

    def __init__(self, column: str, take: Any) -> None:
        super().__init__(column)
        self.take = take

    def output_type(self, column_type: pa.DataType | None) -> pa.DataType:
        return pa.list_(column_type)

    def partial(self, value: pl.Expr, time: pl.Expr) -> dict[str, pl.Expr]:
        return {"values": value.sort_by(time).head(2), "times": time.sort().head(2)}

    def merge(self, state: State) -> dict[str, pl.Expr]:
        values, times = state["values"].explode(), state["times"].explode()
        return {"values": self.take(values.sort_by(times)), "times": times.sort().head(2)}

    def finish(self, state: State) -> pl.Expr:
        return state["values"]


def plan(take: Any) -> Any:
    schema = pa.schema([("ts", TIMESTAMP), ("user", pa.string()), ("v", pa.string())])
    return plan_of(hopping(1000), (("early", Earliest("v", take)),), schema=schema)


def test_an_aggregate_that_polars_gets_wrong_is_refused() -> None:
    with pytest.raises(PlanError) as raised:
        plan(lambda values: values.head(2))
    assert str(raised.value) == (
        "early=earliest(v): merge() makes 'values' by sort_by(…).slice(…), which Polars gets wrong "
        "inside a group unless plain columns are sorted by plain columns; write "
        "sort_by(…).get(0, null_on_oob=True) instead of first(), and "
        "sort_by(…).implode().list.head(n) instead of head(n), limit(n) or slice(0, n)"
    )


def test_in_the_form_that_the_message_names_it_is_right() -> None:
    dice = random.Random(5)
    rows = [
        {"ts": instant_of(time), "user": dice.choice("abc"), "v": f"the value that came at time {time}"}
        for time in dice.sample(range(1000), 60)
    ]
    found = final_rows(plan(lambda values: values.implode().list.head(2)), rows, batches=7)
    ordered = sorted(rows, key=lambda row: row["ts"])
    for result in found:
        mine = [row["v"] for row in ordered if row["user"] == result["user"]]
        assert result["early"] == mine[:2]
    assert len(found) == 3


@pytest.mark.parametrize(
    "aggregate",
    [
        a.Count(None),
        *(sample(kind, "v") for kind in AGGREGATES.values() if kind.mergeable),
        a.Max("v").for_type(pa.list_(pa.int8())),
    ],
    ids=str,
)
def test_no_aggregate_of_ours_is_refused(aggregate: Aggregate) -> None:
    check_every_expression("x", aggregate)


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(10, 2), pa.decimal128(38, 2)], ids=str)
def test_no_exact_sum_of_ours_is_refused(kind: pa.DataType) -> None:
    for aggregate in (a.Sum("v"), a.Mean("v")):
        check_every_expression("x", aggregate.for_type(kind))


def test_every_aggregate_of_ours_has_a_public_name() -> None:
    kinds = [
        kind
        for kind in vars(a).values()
        if isinstance(kind, type) and issubclass(kind, Aggregate) and kind.__module__ == a.__name__
    ]
    assert {kind for kind in kinds if not isabstract(kind)} == {*AGGREGATES.values()}
