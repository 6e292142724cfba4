"""How rows of output channels leave the tasks that have them: staged by their sink, or as a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.columnar import ipc
from tidegate.connectors import RowType, Sink, Stage, StagedSink
from tidegate.connectors.discard import Nowhere
from tidegate.dataflow import Dataflow
from tidegate.kernels.contract import Kernel, Sent, Unpack, packed
from tidegate.kernels.messages import Kind, Message
from tidegate.kernels.registry import unpack_of
from tidegate.spark.schema import spark_schema


@dataclass(frozen=True)
class Staging:
    """What writes the rows of a channel, and how they are read from the tables that they travel as."""

    stage: Stage
    unpack: Unpack

    def message(self, bucket: int, channel: str, sent: Iterable[list[pa.Table]]) -> Message:
        """Write rows, and say how many there are. The content of the message is the receipt."""
        rows = [self.unpack(tables) for tables in sent]
        return Message.output(bucket, channel, sum(one.num_rows for one in rows), self.stage.write(rows))


@dataclass(frozen=True)
class Delivery:
    """The channels whose rows are staged where they are emitted."""

    channels: Mapping[str, Staging] = field(default_factory=dict)

    def without(self, channel: str) -> Delivery:
        """The same but for a channel, whose rows are needed further on."""
        return replace(self, channels={k: v for k, v in self.channels.items() if k != channel})

    def only(self, channel: str) -> Delivery:
        """That channel alone, whose rows have been needed until here."""
        return replace(self, channels={k: v for k, v in self.channels.items() if k == channel})

    def packed(self, bucket: int, sent: Iterable[Sent]) -> Iterator[Message]:
        """What a step emits, as messages: one for each channel that is staged."""
        staged: dict[str, list[list[pa.Table]]] = {}
        others: list[Sent] = []
        for channel, tables in sent:
            if channel in self.channels:
                staged.setdefault(channel, []).append(tables)
            else:
                others.append((channel, tables))
        yield from packed(bucket, others)
        for channel, each in staged.items():
            yield self.channels[channel].message(bucket, channel, each)

    def again(self, messages: Iterable[Message]) -> Iterable[Message]:
        """Messages whose rows have been packed: those of staged channels are written instead."""
        return self._again(messages) if self.channels else messages

    def _again(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            name, blob = message.name or "", message.blob
            if message.kind == Kind.OUTPUT and name in self.channels and blob is not None:
                written = self.channels[name].message(message.bucket, name, [ipc.decode(blob)])
                yield written._replace(sender=message.sender, number=message.number)
            else:
                yield message


def delivery_of(dataflow: Dataflow, kernels: Sequence[Kernel], sinks: Mapping[str, Sink]) -> Delivery:
    """What tasks of a query write. Rows of channels without a sink are counted, and go nowhere."""
    staged = {}
    for channel, schema in dataflow.channels.items():
        durations = dataflow.added_durations(channel)
        stage = _stage(sinks.get(channel), RowType(schema, spark_schema(schema).json(), durations))
        if stage is not None:
            staged[channel] = Staging(stage, unpack_of(dataflow, kernels, channel))
    return Delivery(staged)


def _stage(sink: object, rows: RowType) -> Stage | None:
    if sink is None:
        return Nowhere()
    return sink.stage(rows) if isinstance(sink, StagedSink) else None
