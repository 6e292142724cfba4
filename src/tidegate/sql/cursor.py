"""Reading a text word by word: what is expected is there, or it is refused with what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from tidegate.errors import SqlError
from tidegate.sql.source import Text
from tidegate.sql.spans import Span, ends_operand
from tidegate.sql.tokens import Token, Unclosed, tokens_of, words

_Part = TypeVar("_Part")

#: Words that end an expression, each with those of which one has to follow, if it matters.
_ENDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        words(
            "FROM WHERE HAVING UNION EXCEPT INTERSECT MINUS LIMIT OFFSET FETCH QUALIFY LATERAL JOIN "
            "NATURAL ON USING PIVOT UNPIVOT TABLESAMPLE"
        ),
        (),
    ),
    **dict.fromkeys(words("GROUP ORDER SORT CLUSTER DISTRIBUTE"), ("BY",)),
    **dict.fromkeys(words("INNER CROSS"), ("JOIN",)),
    "LEFT": ("JOIN", "OUTER", "SEMI", "ANTI"),
    **dict.fromkeys(words("RIGHT FULL"), ("JOIN", "OUTER")),
}
#: Words that begin a clause of ours. They are no reserved words: columns may be called so.
CLAUSE_WORDS = ("EMIT", "ALLOW", "LATE", "REASSIGN", "ERRORS", "MATCH")


class Cursor:
    """A place in the tokens of a text."""

    def __init__(self, text: Text) -> None:
        self.text = text
        try:
            self._tokens = tuple(tokens_of(text.sql))
        except Unclosed as unclosed:
            raise text.refuse(
                unclosed.start, "a quote or a comment begins here, and does not end"
            ) from None
        self._place = 0

    @property
    def token(self) -> Token | None:
        return self.ahead(0)

    def ahead(self, count: int) -> Token | None:
        """The token that many further on, if there is one."""
        place = self._place + count
        return self._tokens[place] if place < len(self._tokens) else None

    @property
    def at_end(self) -> bool:
        """Is the statement over?"""
        return self.token is None or self.token.says(";")

    def next(self) -> Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def sees(self, *words: str) -> bool:
        """Do these words follow each other here?"""
        return all(
            (token := self.ahead(count)) is not None and token.says(word)
            for count, word in enumerate(words)
        )

    def takes(self, *words: str) -> Token | None:
        """Go past these words, if they are here; the first of them."""
        if not self.sees(*words):
            return None
        first = self.next()
        self._place += len(words) - 1
        return first

    def expects(self, *words: str) -> Token:
        return self.takes(*words) or self.fail(f"{' '.join(words)} is needed here")

    def expects_name(self, what: str = "a name") -> Token:
        if self.token is None or not self.token.is_name:
            self.fail(f"{what} is needed here")
        return self.next()

    def listed(self, part: Callable[[], _Part]) -> tuple[_Part, ...]:
        """Parts with commas between them."""
        parts = [part()]
        while self.takes(","):
            parts.append(part())
        return tuple(parts)

    def error(self, problem: str, place: Token | None = None) -> SqlError:
        """The error to raise here: what is wrong, and what was found instead."""
        token = place or self.token
        if token is None or token.says(";"):
            end = self._tokens[self._place - 1].end if self._place else 0
            return self.text.refuse(end, f"{problem}, found the end of the statement")
        return self.text.refuse(token, f"{problem}, found {token.text!r}")

    def fail(self, problem: str) -> NoReturn:
        raise self.error(problem)

    # -- expressions: everything up to what cannot be part of one ------------------------------------

    def expression(self, what: str) -> Span:
        """An expression, up to the comma, bracket or clause behind it."""
        start, opened = self._place, list[Token]()
        while (token := self.token) is not None and not token.says(";"):
            if not opened and (token.says(",", ")", "]", "}", "|>") or self._is_ender(start)):
                break
            if token.says("(", "[", "{"):
                opened.append(token)
            elif token.says(")", "]", "}"):
                opened.pop()
            self._place += 1
        if opened:
            raise self.text.refuse(opened[-1], f"{opened[-1].text!r} is never closed")
        if self._place == start:
            self.fail(f"{what} is needed here")
        return self.span(start)

    def span(self, start: int) -> Span:
        """The tokens from a place up to here."""
        return Span(self.text.sql, self._tokens[start : self._place])

    @property
    def place(self) -> int:
        return self._place

    def _is_ender(self, start: int) -> bool:
        """Does something else begin here? Only behind an operand, as such words can be names, too."""
        if self._place == start:
            return self._begins_clause() and self.token is not None and self.token.says("FROM", "WHERE")
        ended = ends_operand(self._tokens, self._place - 1)
        return ended and self._begins_clause() and not self._is_distinct_from()

    def _begins_clause(self) -> bool:
        token, following = self.token, self.ahead(1)
        assert token is not None
        if token.kind != "word":
            return False
        word = token.text.upper()
        if word in CLAUSE_WORDS:
            ends = following is None or following.says(";", ")")
            return ends or (following is not None and self._goes_on(word, following))
        if word == "WINDOW":
            return self.ahead(2) is not None and self._says(2, "AS")
        needed = _ENDERS.get(word)
        return needed is not None and (not needed or (following is not None and following.says(*needed)))

    def _says(self, count: int, *words: str) -> bool:
        token = self.ahead(count)
        return token is not None and token.says(*words)

    @staticmethod
    def _goes_on(word: str, following: Token) -> bool:
        """Does a clause of ours continue with this, rather than one of the query's after an alias?"""
        if word == "EMIT" and following.says("ON"):
            return True
        return following.kind == "word" and following.text.upper() not in (*_ENDERS, "AS")

    def _is_distinct_from(self) -> bool:
        """Is FROM part of IS [NOT] DISTINCT FROM?"""
        return self._says(0, "FROM") and self._says(-1, "DISTINCT") and self._says(-2, "IS", "NOT")
