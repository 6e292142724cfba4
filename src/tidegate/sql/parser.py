"""Text → statements.

```
CREATE STREAM name (column type, …, WATERMARK FOR column AS column - INTERVAL …) WITH (option = value, …)
CREATE SINK name WITH (option = value, …)
CREATE VIEW name AS query
INSERT INTO sink query
[WITH name AS (query), …] SELECT … FROM … [JOIN … ON …] [WHERE …] [GROUP BY …] [HAVING …] [UNION ALL …]
    [ORDER BY …] [EMIT …] [ALLOW LATENESS …] [LATE DATA TO … | REASSIGN LATE WITHIN …] [ERRORS TO …]
```
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.plan.joins import Match
from tidegate.sql import syntax
from tidegate.sql.cursor import CLAUSE_WORDS, Cursor
from tidegate.sql.source import Text
from tidegate.sql.spans import Span, call_at, ends_operand
from tidegate.sql.tokens import Token, words

#: The functions that can be given a table: `TUMBLE(TABLE clicks, DESCRIPTOR(ts), …)`.
WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION", "CUMULATE")

_STATEMENTS = "a statement starts with CREATE, INSERT, SELECT or WITH"
_EMISSIONS = (
    ("ON", "WATERMARK"),
    ("ON", "WINDOW", "CLOSE"),
    ("ON", "UPDATE"),
    ("CHANGES",),
    ("FINAL",),
    ("EVERY",),
)
_NO_ALIASES = words("WHERE GROUP HAVING ORDER UNION JOIN ON USING FROM SELECT FOR WITH")
_JOIN_WORDS = ("INNER", "CROSS", "LEFT", "RIGHT", "FULL", "NATURAL", "OUTER", "SEMI", "ANTI")

#: What other systems' queries have here and ours have not, by the word it begins with.
_FOREIGN = {
    "LIMIT": "LIMIT: a stream has no end, so a query over it has no limit",
    "OFFSET": "OFFSET: a query over a stream has no such clause",
    "FETCH": "FETCH: a query over a stream has no such clause",
    "QUALIFY": "QUALIFY: filter in a further query, over a view of this one",
    "WINDOW": "WINDOW: instead of OVER, slidingwindow(…) in GROUP BY looks around each row",
    "LATERAL": "LATERAL VIEW: write explode(…) AS name in a SELECT of its own, and read from it",
    "PIVOT": "PIVOT: write an aggregate with FILTER (WHERE …) for each column",
    "UNPIVOT": "UNPIVOT: write explode(array(…)) AS name in a SELECT of its own",
    "TABLESAMPLE": "TABLESAMPLE: write a condition in WHERE, such as rand() < 0.1",
    "SORT": "SORT BY: rows can be put in the order of their event time, with ORDER BY",
    "CLUSTER": "CLUSTER BY: a query over a stream has no such clause; keys stand in GROUP BY",
    "DISTRIBUTE": "DISTRIBUTE BY: a query over a stream has no such clause; keys stand in GROUP BY",
    "EXCEPT": "EXCEPT: streams are united with UNION ALL, and nothing else; name columns one by one",
    "INTERSECT": "INTERSECT: streams are united with UNION ALL, and nothing else",
    "MINUS": "MINUS: streams are united with UNION ALL, and nothing else",
    "|>": "|>: write a SELECT instead of pipes, with views for its parts",
}


def parse(text: Text) -> list[syntax.Statement]:
    """The statements of a text, in order."""
    return _Parser(Cursor(text)).statements()


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self.at = cursor

    def statements(self) -> list[syntax.Statement]:
        found: list[syntax.Statement] = []
        while True:
            while self.at.takes(";"):
                pass
            if self.at.token is None:
                return found
            found.append(self._statement())
            if not self.at.at_end:
                self._refuse_foreign()
                self.at.fail("a further clause, or the end of the statement, is needed here")

    def _statement(self) -> syntax.Statement:
        if self.at.takes("CREATE"):
            return self._create()
        if self.at.takes("INSERT"):
            return self._insert()
        if self.at.sees("SELECT") or self.at.sees("WITH") or self.at.sees("("):
            return self._query()
        raise self.at.error(_STATEMENTS)

    # -- declarations ------------------------------------------------------------------------------

    def _create(self) -> syntax.Statement:
        if self.at.takes("STREAM"):
            return self._create_stream()
        if self.at.takes("SINK"):
            return syntax.CreateSink(self.at.expects_name(), self._options())
        start = self.at.token
        self.at.takes("OR", "REPLACE")
        _ = self.at.takes("TEMPORARY") or self.at.takes("TEMP")
        if self.at.takes("VIEW"):
            return self._create_view()
        raise self.at.error(
            "CREATE is followed by STREAM (what is read), SINK (what is written) or VIEW", start
        )

    def _create_view(self) -> syntax.CreateView:
        name = self.at.expects_name()
        if self.at.sees("("):
            self.at.fail("a view has the names that its SELECT gives: AS SELECT … is needed here")
        self.at.expects("AS")
        return syntax.CreateView(name, self._query())

    def _create_stream(self) -> syntax.CreateStream:
        name = self.at.expects_name()
        self.at.expects("(")
        columns: list[syntax.ColumnDefinition] = []
        watermark: syntax.Watermark | None = None
        for part in self.at.listed(self._stream_part):
            if isinstance(part, syntax.ColumnDefinition):
                columns.append(part)
            elif watermark is not None:
                raise self.at.text.refuse(part.column, "a stream has one WATERMARK")
            else:
                watermark = part
        self.at.expects(")")
        return syntax.CreateStream(name, tuple(columns), watermark, self._options())

    def _stream_part(self) -> syntax.ColumnDefinition | syntax.Watermark:
        if self.at.takes("WATERMARK", "FOR"):
            column = self.at.expects_name()
            self.at.expects("AS")
            return syntax.Watermark(column, self.at.expression("the time, less an interval,"))
        return syntax.ColumnDefinition(self.at.expects_name("a column"), self._type())

    def _type(self) -> Span:
        """All up to the comma or bracket behind the type; what it means is looked at later."""
        start, depth = self.at.place, 0
        while not self.at.at_end:
            token = self.at.token
            assert token is not None
            if depth == 0 and token.says(",", ")"):
                break
            depth += token.says("(", "<") - token.says(")", ">")
            self.at.next()
        if self.at.place == start:
            self.at.fail("a type, such as BIGINT, DOUBLE, STRING or TIMESTAMP, is needed here")
        return self.at.span(start)

    def _options(self) -> tuple[syntax.Option, ...]:
        self.at.expects("WITH")
        self.at.expects("(")
        options = self.at.listed(self._option)
        self.at.expects(")")
        return options

    def _option(self) -> syntax.Option:
        place = self.at.token
        name = self._word("an option")
        while self.at.takes("."):
            name += "." + self._word("an option")
        if not self.at.takes("="):
            self.at.fail("= and a value are needed here")
        assert place is not None
        return syntax.Option(name, self._word("a value"), place)

    def _word(self, what: str) -> str:
        """A name, a string or a number, as the option or the value that it is."""
        token = self.at.token
        if token is None or token.kind == "sign":
            self.at.fail(f"{what} is needed here")
        self.at.next()
        return token.value if token.kind == "string" else token.name

    def _insert(self) -> syntax.InsertInto:
        if not self.at.takes("INTO"):
            self.at.fail("INSERT is followed by INTO: rows are added to a sink")
        self.at.takes("TABLE")
        name = self.at.expects_name("a sink")
        if self.at.sees("("):
            self.at.fail("a sink takes the columns that SELECT names: SELECT is needed here")
        if not (self.at.sees("SELECT") or self.at.sees("WITH")):
            self.at.fail("INSERT INTO sink SELECT … is all there is: SELECT is needed here")
        return syntax.InsertInto(name, self._query())

    # -- queries -----------------------------------------------------------------------------------

    def _query(self) -> syntax.Query:
        views = self.at.listed(self._named_query) if self.at.takes("WITH") else ()
        members = [self._member()]
        union: Token | None = None
        while word := self.at.takes("UNION"):
            if not self.at.takes("ALL"):
                self.at.fail("streams are united with UNION ALL, and nothing else: ALL is needed here")
            union = word
            members.append(self._member())
        if union is None:
            return syntax.Query(views, self._with_tail(members[0]))
        if self._tail() != (None, (), syntax.Clauses()):
            raise self.at.text.refuse(
                union, "nothing can follow UNION ALL: make it a view, or put it into FROM (…)"
            )
        return syntax.Query(views, syntax.UnionAll(tuple(members), union))

    def _named_query(self) -> tuple[Token, syntax.Query]:
        if self.at.sees("RECURSIVE"):
            self.at.fail("a query cannot read itself: a name is needed here")
        name = self.at.expects_name()
        if self.at.sees("("):
            self.at.fail("a query has the names that its SELECT gives: AS (SELECT …) is needed here")
        self.at.expects("AS")
        return name, self._in_parentheses()

    def _in_parentheses(self) -> syntax.Query:
        self.at.expects("(")
        query = self._query()
        if not self.at.takes(")"):
            self._refuse_foreign()
            self.at.fail(") is needed here")
        return query

    def _member(self) -> syntax.Select | syntax.Query:
        if self.at.sees("("):
            return self._in_parentheses()
        return self._select()

    def _with_tail(self, member: syntax.Select | syntax.Query) -> syntax.Select | syntax.Query:
        place, order, clauses = self._tail()
        if isinstance(member, syntax.Select):
            return replace(member, order=order, clauses=clauses)
        if place is not None:
            raise self.at.text.refuse(place, "nothing can follow a query in parentheses")
        return member

    def _select(self) -> syntax.Select:
        place = self.at.expects("SELECT")
        if distinct := self.at.takes("DISTINCT"):
            raise self.at.text.refuse(
                distinct,
                "DISTINCT: a stream has no end; count(DISTINCT …) counts within a window",
            )
        items = self.at.listed(self._item)
        self._refuse_foreign()
        table = self._table() if self.at.takes("FROM") else None
        joins: list[syntax.JoinClause] = []
        while join := self._join():
            joins.append(join)
        where = self.at.expression("a condition") if self.at.takes("WHERE") else None
        group = self._group() if self.at.takes("GROUP", "BY") else None
        having = self.at.expression("a condition") if self.at.takes("HAVING") else None
        return syntax.Select(place, items, table, tuple(joins), where, group, having)

    def _item(self) -> syntax.Item:
        return _item_of(self.at.text, self.at.expression("a column or an expression"))

    def _group(self) -> tuple[Span, ...]:
        keys = self.at.listed(lambda: self.at.expression("a key or a window"))
        for key in keys:
            if key.says(0, "GROUPING", "CUBE", "ROLLUP") and (key.says(1, "SETS") or key.says(1, "(")):
                word = "GROUPING SETS" if key.says(1, "SETS") else key.tokens[0].text.upper()
                raise self.at.text.refuse(
                    key, f"{word} is not supported: write a query for each set of keys"
                )
        if with_rollup := self.at.takes("WITH"):
            raise self.at.text.refuse(
                with_rollup,
                "WITH is not supported here: write a query for each set of keys",
            )
        return keys

    def _table(self) -> syntax.Table:
        table = self._plain_table()
        if self.at.sees(","):
            self.at.fail("streams are joined with JOIN … ON …, not with a comma: JOIN is needed here")
        return table

    def _plain_table(self) -> syntax.Table:
        start = self.at.token
        if self.at.sees("("):
            assert start is not None
            return syntax.NestedQuery(self._in_parentheses(), self._alias(), start)
        if self.at.takes("TABLE"):
            self.at.expects("(")
            call = self._window_call()
            self.at.expects(")")
            return syntax.WindowedTable(call, self._alias())
        name = self.at.expects_name("a stream, a view, a query in parentheses or TABLE(TUMBLE(…))")
        if self.at.sees("("):
            return syntax.WindowedTable(self._window_call(name), self._alias())
        if self.at.sees("."):
            raise self.at.text.refuse(name, f"streams and views have plain names, without {name.text!r}")
        return syntax.NamedTable(name, self._alias())

    def _window_call(self, name: Token | None = None) -> syntax.Call:
        """`TUMBLE(…)`, as the table that it is."""
        if name is None:
            name = self.at.expects_name("a window, such as TUMBLE(TABLE name, DESCRIPTOR(ts), …),")
        if name.text.upper() not in WINDOW_TABLES or not self.at.sees("("):
            raise self.at.text.refuse(
                name,
                f"{name.text!r} is no window over a table: write TUMBLE(TABLE name, DESCRIPTOR(ts), …), "
                "HOP(…) or SESSION(…)",
            )
        start = self.at.place - 1
        self._skip_parentheses()
        call = call_at(self.at.span(start), 0)
        assert call is not None
        return call

    def _skip_parentheses(self) -> None:
        opened = list[Token]()
        while not self.at.at_end:
            token = self.at.next()
            if token.says("("):
                opened.append(token)
            elif token.says(")"):
                opened.pop()
                if not opened:
                    return
        raise self.at.text.refuse(opened[-1], "'(' is never closed")

    def _alias(self) -> str | None:
        """The name behind a table, with AS or without; words that begin a clause need it."""
        given = self.at.takes("AS")
        if given is None and not self._is_alias():
            return None
        alias = self.at.expects_name().name
        if self.at.sees("("):
            self.at.fail("columns get their names in a SELECT, with AS, not here")
        return alias

    def _is_alias(self) -> bool:
        token = self.at.token
        if token is None or not token.is_name:
            return False
        words = (
            *CLAUSE_WORDS,
            *_JOIN_WORDS,
            *_FOREIGN,
            "WHERE",
            "GROUP",
            "HAVING",
            "ORDER",
            "UNION",
            "JOIN",
        )
        return not token.says(*words, "ON", "USING", "FROM", "SELECT", "FOR", "WITH")

    def _join(self) -> syntax.JoinClause | None:
        place, kind = self.at.token, []
        while self.at.token is not None and self.at.token.says(*_JOIN_WORDS):
            kind.append(self.at.next().text.upper())
        if not kind and not self.at.sees("JOIN"):
            return None
        assert place is not None
        self.at.expects("JOIN")
        table = self._plain_table()
        if using := self.at.takes("USING"):
            raise self.at.text.refuse(using, "USING: write ON left.column = right.column")
        on = self.at.expression("a condition") if self.at.takes("ON") else None
        return syntax.JoinClause(table, tuple(kind), on, self._match(), place)

    def _match(self) -> Match | None:
        if not self.at.takes("MATCH"):
            return None
        if self.at.takes("WITHIN"):
            return "within"
        if self.at.takes("OVERLAP"):
            return "overlap"
        raise self.at.error("MATCH is followed by WITHIN or OVERLAP")

    # -- what follows a query ----------------------------------------------------------------------

    def _tail(self) -> tuple[Token | None, tuple[Span, ...], syntax.Clauses]:
        """ORDER BY and our own clauses, in any order, and where they begin."""
        order: tuple[Span, ...] = ()
        clauses, first = syntax.Clauses(), None
        while not self.at.at_end:
            place = self.at.token
            if self.at.takes("ORDER", "BY"):
                order = self.at.listed(lambda: self.at.expression("the event time"))
            elif clause := self._clause():
                name, said = clause
                if getattr(clauses, name) is not None:
                    raise self.at.text.refuse(said.place, f"{said.place.text.upper()} is there twice")
                clauses = replace(clauses, **{name: said})  # type: ignore[arg-type]
            else:
                break
            first = first or place
        self._refuse_foreign()
        return first, order, clauses

    def _clause(self) -> tuple[str, syntax.Clause] | None:
        """One clause, and the name it is kept under."""
        if place := self.at.takes("EMIT"):
            return "emit", self._emission(place)
        if place := self.at.takes("ALLOW"):
            self.at.expects("LATENESS")
            return "lateness", syntax.Duration(self._interval(), place)
        if place := self.at.takes("LATE"):
            self.at.expects("DATA", "TO")
            return "late", syntax.ToSink(self.at.expects_name("a sink"), place)
        if place := self.at.takes("REASSIGN"):
            self.at.expects("LATE", "WITHIN")
            return "late", syntax.Duration(self._interval(), place)
        if place := self.at.takes("ERRORS"):
            self.at.expects("TO")
            return "errors", syntax.ToSink(self.at.expects_name("a sink"), place)
        if self.at.sees("MATCH"):
            self.at.fail("MATCH follows the ON of a join")
        return None

    def _emission(self, place: Token) -> syntax.Emission:
        for said in _EMISSIONS:
            if self.at.takes(*said):
                every = self._interval() if said == ("EVERY",) else None
                return syntax.Emission(" ".join(said), every, place)
        raise self.at.error(
            "EMIT is followed by one of ON WATERMARK, ON WINDOW CLOSE, ON UPDATE, CHANGES, FINAL or "
            "EVERY INTERVAL …"
        )

    def _interval(self) -> Span:
        if not self.at.sees("INTERVAL"):
            self.at.fail("an interval, such as INTERVAL '10' SECOND, is needed here")
        return self.at.expression("an interval")

    def _refuse_foreign(self) -> None:
        """Refuse a clause that others' queries have, with what to write instead."""
        token = self.at.token
        if token is not None and token.kind != "quoted" and token.text.upper() in _FOREIGN:
            raise self.at.text.refuse(token, _FOREIGN[token.text.upper()])


