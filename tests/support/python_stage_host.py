"""A kernel host whose rows take the Python stages of a Spark query, without Spark.

The stages' own code runs on plain frames. Instants that come from Spark are in the session's time zone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate.kernels.contract import Kernel
from tidegate.kernels.messages import Kind, Message, message_batch, messages_in
from tidegate.kernels.routes import Route, gap_at_source, take_steps_or_part
from tidegate.plan.schema import TIMESTAMP
from tidegate.plan.sources import Source
from tidegate.spark.python_stages import MESSAGE, PythonStages, SourceDecoder
from tidegate.spark.sources.invalid_rows import carrier
from tidegate.testing import KernelHost
from tidegate.testing.host import _invalid
from tidegate.testing.table import Row, to_arrow


@dataclass
class Frame:
    """What Python stages need of a DataFrame: one partition, which functions are mapped over."""

    batches: list[pa.RecordBatch]

    def mapInArrow(self, function: Callable[..., Any], schema: Any) -> "Frame":
        promised = to_arrow_schema(schema, timezone="UTC")
        made = list(function(iter(self.batches)))
        for batch in made:
            kept = [(field.name, field.type) for field in batch.schema]
            assert kept == [(field.name, field.type) for field in promised], "what was promised to Spark"
        return Frame(made if schema == MESSAGE else [_in_the_session(batch) for batch in made])

    def messages(self) -> list[Message]:
        return [message for batch in self.batches for message in messages_in(batch)]


def _in_the_session(rows: Any) -> Any:
    """Rows as Spark hands them over: instants in the zone of the session."""
    zoned = [
        one.cast(pa.timestamp("us", "Asia/Kolkata")) if one.type == TIMESTAMP else one
        for one in rows.columns
    ]
    return type(rows).from_arrays(zoned, rows.schema.names)


class PythonStageHost(KernelHost):
    """Rows, and results of operators, take the Python stages of a plan, fused as it says."""

    def _pack(
        self, source: Source, routes: Sequence[Route], rows: Sequence[Row], packs: int
    ) -> Iterator[Message]:
        marks, gap, apart = carrier(source), gap_at_source(routes), take_steps_or_part(routes)
        fields = {field.name: field for field in source.schema}
        named = {source.time: fields[source.time]} | fields | {marks: pa.field(marks, pa.string())}
        enter = SourceDecoder(0, pa.schema(named.values()), marks, list(self._labels), apart)
        size = -(-len(rows) // packs)
        for sender, start in enumerate(range(0, len(rows), size or 1)):
            some = (
                row | {marks: _invalid(row, source.time, gap) or row.get(marks)}
                for row in rows[start : start + size]
            )
            table = to_arrow(some, pa.schema(named.values()))
            numbered = table.rename_columns([f"c{place}" for place in range(len(named))])
            packed = self._crossings.pack(Frame(_in_the_session(numbered).to_batches()), enter, routes)
            for message in packed.messages():
                if message.kind != Kind.HIGH_WATER_MARK:
                    yield message._replace(sender=sender)

    def _repack(
        self, above: Kernel, routes: Sequence[Route], messages: Iterable[Message]
    ) -> Iterator[Message]:
        given = list(messages)
        if not routes:
            return iter(given)
        frame = Frame([message_batch(given)])
        return iter(self._crossings.repack(frame, above, routes).messages())

    @property
    def _crossings(self) -> PythonStages:
        return PythonStages(list(self._labels))
