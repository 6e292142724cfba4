"""Where words begin and end, as Spark reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sql.spans import Span, conjuncts, split
from tidegate.sql.tokens import Unclosed, tokens_of


def texts(sql: str) -> list[str]:
    return [token.text for token in tokens_of(sql)]


@pytest.mark.parametrize(
    "word",
    [
        "1L", "1.5BD", "1e3D", "1S", "1Y", "1.0F", ".5", "1.", "1e-3", "12", "'it''s'", r"'a\'b'",
        r"'\\'", r"r'raw\'", 'R"ra\\w"', '"dq ""x"', "`a``b`", "`a b`", "::", "<=>", "->", "=>", "<=",
        "||", "|>", "!=", "==", "_a", "1a", "é", "?", ":",
    ],
)  # fmt: skip
def test_words_are_whole(word):
    assert texts(f"x {word} y") == ["x", word, "y"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a.b.1c", ["a", ".", "b", ".", "1c"]),
        ("t.5", ["t", ".", "5"]),
        ("a-.5", ["a", "-", ".5"]),
        ("f(x)[0].y", ["f", "(", "x", ")", "[", "0", "]", ".", "y"]),
        ("ARRAY<ARRAY<INT>>", ["ARRAY", "<", "ARRAY", "<", "INT", ">", ">"]),
        ("a -- b\nc", ["a", "c"]),
        ("a /* b /* c */ d */ e", ["a", "e"]),
        ("a /*+ HINT */ 'x--y' \"/*\"", ["a", "'x--y'", '"/*"']),
        ("x'1F'", ["x", "'1F'"]),
        ("v:a.b?::int", ["v", ":", "a", ".", "b", "?", "::", "int"]),
    ],
)
def test_texts_are_cut_as_spark_cuts_them(sql, expected):
    assert texts(sql) == expected


@pytest.mark.parametrize("sql", ["a 'b", 'a "b', "a `b", "a /* b", "a /* b /* c */", r"'a\'"])
def test_what_is_not_closed_is_told_with_its_place(sql):
    with pytest.raises(Unclosed) as found:
        tokens_of(sql)
    assert found.value.start == min(sql.index(sign) for sign in ("'", '"', "`", "/*") if sign in sql)


@pytest.mark.parametrize(
    ("string", "value"),
    [
        ("'it''s'", "it's"),
        (r"'a\tb\\n'", "a\tb\\n"),
        (r"'\u0041\101'", "AA"),
        (r"r'a\tb'", r"a\tb"),
        ('"say ""hi"""', 'say "hi"'),
        (r"'100\%'", r"100\%"),
    ],
)
def test_strings_say_what_they_say_in_spark(string, value):
    [token] = tokens_of(string)
    assert token.value == value


@given(st.text(st.sampled_from("ab1 '\"`\\-/*().,:<>=+\n"), max_size=40))
def test_nothing_is_lost_and_nothing_overlaps(sql):
    try:
        tokens = tokens_of(sql)
    except Unclosed:
        return
    place = 0
    for token in tokens:
        assert token.start >= place
        assert sql[token.start : token.end] == token.text
        assert token.text.strip() == token.text != ""
        place = token.end


def span(sql: str) -> Span:
    return Span(sql, tuple(tokens_of(sql)))


@pytest.mark.parametrize(
    ("condition", "parts"),
    [
        ("a AND b", ["a", "b"]),
        ("a BETWEEN 1 AND 2 AND b", ["a BETWEEN 1 AND 2", "b"]),
        ("a NOT BETWEEN 1 AND 2 AND b BETWEEN 3 AND 4", ["a NOT BETWEEN 1 AND 2", "b BETWEEN 3 AND 4"]),
        ("CASE WHEN a AND b THEN c END AND d", ["CASE WHEN a AND b THEN c END", "d"]),
        ("CASE WHEN a THEN CASE WHEN b AND c THEN 1 END END AND `and`", [
            "CASE WHEN a THEN CASE WHEN b AND c THEN 1 END END", "`and`",
        ]),
        ("f(a AND b) AND (c AND d)", ["f(a AND b)", "(c AND d)"]),
        ("a AND b OR c", ["a AND b OR c"]),
        ("a", ["a"]),
    ],
)  # fmt: skip
def test_conditions_are_cut_at_and(condition, parts):
    assert [part.text for part in conjuncts(span(condition))] == parts


def test_arguments_are_cut_at_commas():
    parts = split(span("a, f(b, c), [d, e], 'x, y', `p, q`"), ",")
    assert [part.text for part in parts] == ["a", "f(b, c)", "[d, e]", "'x, y'", "`p, q`"]
