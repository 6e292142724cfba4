"""Durations and instants: 64-bit microseconds, parsed once, at the edge."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import NewType

from tidegate.errors import DurationError
from tidegate.plan.identity import Registered

Micros = NewType("Micros", int)

Duration = timedelta | str


@dataclass(frozen=True)
class ProcessingTime(Registered):
    """Rows are stamped with the time of their micro-batch; `tick` moves time on without rows."""

    tick: "Micros"

    kind = "processing_time"

    def __str__(self) -> str:
        return f"processing_time(tick={render(self.tick)})"

    __repr__ = __str__


_UNITS = {
    Micros(1): ("us", "µs", "microsecond", "microseconds"),
    Micros(1_000): ("ms", "millisecond", "milliseconds"),
    Micros(1_000_000): ("s", "ss", "sec", "secs", "second", "seconds"),
    Micros(60_000_000): ("m", "mi", "min", "mins", "minute", "minutes"),
    Micros(3_600_000_000): ("h", "hh", "hour", "hours"),
    Micros(86_400_000_000): ("d", "dd", "day", "days"),
    Micros(604_800_000_000): ("w", "week", "weeks"),
}
_FACTOR = {name: factor for factor, names in _UNITS.items() for name in names}
_INTERVAL = re.compile(r"\s*interval\b\s*(.*)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r"([+-]?)\s*'\s*([+-]?)([^']*)'\s*([a-zµ]*)\s*(?:to\s+([a-z]+))?\s*", re.IGNORECASE)
_FIELDS = ("day", "hour", "minute", "second")
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zµ]+)", re.IGNORECASE)
LONGEST = Micros(36_500 * 86_400_000_000)


def micros(duration: Duration, what: str, *, zero: bool = False) -> Micros:
    """The duration in microseconds; refused unless positive (or zero where that means something)."""
    value = _from_timedelta(duration) if isinstance(duration, timedelta) else _parse(duration, what)
    if value < 0 or (value == 0 and not zero):
        allowed = "zero or more" if zero else "greater than zero"
        raise DurationError(f"{what} must be {allowed}, got {duration!r}")
    if value > LONGEST:
        raise DurationError(f"{what} is longer than a hundred years: {duration!r}")
    return value


def signed_micros(duration: Duration, what: str) -> Micros:
    """The duration in microseconds, of either sign (window offsets)."""
    value = _from_timedelta(duration) if isinstance(duration, timedelta) else _parse(duration, what)
    if abs(value) > LONGEST:
        raise DurationError(f"{what} is longer than a hundred years: {duration!r}")
    return value


def render(value: int) -> str:
    """The shortest text that parses back to the value."""
    for factor, names in reversed(_UNITS.items()):
        if value % factor == 0 and (value or factor == 1_000_000):
            count = value // factor
            unit = names[0] if factor < 1_000_000 else names[-2 if count == 1 else -1]
            return f"{count} {unit}"
    raise AssertionError("every value is a whole number of microseconds")


def _from_timedelta(value: timedelta) -> Micros:
    return Micros(value // timedelta(microseconds=1))


def _parse(text: object, what: str) -> Micros:
    if not isinstance(text, str):
        raise DurationError(f"{what} must be a timedelta or text such as '10 seconds', got {text!r}")
    given, text = text, _without_interval(text)
    position, total = 0, 0.0
    while position < len(text.rstrip()):
        part = _PART.match(text, position)
        unit = part and _FACTOR.get(part[2].lower())
        if not part or not unit:
            raise DurationError(
                f"{what}: cannot read {given!r} as a duration; write a number and a unit, "
                "such as '250 ms', '10 seconds', '1 hour 30 minutes' (units: us, ms, s, min, h, d, w)"
            )
        total += float(part[1]) * unit
        position = part.end()
    if position == 0:
        raise DurationError(f"{what}: an empty text is not a duration")
    return Micros(round(total))


def _without_interval(text: str) -> str:
    """Spark's spelling as ours: `interval '5' hours` is `5 hours`."""
    prefixed = _INTERVAL.fullmatch(text)
    if prefixed is None:
        return text
    quoted = _QUOTED.fullmatch(prefixed[1])
    if quoted is None:
        return prefixed[1] or text
    outer, inner, value, unit, last = quoted.groups()
    sign = "-" if (outer == "-") != (inner == "-") else ""
    if last is None:
        return f"{sign}{value} {unit}"
    return _fields(sign, value, unit.lower(), last.lower()) or text


def _fields(sign: str, value: str, first: str, last: str) -> str | None:
    """`1 02:30` from day to minute as `1 day 02 hour 30 minute`."""
    if first not in _FIELDS or last not in _FIELDS:
        return None
    units = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    numbers = re.split(r"[ :]", value.strip())
    if len(numbers) != len(units):
        return None
    return " ".join(f"{sign}{number} {unit}" for number, unit in zip(numbers, units, strict=True))
