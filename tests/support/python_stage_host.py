"""A kernel host whose rows take the Python stages of a Spark query, without Spark.

The stages' own code runs on plain frames. Instants that come from Spark are in the session's time zone.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate.operators.kernel import HIGHEST, Kernel, Parcel
from tidegate.operators.ways import Way, gap_at_source, take_steps_or_part
from tidegate.plan.columns import TIMESTAMP
from tidegate.plan.feeds import Source
from tidegate.spark.crossing import _PARCEL_ARROW, Crossings, Entrance
from tidegate.spark.processor import PARCEL
from tidegate.spark.sources import _carrier
from tidegate.testing import KernelHost
from tidegate.testing.host import _broken
from tidegate.testing.table import Row, to_arrow


@dataclass
class Frame:
    """What crossings need of a DataFrame: one partition, which functions are mapped over."""

    batches: list[pa.RecordBatch]

    def mapInArrow(self, function: Callable[..., Any], schema: Any) -> "Frame":
        promised = _PARCEL_ARROW if schema == PARCEL else to_arrow_schema(schema, timezone="UTC")
        made = list(function(iter(self.batches)))
        for batch in made:
            kept = [(field.name, field.type) for field in batch.schema]
            assert kept == [(field.name, field.type) for field in promised], "what was promised to Spark"
        return Frame(made if schema == PARCEL else [_in_the_session(batch) for batch in made])

    def parcels(self) -> list[Parcel]:
        return [Parcel(**row) for batch in self.batches for row in batch.to_pylist()]


def _in_the_session(rows: Any) -> Any:
    """Rows as Spark hands them over: instants in the zone of the session."""
    zoned = [
        one.cast(pa.timestamp("us", "Asia/Kolkata")) if one.type == TIMESTAMP else one
        for one in rows.columns
    ]
    return type(rows).from_arrays(zoned, rows.schema.names)


class PythonStageHost(KernelHost):
    """Rows, and results of operators, take the crossings of a plan, fused as it says."""

    def _pack(
        self, source: Source, ways: Sequence[Way], rows: Sequence[Row], packs: int
    ) -> Iterator[Parcel]:
        carrier, gap, apart = _carrier(source), gap_at_source(ways), take_steps_or_part(ways)
        fields = {field.name: field for field in source.schema}
        named = {source.time: fields[source.time]} | fields | {carrier: pa.field(carrier, pa.string())}
        enter = Entrance(0, pa.schema(named.values()), carrier, list(self._labels), apart)
        size = -(-len(rows) // packs)
        for sender, start in enumerate(range(0, len(rows), size or 1)):
            some = (
                row | {carrier: _broken(row, source.time, gap) or row.get(carrier)}
                for row in rows[start : start + size]
            )
            table = to_arrow(some, pa.schema(named.values()))
            numbered = table.rename_columns([f"c{place}" for place in range(len(named))])
            packed = self._crossings.pack(Frame(_in_the_session(numbered).to_batches()), enter, ways)
            for parcel in packed.parcels():
                if not parcel.channel.startswith(HIGHEST):
                    yield replace(parcel, sender=sender)

    def _repack(self, above: Kernel, ways: Sequence[Way], parcels: Iterable[Parcel]) -> Iterator[Parcel]:
        given = list(parcels)
        if not ways:
            return iter(given)
        frame = Frame([pa.RecordBatch.from_pylist([vars(one) for one in given], _PARCEL_ARROW)])
        return iter(self._crossings.repack(frame, above, ways).parcels())

    @property
    def _crossings(self) -> Crossings:
        return Crossings(list(self._labels))