# -- items of SELECT -------------------------------------------------------------------------------

#: Words that can end an expression and are no alias there.
_LAST_WORDS = ("END", "NULL", "TRUE", "FALSE", "UNKNOWN", "NULLS")
_UNITS = words(
    "NANOSECOND MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR "
    "NANOSECONDS MICROSECONDS MILLISECONDS SECONDS MINUTES HOURS DAYS WEEKS MONTHS QUARTERS YEARS"
)


def _item_of(text: Text, span: Span) -> syntax.Item:
    """An item with the name behind it, with AS or without."""
    last = span.tokens[-1]
    if len(span) > 1 and span.says(len(span) - 2, "AS"):
        if not last.is_name:
            raise text.refuse(last, f"a name is needed behind AS, found {last.text!r}")
        if len(span) == 2:
            raise text.refuse(span, "AS names an expression: one is needed before it")
        return syntax.Item(span[:-2], last.name)
    if (
        len(span) > 1
        and last.is_name
        and ends_operand(span.tokens, len(span) - 2)
        and not _belongs(span)
    ):
        return syntax.Item(span[:-1], last.name)
    return syntax.Item(span, None)


def _belongs(span: Span) -> bool:
    """Is the last word part of the expression, rather than its name?"""
    return span.tokens[-1].says(*_LAST_WORDS) or _ends_with_interval(span)


def _ends_with_interval(span: Span) -> bool:
    """Does `INTERVAL '1' DAY`, or `INTERVAL '1-2' YEAR TO MONTH`, end here?"""
    intervals = [place for place, token in enumerate(span.tokens) if token.says("INTERVAL")]
    if not intervals:
        return False
    place = intervals[-1] + 1
    while place + 1 < len(span) and _is_unit(span, place + _signs(span, place) + 1):
        place += _signs(span, place) + 2
        if span.says(place, "TO") and _is_unit(span, place + 1):
            place += 2
    return place == len(span)


def _signs(span: Span, place: int) -> int:
    return int(span.says(place, "-", "+"))


def _is_unit(span: Span, place: int) -> bool:
    return (
        place < len(span)
        and span.tokens[place].kind == "word"
        and span.tokens[place].text.upper() in _UNITS
    )
