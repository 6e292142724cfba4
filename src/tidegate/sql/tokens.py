"""The words of a text: Spark's lexical syntax, each word with its place.

Spark itself reads the expressions, as slices of the text. All that matters here is where a word begins
and ends, so that nothing inside a string, a quoted name or a comment is taken for something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "number", "sign"]


@dataclass(frozen=True)
class Token:
    """A word, a `quoted name`, a string, a number or a sign, from `start` up to `end`."""

    kind: Kind
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        """Is it one of these words or signs? Words in capitals; a quoted one is never meant."""
        return self.kind in ("word", "sign") and self.text.upper() in words

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """The name that it is, without its quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text

    @property
    def value(self) -> str:
        """What a string says."""
        if self.text[0] in "rR":
            return self.text[2:-1]
        return _ESCAPED.sub(_unescaped, self.text[1:-1])


def words(listed: str) -> frozenset[str]:
    """The words, or signs, that a text lists."""
    return frozenset(listed.split())


class Unclosed(Exception):
    """A quote or a comment has no end; `start` is where it begins."""

    def __init__(self, start: int) -> None:
        self.start = start


_PATTERNS: dict[str, str] = {
    "blank": r"\s+|--[^\n]*",
    "string": r"""[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""",
    "quoted": r"`(?:[^`]|``)*`",
    # A point that follows a name, or something in brackets, is no part of a number.
    "number": r"(?:\d+(?:\.\d*)?|(?<![\w)\]`.])\.\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LlSsYyFfDd])?(?!\w)",
    "word": r"\w+",
    "sign": r"<=>|->|=>|::|<=|>=|<>|!=|==|\|\||\|>|[^\s\w]",
}
_TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _PATTERNS.items()), re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_ESCAPED = re.compile(r"''|\"\"|\\(u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape is None:
        return found[0][0]
    if len(escape) == 1:
        return _ESCAPES.get(escape, escape)
    return chr(int(escape[1:], 16)) if escape[0] == "u" else chr(int(escape, 8))


def tokens_of(text: str) -> list[Token]:
    """All words of a text; blanks and comments lie between them."""
    tokens, place = [], 0
    while place < len(text):
        if text.startswith("/*", place):
            place = _end_of_comment(text, place)
            continue
        found = _TOKEN.match(text, place)
        assert found is not None, "any character is a sign, if nothing else"
        if found.lastgroup == "sign" and found[0] in "'\"`":
            raise Unclosed(place)
        if found.lastgroup != "blank":
            tokens.append(Token(found.lastgroup, found[0], place, found.end()))  # type: ignore[arg-type]
        place = found.end()
    return tokens


def _end_of_comment(text: str, start: int) -> int:
    """The end of a comment, which may have others inside."""
    depth, place = 0, start
    while edge := _COMMENT_EDGE.search(text, place):
        depth, place = depth + (1 if edge[0] == "/*" else -1), edge.end()
        if depth == 0:
            return place
    raise Unclosed(start)
