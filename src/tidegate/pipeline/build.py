"""A pipeline file's model → the program it stands for. The API's own steps build the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidegate.api import emit, late, windows
from tidegate.api.events import Events, Runnable, processing_time
from tidegate.connectors import SINKS, SOURCES
from tidegate.dataflow import compile
from tidegate.errors import PipelineError, PlanError, did_you_mean
from tidegate.kernels.aggregate_registry import AGGREGATES
from tidegate.pipeline import model
from tidegate.pipeline.document import Document, Path
from tidegate.plan.aggregates import Aggregate
from tidegate.plan.channels import ERROR_CHANNEL, MAIN
from tidegate.plan.nodes import AnyOperator
from tidegate.plan.policies import Emission, LatePolicy
from tidegate.plan.time import Micros, micros
from tidegate.plan.windows import Window
from tidegate.sql.program import Input, Insert, Program, Projection, SinkTable, Stream
from tidegate.sql.result_key import check_result_key
from tidegate.sql.types import named_type

if TYPE_CHECKING:
    from tidegate.sql.analysis import Session


def program_of(pipeline: model.Pipeline, document: Document, spark: Session | None = None) -> Program:
    """The same program that SQL text would compile to."""
    builder = _Builder(pipeline, document)
    streams, sinks = builder.streams(), builder.sinks()
    if pipeline.query is not None:
        insert = builder.insert(pipeline.query, streams, sinks)
    else:
        insert = builder.compiled(pipeline.sql or "", streams, sinks, spark)
    builder.check_channels(insert)
    return Program(streams, sinks, (insert,))


class _Builder:
    """Builds a program; whatever a plan refuses is refused with its place in the file."""

    def __init__(self, pipeline: model.Pipeline, document: Document) -> None:
        self._pipeline = pipeline
        self._document = document

    @contextmanager
    def _at(self, *path: str | int) -> Iterator[None]:
        try:
            yield
        except PipelineError:
            raise
        except PlanError as error:
            raise self._document.error(path, error.written_in("yaml")) from error

    # -- streams and sinks ------------------------------------------------------------------------

    def streams(self) -> dict[str, Stream]:
        return {name: self._stream(name, given) for name, given in self._pipeline.streams.items()}

    def _stream(self, name: str, given: model.Stream) -> Stream:
        path = ("streams", name)
        options = _texts(given.own_options | given.options)
        with self._at(*path):
            SOURCES[given.connector].check_all(options)
            return Stream(name, self._schema(path, given), given.connector, options, **self._time(given))

    def _schema(self, path: Path, given: model.Stream) -> pa.Schema:
        own = SOURCES[given.connector].columns
        if not given.columns and own is not None:
            return own
        if given.columns is None:
            raise PlanError(f"connector {given.connector!r} needs 'columns', such as {{ts: timestamp}}")
        fields = []
        for column, kind in given.columns.items():
            with self._at(*path, "columns", column):
                fields.append(pa.field(column, named_type(kind)))
        return pa.schema(fields)

    def _time(self, given: model.Stream) -> dict[str, Any]:
        options, declared = self._pipeline.options, given.eventtime
        if not options.enabled:
            return {"time": processing_time()}
        if declared is None:
            raise PlanError(
                "the stream does not say where its event time is: add 'eventtime: {column: …}', or "
                "'eventtime.enabled: false' to the options, which counts rows at the time they arrive"
            )
        return {
            "time": declared.column,
            "time_type": declared.type,
            "tolerance": micros(declared.tolerance or options.tolerance, "tolerance", zero=True),
            "max_future": _optional(declared.max_future, "max_future"),
            "idle_after": _optional(declared.idle_after, "idle_after"),
        }

    def sinks(self) -> dict[str, SinkTable]:
        return {name: self._sink(name, given) for name, given in self._pipeline.sinks.items()}

    def _sink(self, name: str, given: model.Sink) -> SinkTable:
        options = _texts(given.model_dump(exclude={"connector"}))
        with self._at("sinks", name):
            SINKS[given.connector].check_all(options)
        return SinkTable(name, given.connector, options)

    # -- the query --------------------------------------------------------------------------------

    def insert(
        self, query: model.Query, streams: dict[str, Stream], sinks: dict[str, SinkTable]
    ) -> Insert:
        names = [query.source] if isinstance(query.source, str) else query.source
        with self._at("query", "from"):
            read = [_stream_named(name, streams) for name in names]
        steps = () if query.where is None else (Projection(where=query.where),)
        plan = self._plan(query, read)
        kept = {name: name for name in plan.schema.names}
        return Insert(plan, tuple(_input(stream, steps) for stream in read), kept=kept, sinks=sinks)

    def compiled(
        self,
        sql: str,
        streams: dict[str, Stream],
        sinks: dict[str, SinkTable],
        spark: Session | None,
    ) -> Insert:
        """The one SELECT of the text; its channels are those of the file."""
        from tidegate.sql import compile  # the parser takes its time, and operators do without

        with self._at("sql"):
            program = compile(sql, streams=streams.values(), sinks=sinks.values(), spark=spark)
            if program.inserts or len(program.selects) != 1:
                raise PlanError("one SELECT is asked for: its results are the channel 'main'")
            [select] = program.selects
            errors = select.sinks.get(ERROR_CHANNEL)
            if errors is not None and errors.name != ERROR_CHANNEL:
                raise PlanError("ERRORS TO: in a file the sink of invalid rows is called 'errors'")
        insert = replace(select, sinks=sinks)
        with self._at("sinks", MAIN):
            check_result_key(insert)
        return insert

    def check_channels(self, insert: Insert) -> None:
        """Each channel has a sink, but for errors, which are counted anyway; each sink has a channel."""
        channels = [MAIN, ERROR_CHANNEL] if insert.plan is None else list(compile(insert.plan).channels)
        for name in insert.sinks:
            if name not in channels:
                problem = f"no channel {name!r}; {did_you_mean(name, channels)}"
                raise self._document.error(("sinks", name), problem)
        for channel in channels:
            if channel not in insert.sinks and channel != ERROR_CHANNEL:
                hint = f"add '{channel}: {{connector: discard}}' if the rows are not wanted"
                raise self._document.error(("sinks",), f"channel {channel!r} has no sink; {hint}")

    def _plan(self, query: model.Query, read: list[Stream]) -> AnyOperator:
        events = [self._events(stream) for stream in read]
        with self._at("query", "from"):
            rows = events[0].union(*events[1:]) if len(events) > 1 else events[0]
        result: Runnable | None = None
        for number, operator in enumerate(query.operators):
            with self._at("query", "operators", number):
                rows = rows if result is None else _go_on(result, operator)
                result = _operator(rows, operator)
        assert result is not None, "the model asks for an operator"
        return result.node

    def _events(self, stream: Stream) -> Events:
        with self._at("streams", stream.name, "eventtime"):
            return Events((), stream.source())


def _input(stream: Stream, steps: tuple[Projection, ...]) -> Input:
    return Input(stream, steps, {name: name for name in stream.schema.names})


def _stream_named(name: str, streams: Mapping[str, Stream]) -> Stream:
    if name not in streams:
        raise PlanError(f"no stream {name!r}; {did_you_mean(name, streams)}")
    return streams[name]


# -- operators: each is a call of the API ----------------------------------------------------------


def _go_on(result: Runnable, operator: model.Operator) -> Events:
    if operator.time is None:
        raise PlanError(
            "say by which time the results of the operator before go on: "
            f"'time: …' with {' or '.join(map(repr, result.node.times))}"
        )
    return result.events(time=operator.time)


def _operator(rows: Events, operator: model.Operator) -> Runnable:
    keyed = rows.key_by(*operator.key_by)
    if isinstance(operator, model.ReorderOperator):
        return keyed.reorder(late=_late(operator.late))
    windowed = keyed.window(
        _window(operator.window),
        allowed_lateness=operator.allowed_lateness,
        late=_late(operator.late),
    )
    results = windowed.agg(**{name: _aggregate(one) for name, one in operator.aggregates.items()})
    return results.emit(_emission(operator.emit))


def _window(given: model.Window) -> Window:
    match given:
        case model.Tumbling():
            return windows.tumbling(given.tumbling, given.offset)
        case model.Hopping():
            return windows.hopping(given.hopping, given.slide, given.offset)
        case model.Session():
            return windows.session(given.session, max_length=given.max_length)
        case model.SessionByColumn():
            return windows.session(gap_column=given.session_by, max_length=given.max_length)
        case model.Sliding():
            return windows.sliding(given.sliding, given.lookahead, when=given.when)


def _late(given: model.Late) -> LatePolicy:
    match given:
        case model.Reassign():
            return late.reassign(given.reassign)
        case model.SideOutput():
            return late.side_output(given.side_output)
        case "drop":
            return late.drop()


def _emission(given: model.Emission) -> Emission:
    if isinstance(given, model.Periodic):
        return emit.periodic(given.periodic)
    strategy: Emission = getattr(emit, given)()
    return strategy


def _aggregate(given: model.Aggregate) -> Aggregate:
    if isinstance(given, str):
        return AGGREGATES[given](None)
    return AGGREGATES[given.name](getattr(given, given.name), **given.parameters)


def _optional(duration: str | None, what: str) -> Micros | None:
    return None if duration is None else micros(duration, what)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options that are given, as Spark writes them."""
    given = {name: value for name, value in options.items() if value is not None}
    return {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in given.items()}
