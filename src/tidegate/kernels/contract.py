"""The contract between hosts and kernels. A kernel is plain vectorised code that knows nothing of Spark.

An input's `pack` runs where the rows are and sends each bucket what it needs. A kernel's `step` runs
where the bucket's state is, once per micro-batch in which the bucket has input or something due.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.columnar import ipc
from tidegate.kernels.accumulators import OVERFLOW
from tidegate.kernels.late import NEVER
from tidegate.kernels.messages import Message, count_messages
from tidegate.kernels.row_text import row_texts
from tidegate.plan.channels import ERROR_CHANNEL, ERRORS, MAIN, OP
from tidegate.plan.nodes import AnyOperator
from tidegate.state.pages import KEY, BucketState, own_keys

if TYPE_CHECKING:
    from tidegate.kernels.inputs import Arrival, KeyedInput


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
    """What a step emits, and the watermark at which it wants to be woken without input."""

    tables: list[Sent] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    gauges: dict[str, int] = field(default_factory=dict)
    due: int | None = None

    def emit(self, channel: str, *tables: pa.Table) -> None:
        """Send rows to a channel."""
        for piece in ipc.pieces(tables[-1]):
            self.tables.append((channel, [*tables[:-1], piece]))

    def then(self, later: Outcome) -> Outcome:
        """Both outcomes as one: the later one knows what is held and when it is due."""
        counts = Counter(self.counts)
        counts.update(later.counts)
        return Outcome([*self.tables, *later.tables], counts, later.gauges, later.due)

    def messages(self, bucket: int, vertex: int, pack: Pack | None = None) -> Iterator[Message]:
        """What a bucket of the operator of that number sends; `pack` says what becomes of the rows."""
        yield from (pack or packed)(bucket, self.tables)
        yield from count_messages(bucket, self.counts)
        for name, held in self.gauges.items():
            yield Message.gauge(bucket, vertex, name, held)


#: Messages for rows that a bucket sends.
Pack = Callable[[int, Iterable[Sent]], Iterable[Message]]


def packed(bucket: int, sent: Iterable[Sent]) -> Iterator[Message]:
    """Rows as they travel from stage to stage."""
    for channel, tables in sent:
        yield Message.output(bucket, channel, tables[-1].num_rows, ipc.encode(tables))


@dataclass(frozen=True)
class StepContext:
    """What a kernel works with in one step."""

    state: BucketState
    #: The watermark at the bucket's previous step and at this one; None while it is unknown.
    previous_watermark: int | None
    watermark: int | None
    #: The processing time of the batch.
    now: int
    outcome: Outcome = field(default_factory=Outcome)

    @classmethod
    def begin(cls, state: BucketState, clock: Clock) -> StepContext:
        previous = state.manifest.watermark
        watermark = previous if clock.watermark is None else clock.watermark
        return cls(state, previous, watermark, clock.now)

    @property
    def watermarks(self) -> tuple[int, int]:
        """Both watermarks as numbers, `NEVER` where they are unknown."""
        previous, now = self.previous_watermark, self.watermark
        return NEVER if previous is None else previous, NEVER if now is None else now

    def emit(self, rows: pl.DataFrame) -> None:
        """Send results, with the keys they use."""
        if len(rows):
            self.outcome.emit(MAIN, *own_keys(self.state.known_keys, rows))

    def end(self, due: int | None) -> Outcome:
        """The outcome; the bucket wants to be woken when the watermark reaches `due`."""
        self.state.manifest.watermark = self.watermark
        self.outcome.due = due
        if due is not None and self.watermark is not None:
            self.outcome.due = max(due, self.watermark + 1)
        return self.outcome


#: Takes results and sends them.
EmitRows = Callable[["pl.DataFrame"], None]


class Input(Protocol):
    """Where rows enter an operator."""

    @property
    def name(self) -> str:
        """What its messages are addressed to, beside the operator."""
        ...

    def pack(self, rows: pa.Table, buckets: Sequence[int]) -> Iterable[Message]:
        """Messages for the buckets, from rows of the input's schema."""
        ...

    def connect(self, operator: str) -> None:
        """Say what the plan calls its operator."""
        ...


