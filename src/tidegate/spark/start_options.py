"""What a start is told: its checkpoint, a sink for each channel, and how to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from keyword import iskeyword
from typing import Any

from tidegate.connectors import (
    FileSink,
    Preparable,
    Sink,
    TableSink,
    Target,
    Write,
    location,
    shows_rows_in_process,
)
from tidegate.dataflow import Dataflow
from tidegate.errors import ChannelError, did_you_mean
from tidegate.plan.channels import ERROR_CHANNEL, MAIN
from tidegate.plan.steps import Fusion
from tidegate.spark.batch_writer import Select
from tidegate.spark.rate_control import Pace


@dataclass(frozen=True)
class StartOptions:
    """The arguments of a start. `selects` leaves some of the results out before they are written."""

    checkpoint: str
    sinks: Mapping[str, Sink]
    trigger: Mapping[str, Any] | None = None
    name: str | None = None
    buckets: int | None = None
    pace: Pace | None = None
    fusion: Fusion | None = None
    selects: Select | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "checkpoint", location(self.checkpoint))

    def check_sinks(self, dataflow: Dataflow, *, ships: bool = False) -> None:
        """Each sink has a channel; each channel has a sink, but for errors, which are counted anyway.

        Over Spark Connect sinks are shipped to the server, and those that show rows here cannot be.
        """
        for channel, sink in self.sinks.items():
            if channel not in dataflow.channels:
                raise ChannelError(f"no channel {channel!r}; {did_you_mean(channel, dataflow.channels)}")
            if not (callable(sink) or isinstance(sink, Preparable)):
                raise ChannelError(
                    f"the sink of channel {channel!r} is {sink!r}; use tg.sinks, for instance "
                    "tg.sinks.parquet('out'), or a function (rows, batch_id)"
                )
            if ships and shows_rows_in_process(sink):
                raise ChannelError(
                    f"the sink of channel {channel!r} is {described(sink)}: it shows rows where they "
                    "are written, which over Spark Connect is the server. Write files or a table, and "
                    "read them from here"
                )
        for channel in dataflow.channels:
            if channel not in self.sinks and channel != ERROR_CHANNEL:
                raise ChannelError(
                    f"channel {channel!r} has no sink; pass one, for instance {_hint(channel)}"
                )

    def prepared(self, dataflow: Dataflow, query: str, replayed: int) -> dict[str, Write]:
        """What writes each channel, once its sink knows what it will be given."""
        return {
            channel: sink.prepare(_target(dataflow, channel, query, replayed))
            if isinstance(sink, Preparable)
            else sink
            for channel, sink in self.sinks.items()
        }

    @property
    def described_sinks(self) -> dict[str, str]:
        return {channel: described(sink) for channel, sink in self.sinks.items()}


def sinks_by_channel(
    sinks: Mapping[str, Sink] | None, by_keyword: Mapping[str, Sink]
) -> dict[str, Sink]:
    """The sinks of `start(sinks={…}, main=…)`: a channel has one."""
    if not isinstance(sinks, Mapping | None):
        raise ChannelError(
            f"sinks={sinks!r}: give a sink for each channel, such as {{'main': tg.sinks.console()}}"
        )
    given = dict(sinks or {})
    for channel in by_keyword:
        if channel in given:
            raise ChannelError(f"channel {channel!r} has two sinks: sinks= has one, {channel}= another")
    return {**given, **by_keyword}


def described(sink: Sink) -> str:
    """A sink as the owner's file has it: nothing that could be a secret, as a database's address."""
    match sink:
        case FileSink(path, format):
            return f"{format} files in {path}"
        case TableSink(database, table):
            return f"{database.name} table {table}"
        case _:
            return type(sink).__name__


def _hint(channel: str) -> str:
    """How to give the channel a sink: by keyword where that can be written, and means the channel."""
    sink = "tg.sinks.parquet('out')" if channel == MAIN else "tg.sinks.discard()"
    others = {field.name for field in fields(StartOptions)}
    if channel.isidentifier() and not iskeyword(channel) and channel not in others:
        return f"{channel}={sink}"
    return f"sinks={{{channel!r}: {sink}}}"


def _target(dataflow: Dataflow, channel: str, query: str, replayed: int) -> Target:
    """What the sink of a channel is told: results are told apart by key and window, rows are not."""
    schema, vertex = dataflow.channels[channel], dataflow.outputs.get(channel)
    if vertex is None or vertex.operator.by_row:
        durations = dataflow.added_durations(channel)
        return Target(query, channel, schema, durations=durations, replayed=replayed)
    results = vertex.operator
    return Target(query, channel, schema, results.result_key, results.retracts, replayed=replayed)
