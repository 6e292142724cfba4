"""Windows: calls such as `TUMBLE(ts, INTERVAL '1' MINUTE)` and `slidingwindow('ss', 10, 15)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from tidegate.errors import SqlError, did_you_mean
from tidegate.plan.time import Micros, micros
from tidegate.plan.windows import Hopping, Session, Sliding, Window
from tidegate.sql.durations import duration, offset
from tidegate.sql.source import Place, Text
from tidegate.sql.spans import Call, Span, chain_at, split, whole_call
from tidegate.sql.tokens import Token

_CUMULATE = "CUMULATE is not supported: TUMBLE with EMIT EVERY INTERVAL … shows a window as it grows"

_UNITS = ("ms", "ss", "mi", "hh", "dd")

Arguments = list[Span]


@dataclass(frozen=True)
class WindowCall:
    """A window as a query names it, and the column it names as the time, if it does."""

    window: Window
    time: Span | None
    place: Span
    #: The expression that is each row's own gap.
    gap: Span | None = None


@dataclass(frozen=True)
class WindowTable:
    """`FROM TABLE(TUMBLE(TABLE table, DESCRIPTOR(time), …))`."""

    call: WindowCall
    table: Token
    partition_by: tuple[Span, ...]


def is_window(span: Span) -> bool:
    """Is this the call of a window, rather than a key?"""
    call = whole_call(span)
    return call is not None and call.name.lower() in _FORMS


def window_call(text: Text, span: Span) -> WindowCall:
    """A window in GROUP BY."""
    call = whole_call(span)
    assert call is not None
    form, arguments = _FORMS[call.name.lower()], call.arguments
    for argument in arguments:
        if _is_named(argument):
            raise text.refuse(argument, f"write {form.shown}: names belong into FROM TABLE(…)")
        if argument.says(0, "TABLE", "DESCRIPTOR"):
            raise text.refuse(span, f"a window over a table belongs into FROM TABLE({call.name}(…))")
    _check_count(text, span, form, len(arguments))
    time = arguments[0] if form.takes_time else None
    return _made(text, form, arguments[form.takes_time :], time, span)


def _made(text: Text, form: _Form, given: Arguments, time: Span | None, place: Span) -> WindowCall:
    window = form.make(text, given)
    own = isinstance(window, Session) and isinstance(window.gap, str)
    return WindowCall(window, time, place, given[0] if own else None)


def window_table(text: Text, call: Call) -> WindowTable:
    """A window as a table: the table, DESCRIPTOR(time), and what the window takes."""
    if call.name.upper() == "CUMULATE":
        raise text.refuse(call.span, _CUMULATE)
    form = _FORMS[call.name.lower()]
    arguments = _in_order(text, call, form)
    if not arguments or not arguments[0].says(0, "TABLE") or len(arguments[0]) < 2:
        raise text.refuse(
            arguments[0] if arguments else call.span,
            f"a window over a table is {call.name.upper()}(TABLE name, DESCRIPTOR(ts), …)",
        )
    first, *others = arguments
    keys, others = _partition(first, others)
    _check_count(text, call.span, form, len(others))
    descriptor = whole_call(others[0])
    if descriptor is None or descriptor.name.lower() != "descriptor" or len(descriptor.arguments) != 1:
        raise text.refuse(others[0], f"{call.name} takes DESCRIPTOR(column) after the table")
    if keys and form is not _FORMS["session"]:
        raise text.refuse(keys[0], "PARTITION BY goes with SESSION; GROUP BY names the keys")
    made = _made(text, form, others[1:], descriptor.arguments[0], call.span)
    return WindowTable(made, first.tokens[1], tuple(keys))


def _partition(table: Span, others: Arguments) -> tuple[Arguments, Arguments]:
    """The keys of `TABLE name PARTITION BY a, b`, whose commas look like those of arguments."""
    if not (table.says(2, "PARTITION") and table.says(3, "BY")) or len(table) < 5:
        return [], others
    keys = table[4:]
    if keys.says(0, "("):
        return split(keys[1:-1], ","), others
    more = 0
    while more < len(others) and not others[more].says(0, "DESCRIPTOR"):
        more += 1
    return [keys, *others[:more]], others[more:]


def _is_named(argument: Span) -> bool:
    return len(argument) > 2 and argument.tokens[0].is_name and argument.says(1, "=>")


def _in_order(text: Text, call: Call, form: _Form) -> Arguments:
    """The arguments in the order of the form, if they are given by name."""
    arguments = call.arguments
    if not any(map(_is_named, arguments)):
        return arguments
    names = ("DATA", "TIMECOL", *form.names)
    given: dict[str, Span] = {}
    for argument in arguments:
        name = argument.tokens[0].name.upper() if _is_named(argument) else ""
        if name not in names or name in given:
            raise text.refuse(
                argument,
                f"the arguments of {call.name.upper()} are {', '.join(f'{n} => …' for n in names)}",
            )
        given[name] = argument[2:]
    ordered = [given[name] for name in names if name in given]
    missing = [name for name in names[: len(ordered)] if name not in given]
    if missing:
        raise text.refuse(call.span, f"{call.name.upper()} needs the argument {missing[0]} => …")
    return ordered


def _tumble(text: Text, given: Arguments) -> Hopping:
    size = duration(text, given[0], "the size of TUMBLE")
    return Hopping(size, size, _offset(text, given[1:], "TUMBLE"))


def _hop(text: Text, given: Arguments) -> Hopping:
    slide = duration(text, given[0], "the slide of HOP")
    size = duration(text, given[1], "the size of HOP")
    return Hopping(size, slide, _offset(text, given[2:], "HOP"))


def _session(text: Text, given: Arguments) -> Session:
    if chain_at(given[0], 0) == len(given[0]):
        return Session(given[0].tokens[-1].name)
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


def _count(text: Text, unit: Span, number: Span, what: str, *, zero: bool = False) -> Micros:
    """A number of units, given as `'ss', 10`."""
    word = unit.tokens[0]
    if len(unit) != 1 or word.kind != "string" or word.value.lower() not in _UNITS:
        raise text.refuse(unit, f"a unit of time is one of {', '.join(map(repr, _UNITS))}")
    if len(number) != 1 or number.tokens[0].kind != "number":
        raise text.refuse(number, f"{what} is a number of {word.value!r}")
    with text.at(number):
        return micros(f"{number.text} {word.value}", what, zero=zero)


@dataclass(frozen=True)
class _Form:
    """How a window is called: its arguments after the time, fewest and most, and what it makes."""

    shown: str
    fewest: int
    most: int
    make: Callable[[Text, Arguments], Window]
    takes_time: bool = True
    #: What these arguments are called where they have names.
    names: tuple[str, ...] = ()


_FORMS = {
    "tumble": _Form("TUMBLE(time, size[, offset])", 1, 2, _tumble, names=("SIZE", "OFFSET")),
    "hop": _Form("HOP(time, slide, size[, offset])", 2, 3, _hop, names=("SLIDE", "SIZE", "OFFSET")),
    "session": _Form("SESSION(time, gap)", 1, 1, _session, names=("GAP",)),
    "tumblingwindow": _Form("tumblingwindow(unit, size)", 2, 2, _tumblingwindow, takes_time=False),
    "slidingwindow": _Form(
        "slidingwindow(unit, lookback[, lookahead])", 2, 3, _slidingwindow, takes_time=False
    ),
    "sessionwindow": _Form("sessionwindow(unit, gap)", 2, 2, _sessionwindow, takes_time=False),
}

#: Windows of Spark and of Flink's old syntax, and what they are called here.
_ELSEWHERE = {
    "window": "Spark's window(time, size[, slide]) is TUMBLE(time, INTERVAL …) here, or "
    "HOP(time, slide, size) where it slides; window.start is window_start, window.end is window_end",
    "session_window": "Spark's session_window(time, gap) is SESSION(time, INTERVAL …) here",
    "cumulate": _CUMULATE,
}
#: Functions that show what is a column here.
_SHOWN_BY = {
    **dict.fromkeys(("tumble_start", "hop_start", "session_start"), "window_start"),
    **dict.fromkeys(("tumble_end", "hop_end", "session_end"), "window_end"),
    **dict.fromkeys(
        ("tumble_rowtime", "hop_rowtime", "session_rowtime", "tumble_proctime", "hop_proctime"),
        "window_end",
    ),
    "window_time": "window_end",
}


def elsewhere(text: Text, call: Call) -> SqlError | None:
    """The error for a function that other systems have for windows, if it is one."""
    name = call.name.lower()
    if name in _ELSEWHERE:
        return text.refuse(call.span, _ELSEWHERE[name])
    if name in _SHOWN_BY:
        return text.refuse(
            call.span, f"{call.name}(…) is a column here: write {_SHOWN_BY[name]}, without arguments"
        )
    return None


def _check_count(text: Text, place: Span, form: _Form, given: int) -> None:
    fewest, most = form.fewest + form.takes_time, form.most + form.takes_time
    if not fewest <= given <= most:
        raise text.refuse(place, f"write {form.shown}: {given} arguments are given")


def no_window(text: Text, by: Arguments, place: Place) -> SqlError:
    """The error where GROUP BY has no window; a function that does not exist may be meant as one."""
    forms = ", ".join(form.shown for form in _FORMS.values())
    for span in by:
        call = whole_call(span)
        if call is None:
            continue
        if refused := elsewhere(text, call):
            return refused
        if get_close_matches(call.name.lower(), _FORMS):
            return text.refuse(
                span, f"no window {call.name!r}; {did_you_mean(call.name.lower(), _FORMS)}"
            )
    return text.refuse(place, f"aggregates need a window: add one to GROUP BY ({forms})")