class Kernel(Protocol):
    """One operator: its inputs, how its state advances, and when it wants to be woken."""

    #: The channel its results leave on.
    output_channel: str

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One for each input of the operator, in their order."""
        ...

    def step(self, state: BucketState, messages: Sequence[Message], clock: Clock) -> Outcome:
        """Close what is due, ingest what arrived, emit what changed."""
        ...

    def physical_operators(self) -> list[str]:
        """The lines of `explain()`, in the order rows pass them."""
        ...

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Its results, in the schema it promises. Rows of other channels travel as they are."""
        ...


class KeyedKernel(ABC):
    """The template of a step, for operators with one input that keep their state by key."""

    output_channel = MAIN

    def __init__(self, plan: AnyOperator, input: KeyedInput) -> None:
        self.input = input
        self.schema = plan.schema
        self.retracts = plan.retracts
        #: Does `errors` say which results overflow, as Spark's ANSI mode would? They are null anyway.
        self.reports_overflow = True

    @abstractmethod
    def advance(self, context: StepContext, arrivals: Sequence[Arrival]) -> int | None:
        """Close what is due, ingest what arrived, expire what is over; the time of the next due."""

    @abstractmethod
    def physical_operators(self) -> list[str]:
        """The lines of `explain()`, in the order rows pass them."""

    @abstractmethod
    def times(self, results: pa.Table) -> dict[str, pa.Array]:
        """The columns of results that are instants and travel in another form."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (self.input,)

    def step(self, state: BucketState, messages: Sequence[Message], clock: Clock) -> Outcome:
        context = StepContext.begin(state, clock)
        due = self.advance(context, self.input.arrivals(state, messages))
        if self.reports_overflow:
            self._report_overflow(context.outcome)
        if self.retracts:
            context.outcome.tables = retractions_first(context.outcome.tables)
        return context.end(due)

    def unpack(self, tables: Sequence[pa.Table]) -> pa.Table:
        known_keys, rows = tables
        by_key = known_keys.take(rows.column(KEY))
        return in_schema(self.schema, columns_of(rows) | columns_of(by_key) | self.times(rows))

    def _report_overflow(self, outcome: Outcome) -> None:
        """Say which of the emitted results do not fit their types, and are null for that."""
        for channel, (*pointed_into, rows) in [*outcome.tables]:
            if channel != MAIN or OVERFLOW not in rows.column_names:
                continue
            over = rows.column(OVERFLOW).is_valid()
            if self.retracts:
                over = pc.and_(over, pc.invert(pc.starts_with(rows.column(OP.name), "-")))
            rows = rows.filter(over)
            if rows.num_rows:
                texts = row_texts(self.unpack([*pointed_into, rows]))
                table = pa.table([rows.column(OVERFLOW).cast(pa.string()), texts], schema=ERRORS)
                outcome.emit(ERROR_CHANNEL, table)
                outcome.counts["errors"] += rows.num_rows


def columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


def in_schema(schema: pa.Schema, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """Rows of a schema from columns by name; times may be numbers."""
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def retractions_first(tables: list[Sent]) -> list[Sent]:
    """In a batch all retractions come before all other results."""
    retracted, others = [], []
    for channel, (*pointed_into, rows) in tables:
        if channel != MAIN:
            others.append((channel, [*pointed_into, rows]))
            continue
        back = pc.starts_with(rows.column(OP.name), "-")
        retracted.append((channel, [*pointed_into, rows.filter(back)]))
        others.append((channel, [*pointed_into, rows.filter(pc.invert(back))]))
    return [(channel, sent) for channel, sent in retracted + others if sent[-1].num_rows]
