"""Windows: calls such as `TUMBLE(ts, INTERVAL '1' MINUTE)` and `slidingwindow('ss', 10, 15)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from tidegate.errors import SqlError, did_you_mean
from tidegate.plan.time import Micros, micros
from tidegate.plan.windows import Hopping, Session, Sliding, Window
from tidegate.sql.dialect import TableArgument
from tidegate.sql.durations import duration, offset
from tidegate.sql.source import Text

_UNITS = ("ms", "ss", "mi", "hh", "dd")

Arguments = list[exp.Expr]


@dataclass(frozen=True)
class WindowCall:
    """A window as a query names it, and the column it names as the time, if it does."""

    window: Window
    time: exp.Expr | None
    node: exp.Expr


@dataclass(frozen=True)
class WindowTable:
    """`FROM TABLE(TUMBLE(TABLE table, DESCRIPTOR(time), …))`."""

    call: WindowCall
    table: exp.Table
    partition_by: tuple[exp.Expr, ...]


def is_window(node: exp.Expr) -> bool:
    """Is this the call of a window, rather than a key?"""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _FORMS


def window_call(text: Text, node: exp.Expr) -> WindowCall:
    """A window in GROUP BY."""
    form = _FORMS[node.name.lower()]
    arguments = node.expressions
    if any(isinstance(argument, TableArgument) for argument in arguments):
        raise text.refuse(node, f"a window over a table belongs into FROM TABLE({node.name}(…))")
    _check_count(text, node, form, len(arguments))
    time = arguments[0] if form.takes_time else None
    return WindowCall(form.make(text, arguments[form.takes_time :]), time, node)


def window_table(text: Text, node: exp.Expr) -> WindowTable:
    """A window as a table: the table, DESCRIPTOR(time), and what the window takes."""
    form = _FORMS.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
    table = node.expressions[0] if form and node.expressions else None
    if form is None or not isinstance(table, TableArgument):
        raise text.refuse(
            node,
            "TABLE(…) takes a window over a table, such as TUMBLE(TABLE name, DESCRIPTOR(ts), …)",
        )
    _check_count(text, node, form, len(node.expressions) - 1)
    descriptor = node.expressions[1]
    if not _is_descriptor(descriptor):
        raise text.refuse(descriptor, f"{node.name} takes DESCRIPTOR(column) after the table")
    if table.expressions and node.name.lower() != "session":
        raise text.refuse(
            table.expressions[0], "PARTITION BY goes with SESSION; GROUP BY names the keys"
        )
    call = WindowCall(form.make(text, node.expressions[2:]), descriptor.expressions[0], node)
    return WindowTable(call, table.this, tuple(table.expressions))


def _is_descriptor(node: exp.Expr) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.lower() == "descriptor"
    return named and len(node.expressions) == 1


def _tumble(text: Text, given: Arguments) -> Hopping:
    size = duration(text, given[0], "the size of TUMBLE")
    return Hopping(size, size, _offset(text, given[1:], "TUMBLE"))


def _hop(text: Text, given: Arguments) -> Hopping:
    slide = duration(text, given[0], "the slide of HOP")
    size = duration(text, given[1], "the size of HOP")
    return Hopping(size, slide, _offset(text, given[2:], "HOP"))


def _session(text: Text, given: Arguments) -> Session:
    if isinstance(given[0], exp.Column):
        return Session(given[0].name)
    return Session(duration(text, given[0], "the gap of SESSION"))


def _offset(text: Text, given: Arguments, what: str) -> Micros:
    return offset(text, given[0], f"the offset of {what}") if given else Micros(0)


def _tumblingwindow(text: Text, given: Arguments) -> Hopping:
    size = _count(text, given[0], given[1], "the size of tumblingwindow")
    return Hopping(size, size)


def _slidingwindow(text: Text, given: Arguments) -> Sliding:
    lengths = [
        _count(text, given[0], length, "a length of slidingwindow", zero=True) for length in given[1:]
    ]
    return Sliding(lengths[0], lengths[1] if len(lengths) > 1 else None)


def _sessionwindow(text: Text, given: Arguments) -> Session:
    return Session(_count(text, given[0], given[1], "the gap of sessionwindow"))


def _count(text: Text, unit: exp.Expr, number: exp.Expr, what: str, *, zero: bool = False) -> Micros:
    """A number of units, given as `'ss', 10`."""
    if not unit.is_string or unit.name.lower() not in _UNITS:
        raise text.refuse(unit, f"a unit of time is one of {', '.join(map(repr, _UNITS))}")
    if not number.is_number:
        raise text.refuse(number, f"{what} is a number of {unit.name!r}")
    with text.at(number):
        return micros(f"{number.sql()} {unit.name}", what, zero=zero)


@dataclass(frozen=True)
class _Form:
    """How a window is called: its arguments after the time, fewest and most, and what it makes."""

    shown: str
    fewest: int
    most: int
    make: Callable[[Text, Arguments], Window]
    takes_time: bool = True


_FORMS = {
    "tumble": _Form("TUMBLE(time, size[, offset])", 1, 2, _tumble),
    "hop": _Form("HOP(time, slide, size[, offset])", 2, 3, _hop),
    "session": _Form("SESSION(time, gap)", 1, 1, _session),
    "tumblingwindow": _Form("tumblingwindow(unit, size)", 2, 2, _tumblingwindow, takes_time=False),
    "slidingwindow": _Form(
        "slidingwindow(unit, lookback[, lookahead])", 2, 3, _slidingwindow, takes_time=False
    ),
    "sessionwindow": _Form("sessionwindow(unit, gap)", 2, 2, _sessionwindow, takes_time=False),
}


def _check_count(text: Text, node: exp.Expr, form: _Form, given: int) -> None:
    fewest, most = form.fewest + form.takes_time, form.most + form.takes_time
    if not fewest <= given <= most:
        raise text.refuse(node, f"write {form.shown}: {given} arguments are given")


def no_window(text: Text, by: Arguments, place: exp.Expr) -> SqlError:
    """The error where GROUP BY has no window; a function that does not exist may be meant as one."""
    forms = ", ".join(form.shown for form in _FORMS.values())
    for node in by:
        if isinstance(node, exp.Anonymous) and get_close_matches(node.name.lower(), _FORMS):
            return text.refuse(
                node, f"no window {node.name!r}; {did_you_mean(node.name.lower(), _FORMS)}"
            )
    return text.refuse(place, f"aggregates need a window: add one to GROUP BY ({forms})")
