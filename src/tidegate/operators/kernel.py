"""What hosts and kernels agree on. A kernel is plain vectorised code that knows nothing of Spark.

`pack` runs where the rows are and sends each bucket what it needs; `step` runs where the bucket's
state is, once per micro-batch in which the bucket has input or something due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators import blobs
from tidegate.operators.messages import Message, count_messages
from tidegate.operators.state import BucketState
from tidegate.plan.channels import MAIN, OP


@dataclass(frozen=True)
class Clock:
    """The time of one micro-batch, in microseconds: event time as far as known, and its own."""

    watermark: int | None
    now: int


#: A channel, and rows for it: the last table; the ones before it are what it points into.
Sent = tuple[str, list[pa.Table]]

#: Rows from the tables that they travelled as.
Unpack = Callable[[Sequence[pa.Table]], pa.Table]


@dataclass
class Outcome:
    """What a step puts out, and the watermark at which it wants to be woken without input."""

    tables: list[Sent] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, int] = field(default_factory=dict)
    due: int | None = None

    def emit(self, channel: str, *tables: pa.Table) -> None:
        """Send rows to a channel."""
        for piece in blobs.pieces(tables[-1]):
            self.tables.append((channel, [*tables[:-1], piece]))

    def then(self, later: Outcome) -> Outcome:
        """Both outcomes as one: the later one knows what is held and when it is due."""
        counts = Counter(self.counts)
        counts.update(later.counts)
        return Outcome([*self.tables, *later.tables], counts, later.gauges, later.due)

    def messages(self, bucket: int, vertex: int) -> Iterable[Message]:
        """What a bucket of the operator of that number sends."""
        for channel, tables in self.tables:
            yield Message.output(bucket, channel, tables[-1].num_rows, blobs.encode(tables))
        yield from count_messages(bucket, self.counts)
        for name, held in self.gauges.items():
            yield Message.gauge(bucket, vertex, name, held)


class Port(Protocol):
    """Where rows come into an operator."""

    @property
    def name(self) -> str:
        """What its messages are addressed to, beside the operator."""
        ...

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterable[Message]:
        """Messages for the buckets, from rows of the input's schema."""
        ...

    def known_as(self, operator: str) -> None:
        """Tell it what its operator is called in the plan."""
        ...


class Kernel(Protocol):
    """One operator: how its rows are packed, how its state moves, when it wants to be woken."""

    #: The channel its results leave on.
    outlet: str

    @property
    def ports(self) -> tuple[Port, ...]:
        """One for each input of the operator, in their order."""
        ...

    def step(self, state: BucketState, inputs: Sequence[Message], clock: Clock) -> Outcome:
        """Close what is due, take in what came for its inputs, put out what changed."""
        ...

    def stages(self) -> list[str]:
        """The physical operators, in the order rows pass them."""
        ...

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Its results, in the schema it promises; other channels carry their rows as they are."""
        ...


def retractions_first(tables: list[Sent]) -> list[Sent]:
    """In a batch all that is taken back comes before all that is put out."""
    taken_back, others = [], []
    for channel, (*pointed_into, rows) in tables:
        if channel != MAIN:
            others.append((channel, [*pointed_into, rows]))
            continue
        back = pc.starts_with(rows.column(OP.name), "-")
        taken_back.append((channel, [*pointed_into, rows.filter(back)]))
        others.append((channel, [*pointed_into, rows.filter(pc.invert(back))]))
    return [(channel, sent) for channel, sent in taken_back + others if sent[-1].num_rows]
