"""Durations: read once, at the edge, and refused with a reason."""

import re
from datetime import timedelta

import pytest

from tidegate.errors import DurationError
from tidegate.plan.time import micros, render, signed_micros


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1 us", 1),
        ("1µs", 1),
        ("250 ms", 250_000),
        ("10 s", 10_000_000),
        ("10 seconds", 10_000_000),
        ("  10   SECONDS  ", 10_000_000),
        ("1.5 s", 1_500_000),
        ("0.001 ms", 1),
        ("2 min", 120_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("1 day", 86_400_000_000),
        ("2 weeks", 1_209_600_000_000),
        ("interval 5 hours", 18_000_000_000),
        ("INTERVAL 2 hours 30 minutes", 9_000_000_000),
        ("interval '5' hours", 18_000_000_000),
        ("interval '2 hours 30 minutes'", 9_000_000_000),
        ("INTERVAL '1 02:30' DAY TO MINUTE", 95_400_000_000),
        ("INTERVAL '0 00:00:01.5' DAY TO SECOND", 1_500_000),
        ("interval '01:30' minute to second", 90_000_000),
        (timedelta(seconds=1, microseconds=7), 1_000_007),
    ],
)
def test_durations_become_microseconds(given, expected):
    assert micros(given, "size") == expected


@pytest.mark.parametrize("given", ["0 s", "0 hours", timedelta(0), "0.0000001 s"])
def test_zero_is_refused_unless_it_means_something(given):
    with pytest.raises(DurationError, match=r"size must be greater than zero, got "):
        micros(given, "size")
    assert micros(given, "lateness", zero=True) == 0


@pytest.mark.parametrize(
    "given",
    [
        "-1 s",
        "1 s -2 s",
        "interval -5 hours",
        "interval '-5' hours",
        "interval -'0 00:00:01' day to second",
        timedelta(seconds=-1),
    ],
)
def test_negative_durations_are_refused(given):
    with pytest.raises(
        DurationError, match=rf"^size must be greater than zero, got {re.escape(repr(given))}$"
    ):
        micros(given, "size")
    with pytest.raises(DurationError, match=r"^lateness must be zero or more, got "):
        micros(given, "lateness", zero=True)
    assert signed_micros(given, "offset") < 0


@pytest.mark.parametrize(
    "given",
    [
        "soon",
        "10",
        "10 parsecs",
        "s 10",
        "1 hour and 5 s",
        "1,5 s",
        "10 s;",
        "interval",
        "interval '5'",
        "interval 1 month",
        "interval '1:2:3' day to second",
    ],
)
def test_text_that_does_not_parse_says_what_would(given):
    expected = (
        f"size: cannot read {given!r} as a duration; write a number and a unit, such as '250 ms', "
        "'10 seconds', '1 hour 30 minutes' (units: us, ms, s, min, h, d, w)"
    )
    with pytest.raises(DurationError) as error:
        micros(given, "size")
    assert str(error.value) == expected


@pytest.mark.parametrize("given", ["", "   "])
def test_an_empty_text_is_no_duration(given):
    with pytest.raises(DurationError, match=r"^size: an empty text is not a duration$"):
        micros(given, "size")


@pytest.mark.parametrize("given", [10, 1.5, None, b"1 s"])
def test_numbers_have_no_unit_and_are_refused(given):
    expected = f"size must be a timedelta or text such as '10 seconds', got {given!r}"
    with pytest.raises(DurationError) as error:
        micros(given, "size")
    assert str(error.value) == expected


def test_a_century_is_enough():
    assert micros("36500 days", "size") == 36_500 * 86_400_000_000
    with pytest.raises(DurationError, match=r"^size is longer than a hundred years: '36501 days'$"):
        micros("36501 days", "size")


@pytest.mark.parametrize(
    "value", [1, 999, 1_000, 1_500, 10_000_000, 90_000_000, 5_400_000_000, 604_800_000_000]
)
def test_rendered_text_parses_back(value):
    assert micros(render(value), "size") == value
    assert signed_micros(render(-value), "offset") == -value


def test_rendered_text_uses_the_largest_unit_that_fits():
    shown = [
        render(value) for value in (0, 1, 1_000, 1_000_000, 90_000_000, 3_600_000_000, 172_800_000_000)
    ]
    assert shown == ["0 seconds", "1 us", "1 ms", "1 second", "90 seconds", "1 hour", "2 days"]
