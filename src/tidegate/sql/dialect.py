"""Our SQL: Spark's, with streams, sinks, windows as tables, and clauses for emission and late rows.

```
CREATE STREAM name (column type, …, WATERMARK FOR column AS column - INTERVAL …) WITH (option = value, …)
CREATE SINK name WITH (option = value, …)
SELECT … [EMIT …] [ALLOW LATENESS interval] [LATE DATA TO sink | REASSIGN LATE WITHIN interval]
```
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import Token, TokenType

from tidegate.sql.source import Text

#: What a query can say after everything that Spark's can.
_CLAUSE_WORDS = ("EMIT", "ALLOW", "LATE", "REASSIGN", "MATCH")

#: A kind of token that Spark's SQL has no use for: these words end a FROM, and are no aliases.
_CLAUSE = TokenType.SETTINGS

#: What a statement can begin with.
STATEMENTS = ("CREATE", "INSERT", "SELECT", "WITH")
_VIEW_WORDS = ("VIEW", "OR", "TEMPORARY", "TEMP")

#: The functions that can be given a table: `TUMBLE(TABLE clicks, DESCRIPTOR(ts), …)`.
WINDOW_TABLES = ("TUMBLE", "HOP", "SESSION")


class CreateStream(exp.Expression):
    """`this` is its name, `expressions` are columns, `watermark` and `options` what follows."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "expressions": True,
        "watermark": False,
        "options": True,
    }


class CreateSink(exp.Expression):
    arg_types: ClassVar[dict[str, bool]] = {"this": True, "options": True}


