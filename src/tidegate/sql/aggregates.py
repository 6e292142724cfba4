"""Calls of aggregates: which of ours they are, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidegate.kernels import aggregates as a
from tidegate.kernels.aggregate_registry import AGGREGATES, SQL_CALLS, Parameter, parameters_of
from tidegate.plan.aggregates import Aggregate, SqlCall
from tidegate.sql.source import Text
from tidegate.sql.spans import Call, Span, calls_in
from tidegate.sql.tokens import words

#: A column's name, or None for all rows, to the aggregate.
Make = Callable[[Any], Aggregate]


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate that waits for its column.

    `arguments` are what is counted or added up: none for all rows, several where rows count that have
    all of them. Only rows that meet `condition` count.
    """

    make: Make
    arguments: tuple[Span, ...]
    call: Call
    condition: Span | None = None

    @property
    def name(self) -> str:
        """What its result is called unless the query says."""
        of = self.arguments[0].name if len(self.arguments) == 1 else None
        return (f"{self.call.name}_{of}" if of else self.call.name).lower()


#: Spark's other aggregates: they are not computed of single rows, so they are refused by name.
_OTHERS = words(
    "any any_value approx_top_k approx_top_k_accumulate approx_top_k_combine bit_and bit_or bit_xor "
    "bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_set corr covar_pop "
    "count_min_sketch covar_samp every grouping grouping_id histogram_numeric hll_sketch_agg kurtosis "
    "hll_union_agg listagg max_by min_by mode percentile_cont percentile_disc regr_avgx "
    "regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some "
    "string_agg theta_sketch_agg theta_union_agg try_avg try_sum"
)

#: What only SQL can write, beside the aggregate that it belongs to.
_FORMS: dict[type[Aggregate], tuple[str, ...]] = {a.CountDistinct: ("count(distinct …)", "count_if")}


def _shown(kind: type[Aggregate]) -> tuple[str, ...]:
    """What messages call an aggregate that can be computed."""
    names = tuple(call.names[0] for call in kind.sql)
    return _FORMS.get(kind, names) if kind.mergeable else ()


KNOWN = ", ".join(name for kind in AGGREGATES.values() for name in _shown(kind))
_NAMES = frozenset((*SQL_CALLS, *_OTHERS, "count_if"))


def is_aggregate(call: Call) -> bool:
    """Is this the call of an aggregate, ours or not?"""
    return call.name.lower() in _NAMES


def aggregates_in(span: Span) -> list[Call]:
    """The calls of aggregates; of those inside others only the outer ones."""
    found: list[Call] = []
    for call in calls_in(span):
        inside = bool(found) and call.place < found[-1].place + len(found[-1].span)
        compares = span.says(call.place - 1, "LIKE", "ILIKE", "RLIKE", "=", "<", ">", "<=", ">=", "<>")
        quantifies = call.name.upper() in ("ANY", "SOME") and compares  # as in LIKE ANY ('a%', 'b%')
        if is_aggregate(call) and not inside and not quantifies:
            found.append(call)
    return found


def aggregate_call(text: Text, call: Call) -> AggregateCall:
    """Our aggregate for a call; refused if there is none."""
    for inner in aggregates_in(call.inside) if call.inside else ():
        raise text.refuse(inner.span, "an aggregate inside another: name the inner one in a view")
    made = _aggregate(text, call)
    if call.filter is not None:
        if made.condition is not None:
            raise text.refuse(call.filter, "count_if has its condition already: write it with AND")
        return AggregateCall(made.make, made.arguments, call, call.filter)
    return made


def _aggregate(text: Text, call: Call) -> AggregateCall:
    name, arguments = call.name.lower(), _arguments(call)
    if call.within:
        raise text.refuse(
            call.span, f"{call.span.shown} is no aggregate of windows: write percentile(column, 0.5)"
        )
    if call.nulls == "RESPECT":
        raise text.refuse(call.span, "RESPECT NULLS: aggregates ignore nulls")
    if name == "count":
        return _count(text, call, arguments)
    distinct = bool(arguments) and arguments[0].says(0, "DISTINCT")
    if (name not in SQL_CALLS and name != "count_if") or distinct:
        raise text.refuse(call.span, f"{call.span.shown} is no aggregate of windows; there are {KNOWN}")
    if name in SQL_CALLS and (parameters := _required(*SQL_CALLS[name])):
        return _with_parameters(text, call, arguments, parameters)
    if len(arguments) != 1 or arguments[0].tokens[-1].says("*"):
        raise text.refuse(
            call.span, f"{call.span.shown} takes one argument here, a column or an expression"
        )
    if name == "count_if":
        return AggregateCall(a.Count, (), call, arguments[0])
    kind, declared = SQL_CALLS[name]
    return AggregateCall(partial(kind, **declared.arguments), (arguments[0],), call)


def _arguments(call: Call) -> list[Span]:
    """The arguments, without words that say what happens anyway."""
    arguments = call.arguments
    if arguments and arguments[-1].says(len(arguments[-1]) - 1, "NULLS"):
        last = arguments[-1]
        if last.says(len(last) - 2, "IGNORE") and len(last) > 2:
            arguments = [*arguments[:-1], last[:-2]]
    if arguments and arguments[0].says(0, "ALL") and len(arguments[0]) > 1:
        arguments = [arguments[0][1:], *arguments[1:]]
    return arguments


def _count(text: Text, call: Call, arguments: list[Span]) -> AggregateCall:
    if not arguments:
        raise text.refuse(call.span, "count takes * or columns")
    first = arguments[0]
    if first.says(0, "DISTINCT"):
        if len(first) == 1 or first.tokens[-1].says("*"):
            raise text.refuse(call.span, "count(DISTINCT …) takes columns, each by its name")
        return AggregateCall(a.CountDistinct, (first[1:], *arguments[1:]), call)
    if (
        len(arguments) == 1
        and len(first) == 1
        and (first.says(0, "*") or first.tokens[0].kind == "number")
    ):
        return AggregateCall(a.Count, (), call)
    if any(argument.tokens[-1].says("*") for argument in arguments):
        raise text.refuse(call.span, "count takes * or columns, each by its name")
    return AggregateCall(a.Count, tuple(arguments), call)


def _required(kind: type[Aggregate], declared: SqlCall) -> list[Parameter]:
    """The parameters that a call has to give, behind the column."""
    return [one for one in parameters_of(kind) if one.required and one.name not in declared.arguments]


def _with_parameters(
    text: Text, call: Call, arguments: list[Span], parameters: list[Parameter]
) -> AggregateCall:
    kind, declared = SQL_CALLS[call.name.lower()]
    given = arguments[1:]
    if len(given) != len(parameters) or not all(map(_is_number, given)):
        takes = " and ".join(["a column", *(parameter.meaning for parameter in parameters)])
        raise text.refuse(call.span, f"{call.name.lower()} takes {takes}")
    values: dict[str, Any] = dict(declared.arguments)
    for parameter, argument in zip(parameters, given, strict=True):
        values[parameter.name] = parameter.type(float(argument.text.rstrip("BbDdFf")))
    make: Make = partial(kind, **values)
    with text.at(given[0]):
        make("column")
    return AggregateCall(make, (arguments[0],), call)


def _is_number(argument: Span) -> bool:
    return len(argument) == 1 and argument.tokens[0].kind == "number"
