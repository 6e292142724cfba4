"""Messages: what the stages of a query send each other, and tell the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import pyarrow as pa

#: What a bucket keeps: entries of its largest table, pages and their bytes, the watermark it has worked
#: by, the one at which something is due, and how much is open under how many keys. Null is what nobody
#: has counted, or what there is none of.
Kept = dict[str, int | None]
KEPT = ("rows", "pages", "bytes", "watermark", "due", "open", "keys")


class Kind(StrEnum):
    """What a message is, and in brackets which fields say it."""

    #: Rows on their way into an operator (`vertex`, `name` of the input, `rows`, `blob`).
    INPUT = "input"
    #: Rows of an output channel, or results on their way to other operators (`name`, `rows`, `blob`).
    OUTPUT = "output"
    #: How often something has happened (`name`, `value`). All messages of a batch add up.
    COUNTER = "counter"
    #: How much a bucket of an operator holds now (`vertex`, `name`, `value`). The latest one counts.
    GAUGE = "gauge"
    #: What it keeps as state now (`vertex`, `kept`). The latest one counts.
    STATE = "state"
    #: The highest event time among a source's rows (`source`, `time`).
    HIGH_WATER_MARK = "high_water_mark"
    #: The highest time of the clock's rows, which move an idle source on (`source`, `time`).
    HEARTBEAT = "heartbeat"
    #: How busy a machine was (`name`, `value` in ten-thousandths). The busiest one counts.
    LOAD = "load"
    #: A stored page of a bucket's state (`name`, `blob`).
    PAGE = "page"


class Message(NamedTuple):
    """One message, which travels as a row of `SCHEMA`. A field that its kind does not use is null."""

    #: The bucket that it is for, or comes from.
    bucket: int
    kind: str
    #: Which one of its kind it is: an input, a channel, a counter, a measure, a page.
    name: str | None = None
    #: The number of the operator that takes it in, or whose bucket it tells of.
    vertex: int | None = None
    #: The number of the source.
    source: int | None = None
    #: How many rows it stands for.
    rows: int | None = None
    #: A count or an amount.
    value: int | None = None
    #: Event time, in microseconds since 1970.
    time: int | None = None
    #: What a bucket keeps, in numbers by name.
    kept: Kept | None = None
    #: Its content: rows as Arrow tables, or a page.
    blob: bytes | None = None
    #: The partition that sent it. Its messages arrive in order, mixed with those of other partitions.
    sender: int = 0
    #: Its place among the messages of the sender.
    number: int = 0

    @classmethod
    def input(cls, bucket: int, name: str, rows: int, blob: bytes) -> Message:
        return cls(bucket, Kind.INPUT, name, rows=rows, blob=blob)

    @classmethod
    def output(cls, bucket: int, channel: str, rows: int, blob: bytes | None) -> Message:
        return cls(bucket, Kind.OUTPUT, channel, rows=rows, blob=blob)

    @classmethod
    def counter(cls, bucket: int, name: str, value: int) -> Message:
        return cls(bucket, Kind.COUNTER, name, value=value)

    @classmethod
    def gauge(cls, bucket: int, vertex: int, name: str, value: int) -> Message:
        return cls(bucket, Kind.GAUGE, name, vertex, value=value)

    @classmethod
    def state(cls, bucket: int, vertex: int, kept: Kept) -> Message:
        """All numbers in one message: each operator further on has to pass it on."""
        return cls(bucket, Kind.STATE, vertex=vertex, kept=kept)

    @classmethod
    def high_water_mark(cls, bucket: int, source: int, time: int) -> Message:
        return cls(bucket, Kind.HIGH_WATER_MARK, source=source, time=time)

    @classmethod
    def heartbeat(cls, bucket: int, source: int, time: int) -> Message:
        return cls(bucket, Kind.HEARTBEAT, source=source, time=time)

    @classmethod
    def load(cls, bucket: int, name: str, value: int) -> Message:
        return cls(bucket, Kind.LOAD, name, value=value)

    @classmethod
    def page(cls, bucket: int, name: str, blob: bytes) -> Message:
        return cls(bucket, Kind.PAGE, name, blob=blob)

    def addressed_to(self, vertex: int) -> Message:
        """An operator packs rows for its inputs without knowing its number. Others go past it."""
        return self._replace(vertex=vertex) if self.kind == Kind.INPUT else self

    def is_for(self, vertex: int) -> bool:
        """Does the operator take it in?"""
        return self.kind == Kind.INPUT and self.vertex == vertex


SCHEMA = pa.schema(
    [
        ("bucket", pa.int32()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("vertex", pa.int32()),
        ("source", pa.int32()),
        ("rows", pa.int64()),
        ("value", pa.int64()),
        ("time", pa.int64()),
        ("kept", pa.struct([(name, pa.int64()) for name in KEPT])),
        ("blob", pa.binary()),
        ("sender", pa.int32()),
        ("number", pa.int32()),
    ]
)

#: The first fields: all but the content, and the order in which it was sent.
FACTS = Message._fields[: Message._fields.index("blob")]


def count_messages(bucket: int, counts: Mapping[str, int]) -> Iterable[Message]:
    return (Message.counter(bucket, name, count) for name, count in counts.items() if count)


def in_order(messages: Iterable[Message]) -> list[Message]:
    """As they were sent, whoever was fetched from first: so a batch that is run again does the same."""
    return sorted(messages, key=lambda message: (message.sender, message.number))


def message_batch(messages: Iterable[Message]) -> pa.RecordBatch:
    columns = list(zip(*messages, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def messages_in(rows: pa.RecordBatch | pa.Table) -> list[Message]:
    """What `message_batch` made rows of."""
    columns = (column.to_pylist() for column in rows.columns)
    return [Message(*fields) for fields in zip(*columns, strict=True)]