class Watermark(exp.Expression):
    """`WATERMARK FOR this AS expression`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": True}


class TableArgument(exp.Expression):
    """`TABLE this [PARTITION BY expressions]` as the argument of a window function."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class Emission(exp.Expression):
    """`EMIT this`; `expression` is the interval of `EVERY`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expression": False}


class Lateness(exp.Expression):
    """`ALLOW LATENESS this`."""


class LateTo(exp.Expression):
    """`LATE DATA TO this`."""


class ReassignLate(exp.Expression):
    """`REASSIGN LATE WITHIN this`."""


#: The emissions, each by the words that follow EMIT.
_EMISSIONS = (
    ("ON", "WATERMARK"),
    ("ON", "WINDOW", "CLOSE"),
    ("ON", "UPDATE"),
    ("CHANGES",),
    ("FINAL",),
    ("EVERY",),
)


#: What the parser says where nothing that it knows can follow.
_PLAINER = {"Invalid expression / Unexpected token": "expecting a further clause or the end"}


class _Refused(ParseError):
    """Carries where in the text parsing failed; a parse error, so that the parser can try otherwise."""

    def __init__(self, problem: str, start: int) -> None:
        super().__init__(problem)
        self.problem, self.start = problem, start


class _Parser(SparkParser):
    ID_VAR_TOKENS: ClassVar[set[TokenType]] = SparkParser.ID_VAR_TOKENS | {_CLAUSE}
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = SparkParser.TABLE_ALIAS_TOKENS - {_CLAUSE}
    FUNC_TOKENS: ClassVar[set[TokenType]] = SparkParser.FUNC_TOKENS | {TokenType.SESSION}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **SparkParser.FUNCTION_PARSERS,
        **{name: lambda self: self._parse_window_function() for name in WINDOW_TABLES},
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        _CLAUSE: lambda self: self._parse_clause(),
    }

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        if token:
            raise _Refused(message, token.start)
        problem = _PLAINER.get(message, message.partition(" but got")[0])
        problem = problem[:1].lower() + problem[1:]
        if self._curr:
            raise _Refused(f"{problem}, found {self._curr.text!r}", self._curr.start)
        raise _Refused(f"{problem}, found the end of the statement", self._prev.end + 1)

    def _parse_statement(self) -> exp.Expr | None:
        known = not self._curr or self._match(TokenType.SEMICOLON, advance=False)
        if not known and not self._match_texts(STATEMENTS, advance=False):
            self.raise_error(f"a statement starts with {_either(STATEMENTS)}")
        return super()._parse_statement()

    def _parse_create(self) -> Any:
        if self._match_text_seq("STREAM"):
            return self._parse_create_stream()
        if self._match_text_seq("SINK"):
            return CreateSink(this=self._parse_name(), options=self._parse_options())
        if not self._match_texts(_VIEW_WORDS, advance=False):
            self.raise_error("expecting STREAM, SINK or VIEW")
        return super()._parse_create()

    def _parse_create_stream(self) -> CreateStream:
        name = self._parse_name()
        self._match_l_paren()
        items = self._parse_csv(lambda: self._parse_watermark() or self._parse_stream_column())
        self._match_r_paren()
        watermarks = [item for item in items if isinstance(item, Watermark)]
        if len(watermarks) > 1:
            self.raise_error("a stream has one WATERMARK", self._prev)
        return CreateStream(
            this=name,
            expressions=[item for item in items if isinstance(item, exp.ColumnDef)],
            watermark=watermarks[0] if watermarks else None,
            options=self._parse_options(),
        )

    def _parse_watermark(self) -> Watermark | None:
        if not self._match_text_seq("WATERMARK", "FOR"):
            return None
        column = self._parse_name()
        self._expect("AS")
        return Watermark(this=column, expression=self._parse_assignment())

    def _parse_stream_column(self) -> exp.ColumnDef:
        name, kind = self._parse_name(), self._parse_types()
        if kind is None:
            self.raise_error("Expecting a type, such as BIGINT, DOUBLE, STRING or TIMESTAMP")
        return exp.ColumnDef(this=name, kind=kind)

    def _parse_options(self) -> list[exp.Property]:
        self._expect("WITH")
        self._match_l_paren()
        options = self._parse_csv(self._parse_option)
        self._match_r_paren()
        return options

    def _parse_option(self) -> exp.Property:
        start = self._curr
        parts = [self._parse_string() or self._parse_name()]
        while self._match(TokenType.DOT):
            parts.append(self._parse_name())
        if not self._match(TokenType.EQ):
            self.raise_error("Expecting = and a value")
        key = exp.Literal.string(".".join(part.name for part in parts)).update_positions(start)
        value = self._parse_string() or self._parse_number() or self._parse_name()
        return exp.Property(this=key, value=value)

    def _parse_clause(self) -> tuple[str, exp.Expr] | tuple[None, None]:
        """One clause and the name it is kept under in the query."""
        start = self._curr
        if self._match_text_seq("EMIT"):
            return "emit", self._parse_emission().update_positions(start)
        if self._match_text_seq("ALLOW"):
            self._expect("LATENESS")
            return "lateness", Lateness(this=self._parse_duration()).update_positions(start)
        if self._match_text_seq("LATE"):
            self._expect("DATA", "TO")
            return "late", LateTo(this=self._parse_name()).update_positions(start)
        if self._match_text_seq("REASSIGN"):
            self._expect("LATE", "WITHIN")
            return "late", ReassignLate(this=self._parse_duration()).update_positions(start)
        return self.raise_error("MATCH follows the ON of a join", start)

    def _parse_emission(self) -> Emission:
        for words in _EMISSIONS:
            if self._match_text_seq(*words):
                every = self._parse_duration() if words == ("EVERY",) else None
                return Emission(this=" ".join(words), expression=every)
        return self.raise_error(
            "Expecting one of ON WATERMARK, ON WINDOW CLOSE, ON UPDATE, CHANGES, FINAL or "
            "EVERY INTERVAL … after EMIT"
        )

    def _parse_duration(self) -> exp.Expr:
        found = self._parse_interval()
        if not isinstance(found, exp.Interval):
            self.raise_error("Expecting an interval, such as INTERVAL '10' SECOND")
        return found

    def _parse_window_function(self) -> exp.Anonymous:
        name = self._tokens[self._index - 2]  # the one before the parenthesis
        arguments = self._parse_csv(lambda: self._parse_table_argument() or self._parse_lambda())
        return exp.Anonymous(this=name.text, expressions=arguments).update_positions(name)

    def _parse_table_argument(self) -> TableArgument | None:
        if not self._match(TokenType.TABLE):
            return None
        table = TableArgument(this=exp.Table(this=self._parse_name()))
        if self._match(TokenType.PARTITION_BY):
            wrapped = self._match(TokenType.L_PAREN)
            keys = [self._parse_name_column()]
            # The comma before DESCRIPTOR belongs to the arguments of the function.
            while self._next.text.upper() != "DESCRIPTOR" and self._match(TokenType.COMMA):
                keys.append(self._parse_name_column())
            if wrapped:
                self._match_r_paren()
            table.set("expressions", keys)
        return table

    def _parse_join(self, *args: Any, **options: Any) -> exp.Join | None:
        join = super()._parse_join(*args, **options)
        if join is not None and self._match_text_seq("MATCH"):
            if not self._match_texts(("WITHIN", "OVERLAP")):
                self.raise_error("Expecting WITHIN or OVERLAP after MATCH")
            join.set("match", self._prev.text.lower())
        return join

    def _parse_name(self) -> exp.Identifier:
        name = self._parse_id_var(any_token=False)
        if not isinstance(name, exp.Identifier):
            self.raise_error("Expecting a name")
        return name

    def _parse_name_column(self) -> exp.Column:
        return exp.Column(this=self._parse_name())

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            self.raise_error(f"Expecting {' '.join(words)}")


class Tidegate(Spark):
    """The dialect. Text for Spark is generated by Spark's own."""

    class Tokenizer(Spark.Tokenizer):
        # As Spark has read it since 4.0: a quote in a text is written twice.
        STRING_ESCAPES: ClassVar[list[str]] = [*Spark.Tokenizer.STRING_ESCAPES, "'"]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            **Spark.Tokenizer.KEYWORDS,
            **dict.fromkeys(_CLAUSE_WORDS, _CLAUSE),
        }

    Parser = _Parser


def parse(text: Text) -> list[exp.Expr]:
    """The statements of a text, in order."""
    dialect = Tidegate()
    try:
        tokens = dialect.tokenize(text.sql)
        parsed = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, text.sql)
    except _Refused as refused:
        raise text.refuse(refused.start, refused.problem) from None
    except TokenError:
        raise text.refuse(len(text.sql.rstrip()), "the text ends inside a quote or a comment") from None
    return [one for one in parsed if one is not None and not isinstance(one, exp.Semicolon)]


def spark_text(expression: exp.Expr) -> str:
    """The expression as Spark reads it."""
    return expression.sql(dialect=Spark)


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
