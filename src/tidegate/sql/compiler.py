"""Text → statements → relations → plans: the whole way of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.plan.analysis import Analyzer
from tidegate.sql import syntax
from tidegate.sql.clauses import sink_named
from tidegate.sql.columns import Context, match
from tidegate.sql.declarations import sink_of, stream_of
from tidegate.sql.parser import parse
from tidegate.sql.program import Insert, Program, SinkTable, Stream
from tidegate.sql.query import Scope, relation_of
from tidegate.sql.relations import finish, of_stream
from tidegate.sql.source import Text
from tidegate.sql.tokens import Token


def program_of(
    text: Text,
    streams: Iterable[Stream] = (),
    sinks: Iterable[SinkTable] = (),
    analyzer: Analyzer | None = None,
) -> Program:
    """The program that a text is, over streams and sinks that it declares or is given."""
    context = Context(text, analyzer)
    builder = _Builder(context, {s.name: s for s in streams}, {s.name: s for s in sinks})
    statements = parse(text)
    for statement in statements[:-1]:
        builder.add(statement)
    return builder.finish(statements[-1] if statements else None)


class _Builder:
    """A program as far as it has been read."""

    def __init__(
        self, context: Context, streams: dict[str, Stream], sinks: dict[str, SinkTable]
    ) -> None:
        self.text, self.streams, self.sinks = context.text, streams, sinks
        self.inserts: list[Insert] = []
        relations = {name: of_stream(context, stream) for name, stream in streams.items()}
        self.scope = Scope(context, relations, sinks)

    def add(self, statement: syntax.Statement) -> None:
        match statement:
            case syntax.CreateStream():
                self._add_stream(statement)
            case syntax.CreateSink():
                self._add_sink(statement)
            case syntax.CreateView():
                self._add_view(statement)
            case syntax.InsertInto():
                self.inserts.append(self._insert(statement))
            case syntax.Query():
                raise self.text.refuse(
                    statement.place, "a SELECT that is only shown is the last statement: use INSERT INTO"
                )

    def finish(self, last: syntax.Statement | None) -> Program:
        selects: tuple[Insert, ...] = ()
        if isinstance(last, syntax.Query):
            selects = (self._compiled(last, last.place, None),)
        elif last is not None:
            self.add(last)
        return Program(self.streams, self.sinks, tuple(self.inserts), selects)

    def _add_stream(self, statement: syntax.CreateStream) -> None:
        self._refuse_twice(statement.name)
        stream = stream_of(self.text, statement)
        self.streams[stream.name] = stream
        self.scope = self.scope.with_relation(stream.name, of_stream(self.scope.context, stream))

    def _add_sink(self, statement: syntax.CreateSink) -> None:
        self._refuse_twice(statement.name)
        sink = sink_of(self.text, statement)
        self.sinks[sink.name] = sink
        self.scope = replace(self.scope, sinks=self.sinks)

    def _add_view(self, statement: syntax.CreateView) -> None:
        self._refuse_twice(statement.name)
        view = relation_of(self.scope, statement.query)
        self.scope = self.scope.with_relation(statement.name.name, view)

    def _refuse_twice(self, name: Token) -> None:
        if match(name.name, [*self.scope.relations, *self.sinks]):
            raise self.text.refuse(name, f"{name.name!r} is declared already")

    def _insert(self, statement: syntax.InsertInto) -> Insert:
        sink = sink_named(self.text, statement.sink, self.sinks)
        return self._compiled(statement.query, statement.sink, sink)

    def _compiled(self, query: syntax.Query, place: Token, main: SinkTable | None) -> Insert:
        return finish(relation_of(self.scope, query), place, main)
