"""Calls of aggregates: which of ours they are, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from tidegate.operators import aggregates as a
from tidegate.plan.aggregate import Aggregate
from tidegate.sql.source import Text

#: A column's name, or None for all rows, to the aggregate.
Make = Callable[[Any], Aggregate]


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate that waits for its column: `argument` is that column, or what is computed as one."""

    make: Make
    argument: exp.Expr | None
    node: exp.Expr

    @property
    def name(self) -> str:
        """What its result is called unless the query says."""
        word = self.node.sql_name() if isinstance(self.node, exp.AggFunc) else self.node.name
        of = self.argument.name if isinstance(self.argument, exp.Column) else ""
        return (f"{word}_{of}" if of else word).lower()


#: What sqlglot makes of the names that Spark has for them.
_TYPED: dict[type[exp.Expr], Make] = {
    exp.Count: a.Count,
    exp.Sum: a.Sum,
    exp.Min: a.Min,
    exp.Max: a.Max,
    exp.Avg: a.Mean,
    exp.Variance: a.Var,
    exp.VariancePop: lambda column: a.Var(column, population=True),
    exp.Stddev: a.Stddev,
    exp.StddevSamp: a.Stddev,
    exp.StddevPop: lambda column: a.Stddev(column, population=True),
    exp.First: a.First,
    exp.FirstValue: a.First,
    exp.Last: a.Last,
    exp.LastValue: a.Last,
    exp.ArrayAgg: a.Collect,
    exp.ApproxDistinct: a.ApproxCountDistinct,
    exp.Median: a.Median,
}
_NAMED: dict[str, Make] = {"mean": a.Mean, "std": a.Stddev}
_QUANTILES = (exp.Quantile, exp.ApproxQuantile)

KNOWN = (
    "count, sum, min, max, avg, var_samp, var_pop, stddev_samp, stddev_pop, first, last, "
    "count(distinct …), count_if, collect_list, approx_count_distinct, percentile, approx_percentile"
)


def is_aggregate(node: exp.Expr) -> bool:
    """Is this the call of an aggregate, ours or not?"""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _NAMED
    return isinstance(node, exp.AggFunc | exp.Filter | exp.IgnoreNulls | exp.WithinGroup)


def aggregate_call(text: Text, node: exp.Expr) -> AggregateCall:
    """Our aggregate for a call; refused if there is none."""
    if isinstance(node, exp.Filter):
        call = aggregate_call(text, node.this)
        return AggregateCall(call.make, _only_where(node.expression.this, call), call.node)
    if isinstance(node, exp.IgnoreNulls):  # all of ours do
        return aggregate_call(text, node.this)
    if isinstance(node, exp.CountIf):
        return AggregateCall(a.Count, _when(node.this, exp.Literal.number(1)), node)
    if isinstance(node, exp.Count):
        return _count(text, node)
    if isinstance(node, _QUANTILES):
        return _quantile(text, node)
    make = _NAMED.get(node.name.lower()) if isinstance(node, exp.Anonymous) else _TYPED.get(type(node))
    arguments = [part for part in _arguments(node) if isinstance(part, exp.Expr)]
    if make is None or any(isinstance(part, exp.Distinct | exp.Order) for part in arguments):
        raise text.refuse(node, f"{node.sql('spark')} is no aggregate of windows; there are {KNOWN}")
    if len(arguments) != 1:
        raise text.refuse(
            node, f"{node.sql('spark')} takes one argument here, a column or an expression"
        )
    return AggregateCall(make, arguments[0], node)


def _arguments(node: exp.Expr) -> list[object]:
    if isinstance(node, exp.Anonymous):
        return list(node.expressions)
    return [
        part for value in node.args.values() for part in (value if isinstance(value, list) else [value])
    ]


def _count(text: Text, node: exp.Count) -> AggregateCall:
    if isinstance(node.this, exp.Star) or (node.this is not None and node.this.is_number):
        return AggregateCall(a.Count, None, node)
    if isinstance(node.this, exp.Distinct):
        if len(node.this.expressions) != 1:
            raise text.refuse(node, "count(DISTINCT …) takes one column; concat() makes one of several")
        return AggregateCall(a.CountDistinct, node.this.expressions[0], node)
    if node.this is None or node.expressions:
        raise text.refuse(node, "count takes * or one column")
    return AggregateCall(a.Count, node.this, node)


def _quantile(text: Text, node: exp.Expr) -> AggregateCall:
    share = node.args.get("quantile")
    if share is None or not share.is_number or node.args.get("accuracy"):
        raise text.refuse(node, "percentile takes a column and a number between 0 and 1, such as 0.99")
    with text.at(share):
        a.Quantile("column", float(share.name))
    return AggregateCall(lambda column: a.Quantile(column, float(share.name)), node.this, node)


def _only_where(condition: exp.Expr, call: AggregateCall) -> exp.Expr:
    return _when(condition, call.argument or exp.Literal.number(1))


def _when(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The value of rows that meet the condition, null of others: aggregates ignore those."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])
