"""How far the sources of a query have come, and with them each of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.plan.graph import SOURCES, graph_of
from tidegate.plan.nodes import Plan, sources_of
from tidegate.plan.watermarks import WatermarkAligner, WatermarkGenerator, WatermarkPropagator


@dataclass
class SourceProgress:
    """A watermark for each source, aligned, and passed on through the operators."""

    generators: list[WatermarkGenerator]
    aligner: WatermarkAligner
    propagator: WatermarkPropagator
    #: When a source last had rows.
    seen_at: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> SourceProgress:
        sources = sources_of(plan)
        return cls(
            [WatermarkGenerator(source.tolerance, as_spark=True) for source in sources],
            WatermarkAligner(tuple(map(str, range(len(sources))))),
            WatermarkPropagator(graph_of(plan)),
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

    def align(self) -> None:
        aligned = self.aligner.watermark
        if aligned is not None:
            self.propagator.advance(SOURCES, aligned)

    def watermarks(self) -> Mapping[str, int | None]:
        """The watermark each operator works by, in its place in the chain."""
        return self.propagator.inputs()

    def metrics(self) -> dict[str, int]:
        seen = [generator.highest for generator in self.generators if generator.highest is not None]
        metrics = {"watermark_emitted_count": sum(one.emitted for one in self.generators)}
        return metrics | ({"max_timestamp_seen": max(seen)} if seen else {})

    def note(self) -> dict[str, dict[str, int | None]]:
        """What the clock needs to know to tell idle sources from others."""
        return {
            str(source): {"watermark": self.generators[source].watermark, "seen_at": at}
            for source, at in self.seen_at.items()
        }
