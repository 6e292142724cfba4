"""Parts of a text that are kept as they are written: expressions, which Spark reads.

A span is a run of tokens. It can be looked through for what is ours (calls of aggregates and windows,
columns), compared with another, and cut. What goes to Spark is the text between its ends, in which
single parts may be replaced, never a text that is put together anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tidegate.sql.tokens import Token, words

_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")

#: Words that want something behind them: what follows is no new clause and no alias.
_LEADING = words(
    "AND OR NOT IN LIKE ILIKE RLIKE REGEXP BETWEEN IS CASE WHEN THEN ELSE DIV DISTINCT AS COLLATE"
)
#: Words that stand alone, where a column could, and are none: constants, functions without parentheses.
_ALONE = words("LOCALTIME LOCALTIMESTAMP SESSION_USER USER NULL TRUE FALSE UNKNOWN DEFAULT INTERVAL END")
_OPERATORS = words("+ - * / % = == <> != < <= > >= <=> ||")
#: What stands left and right of an operand: what is between is a column for sure.
_BEFORE = _OPERATORS | words("AND OR NOT WHEN THEN ELSE CASE BETWEEN ( ,")
_BEHIND = _OPERATORS | words("AND OR IS IN BETWEEN LIKE ILIKE RLIKE THEN ELSE END NOT )")


@dataclass(frozen=True)
class Span:
    """Tokens that follow each other in a text; there is at least one."""

    source: str
    tokens: tuple[Token, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, part: slice) -> Span:
        return Span(self.source, self.tokens[part])

    @property
    def start(self) -> int:
        return self.tokens[0].start

    @property
    def text(self) -> str:
        """As it is written, comments and all."""
        return self.source[self.start : self.tokens[-1].end]

    @property
    def shown(self) -> str:
        """In one line, for messages."""
        return " ".join(self.text.split())

    @property
    def name(self) -> str | None:
        """What it is called unless it is given a name: the last part of a column or of a field."""
        return self.tokens[-1].name if chain_at(self, 0) == len(self) else None

    def says(self, place: int, *words: str) -> bool:
        """Is the token at this place, if there is one, one of these words or signs?"""
        return 0 <= place < len(self.tokens) and self.tokens[place].says(*words)


def chain_at(span: Span, start: int) -> int:
    """Where the names `a.b.c` that begin here end; `start` itself if there are none."""
    tokens = span.tokens
    if start >= len(tokens) or not tokens[start].is_name:
        return start
    end = start + 1
    while end + 1 < len(tokens) and tokens[end].says(".") and tokens[end + 1].is_name:
        end += 2
    return end


def names_at(span: Span, start: int) -> list[str]:
    """The parts of the names that begin here."""
    return [token.name for token in span.tokens[start : chain_at(span, start)] if token.is_name]


def end_of(span: Span, opening: int) -> int:
    """The place of the bracket that closes the one at `opening`; the end if none does."""
    depth = 0
    for place in range(opening, len(span)):
        depth += span.tokens[place].says(*_OPENING) - span.tokens[place].says(*_CLOSING)
        if depth == 0:
            return place
    return len(span)


def at_top(span: Span) -> Iterator[int]:
    """The places that are in no brackets; of brackets themselves only the closing ones are in none."""
    depth = 0
    for place, token in enumerate(span.tokens):
        if token.says(*_CLOSING):
            depth -= 1
        if depth == 0:
            yield place
        if token.says(*_OPENING):
            depth += 1


def split(span: Span, sign: str) -> list[Span]:
    """The parts between commas, or other signs, that are in no brackets; empty ones are left out."""
    return _cut(span, [place for place in at_top(span) if span.tokens[place].says(sign)])


def conjuncts(span: Span) -> list[Span]:
    """The conditions that AND puts together, or the one there is. AND after BETWEEN belongs to it."""
    return _logical(span, "AND")


def disjuncts(span: Span) -> list[Span]:
    """The conditions that OR puts together, or the one there is."""
    return _logical(span, "OR")


def _logical(span: Span, word: str) -> list[Span]:
    cuts, cases, betweens = [], 0, 0
    for place in at_top(span):
        token = span.tokens[place]
        cases += token.says("CASE") - (cases > 0 and token.says("END"))
        if cases:
            continue
        if token.says("BETWEEN"):
            betweens += 1
        elif token.says("AND") and betweens:
            betweens -= 1
        elif token.says(word):
            cuts.append(place)
        if token.says("OR") and word == "AND":  # binds less: nothing here is a conjunct of the whole
            return [span]
    return _cut(span, cuts)


def _cut(span: Span, places: Iterable[int]) -> list[Span]:
    parts, start = [], 0
    for place in (*places, len(span)):
        if place > start:
            parts.append(span[start:place])
        start = place + 1
    return parts


def bare(span: Span) -> Span:
    """The span without parentheses around all of it."""
    while len(span) > 2 and span.says(0, "(") and end_of(span, 0) == len(span) - 1:
        span = span[1:-1]
    return span


def ends_operand(tokens: Sequence[Token], place: int) -> bool:
    """Can an operand end with this token, so that what follows is something else?"""
    token = tokens[place]
    if token.kind == "word":
        is_name = place > 0 and tokens[place - 1].says("AS", ".")
        return is_name or token.text.upper() not in _LEADING
    return token.kind != "sign" or token.says(")", "]", "}", "*")


# -- calls -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """`name(arguments)` and what may follow: FILTER (WHERE …), IGNORE NULLS, WITHIN GROUP (…), OVER."""

    span: Span
    #: Where in the span that it was found in it begins.
    place: int
    name: str
    inside: Span | None
    filter: Span | None = None
    nulls: str | None = None
    within: bool = False
    over: bool = False

    @property
    def arguments(self) -> list[Span]:
        return [] if self.inside is None else split(self.inside, ",")


def call_at(span: Span, place: int) -> Call | None:
    """The call that begins here, if one does."""
    follows_name = span.says(place - 1, ".")
    if not span.tokens[place].is_name or not span.says(place + 1, "(") or follows_name:
        return None
    end = end_of(span, place + 1)
    inside = span[place + 2 : end] if end > place + 2 else None
    call = Call(span[place : end + 1], place, span.tokens[place].name, inside)
    return _with_rest(span, call, end + 1)


def _with_rest(span: Span, call: Call, place: int) -> Call:
    """The call with what follows its parentheses."""
    while True:
        end = end_of(span, place + 1) if span.says(place + 1, "(") else place
        if span.says(place, "FILTER") and span.says(place + 2, "WHERE") and end > place + 3:
            call, place = replace(call, filter=span[place + 3 : end]), end + 1
        elif span.says(place, "IGNORE", "RESPECT") and span.says(place + 1, "NULLS"):
            call, place = replace(call, nulls=span.tokens[place].text.upper()), place + 2
        elif span.says(place, "WITHIN") and span.says(place + 1, "GROUP") and span.says(place + 2, "("):
            call, place = replace(call, within=True), end_of(span, place + 2) + 1
        elif span.says(place, "OVER") and span.says(place + 1, "("):
            call, place = replace(call, over=True), end_of(span, place + 1) + 1
        elif span.says(place, "OVER") and _is_name(span, place + 1):
            call, place = replace(call, over=True), place + 2
        else:
            return replace(call, span=span[call.place : place])


def _is_name(span: Span, place: int) -> bool:
    return place < len(span) and span.tokens[place].is_name


def calls_in(span: Span) -> Iterator[Call]:
    """All calls, outer ones before those inside them."""
    for place in range(len(span)):
        if call := call_at(span, place):
            yield call


def whole_call(span: Span) -> Call | None:
    """The call that the span is, with nothing beside it."""
    call = call_at(span, 0)
    return call if call is not None and len(call.span) == len(span) else None


# -- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """Names at a place that may be a column: `price`, `clicks.price`, `item.price`."""

    span: Span
    place: int
    names: tuple[str, ...]
    #: Is it a column and nothing else, such as the variable of a lambda or the unit of an interval?
    sure: bool


def references(span: Span) -> Iterator[Reference]:
    """Whatever may be a column, from left to right."""
    unclear = any(map(partial(_names_others, span), range(len(span))))
    place = 0
    while place < len(span):
        end = chain_at(span, place)
        if end == place:
            place += 1
            continue
        if not span.says(end, "(") and not span.says(place - 1, ".", "::", ":"):
            sure = not unclear and _is_operand(span, place, end)
            yield Reference(span[place:end], place, tuple(names_at(span, place)), sure)
        place = end


def _names_others(span: Span, place: int) -> bool:
    """Do names begin here that look like columns: variables of a lambda, types inside a type?"""
    nested = span.says(place, "ARRAY", "MAP", "STRUCT") and span.says(place + 1, "<")
    return nested or span.says(place, "->")


def lambda_names(span: Span) -> set[str]:
    """The variables of lambdas, in lower case: `x` of `x -> x + 1`, `a` and `b` of `(a, b) -> a`."""
    names: set[str] = set()
    for place, token in enumerate(span.tokens):
        if token.says("->"):
            start = place - 1
            while span.says(place - 1, ")") and start > 0 and not span.says(start, "("):
                start -= 1
            names |= {one.name.lower() for one in span.tokens[start:place] if one.is_name}
    return names


def _is_operand(span: Span, start: int, end: int) -> bool:
    first = span.tokens[start]
    word = first.text.upper() if end - start == 1 and first.kind == "word" else ""
    if word in _ALONE or word in _LEADING or word[:1].isdigit() or word.startswith("CURRENT_"):
        return False
    before = start == 0 or _says_any(span, start - 1, _BEFORE)
    return before and (end == len(span) or _says_any(span, end, _BEHIND))


def _says_any(span: Span, place: int, known: frozenset[str]) -> bool:
    token = span.tokens[place]
    return token.kind in ("word", "sign") and token.text.upper() in known


# -- comparing and replacing -----------------------------------------------------------------------

#: A span in the form in which it is compared: names without case and quotes.
Form = tuple[tuple[str, str], ...]


def form(span: Span, alias: str | None = None) -> Form:
    """The span for comparing: two that are equal mean the same. `alias.` before a column is left out."""
    return _form(bare(span).tokens, alias)


def _form(tokens: Sequence[Token], alias: str | None) -> Form:
    return tuple(
        ("name", token.name.lower()) if token.is_name else (token.kind, token.text)
        for token in _without_alias(tokens, alias)
    )


def _without_alias(tokens: Sequence[Token], alias: str | None) -> list[Token]:
    kept: list[Token] = []
    place = 0
    while place < len(tokens):
        token, qualifies = tokens[place], False
        if alias is not None and token.is_name and place + 2 < len(tokens):
            follows = place > 0 and tokens[place - 1].says(".")
            named = tokens[place + 1].says(".") and tokens[place + 2].is_name
            qualifies = named and not follows and token.name.lower() == alias.lower()
        if not qualifies:
            kept.append(token)
        place += 2 if qualifies else 1
    return kept


#: What may stand beside an expression that is not bound together by itself.
_EDGES_LEFT = ("(", ",", "WHEN", "THEN", "ELSE", "CASE")
_EDGES_RIGHT = (")", ",", "THEN", "ELSE", "END", "WHEN")


def occurrences(span: Span, wanted: Span, alias: str | None) -> Iterator[tuple[int, int]]:
    """Where an expression stands inside another, as one whole operand: `a + b` is not in `c * a + b`."""
    sought, is_whole = form(wanted, alias), _is_primary(bare(wanted))
    for start in range(len(span)):
        for end in range(start + 1, len(span) + 1):
            found = _form(span.tokens[start:end], alias)
            if found == sought and (
                _apart(span, start, end) if is_whole else _bounded(span, start, end)
            ):
                yield start, end
            if len(found) > len(sought) + 2:  # an alias at its end counts until its column is there
                break


def _is_primary(span: Span) -> bool:
    """Does it hold together whatever stands beside it: names, a call, a literal?"""
    call = whole_call(span)
    plain = call is not None and not call.over
    return plain or chain_at(span, 0) == len(span) or len(span) == 1


def _apart(span: Span, start: int, end: int) -> bool:
    """Is it no part of a longer name, and no function?"""
    return not span.says(start - 1, ".") and not span.says(end, "(")


def _bounded(span: Span, start: int, end: int) -> bool:
    left = start == 0 or span.says(start - 1, *_EDGES_LEFT)
    return left and (end == len(span) or span.says(end, *_EDGES_RIGHT))


#: What stands in for the tokens from one place up to another.
Replacement = tuple[int, int, str]


def spliced(span: Span, replacements: Iterable[Replacement]) -> str:
    """The text of the span with parts of it replaced; of two that overlap the outer one counts."""
    text, place = [], span.start
    for start, end, replacement in _outermost(replacements):
        text += [span.source[place : span.tokens[start].start], replacement]
        place = span.tokens[end - 1].end
    return "".join([*text, span.source[place : span.tokens[-1].end]])


def _outermost(replacements: Iterable[Replacement]) -> Iterator[Replacement]:
    reached = 0
    for start, end, replacement in sorted(replacements, key=lambda one: (one[0], -one[1])):
        if start >= reached:
            yield start, end, replacement
            reached = end


def quoted(name: str) -> str:
    """A name as Spark reads it, whatever it is."""
    return "`" + name.replace("`", "``") + "`"
