"""Text → statements → relations → plans: the whole way of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from tidegate.errors import did_you_mean
from tidegate.sql.declarations import sink_of, stream_of
from tidegate.sql.dialect import CreateSink, CreateStream, parse
from tidegate.sql.program import Insert, Program, SinkTable, Stream
from tidegate.sql.query import Scope, relation_of
from tidegate.sql.relations import finish, match, of_stream
from tidegate.sql.source import Text, refuse_others


def program_of(text: Text, streams: Iterable[Stream], sinks: Iterable[SinkTable]) -> Program:
    """The program that a text is, over streams and sinks that it declares or is given."""
    builder = _Builder(text, {s.name: s for s in streams}, {s.name: s for s in sinks})
    statements = parse(text)
    for statement in statements[:-1]:
        builder.add(statement)
    return builder.finish(statements[-1] if statements else None)


class _Builder:
    """A program as far as it has been read."""

    def __init__(self, text: Text, streams: dict[str, Stream], sinks: dict[str, SinkTable]) -> None:
        self.text, self.streams, self.sinks = text, streams, sinks
        self.inserts: list[Insert] = []
        self.scope = Scope(text, {name: of_stream(stream) for name, stream in streams.items()}, sinks)

    def add(self, statement: exp.Expr) -> None:
        if isinstance(statement, CreateStream):
            self._add_stream(statement)
        elif isinstance(statement, CreateSink):
            self._add_sink(statement)
        elif isinstance(statement, exp.Create):
            self._add_view(statement)
        elif isinstance(statement, exp.Insert):
            self.inserts.append(self._insert(statement))
        else:
            raise self.text.refuse(
                statement, "a SELECT that is only shown is the last statement: use INSERT INTO"
            )

    def finish(self, last: exp.Expr | None) -> Program:
        selects: tuple[Insert, ...] = ()
        if isinstance(last, exp.Query):
            selects = (finish(self.text, relation_of(self.scope, last), last, None),)
        elif last is not None:
            self.add(last)
        return Program(self.streams, self.sinks, tuple(self.inserts), selects)

    def _add_stream(self, node: CreateStream) -> None:
        self._refuse_twice(node.this)
        stream = stream_of(self.text, node)
        self.streams[stream.name] = stream
        self.scope = self.scope.with_relation(stream.name, of_stream(stream))

    def _add_sink(self, node: CreateSink) -> None:
        self._refuse_twice(node.this)
        sink = sink_of(self.text, node)
        self.sinks[sink.name] = sink
        self.scope = replace(self.scope, sinks=self.sinks)

    def _add_view(self, node: exp.Create) -> None:
        if isinstance(node.this, exp.Schema):
            raise self.text.refuse(node.this, "a view has the names that its SELECT gives, with AS")
        self._refuse_twice(node.this)
        self.scope = self.scope.with_relation(node.this.name, relation_of(self.scope, node.expression))

    def _refuse_twice(self, name: exp.Expr) -> None:
        if match(name.name, [*self.scope.relations, *self.sinks]):
            raise self.text.refuse(name, f"{name.name!r} is declared already")

    def _insert(self, node: exp.Insert) -> Insert:
        refuse_others(
            self.text, node, {"this", "expression"}, "INSERT INTO sink SELECT … is all there is"
        )
        if not isinstance(node.this, exp.Table):
            raise self.text.refuse(
                node.this, "a sink takes the columns that SELECT names: no list of columns"
            )
        name = match(node.this.name, self.sinks)
        if name is None:
            hint = did_you_mean(node.this.name, self.sinks)
            raise self.text.refuse(node.this, f"no sink {node.this.name!r}; {hint}")
        insert = finish(self.text, relation_of(self.scope, node.expression), node, self.sinks[name])
        if name in insert.sinks:
            raise self.text.refuse(
                node.this, f"sink {name!r} takes the late rows: results need another one"
            )
        return insert
