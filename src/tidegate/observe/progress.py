"""How far the sources of a query have come, and with them each of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.dataflow import Dataflow
from tidegate.dataflow.watermarks import SparkWatermarkGenerator, WatermarkAligner


@dataclass
class SourceProgress:
    """A watermark for each source, aligned; operators work by the aligned one, each with its delay."""

    generators: list[SparkWatermarkGenerator]
    aligner: WatermarkAligner[int]
    #: By operator.
    delays: Mapping[str, int]
    #: When a source last had rows.
    seen_at: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, dataflow: Dataflow) -> SourceProgress:
        sources = dataflow.sources
        return cls(
            [SparkWatermarkGenerator(source.tolerance) for source in sources],
            WatermarkAligner(map(str, range(len(sources)))),
            {vertex.name: vertex.delay for vertex in dataflow.vertices},
        )

    def observe(self, source: int, time: int, now: int | None) -> None:
        """The highest time of a batch's rows; a heartbeat has no `now`, since no rows came."""
        generator = self.generators[source]
        if now is None:
            generator.advance(time)
        else:
            generator.observe([time])
            self.seen_at[source] = now
        self.aligner.update(str(source), generator.watermark)

    def watermarks(self) -> dict[str, int | None]:
        """The watermark each operator works by."""
        aligned = self.aligner.watermark
        return {
            name: None if aligned is None else aligned - delay for name, delay in self.delays.items()
        }

    def metrics(self) -> dict[str, int]:
        seen = [generator.highest for generator in self.generators if generator.highest is not None]
        metrics = {"watermark_emitted_count": sum(one.emitted for one in self.generators)}
        return metrics | ({"max_timestamp_seen": max(seen)} if seen else {})

    def metadata(self) -> dict[str, dict[str, int | None]]:
        """What the clock needs to know to tell idle sources from others."""
        return {
            str(source): {"watermark": self.generators[source].watermark, "seen_at": at}
            for source, at in self.seen_at.items()
        }
